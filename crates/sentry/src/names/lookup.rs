//! Looking names up: `/etc/hosts` first, then DNS, as `/etc/resolv.conf` or the configuration says.
//!
//! *Awkward cases.* Both files are read again when they change. Who is in `/etc/hosts` is not asked for elsewhere. An
//! address to which this machine has no way is left out: names have IPv6 addresses where sentries have no IPv6. Of SRV
//! records those of the first priority count; the others are for when these are gone, which health checks know better.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, Resolver, ResolverBuilder, TokioResolver};

use super::course::{Answer, Belief, Good, HOLD, MOST, Member, Missing};
use super::pods::{self, Service};
use crate::config::{PeerPlace, Place};
use crate::reload::{Print, print};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// Where name servers listen.
const DNS: u16 = 53;

/// How long a name server has for an answer, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 2;

/// What `/etc/hosts` says is looked at again after this time.
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// A server's weight in an SRV record whose weight is 0, beside others that have some.
const LEAST_WEIGHT: f64 = 0.1;

/// So many pods of a service are used at most, as servers.
const MOST_PODS: usize = 1024;

/// A name to look up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Named {
    /// All addresses of a name, on a port.
    Host { name: String, port: u16 },
    /// Where the SRV records of a name say.
    Service(String),
    /// The pods of a service of Kubernetes, which are not looked up but followed.
    Pods(Service),
}

impl Named {
    /// The name in an address without its scheme; `None`: there is none in it.
    pub(crate) fn of(at: &str) -> Option<Named> {
        match Place::of(at).ok()? {
            Place::Host { name, port } => Some(Named::Host { name: name.to_owned(), port }),
            Place::Service(name) => Some(Named::Service(name.to_owned())),
            Place::Pods(pods) => Some(Named::Pods(Service::new(pods))),
            Place::Address(_) | Place::Socket(_) | Place::Behind(_) => None,
        }
    }

    /// How much of what is said of it is believed, at least.
    pub(super) fn belief(&self) -> Belief {
        match self {
            Named::Host { .. } | Named::Service(_) => Belief::default(),
            Named::Pods(_) => Belief { most: MOST_PODS, hold: HOLD },
        }
    }

    /// What to do when it leads nowhere.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Named::Host { .. } | Named::Service(_) => "correct the name, or what DNS says of it; it is asked for again",
            Named::Pods(_) => "correct the name, or let pods be ready; they are watched",
        }
    }

    /// The name by which other sentries are found; `None`: they are at an address.
    pub(crate) fn of_peers(place: &PeerPlace) -> Option<Named> {
        match place {
            PeerPlace::Host { name, port } => Some(Named::Host { name: name.clone(), port: *port }),
            PeerPlace::Address(_) => None,
        }
    }
}

/// Where names are looked up, and how.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The name servers; none: those of `/etc/resolv.conf`.
    resolvers: Vec<SocketAddr>,
    made_of: Option<[Option<Print>; 2]>,
    made: Option<Arc<Asker>>,
}

/// Looks names up.
#[derive(Debug)]
pub(crate) struct Asker {
    resolver: Result<TokioResolver, String>,
    hosts: Hosts,
}

impl Source {
    /// By these name servers from now on; none: those of `/etc/resolv.conf`.
    pub(crate) fn ask(&mut self, resolvers: &[SocketAddr]) {
        if self.resolvers != resolvers {
            resolvers.clone_into(&mut self.resolvers);
            self.made = None;
        }
    }

    /// Who looks names up as the files say now. In a runtime.
    pub(crate) fn asker(&mut self) -> Arc<Asker> {
        let now = [print(Path::new(RESOLV_CONF)), print(Path::new(HOSTS))];
        if self.made_of.as_ref() != Some(&now) {
            (self.made_of, self.made) = (Some(now), None);
        }
        let make = || {
            // Without that file nobody is in it.
            let hosts = Hosts::from_system().unwrap_or_default();
            Arc::new(Asker { resolver: resolver(&self.resolvers), hosts })
        };
        self.made.get_or_insert_with(make).clone()
    }
}

