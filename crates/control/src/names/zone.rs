//! Answers to DNS queries for the zone. Pure.
//!
//! *Intuition.* A zone with one name for each application, whose addresses are its sentries', each time beginning with
//! the next one: clients take the first. The zone's SOA record goes with every "no", so that resolvers keep the "no"
//! as short as they would have kept a "yes" (RFC 2308).
//!
//! *Awkward cases.* An application of which no sentry was ever known is a failure, not a "no": a "no" would be kept
//! after the first one came. Who asks for anything (ANY) gets one set of records (RFC 8482). Zones are not handed over.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hickory_server::proto::op::{LowerQuery, ResponseCode};
use hickory_server::proto::rr::rdata::{A, AAAA, NS, SOA};
use hickory_server::proto::rr::{DNSClass, LowerName, Name, RData, Record, RecordType};

use crate::names::Dns;

/// What secondaries would go by, seconds: refresh, retry, expire. There are none; every SOA record has them.
const TIMERS: (i32, i32, i32) = (3600, 600, 86_400);

/// The zone.
#[derive(Debug)]
pub(super) struct Zone {
    origin: LowerName,
    name_servers: Vec<Name>,
    ttl: u32,
    serial: u32,
    names: HashMap<LowerName, usize>,
    sets: Vec<Set>,
}

/// What to say to a query.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: ResponseCode,
    /// Whether the name is of this zone.
    pub(super) is_ours: bool,
    pub(super) records: Vec<Record>,
    /// The zone's SOA record, where the answer is a "no".
    pub(super) soa: Option<Record>,
}

/// Addresses of a name, by their kinds.
#[derive(Debug, Default)]
struct Set {
    v4: Wheel<Ipv4Addr>,
    v6: Wheel<Ipv6Addr>,
}

/// A list that begins at the next place each time.
#[derive(Debug)]
struct Wheel<T> {
    all: Vec<T>,
    next: AtomicUsize,
}

impl Zone {
    pub(super) fn new(dns: &Dns, applications: &[String], serial: u32) -> Zone {
        let name = |label: &str| dns.zone.prepend_label(label).ok().map(|name| LowerName::new(&name));
        let mut names: HashMap<LowerName, usize> =
            applications.iter().enumerate().filter_map(|(at, label)| Some((name(label)?, at))).collect();
        let mut sets: Vec<Set> = applications.iter().map(|_| Set::default()).collect();
        for server in dns.name_servers.iter().filter(|server| dns.zone.zone_of(server)) {
            let own = (!dns.listen.ip().is_unspecified()).then(|| dns.listen.ip());
            names.insert(LowerName::new(server), sets.len());
            sets.push(Set::new(own.as_slice()));
        }
        Zone {
            origin: LowerName::new(&dns.zone),
            name_servers: dns.name_servers.clone(),
            ttl: u32::try_from(dns.ttl.as_secs()).unwrap_or(u32::MAX),
            serial,
            names,
            sets,
        }
    }

    /// From now on these are an application's addresses; none leave its last ones.
    pub(super) fn set(&mut self, application: usize, addresses: &[IpAddr]) {
        let Some(set) = self.sets.get_mut(application) else { return };
        let new = Set::new(addresses);
        if addresses.is_empty() || (set.v4.all == new.v4.all && set.v6.all == new.v6.all) {
            return;
        }
        *set = new;
        self.serial = self.serial.wrapping_add(1);
    }

