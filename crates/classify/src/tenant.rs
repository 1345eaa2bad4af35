//! On whose behalf a request comes: the value that names a tenant, or the client's network.
//!
//! Of networks, an IPv4 address is a tenant, and of IPv6 the 64 bits that a site is given: whoever has one address
//! there has all of them. Such a key can be read back ([`network_of`]). The key of a value is a keyed hash, as values
//! may be secrets. Tenants with a name have keys of their own, whatever they are known by.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siphasher::sip::SipHasher13;
use tidegate_engine::TenantKey;

use crate::{Network, RequestView, values};

/// How tenants are told apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantsBy {
    /// What names the tenant of a request. Where a request does not have it, the client's network does.
    pub source: TenantSource,
    /// Tenants of which more is to be said than of others. The first that has a value is its tenant, and the most
    /// specific network counts.
    pub named: Vec<NamedTenant>,
}

/// What names the tenant of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantSource {
    /// The client's network.
    #[default]
    Network,
    /// The value of this header, named in lower case.
    Header(String),
    /// The value of this cookie.
    Cookie(String),
    /// The first name in the client's certificate.
    Certificate,
    /// Nothing: there are no tenants.
    Nobody,
}

/// A tenant with a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTenant {
    /// The name.
    pub name: String,
    /// The values that it is known by.
    pub values: Vec<String>,
    /// The networks that it is known by, where a request has no value.
    pub networks: Vec<Network>,
}

/// The key of a tenant with a name, under a [`ClassifierSetup`](crate::ClassifierSetup)'s seed.
pub fn named_tenant(seed: u64, name: &str) -> TenantKey {
    hashed(&keyed(seed), NAME, name.as_bytes())
}

/// The network of a tenant, in CIDR form. `None`: it is known by something else.
pub fn network_of(tenant: TenantKey) -> Option<Network> {
    if tenant == TenantKey::NONE || tenant.0 & HASHED_BITS == HASHED {
        return None;
    }
    Some(if tenant.0 >> 32 == IPV4 >> 32 {
        Network::V4(Ipv4Addr::from_bits(tenant.0 as u32).into())
    } else {
        let address = Ipv6Addr::from_bits(u128::from(tenant.0) << 64);
        ipnet::Ipv6Net::new_assert(address, 64).into()
    })
}

/// Above an IPv4 address in a key. As the beginning of an IPv6 address it is routed nowhere.
const IPV4: u64 = 0xFFFF << 32;
/// How a hash begins: as addresses of 200::/7, which are routed nowhere (RFC 4048).
const HASHED: u64 = 0x02 << 56;
const HASHED_BITS: u64 = 0xFE << 56;
/// A name and a value that read the same are two things.
const NAME: u8 = 0;
const VALUE: u8 = 1;

/// The hash whose key is `seed`.
pub(crate) fn keyed(seed: u64) -> SipHasher13 {
    SipHasher13::new_with_keys(seed, !seed)
}

fn hashed(hasher: &SipHasher13, kind: u8, text: &[u8]) -> TenantKey {
    let mut hasher = *hasher;
    hasher.write_u8(kind);
    hasher.write(text);
    TenantKey(hasher.finish() & !HASHED_BITS | HASHED)
}

/// [`TenantsBy`], compiled.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    source: TenantSource,
    hasher: SipHasher13,
    /// From the key of a value to that of its tenant, sorted.
    values: Box<[(TenantKey, TenantKey)]>,
    v4: Networks,
    v6: Networks,
}

/// Networks of tenants with names: for each length of a prefix, the longest first, the prefixes, sorted.
type Networks = Box<[(u8, Box<[(u128, TenantKey)]>)]>;

