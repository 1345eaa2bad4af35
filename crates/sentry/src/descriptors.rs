//! How the process's file descriptors are divided: some for everything else, and of the others half for clients, in
//! equal parts by application, and half for servers.
//!
//! A request takes one of each half, so clients cannot take what their requests need on the way to a server. Neither
//! half can take what is kept for health checks, the admin API, the access log, reports and the control plane.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::app::App;

/// Descriptors that neither clients nor servers take; a quarter of all, where that is less.
const RESERVED: u64 = 256;

/// With descriptors for fewer connections than this, somebody should do something.
const FEW: u64 = 1024;

/// Connections of clients that each of so many applications has descriptors for. Raises the process's limit first, as
/// far as the system lets it.
pub(crate) fn connections_each(applications: usize) -> u64 {
    each(raised(), applications)
}

fn each(all: u64, applications: usize) -> u64 {
    let reserved = (all / 4).min(RESERVED);
    ((all - reserved) / 2 / applications.max(1) as u64).max(1)
}

/// The limit on descriptors, as high as it may be.
fn raised() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it is not permitted, what is there is what is divided.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Says where there are fewer descriptors than an application may have connections.
pub(crate) fn say(app: &App, applications: usize, most_connections: u64) {
    let limit = app.live().config.limits.connections as u64;
    if most_connections >= limit {
        return;
    }
    let needed = limit.saturating_mul(2).saturating_mul(applications as u64).saturating_add(RESERVED);
    let app = app.name();
    if most_connections < FEW {
        warn!(
            app,
            limit, most_connections, needed, "there are few descriptors: raise the limit (LimitNOFILE=, ulimit -Hn)"
        );
    } else {
        info!(app, limit, most_connections, needed, "there are descriptors for fewer connections");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_enough_for_their_servers_and_for_everything_else() {
        for (all, applications) in [(64, 1), (1024, 1), (1024, 3), (262_144, 2), (u64::MAX, 1)] {
            let clients = each(all, applications) * applications as u64;
            assert!(clients >= 1 && all - 2 * clients >= (all / 4).min(RESERVED), "{clients} of {all}");
        }
        assert_eq!(each(1024, 1), 384);
        assert_eq!(each(0, 3), 1);
    }
}
