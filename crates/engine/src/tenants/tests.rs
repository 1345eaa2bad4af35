use super::*;
use crate::controller::Controller;
use crate::event::NoEvents;
use crate::request::Request;
use crate::sla::{Sla, Statistic};
use alloc::vec::Vec;
use core::time::Duration;

const CLASS: ClassId = ClassId(0);

fn setup(tenants: Vec<TenantSetup>) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
    Setup { tenants, ..Setup::simple("shop", sla, []) }
}

fn tenants(setups: Vec<TenantSetup>) -> Tenants {
    let setup = setup(setups);
    setup.check().expect("it makes sense");
    Tenants::new(&setup, 7)
}

fn arrival(tenant: u64) -> Arrival {
    Arrival { request: Request { tenant: TenantKey(tenant), ..Request::default() }, cost: 0.01 }
}

/// A hundred requests of `heavy` tenants each and one of each of `light` ones, ten times a second for `seconds`; of all
/// of them the part `admitted` is let in. How each arrival of the last tenth of a second stood, by tenant.
fn play(tenants: &mut Tenants, heavy: u64, light: u64, admitted: f64, seconds: u64) -> Vec<(u64, Standing)> {
    let (mut last, policer) = (Vec::new(), Policer::new("none", &setup(Vec::new()), 1, 7));
    for tick in 0..seconds * 10 {
        let now = Timestamp::from_millis(tick * 100);
        last.clear();
        let arrivals = (0..100).flat_map(|_| 1..=heavy).chain((0..light).map(|tenant| 1000 + tenant));
        for tenant in arrivals {
            last.push((tenant, tenants.arrive(now, &arrival(tenant))));
            tenants.admit(TenantKey(tenant), CLASS, 0.01 * admitted);
        }
        tenants.tick(now, 0.1, Some(0.01), &policer);
    }
    last
}

#[test]
fn only_the_heavy_tenant_is_above_and_only_while_there_is_not_enough() {
    let mut all = tenants(Vec::new());
    let enough = play(&mut all, 1, 50, 1.0, 2);
    assert!(enough.iter().all(|(_, standing)| *standing == Standing::Within));
    assert_eq!(all.share(CLASS), None);
    let short = play(&mut tenants(Vec::new()), 1, 50, 0.5, 2);
    assert!(short.iter().all(|(tenant, standing)| standing.is_over() == (*tenant == 1)), "{short:?}");
    // Of 15 s of work that come per second the class gets 7.5; the light ones have 5 of it, so 2.5 of 10 are due.
    let due = short.iter().filter(|(_, standing)| *standing == Standing::Over(DUE)).count();
    assert!((10..=40).contains(&due), "{due} of 100");
}

/// Once their rates are known: they grow while the first window fills.
#[test]
fn equals_are_left_alone() {
    for heavy in [1, 20] {
        let standings = play(&mut tenants(Vec::new()), heavy, 0, 0.3, 15);
        assert!(standings.iter().all(|(_, standing)| *standing == Standing::Within), "{heavy} tenants");
    }
}

#[test]
fn who_counts_thrice_gets_thrice() {
    let three = TenantSetup { weight: 3.0, ..TenantSetup::new("three", TenantKey(1)) };
    let mut all = tenants(alloc::vec![three]);
    let standings = play(&mut all, 2, 50, 0.5, 3);
    let due = |tenant| {
        let of = |(who, standing): &&(u64, Standing)| {
            *who == tenant && *standing != Standing::Over(Pressure::default().excess())
        };
        standings.iter().filter(of).count() as f64
    };
    assert!((2.0..=4.5).contains(&(due(1) / due(2))), "{} and {}", due(1), due(2));
}

#[test]
fn limits_and_guarantees_are_the_tenants_own() {
    let limited = TenantSetup { max_rate: Some(5.0), ..TenantSetup::new("limited", TenantKey(1)) };
    let sure = TenantSetup { min_rate: 2.0, ..TenantSetup::new("sure", TenantKey(2)) };
    let mut all = tenants(alloc::vec![limited, sure]);
    let mut at_once =
        |tenant: u64| -> Vec<Standing> { (0..8).map(|_| all.arrive(Timestamp::ZERO, &arrival(tenant))).collect() };
    let (limited, sure, other) = (at_once(1), at_once(2), at_once(3));
    assert_eq!(limited.iter().filter(|standing| **standing == Standing::Limited).count(), 3);
    assert_eq!(sure.iter().filter(|standing| **standing == Standing::Guaranteed).count(), 2);
    assert!(other.iter().all(|standing| *standing == Standing::Within));
}

#[test]
fn what_becomes_of_a_named_tenants_requests_is_counted_once() {
    let limited = TenantSetup { max_rate: Some(5.0), ..TenantSetup::new("limited", TenantKey(1)) };
    let mut controller = Controller::new(setup(alloc::vec![limited.clone()]), 1, 7, alloc::boxed::Box::new(NoEvents))
        .expect("it makes sense");
    for _ in 0..8 {
        controller.handle_arrival(Timestamp::ZERO, arrival(1).request);
    }
    let counts = |controller: &Controller| {
        let snapshot = controller.snapshot(Timestamp::ZERO);
        let heavy =
            snapshot.tenants.iter().find(|seen| seen.name.as_deref() == Some("limited")).map(|seen| seen.refused);
        let named = &snapshot.named_tenants[0];
        (named.offered, named.admitted + named.refused, named.limited, heavy == Some(named.refused))
    };
    assert_eq!(counts(&controller), (8, 8, 3, true));
    let more = TenantSetup { max_rate: Some(6.0), ..limited };
    controller.reconfigure(Timestamp::ZERO, setup(alloc::vec![more])).expect("it makes sense");
    assert_eq!(counts(&controller), (8, 8, 3, true), "a reload loses no counts");
}

#[test]
fn a_rule_that_contradicts_itself_is_refused() {
    let plain = TenantSetup::new("a", TenantKey(1));
    let wrong = [
        TenantSetup { min_rate: -1.0, ..plain.clone() },
        TenantSetup { min_rate: 3.0, max_rate: Some(2.0), ..plain.clone() },
        TenantSetup { max_rate: Some(0.0), ..plain.clone() },
        TenantSetup { weight: f64::NAN, ..plain.clone() },
    ];
    for rule in wrong {
        assert!(rule.check().is_err(), "{rule:?}");
    }
    assert!(plain.check().is_ok());
}