impl Tenants {
    pub(crate) fn compile(by: &TenantsBy, seed: u64) -> Tenants {
        let hasher = keyed(seed);
        let (mut values, mut v4, mut v6) = (Vec::new(), Vec::new(), Vec::new());
        for tenant in &by.named {
            let key = hashed(&hasher, NAME, tenant.name.as_bytes());
            values.extend(tenant.values.iter().map(|value| (hashed(&hasher, VALUE, value.as_bytes()), key)));
            for network in &tenant.networks {
                let (list, prefix) = match network.network() {
                    IpAddr::V4(address) => (&mut v4, left(address)),
                    IpAddr::V6(address) => (&mut v6, address.to_bits()),
                };
                list.push((network.prefix_len(), prefix, key));
            }
        }
        // Stable: of two that say the same the first stays.
        values.sort_by_key(|(value, _)| *value);
        values.dedup_by_key(|(value, _)| *value);
        Tenants { source: by.source.clone(), hasher, values: values.into(), v4: by_length(v4), v6: by_length(v6) }
    }

    /// The tenant of a request. Allocates nothing.
    pub(crate) fn of(&self, view: &impl RequestView) -> TenantKey {
        let value = match &self.source {
            TenantSource::Nobody => return TenantKey::NONE,
            TenantSource::Network => None,
            TenantSource::Header(name) => view.header(name).map(<[u8]>::trim_ascii),
            TenantSource::Cookie(name) => values::cookie_of(view, name),
            TenantSource::Certificate => view.certificate_names().first().map(String::as_bytes),
        };
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.of_value(value),
            None => self.of_client(view.client()),
        }
    }

    fn of_value(&self, value: &[u8]) -> TenantKey {
        let key = hashed(&self.hasher, VALUE, value);
        self.values.binary_search_by_key(&key, |(value, _)| *value).map_or(key, |at| self.values[at].1)
    }

    /// Without an address, nobody's.
    fn of_client(&self, client: Option<IpAddr>) -> TenantKey {
        let Some(client) = client else { return TenantKey::NONE };
        match client.to_canonical() {
            IpAddr::V4(address) => {
                find(&self.v4, left(address)).unwrap_or(TenantKey(IPV4 | u64::from(address.to_bits())))
            }
            // The unspecified network is nobody's key.
            IpAddr::V6(address) => find(&self.v6, address.to_bits())
                .unwrap_or_else(|| TenantKey(((address.to_bits() >> 64) as u64).max(1))),
        }
    }
}

/// An address whose prefix is at the same end as one of IPv6.
fn left(address: Ipv4Addr) -> u128 {
    u128::from(address.to_bits()) << 96
}

fn by_length(mut list: Vec<(u8, u128, TenantKey)>) -> Networks {
    list.sort_by_key(|&(length, prefix, _)| (core::cmp::Reverse(length), prefix));
    list.dedup_by_key(|&mut (length, prefix, _)| (length, prefix));
    let groups = list.chunk_by(|a, b| a.0 == b.0);
    groups.map(|group| (group[0].0, group.iter().map(|&(_, prefix, key)| (prefix, key)).collect())).collect()
}

