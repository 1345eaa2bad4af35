//! Who is let in and who is turned away, by whom, and for how long.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tidegate_kernel::{InstallError, LEASE, Owner, Plan, SourceClass, SynPolicer};

use crate::support::{HERE, PATIENCE, connected, in_namespace, listener, nft, plan, tried, until_all_connect};

/// The lowest that a bucket fills: by one in a minute, so by none during a test.
const RATE: f64 = 1.0 / 60.0;

#[test]
fn a_bucket_lets_its_depth_in_and_counts_what_it_turns_away() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let (_other, elsewhere) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        assert_eq!(connected(HERE, address, 50), 50, "without a rate nothing is policed");
        assert!(policer.set_rate(Some(RATE)).expect("a rate"));
        let (admitted, refused) = tried(HERE, address, 100);
        assert_eq!(admitted, 20);
        assert_eq!(connected(HERE, elsewhere, 100), 100, "another service");
        let counts = policer.counts().expect("counters")[0].clone();
        assert_eq!((counts.admitted, counts.refused), (20, refused));
        policer.set_rate(None).expect("no rate");
        assert_eq!(connected(HERE, address, 100), 100);
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "", "nothing is left");
    });
}

#[test]
fn a_rate_within_the_dead_band_does_not_fill_the_bucket() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        policer.set_rate(Some(RATE)).expect("a rate");
        assert_eq!(connected(HERE, address, 40), 20);
        policer.renew().expect("a lease");
        assert!(!policer.set_rate(Some(1.02 * RATE)).expect("a rate"));
        assert_eq!(connected(HERE, address, 40), 0);
        policer.renew().expect("a lease");
        assert!(policer.set_rate(Some(2.0 * RATE)).expect("a rate"));
        assert_eq!(connected(HERE, address, 40), 20, "a change does: the kernel has no other way");
        assert_eq!(policer.changes(), 2);
    });
}

#[test]
fn classes_of_both_families_have_parts_of_their_own() {
    in_namespace(|| {
        let (_service, v4) = listener("127.0.0.1:0");
        let (_service, v6) = listener("[::1]:0");
        let net = |net: &str| net.parse::<IpNet>().expect("a network");
        let class = |name: &str, from: &[&str]| SourceClass {
            name: name.to_owned(),
            from: from.iter().map(|from| net(from)).collect(),
            share: 2.0,
        };
        let classes = vec![class("premium", &["127.1.0.0/16", "::1/128"]), class("partner", &["127.2.0.0/16"])];
        let plan = Plan { classes, exempt: vec![net("127.1.9.9/32")], depth: 50.0, ..plan(&[v4, v6]) };
        let mut policer = SynPolicer::install(plan.clone()).expect("rules");
        policer.set_rate(Some(RATE)).expect("a rate");
        let from = |from: &str| from.parse::<IpAddr>().expect("an address");
        let (rest, rest_refused) = tried(HERE, v4, 30);
        let (partner, partner_refused) = tried(from("127.2.0.1"), v4, 30);
        assert_eq!((rest, partner), (10, 20));
        policer.renew().expect("a lease");
        assert_eq!(connected(from("127.1.0.1"), v4, 15), 15, "both families of a class share its bucket");
        let (premium, premium_refused) = tried(from("::1"), v6, 30);
        assert_eq!(premium, 5);
        assert_eq!(connected(from("127.1.9.9"), v4, 100), 100, "a health check");
        let counts = policer.counts().expect("counters");
        let shown: Vec<_> = counts.iter().map(|c| (c.class.as_str(), c.admitted, c.refused)).collect();
        let expected = [("premium", 20, premium_refused), ("partner", 20, partner_refused), ("rest", 10, rest_refused)];
        assert_eq!(shown, expected);
        let mut both = plan;
        both.classes[1].from.push(net("127.1.7.0/24"));
        assert!(matches!(SynPolicer::install(both), Err(InstallError::Overlap(..))));
    });
}