    pub(super) fn answer(&self, query: &LowerQuery) -> Answer {
        let (name, kind) = (query.name(), query.query_type());
        let is_in = matches!(query.query_class(), DNSClass::IN | DNSClass::ANY);
        if !is_in || !self.origin.zone_of(name) || matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            return Answer { code: ResponseCode::Refused, is_ours: false, records: Vec::new(), soa: None };
        }
        // As it was asked: some resolvers tell forgeries by the case of its letters.
        let owner = query.original().name();
        let is_apex = *name == self.origin;
        let found = self.names.get(name).map(|at| (*at, &self.sets[*at]));
        let data = match (is_apex, found) {
            (true, _) => self.apex(kind),
            (false, Some((_, set))) => set.of(kind),
            (false, None) => return self.no(ResponseCode::NXDomain),
        };
        match found {
            _ if !data.is_empty() => self.yes(owner, data),
            Some((_, set)) if set.is_empty() => {
                Answer { code: ResponseCode::ServFail, ..self.no(ResponseCode::NoError) }
            }
            _ => self.no(ResponseCode::NoError),
        }
    }

    fn yes(&self, owner: &Name, data: Vec<RData>) -> Answer {
        let record = |data| Record::from_rdata(owner.clone(), self.ttl, data);
        let records = data.into_iter().map(record).collect();
        Answer { code: ResponseCode::NoError, is_ours: true, records, soa: None }
    }

    fn no(&self, code: ResponseCode) -> Answer {
        let soa = Record::from_rdata(self.origin.clone().into(), self.ttl, RData::SOA(self.soa()));
        Answer { code, is_ours: true, records: Vec::new(), soa: Some(soa) }
    }

    fn apex(&self, kind: RecordType) -> Vec<RData> {
        match kind {
            RecordType::SOA | RecordType::ANY => vec![RData::SOA(self.soa())],
            RecordType::NS => self.name_servers.iter().map(|name| RData::NS(NS(name.clone()))).collect(),
            _ => Vec::new(),
        }
    }

    fn soa(&self) -> SOA {
        let origin = Name::from(self.origin.clone());
        // A zone that leaves no room for a label speaks for itself.
        let responsible = origin.prepend_label("hostmaster").unwrap_or(origin);
        let (refresh, retry, expire) = TIMERS;
        SOA::new(self.name_servers[0].clone(), responsible, self.serial, refresh, retry, expire, self.ttl)
    }
}

impl Set {
    fn new(addresses: &[IpAddr]) -> Set {
        let mut set = Set::default();
        for address in addresses {
            match address {
                IpAddr::V4(v4) => set.v4.all.push(*v4),
                IpAddr::V6(v6) => set.v6.all.push(*v6),
            }
        }
        // Sentries of one address on several ports count once.
        set.v4.all.sort_unstable();
        set.v4.all.dedup();
        set.v6.all.sort_unstable();
        set.v6.all.dedup();
        set
    }

    fn is_empty(&self) -> bool {
        self.v4.all.is_empty() && self.v6.all.is_empty()
    }

    fn of(&self, kind: RecordType) -> Vec<RData> {
        let v4 = || self.v4.turn().map(|address| RData::A(A(address))).collect::<Vec<_>>();
        let v6 = || self.v6.turn().map(|address| RData::AAAA(AAAA(address))).collect::<Vec<_>>();
        match kind {
            RecordType::A => v4(),
            RecordType::AAAA => v6(),
            RecordType::ANY if !self.v4.all.is_empty() => v4(),
            RecordType::ANY => v6(),
            _ => Vec::new(),
        }
    }
}

impl<T> Default for Wheel<T> {
    fn default() -> Wheel<T> {
        Wheel { all: Vec::new(), next: AtomicUsize::new(0) }
    }
}