fn find(networks: &Networks, address: u128) -> Option<TenantKey> {
    networks.iter().find_map(|(length, prefixes)| {
        let rest = 128 - u32::from(*length);
        let prefix = address & u128::MAX.checked_shl(rest).unwrap_or(0);
        prefixes.binary_search_by_key(&prefix, |(prefix, _)| *prefix).ok().map(|at| prefixes[at].1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;
    use alloc::vec;

    /// A request with one header, from a client.
    struct Seen(Option<IpAddr>, &'static str, &'static str, Vec<String>);

    impl RequestView for Seen {
        fn method(&self) -> &str {
            "GET"
        }
        fn host(&self) -> Option<&str> {
            None
        }
        fn path(&self) -> &str {
            "/"
        }
        fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
            (lowercase_name == self.1).then_some(self.2.as_bytes())
        }
        fn client(&self) -> Option<IpAddr> {
            self.0
        }
        fn certificate_names(&self) -> &[String] {
            &self.3
        }
    }

    fn from(client: &str) -> Seen {
        with(client, "", "")
    }

    fn with(client: &str, name: &'static str, value: &'static str) -> Seen {
        Seen(Some(client.parse().expect("an address")), name, value, Vec::new())
    }

    fn named(name: &str, values: &[&str], networks: &[&str]) -> NamedTenant {
        let networks = networks.iter().map(|network| network.parse().expect("a network")).collect();
        NamedTenant { name: name.to_owned(), values: values.iter().map(ToString::to_string).collect(), networks }
    }

    fn by(source: TenantSource, named: Vec<NamedTenant>) -> Tenants {
        Tenants::compile(&TenantsBy { source, named }, 7)
    }

    #[test]
    fn a_site_is_one_tenant_and_can_be_read_back() {
        let tenants = by(TenantSource::Network, Vec::new());
        let network = |text: &str| network_of(tenants.of(&from(text))).expect("a network").to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7/32");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7/32");
        assert_eq!(network("2001:db8:1:2::3"), "2001:db8:1:2::/64");
        assert_eq!(network("2001:db8:1:2:ffff::9"), "2001:db8:1:2::/64");
        assert_eq!(tenants.of(&Seen(None, "", "", Vec::new())), TenantKey::NONE);
        assert_ne!(tenants.of(&from("::1")), TenantKey::NONE);
        assert_eq!(by(TenantSource::Nobody, Vec::new()).of(&from("192.0.2.7")), TenantKey::NONE);
    }

    #[test]
    fn a_value_names_a_tenant_wherever_its_client_is() {
        let tenants = by(TenantSource::Header("x-key".to_owned()), vec![named("acme", &["k1", "k2"], &["10.0.0.0/8"])]);
        let key = |client, value| tenants.of(&with(client, "x-key", value));
        assert_eq!(key("192.0.2.1", "a"), key("192.0.2.2", " a "));
        assert_ne!(key("192.0.2.1", "a"), key("192.0.2.1", "b"));
        assert_eq!(network_of(key("192.0.2.1", "a")), None, "a value is no address");
        assert_eq!(key("192.0.2.1", "k1"), named_tenant(7, "acme"));
        assert_eq!(key("192.0.2.1", "k2"), named_tenant(7, "acme"));
        assert_ne!(key("192.0.2.1", "acme"), named_tenant(7, "acme"), "a name is not a value");
        assert_eq!(key("10.1.2.3", ""), named_tenant(7, "acme"), "without a value, by network");
        assert_ne!(key("10.1.2.3", "a"), named_tenant(7, "acme"), "a value goes before the network");
        let cookies = by(TenantSource::Cookie("account".to_owned()), Vec::new());
        let cookie = |text| cookies.of(&with("192.0.2.1", "cookie", text));
        assert_eq!(cookie("a=b; account=7"), cookie("account=7"));
        assert_ne!(cookie("account=8"), cookie("account=7"));
        assert_eq!(network_of(cookie("other=7")).map(|n| n.to_string()).as_deref(), Some("192.0.2.1/32"));
        let certificates = by(TenantSource::Certificate, vec![named("billing", &["billing.internal"], &[])]);
        let shown = |name: &str| certificates.of(&Seen(None, "", "", vec![name.to_owned(), "other".to_owned()]));
        assert_eq!(shown("billing.internal"), named_tenant(7, "billing"));
        assert_ne!(shown("mail.internal"), TenantKey::NONE);
    }

    #[test]
    fn the_most_specific_network_counts() {
        let tenants = by(
            TenantSource::Network,
            vec![
                named("all", &[], &["0.0.0.0/0"]),
                named("office", &[], &["10.0.0.0/8", "2001:db8::/32"]),
                named("lab", &[], &["10.1.0.0/16", "10.1.2.3/32", "2001:db8:0:7::/64"]),
            ],
        );
        let name = |client: &str| {
            let key = tenants.of(&from(client));
            ["all", "office", "lab"].into_iter().find(|name| named_tenant(7, name) == key)
        };
        assert_eq!(name("192.0.2.1"), Some("all"));
        assert_eq!(name("10.2.0.1"), Some("office"));
        assert_eq!(name("10.1.9.9"), Some("lab"));
        assert_eq!(name("10.1.2.3"), Some("lab"));
        assert_eq!(name("2001:db8:1::1"), Some("office"));
        assert_eq!(name("2001:db8:0:7::1"), Some("lab"));
        assert_eq!(name("2001:db9::1"), None, "0.0.0.0/0 is of IPv4");
    }
}
