//! On whose behalf a request comes: the client's network.
//!
//! An IPv4 address is a tenant, and of IPv6 the 64 bits that a site is given: whoever has one address there has all of
//! them. The key can be read back, so that a tenant can be shown without a table of names.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidegate_engine::TenantKey;

/// Above an IPv4 address in a key. As the beginning of an IPv6 address it is routed nowhere.
const IPV4: u64 = 0xFFFF << 32;

/// The tenant of a client's address; without an address, nobody's.
pub(crate) fn tenant_of(client: Option<IpAddr>) -> TenantKey {
    let Some(client) = client else { return TenantKey::NONE };
    TenantKey(match client.to_canonical() {
        IpAddr::V4(address) => IPV4 | u64::from(address.to_bits()),
        // The unspecified network is nobody's key.
        IpAddr::V6(address) => ((address.to_bits() >> 64) as u64).max(1),
    })
}

/// The network of a tenant, in CIDR form.
pub fn network_of(tenant: TenantKey) -> crate::Network {
    if tenant.0 >> 32 == IPV4 >> 32 {
        crate::Network::V4(Ipv4Addr::from_bits(tenant.0 as u32).into())
    } else {
        let address = Ipv6Addr::from_bits(u128::from(tenant.0) << 64);
        ipnet::Ipv6Net::new_assert(address, 64).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_site_is_one_tenant_and_can_be_read_back() {
        let network = |text: &str| network_of(tenant_of(Some(text.parse().expect("an address")))).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7/32");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7/32");
        assert_eq!(network("2001:db8:1:2::3"), "2001:db8:1:2::/64");
        assert_eq!(network("2001:db8:1:2:ffff::9"), "2001:db8:1:2::/64");
        assert_eq!(tenant_of(None), TenantKey::NONE);
        assert_ne!(tenant_of(Some("::1".parse().expect("an address"))), TenantKey::NONE);
    }
}