impl<T: Copy> Wheel<T> {
    fn turn(&self) -> impl Iterator<Item = T> {
        let start = self.next.fetch_add(1, Relaxed) % self.all.len().max(1);
        self.all[start..].iter().chain(&self.all[..start]).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::names::resolve;
    use hickory_server::proto::op::Query;

    fn zone() -> Zone {
        let listen = SocketAddr::from(([127, 0, 0, 1], 53));
        let dns = resolve(listen, "z.test", 5.0, &[], &["shop", "mail"]).expect("is right");
        Zone::new(&dns, &[String::from("shop"), String::from("mail")], 100)
    }

    fn ask(zone: &Zone, name: &str, kind: RecordType) -> Answer {
        zone.answer(&LowerQuery::query(Query::query(Name::from_ascii(name).expect("a name"), kind)))
    }

    fn addresses(answer: &Answer) -> Vec<String> {
        answer.records.iter().map(|record| record.data.to_string()).collect()
    }

    fn four(zone: &Zone) -> Vec<String> {
        addresses(&ask(zone, "shop.z.test.", RecordType::A))
    }

    #[test]
    fn addresses_take_turns() {
        let mut zone = zone();
        let [a, b, c, six] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"].map(|text| text.parse().expect("an address"));
        zone.set(0, &[c, a, six, b, a]);
        assert_eq!(four(&zone), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(addresses(&ask(&zone, "shop.z.test.", RecordType::AAAA)), ["2001:db8::1"]);
        assert_eq!(four(&zone), ["192.0.2.2", "192.0.2.3", "192.0.2.1"]);
        assert_eq!(four(&zone), ["192.0.2.3", "192.0.2.1", "192.0.2.2"]);
        assert_eq!(ask(&zone, "shop.z.test.", RecordType::ANY).records.len(), 3);
        let answer = ask(&zone, "SHOP.z.Test.", RecordType::A);
        assert!(answer.records.iter().all(|record| record.name.to_string() == "SHOP.z.Test." && record.ttl == 5));
    }

    #[test]
    fn a_no_has_the_zones_soa_and_foreign_names_are_refused() {
        let mut zone = zone();
        zone.set(0, &[IpAddr::from([192, 0, 2, 1])]);
        let cases = [
            ("shop.z.test.", RecordType::AAAA, ResponseCode::NoError),
            ("shop.z.test.", RecordType::MX, ResponseCode::NoError),
            ("z.test.", RecordType::A, ResponseCode::NoError),
            ("none.z.test.", RecordType::A, ResponseCode::NXDomain),
            ("x.shop.z.test.", RecordType::A, ResponseCode::NXDomain),
        ];
        for (name, kind, code) in cases {
            let answer = ask(&zone, name, kind);
            assert_eq!((answer.code, answer.is_ours, answer.records.len()), (code, true, 0), "{name} {kind}");
            let soa = answer.soa.expect("a no has one");
            assert_eq!((soa.name.to_string(), soa.ttl), (String::from("z.test."), 5));
        }
        for (name, kind) in [("example.com.", RecordType::A), ("test.", RecordType::SOA), ("z.test.", RecordType::AXFR)]
        {
            let answer = ask(&zone, name, kind);
            assert_eq!(
                (answer.code, answer.is_ours, answer.soa),
                (ResponseCode::Refused, false, None),
                "{name} {kind}"
            );
        }
        let mut chaos = Query::query(Name::from_ascii("shop.z.test.").expect("a name"), RecordType::A);
        chaos.set_query_class(DNSClass::CH);
        assert_eq!(zone.answer(&LowerQuery::query(chaos)).code, ResponseCode::Refused);
    }

    #[test]
    fn the_apex_says_who_answers_and_which_version() {
        let mut zone = zone();
        let serial = |zone: &Zone| match &ask(zone, "z.test.", RecordType::SOA).records[0].data {
            RData::SOA(soa) => (soa.serial, soa.mname.to_string(), soa.rname.to_string(), soa.minimum),
            other => panic!("{other}"),
        };
        assert_eq!(serial(&zone), (100, String::from("ns.z.test."), String::from("hostmaster.z.test."), 5));
        assert_eq!(addresses(&ask(&zone, "z.test.", RecordType::NS)), ["ns.z.test."]);
        assert_eq!(addresses(&ask(&zone, "ns.z.test.", RecordType::A)), ["127.0.0.1"]);
        zone.set(0, &[IpAddr::from([192, 0, 2, 1])]);
        zone.set(0, &[IpAddr::from([192, 0, 2, 1])]);
        assert_eq!(serial(&zone).0, 101, "one change");
    }

    #[test]
    fn never_known_is_a_failure_and_the_last_addresses_stay() {
        let mut zone = zone();
        assert_eq!(ask(&zone, "shop.z.test.", RecordType::A).code, ResponseCode::ServFail);
        zone.set(0, &[IpAddr::from([192, 0, 2, 1])]);
        zone.set(0, &[]);
        assert_eq!(four(&zone), ["192.0.2.1"]);
        assert_eq!(ask(&zone, "mail.z.test.", RecordType::A).code, ResponseCode::ServFail);
    }
}
