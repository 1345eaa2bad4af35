//! Tenants that are told apart by what requests say, with limits of their own.

use tidegate_classify::{NamedTenant, TenantSource, TenantsBy, named_tenant};
use tidegate_engine::{Snapshot, TenantSetup};
use tidegate_sentry::config::Application;

use crate::support::{RawServer, Running, application, ok};

/// Tenants by API key, of which one may send `most` per second.
fn by_key(server: &RawServer, most: f64) -> Application {
    let mut app = application(&[server.address]);
    let named = NamedTenant {
        name: "small".into(),
        values: vec!["k1".into()],
        networks: vec!["192.0.2.0/24".parse().expect("a network")],
    };
    app.classifier.tenants = TenantsBy { source: TenantSource::Header("x-api-key".into()), named: vec![named] };
    let key = named_tenant(app.classifier.seed, "small");
    app.setup.tenants = vec![TenantSetup { max_rate: Some(most), ..TenantSetup::new("small", key) }];
    app
}

fn snapshot(sentry: &Running) -> Snapshot {
    sentry.app().snapshot()
}

#[test]
fn a_key_beyond_its_limit_is_refused_and_others_are_not() {
    let server = RawServer::answering(|_| ok("here"));
    // One at once, and then none for a quarter of an hour.
    let sentry = Running::start(by_key(&server, 0.001));
    let ask = |more: &str| sentry.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{more}\r\n"));
    assert_eq!(ask("x-api-key: k1\r\n").status, 200);
    for _ in 0..3 {
        let refused = ask("x-api-key: k1\r\n");
        assert_eq!(refused.status, 503);
        let decision = refused.field("tidegate-decision").unwrap_or_default().to_owned();
        assert!(decision.contains("reason=tenant-limit"), "{decision}");
    }
    assert_eq!(ask("x-api-key: k2\r\n").status, 200);
    assert_eq!(ask("").status, 200);
    // A field that decides is not one that a client can have dropped.
    assert_eq!(ask("x-api-key: k1\r\nconnection: x-api-key\r\n").status, 503);
    let seen = snapshot(&sentry);
    let small = &seen.named_tenants[0];
    assert_eq!((&*small.name, small.offered, small.admitted, small.refused, small.limited), ("small", 5, 1, 4, 4));
    let networks = seen.tenants.iter().filter_map(|tenant| tidegate_classify::network_of(tenant.tenant));
    let networks: Vec<String> = networks.map(|network| network.to_string()).collect();
    assert_eq!(networks, ["127.0.0.1/32"], "keys are not shown");
    assert_eq!(seen.tenants.len(), 3, "{:?}", seen.tenants);
}
