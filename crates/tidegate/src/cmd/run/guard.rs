//! What a sentry gives up before it hears of any client.

use std::process::Command;

use tidegate_sentry::config::{Config, SynWith};
use tidegate_sentry::sockets::Sockets;
use tidegate_sentry::syn_policing::{Helper, privilege};
use tracing::warn;

/// Gives up the right to change packet filters. Where connections are to be policed in the kernel, a process is started
/// before that has this right and no other, unless `given` leads to one. To be called before there are threads.
pub(super) fn give_up_policing(config: &Config, given: &mut Sockets) {
    let helper = given.take_named(Helper::NAME).pop().and_then(Helper::adopt);
    let helper = match helper {
        None if polices(config) && privilege::may_police() => start(),
        helper => helper,
    };
    if let Some(helper) = helper {
        match helper.door().try_clone_to_owned() {
            Ok(door) => given.add(Helper::NAME, door),
            Err(error) => warn!(target: "tidegate", "connections are not policed in the kernel: {error}"),
        }
    }
    if let Err(error) = privilege::give_up_policing() {
        warn!(target: "tidegate", "CAP_NET_ADMIN cannot be given up: {error}");
    }
}

/// Whether an application is to be policed by the kernel, if it can be done.
fn polices(config: &Config) -> bool {
    config.applications.iter().any(|app| {
        matches!(app.syn.with, SynWith::Auto | SynWith::Nftables) && app.setup.demands().connections.is_some()
    })
}

fn start() -> Option<Helper> {
    let started = Helper::start(Command::new("/proc/self/exe").arg("police"));
    started
        .inspect_err(|error| {
            warn!(target: "tidegate", "connections are not policed in the kernel: its helper does not start: {error}");
        })
        .ok()
}
