//! What is typed of handing over to a successor.

use tidegate_config::{Time, section};

section! {
    pub(in crate::config) struct RawUpgrade ("in [upgrade]") {
        /// Path of a Unix socket at which `tidegate upgrade` asks for a successor, and from which a process started
        /// with `--take-over` takes over: root's and the owner's alone. Restart to change. Default: `upgrade.sock`
        /// in the folder that systemd gives (`RuntimeDirectory=`), else none: a signal, SIGUSR2, asks, too.
        socket: String,
        /// A successor that is not ready in this time is ended, and this process goes on. Default: `"60s"`.
        timeout: Time,
        /// Over so long clients are told to end their connections to a process that has a successor, one after the
        /// other. Default: `"10s"`.
        spread: Time,
    }
}