/// Killed with -9, a policer ends by itself; the next start removes what is left of it.
#[test]
fn rules_without_a_controller_end_and_are_removed() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        policer.set_rate(Some(RATE)).expect("a rate");
        assert_eq!(connected(HERE, address, 40), 20);
        let rules = nft(&["list", "ruleset"]).expect("a list");
        let this = Owner::this().expect("there is /proc").to_string();
        assert!(rules.contains(&format!("timeout {}s", LEASE.as_secs())), "the lease is in\n{rules}");
        // The same rules, whose owner is dead.
        let dead = rules.replace(&this, "owner_4194304_1").replace("tidegate_127.0.0.1", "tidegate_gone");
        policer.renew().expect("a lease");
        std::mem::forget(policer);
        // Nobody renews the lease any more.
        until_all_connect(address);
        let file = std::env::temp_dir().join(format!("tidegate-dead-{}.nft", std::process::id()));
        std::fs::write(&file, dead).expect("a file");
        nft(&["-f", file.to_str().expect("a path")]).expect("rules of a dead owner");
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(nft(&["list", "tables"]).expect("a list").lines().count(), 2);
        let policer = SynPolicer::install(plan(&[address])).expect("it takes over its own table");
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), format!("table inet {}", policer.table()));
    });
}

/// A whole process, killed with -9 while it polices: what it left ends by itself, and the next start takes it over.
#[test]
fn a_process_that_is_killed_leaves_nothing_that_blocks() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let me = std::env::current_exe().expect("a path");
        let mut child = Command::new(me)
            .args(["--exact", "policing::the_process_that_is_killed", "--ignored", "--nocapture"])
            .env(POLICES, address.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program, again");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        assert!(said.lines().map_while(Result::ok).any(|line| line.contains("polices")), "it never did");
        assert!(connected(HERE, address, 40) < 40, "it polices");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        until_all_connect(address);
        assert_eq!(
            nft(&["list", "tables"]).expect("a list").lines().count(),
            1,
            "the rules are there, and match nobody"
        );
        let policer = SynPolicer::install(plan(&[address])).expect("the owner is dead");
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), format!("table inet {}", policer.table()));
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "");
    });
}

const POLICES: &str = "TIDEGATE_TEST_POLICES";

#[test]
#[ignore = "is the process that a_process_that_is_killed_leaves_nothing_that_blocks starts and kills"]
fn the_process_that_is_killed() {
    let address = std::env::var(POLICES).expect("started by the other test").parse().expect("an address");
    let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
    policer.set_rate(Some(RATE)).expect("a rate");
    println!("polices");
    // Until it is killed; not for ever if nobody does.
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn an_interface_that_disappears_takes_nothing_else_along() {
    if Command::new("ip").arg("-V").output().is_err() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "the program ip is missing");
        return eprintln!("NOT RUN: this needs the program ip");
    }
    in_namespace(|| {
        let ip = |words: &str| {
            let done = Command::new("ip").args(words.split(' ')).status().expect("the program ip");
            assert!(done.success(), "ip {words}");
        };
        ip("link add tga type veth peer name tgb");
        ip("addr add 10.99.0.1/24 dev tga");
        ip("link set tga up");
        let (_going, going) = listener("10.99.0.1:0");
        let (_staying, staying) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[going, staying])).expect("rules");
        policer.set_rate(Some(RATE)).expect("a rate");
        ip("link delete tga");
        let (admitted, refused) = tried(HERE, staying, 40);
        assert_eq!(admitted, 20, "the other address is policed");
        assert!(policer.set_rate(Some(4.0 * RATE)).expect("another rate"));
        policer.renew().expect("a lease");
        let (admitted, refused_again) = tried(HERE, staying, 40);
        assert_eq!(admitted, 20);
        assert_eq!(policer.counts().expect("counters")[0].refused, refused + refused_again);
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "");
    });
}

#[test]
fn a_living_owner_and_other_tables_are_left_alone() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mine = SynPolicer::install(plan(&[address])).expect("rules");
        let table = mine.table().to_owned();
        drop(mine);
        // Process 1 lives, and is not this one.
        let stat = std::fs::read_to_string("/proc/1/stat").expect("process 1");
        let started = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19).expect("a field").to_owned();
        nft(&["add", "table", "inet", &table]).expect("a table");
        nft(&["add", "chain", "inet", &table, &format!("owner_1_{started}")]).expect("a chain");
        nft(&["add", "table", "inet", "firewall"]).expect("a table");
        match SynPolicer::install(plan(&[address])) {
            Err(InstallError::Occupied { pid: 1, table: shown }) => assert_eq!(shown, table),
            other => panic!("it is another's: {other:?}"),
        }
        nft(&["delete", "table", "inet", &table]).expect("it is there");
        let policer = SynPolicer::install(plan(&[address])).expect("rules");
        drop(policer);
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), "table inet firewall");
    });
}