fn resolver(name_servers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let mut builder = if name_servers.is_empty() {
        let unread = |error: String| format!("{RESOLV_CONF}: {error}; give [sentry] resolvers");
        of_this_machine().map_err(unread)?
    } else {
        let servers = name_servers.iter().copied().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options: &mut ResolverOpts = builder.options_mut();
    (options.timeout, options.attempts) = (PATIENCE, TRIES);
    // How long answers are good is our own business, and so is that file.
    (options.cache_size, options.use_hosts_file) = (0, ResolveHosts::Never);
    builder.build().map_err(|error| error.to_string())
}

/// As `/etc/resolv.conf` says.
fn of_this_machine() -> Result<ResolverBuilder<TokioRuntimeProvider>, String> {
    let text = std::fs::read(RESOLV_CONF).map_err(|error| error.to_string())?;
    let said = resolv_conf::Config::parse(text).map_err(|error| error.to_string())?;
    let servers = said.nameservers.iter().map(|ip| name_server(SocketAddr::new(ip.into(), DNS))).collect::<Vec<_>>();
    if servers.is_empty() {
        return Err("it names no name server".to_owned());
    }
    let search = said.get_last_search_or_domain().filter_map(|domain| Name::from_str_relaxed(domain).ok()).collect();
    let config = ResolverConfig::from_parts(None, search, servers);
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.options_mut().ndots = said.ndots as usize;
    Ok(builder)
}

/// A name server, asked by UDP, and by TCP where that is not enough.
fn name_server(address: SocketAddr) -> NameServerConfig {
    let on_port = |mut way: ConnectionConfig| {
        way.port = address.port();
        way
    };
    let ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(on_port);
    NameServerConfig::new(address.ip(), true, ways.into())
}

/// Why there are no addresses.
enum Trouble {
    Nothing(String),
    Failed(String),
}

/// Addresses of a host.
struct Addresses {
    all: Vec<IpAddr>,
    ttl: Duration,
    missing: Option<Missing>,
}

impl Asker {
    /// Everything that a name leads to now.
    pub(crate) async fn look_up(&self, named: &Named) -> Answer {
        let found = match named {
            Named::Host { name, port } => self.host(name).await.map(|found| {
                let member = |ip: &IpAddr| Member { address: SocketAddr::new(*ip, *port), weight: 1.0 };
                let members = found.all.iter().map(member).collect();
                Good { members, ttl: found.ttl, missing: found.missing, left_out: 0 }
            }),
            Named::Service(name) => self.service(name).await,
            Named::Pods(service) => return pods::look_up(service).await,
        };
        match found {
            Ok(good) => Answer::Found(reachable(good)),
            Err(Trouble::Nothing(why)) => Answer::Nothing(why),
            Err(Trouble::Failed(why)) => Answer::Failed(why),
        }
    }

    async fn host(&self, name: &str) -> Result<Addresses, Trouble> {
        let parsed = parse(name)?;
        if let Some(all) = self.in_hosts(&parsed) {
            return Ok(Addresses { all, ttl: HOSTS_TTL, missing: None });
        }
        let (v4, v6) = tokio::join!(self.records(&parsed, RecordType::A), self.records(&parsed, RecordType::AAAA));
        let missing = match (&v4, &v6) {
            (Err(Trouble::Failed(_)), Ok(_)) => Some(Missing::V4),
            (Ok(_), Err(Trouble::Failed(_))) => Some(Missing::V6),
            _ => None,
        };
        let (records, ttl) = match (v4, v6) {
            (Ok((mut v4, one)), Ok((v6, other))) => {
                v4.extend(v6);
                (v4, one.min(other))
            }
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => found,
            (Err(Trouble::Failed(why)), _) | (_, Err(Trouble::Failed(why))) => return Err(Trouble::Failed(why)),
            (Err(why), Err(_)) => return Err(why),
        };
        let all = records.iter().filter_map(RData::ip_addr).collect();
        Ok(Addresses { all, ttl, missing })
    }

    /// What `/etc/hosts` says of a name; `None`: nothing.
    fn in_hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let of = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
        let all = found.flat_map(|lookup| lookup.answers().iter().filter_map(|r| r.data.ip_addr()).collect::<Vec<_>>());
        Some(all.collect()).filter(|all: &Vec<_>| !all.is_empty())
    }

    async fn service(&self, name: &str) -> Result<Good, Trouble> {
        let (records, mut ttl) = self.records(&parse(name)?, RecordType::SRV).await?;
        let services = first_priority(&records);
        let hosts = join_all(services.iter().map(|service| self.host_of(&service.target))).await;
        let mut members = Vec::new();
        let (mut missing, mut why) = (None, None);
        for (service, host) in services.iter().zip(hosts) {
            match host {
                Ok(host) => {
                    ttl = ttl.min(host.ttl);
                    missing = missing.or(host.missing);
                    let weight = f64::from(service.weight) / host.all.len().max(1) as f64;
                    let at = |ip: IpAddr| Member { address: SocketAddr::new(ip, service.port), weight };
                    members.extend(host.all.into_iter().map(at));
                }
                Err(Trouble::Failed(failed)) => (missing, why) = (Some(Missing::Some), Some(Trouble::Failed(failed))),
                Err(nothing) => why = why.or(Some(nothing)),
            }
        }
        if members.is_empty() {
            return Err(
                why.unwrap_or_else(|| Trouble::Nothing(format!("\"{name}\" is not to be had: its target is \".\"")))
            );
        }
        weigh(&mut members);
        Ok(Good { members, ttl, missing, left_out: 0 })
    }

    async fn host_of(&self, target: &Name) -> Result<Addresses, Trouble> {
        self.host(&target.to_utf8()).await
    }

    /// The records of a kind, and how long they are good for; never none.
    async fn records(&self, name: &Name, kind: RecordType) -> Result<(Vec<RData>, Duration), Trouble> {
        let resolver = self.resolver.as_ref().map_err(|why| Trouble::Failed(why.clone()))?;
        let found = resolver.lookup(name.clone(), kind).await.map_err(|error| trouble_of(name, &error))?;
        let ttl = found.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
        let records: Vec<RData> =
            found.answers().iter().filter(|r| r.record_type() == kind).map(|r| r.data.clone()).collect();
        if records.is_empty() {
            return Err(Trouble::Nothing(format!("\"{name}\" has no {kind} record")));
        }
        Ok((records, Duration::from_secs(ttl.into())))
    }
}

