//! The files of an endurance run's processes.

use std::net::SocketAddr;
use std::path::Path;

/// Where one sentry is, and what it writes.
pub struct Places<'a> {
    /// For clients.
    pub listen: SocketAddr,
    /// For us.
    pub admin: SocketAddr,
    /// For nuclei.
    pub reports: SocketAddr,
    /// Where its access log goes.
    pub access_log: &'a Path,
}

/// Who tells the sentry what its servers are.
pub enum Servers<'a> {
    /// Its file.
    Own(&'a [SocketAddr]),
    /// The control plane there.
    Ordered(SocketAddr),
}

/// A sentry's file; `ears`: where it hears of its peers, and where all of them do.
pub fn of_sentry(
    places: &Places,
    servers: &Servers,
    ears: Option<(SocketAddr, [SocketAddr; 2])>,
    guarantee: usize,
) -> String {
    let Places { listen, admin, reports, access_log } = places;
    let peers = ears.map_or_else(String::new, |(own, all)| {
        format!("[peers]\nlisten = \"{own}\"\nsentries = {}\nkey_file = \"key\"\n", list(&all))
    });
    let (control, servers) = match servers {
        Servers::Own(servers) => (String::new(), format!("servers = {}\n", list(servers))),
        Servers::Ordered(by) => {
            (format!("[control]\nconnect = \"{by}\"\nkey_file = \"key\"\nname = \"first\"\n"), String::new())
        }
    };
    format!(
        "access_log = \"{}\"\n[sentry]\nworkers = 1\n[admin]\nlisten = \"{admin}\"\n\
         [reports]\nlisten = \"{reports}\"\nkey_file = \"key\"\n{peers}{control}\
         [[application]]\nname = \"soak\"\nlisten = \"{listen}\"\n{servers}target = \"500ms\"\n\
         health = {{ interval = \"500ms\" }}\n\
         [[application.class]]\nname = \"gold\"\nmin_rate = \"{guarantee}/s\"\nmatch = {{ path = \"/gold\" }}\n\
         [[application.class]]\nname = \"low\"\n",
        access_log.display(),
    )
}

/// The control plane's file: all servers always, and a target by which it is seen which orders are in force.
pub fn of_control(listen: SocketAddr, admin: SocketAddr, servers: &[SocketAddr], target_ms: u64) -> String {
    let count = servers.len();
    format!(
        "listen = \"{listen}\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nstore = \"control.redb\"\nperiod = \"200ms\"\n\
         [provider]\nkind = \"static\"\naddresses = {}\n\
         [[application]]\nname = \"soak\"\ntarget = \"{target_ms}ms\"\nservers = {count}\nmin_servers = {count}\n\
         revenues = [10.0, 1.0]\n",
        list(servers),
    )
}

fn list(addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", all.join(", "))
}
