//! Policers in a helper: one polices for another process, and a table goes from one to the next.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use tidegate_kernel::{Helper, InstallError, Plan, Police, PoliceError, SourceClass, helper};

use crate::support::{HERE, PATIENCE, connected, in_namespace, listener, nft, plan, tried};

/// The lowest that a bucket fills: by one in a minute, so by none during a test.
const RATE: f64 = 1.0 / 60.0;

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn table(address: std::net::SocketAddr) -> String {
    format!("tidegate_{}_{}", address.ip(), address.port())
}

#[test]
fn a_table_goes_from_one_policer_to_the_next_and_back_and_is_removed_with_the_last() {
    in_namespace(|| {
        let (door, theirs) = UnixStream::pair().expect("a pair");
        let serving = std::thread::spawn(move || helper::serve(theirs.into()));
        let helper = Helper::adopt(door.into()).expect("it lives");
        let (_listener, address) = listener("127.0.0.1:0");
        let mut old = Police::install(plan(&[address]), Some(&helper)).expect("rules");
        assert!(old.set_rate(Some(RATE)).expect("a rate"));
        let (admitted, refused) = tried(HERE, address, 50);
        assert_eq!(admitted, 20, "as many as may come at once");
        let counts = old.counts().expect("counts").remove(0);
        assert_eq!((counts.class.as_str(), counts.admitted, counts.refused), ("rest", 20, refused));
        old.renew().expect("a lease");

        // As in an upgrade.
        let mut new = Police::install(plan(&[address]), Some(&helper)).expect("rules");
        assert!(matches!(old.set_rate(None), Err(PoliceError::TakenOver)));
        assert!(matches!(old.reclaim(), Err(PoliceError::TakenOver)));
        new.set_rate(Some(RATE)).expect("a rate");
        assert!(connected(HERE, address, 50) < 50);

        // One that fails.
        drop(new);
        until("the first one has it back", || old.reclaim().is_ok());
        old.set_rate(Some(RATE)).expect("a rate");
        assert!(connected(HERE, address, 50) < 50);

        // And one that does not.
        let mut new = Police::install(plan(&[address]), Some(&helper)).expect("rules");
        drop(old);
        for _ in 0..50 {
            new.set_rate(Some(RATE)).expect("it is still there");
        }
        nft(&["list", "table", "inet", &table(address)]).expect("it is still there");
        drop((new, helper));
        serving.join().expect("no panic").expect("it served");
        assert!(nft(&["list", "table", "inet", &table(address)]).is_err(), "it is removed");
    });
}

#[test]
fn what_makes_no_sense_is_not_installed_and_a_dead_helper_is_noticed() {
    in_namespace(|| {
        let (door, theirs) = UnixStream::pair().expect("a pair");
        let serving = std::thread::spawn(move || helper::serve(theirs.into()));
        let helper = Helper::adopt(door.into()).expect("it lives");
        let (_listener, address) = listener("127.0.0.1:0");
        let endless = Plan { depth: f64::INFINITY, ..plan(&[address]) };
        assert!(matches!(Police::install(endless, Some(&helper)), Err(InstallError::Helper(_))));
        let class = |name: &str| SourceClass {
            name: name.to_owned(),
            from: vec!["10.0.0.0/8".parse().expect("a network")],
            share: 1.0,
        };
        let both = Plan { classes: vec![class("one"), class("two")], ..plan(&[address]) };
        let said = Police::install(both, Some(&helper)).expect_err("they overlap").to_string();
        assert!(said.contains("\"one\" and \"two\""), "{said}");
        drop(helper);
        serving.join().expect("no panic").expect("it served");

        let (door, theirs) = UnixStream::pair().expect("a pair");
        let helper = Helper::adopt(door.into()).expect("it lives");
        drop(theirs);
        assert!(matches!(Police::install(plan(&[address]), Some(&helper)), Err(InstallError::Helper(_))));
        let (door, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert!(Helper::adopt(door.into()).is_none());
    });
}