fn parse(name: &str) -> Result<Name, Trouble> {
    Name::from_utf8(name).map_err(|error| Trouble::Nothing(format!("\"{name}\" is no name: {error}")))
}

fn trouble_of(name: &Name, error: &NetError) -> Trouble {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            Trouble::Nothing(format!("there is no \"{name}\""))
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
            Trouble::Nothing(format!("\"{name}\" has no address"))
        }
        error => Trouble::Failed(error.to_string()),
    }
}

/// The records of the first priority; none whose target is the root, which says that there is no such service.
fn first_priority(records: &[RData]) -> Vec<&SRV> {
    let mut all = Vec::new();
    for data in records {
        if let RData::SRV(service) = data {
            all.push(service);
        }
    }
    let first = all.iter().map(|service: &&SRV| service.priority).min();
    let wanted = |service: &&SRV| Some(service.priority) == first && !service.target.is_root();
    all.into_iter().filter(wanted).take(MOST).collect()
}

/// Makes the weights of SRV records, of which only the proportions mean something, 1 on the average.
fn weigh(members: &mut [Member]) {
    let most = members.iter().fold(0.0, |most: f64, member| most.max(member.weight));
    for member in &mut *members {
        member.weight = if most == 0.0 { 1.0 } else { member.weight.max(LEAST_WEIGHT) };
    }
    let mean = members.iter().map(|member| member.weight).sum::<f64>() / members.len().max(1) as f64;
    members.iter_mut().for_each(|member| member.weight /= mean);
}

/// Leaves addresses out to which there is no way; none where there is a way to none.
fn reachable(good: Good) -> Good {
    let before = good.members.len();
    let members: Vec<_> = good.members.iter().copied().filter(|member| has_way(member.address)).collect();
    if members.is_empty() {
        return good;
    }
    Good { left_out: before - members.len(), members, ..good }
}

/// Whether this machine has a way to an address. Nothing is sent: to connect a datagram socket only looks for the way.
fn has_way(address: SocketAddr) -> bool {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    UdpSocket::bind(any).is_ok_and(|socket| socket.connect(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(given: &[f64]) -> Vec<f64> {
        let member = |weight: &f64| Member { address: ([10, 0, 0, 1], 80).into(), weight: *weight };
        let mut members: Vec<_> = given.iter().map(member).collect();
        weigh(&mut members);
        members.iter().map(|member| member.weight).collect()
    }

    #[test]
    fn weights_are_1_on_the_average() {
        assert_eq!(weights(&[0.0, 0.0]), [1.0, 1.0]);
        assert_eq!(weights(&[10.0, 30.0]), [0.5, 1.5]);
        let of_zero = weights(&[0.0, 1.9]);
        assert!((of_zero[0] - 0.1).abs() < 1e-9 && (of_zero[1] - 1.9).abs() < 1e-9, "{of_zero:?}");
    }

    #[test]
    fn of_srv_records_the_first_priority_counts() {
        let record =
            |priority, target: &str| RData::SRV(SRV::new(priority, 1, 80, Name::from_utf8(target).expect("a name")));
        let records = [record(10, "b."), record(5, "a."), record(5, "c.")];
        let targets: Vec<_> = first_priority(&records).iter().map(|service| service.target.to_utf8()).collect();
        assert_eq!(targets, ["a.", "c."]);
        assert!(first_priority(&[record(0, ".")]).is_empty(), "there is no such service");
    }

    #[test]
    fn there_is_a_way_to_this_machine() {
        assert!(has_way(([127, 0, 0, 1], 80).into()));
    }
}
