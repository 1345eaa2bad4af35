//! Names: each application's sentries by DNS.
//!
//! | file | question |
//! |---|---|
//! | `roll.rs` | which sentries are in the answer |
//! | `zone.rs` | what the answer to a query is: pure |
//! | `serve.rs` | how queries come and answers go: UDP and TCP |
//! | `limit.rs` | how many answers a network gets by UDP: pure |
//!
//! A thread of its own answers, so that a flood of queries takes nothing from deciding, and a slow disk nothing from
//! answering.

mod limit;
mod roll;
mod serve;
mod zone;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use hickory_server::proto::rr::Name;
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::error;

use serve::Limited;
use zone::Zone;

pub(crate) use roll::{Candidate, roll};

/// The sentries in an application's answer: their names and addresses.
pub type Roll = Vec<(String, Vec<IpAddr>)>;

/// The name under which a server of this zone answers, where none is given.
const OWN_LABEL: &str = "ns";

/// Answers to DNS queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Dns {
    /// Where queries come to, by UDP and by TCP.
    pub listen: SocketAddr,
    /// The zone: applications are names in it.
    pub zone: Name,
    /// How long an answer may be kept, whole seconds.
    pub ttl: Duration,
    /// The names of the zone's servers, at least one.
    pub name_servers: Vec<Name>,
}

