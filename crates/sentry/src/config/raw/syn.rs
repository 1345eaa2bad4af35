//! What is typed of new connections.

use tidegate_config::{List, section};

section! {
    pub(in crate::config) struct RawSynPolicing ("in [application.syn_policing]") {
        /// `"auto"`: the kernel (nftables) if possible, else the workers; or `"nftables"`, `"accept-and-reset"`,
        /// `"off"`. Default: `"auto"`.
        with: String,
        /// Refuse to start if the kernel cannot do it. Default: `false`.
        required: bool,
        /// Classes of clients with their own part of the rate. Default: none.
        class: List<RawSynClass>,
        /// Part of all other clients, in proportion to the classes' shares. Default: `1.0`.
        rest_share: f64,
        /// Networks whose connections are never refused, such as load balancers that check health. Default: none.
        exempt: List<String>,
    }
}

section! {
    pub(in crate::config) struct RawSynClass ("in [[application.syn_policing.class]]") {
        /// What it is called. Required.
        name: String,
        /// Where its clients are: `"10.0.0.0/8"` or an address, or several. Required.
        network: List<String>,
        /// Its part of the rate, in proportion to the others'. Default: `1.0`.
        share: f64,
    }
}