/// Answers queries until it is dropped.
#[derive(Debug)]
pub struct Names {
    zone: Arc<RwLock<Zone>>,
    limited: Arc<Limited>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why names cannot be answered.
#[derive(Debug, Error)]
#[error("cannot answer DNS queries on {listen}: {source}; check listen in [dns]")]
pub struct NamesError {
    listen: SocketAddr,
    source: io::Error,
}

impl Names {
    /// Starts to answer for these applications, of which no address is known yet. `serial` begins the zone's versions:
    /// seconds since 1970, so that they go on over a restart.
    ///
    /// # Errors
    /// When its address cannot be listened on, by UDP and by TCP, or its thread not be started.
    pub fn start(dns: &Dns, applications: &[String], serial: u32) -> Result<Names, NamesError> {
        let failed = |source| NamesError { listen: dns.listen, source };
        let zone = Arc::new(RwLock::new(Zone::new(dns, applications, serial)));
        let sockets = serve::Sockets::bind(dns.listen).map_err(failed)?;
        let address = sockets.address().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let limited = Arc::new(Limited::default());
        let (shared, counts) = (zone.clone(), limited.clone());
        let thread = std::thread::Builder::new().name(String::from("tidegate-names"));
        let thread = thread.spawn(move || {
            if let Err(error) = runtime.block_on(serve::serve(sockets, shared, counts, stopped)) {
                error!(%address, "DNS queries are not answered any more: {error}");
            }
        });
        Ok(Names { zone, limited, address, stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }

    /// From now on these are an application's addresses; none leave its last ones.
    pub fn set(&self, application: usize, addresses: &[IpAddr]) {
        self.zone.write().unwrap_or_else(PoisonError::into_inner).set(application, addresses);
    }

    /// Answers by UDP that were sent without what was asked for, and such that were not sent, because their network got
    /// too many; since the start.
    pub fn limited(&self) -> (u64, u64) {
        (self.limited.truncated.load(Relaxed), self.limited.dropped.load(Relaxed))
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// What `[dns]` says, checked against the applications.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn resolve(
    listen: SocketAddr,
    zone: &str,
    ttl: f64,
    name_servers: &[String],
    applications: &[impl AsRef<str>],
) -> Result<Dns, String> {
    let parse = |key: &str, text: &str| {
        let name = Name::from_ascii(text).map_err(|error| format!("[dns] {key}: \"{text}\" is no name: {error}"));
        name.map(|mut name| {
            name.set_fqdn(true);
            name.to_lowercase()
        })
    };
    let zone = parse("zone", zone)?;
    if zone.is_root() {
        return Err(String::from("[dns] zone must be a domain of your own, such as \"sentries.example.com\""));
    }
    if !(0.0..=86_400.0).contains(&ttl) {
        return Err(String::from("[dns] ttl must be from 0s to a day"));
    }
    let mut servers = Vec::new();
    for text in name_servers {
        let server = parse("name_servers", text)?;
        if zone.zone_of(&server) {
            return Err(format!(
                "[dns] name_servers: \"{text}\" is within the zone, which has no address for it; name one elsewhere, or \
                 leave name_servers out for {OWN_LABEL}.{zone}"
            ));
        }
        servers.push(server);
    }
    let mut labels: Vec<String> = applications.iter().map(|name| name.as_ref().to_lowercase()).collect();
    if let Some(bad) = labels.iter().find(|label| !is_label(label)) {
        return Err(format!(
            "[dns]: application \"{bad}\" cannot be a name: letters, digits and hyphens, at most 63, no hyphen at an end"
        ));
    }
    labels.sort_unstable();
    if let Some(twice) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("[dns]: two applications are called \"{}\", which DNS takes for one name", twice[0]));
    }
    if servers.is_empty() {
        if labels.iter().any(|label| label == OWN_LABEL) {
            return Err(format!("[dns]: \"{OWN_LABEL}\" is this server's own name; give name_servers, or rename it"));
        }
        servers.push(zone.prepend_label(OWN_LABEL).map_err(|error| format!("[dns] zone: {error}"))?);
    }
    for label in &labels {
        zone.prepend_label(label.as_str()).map_err(|error| format!("[dns]: application \"{label}\": {error}"))?;
    }
    Ok(Dns { listen, zone, ttl: Duration::from_secs(ttl.ceil() as u64), name_servers: servers })
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    inner && (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(zone: &str, ttl: f64, servers: &[&str], applications: &[&str]) -> String {
        let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
        resolve(SocketAddr::from(([127, 0, 0, 1], 53)), zone, ttl, &servers, applications).expect_err("is wrong")
    }

    #[test]
    fn what_cannot_be_a_name_is_said() {
        assert!(wrong("a..b", 5.0, &[], &["shop"]).contains("\"a..b\" is no name"));
        assert!(wrong(".", 5.0, &[], &["shop"]).contains("a domain of your own"));
        assert!(wrong("z.test", -1.0, &[], &["shop"]).contains("from 0s to a day"));
        assert!(wrong("z.test", f64::NAN, &[], &["shop"]).contains("from 0s to a day"));
        assert!(wrong("z.test", 5.0, &["ns1.Z.test"], &["shop"]).contains("ns.z.test."));
        assert!(wrong("z.test", 5.0, &[], &["my shop"]).contains("\"my shop\" cannot be a name"));
        assert!(wrong("z.test", 5.0, &[], &["-shop"]).contains("no hyphen at an end"));
        assert!(wrong("z.test", 5.0, &[], &["shop", "Shop"]).contains("which DNS takes for one name"));
        assert!(wrong("z.test", 5.0, &[], &["ns"]).contains("this server's own name"));
        let long = ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60)].join(".");
        assert!(wrong(&long, 5.0, &[], &["a-rather-long-name"]).contains("application \"a-rather-long-name\""));
    }

    #[test]
    fn a_short_table_is_complete() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 53));
        let dns = resolve(listen, "Z.test", 2.5, &[], &["shop"]).expect("is right");
        assert_eq!((dns.zone.to_string(), dns.ttl), (String::from("z.test."), Duration::from_secs(3)));
        assert_eq!(dns.name_servers[0].to_string(), "ns.z.test.");
        let elsewhere = resolve(listen, "z.test", 5.0, &[String::from("ns1.example.com")], &["ns"]).expect("is right");
        assert_eq!(elsewhere.name_servers[0].to_string(), "ns1.example.com.");
    }
}
