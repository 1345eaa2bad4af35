//! Who may speak as which sentry, and what becomes of connections when a key is taken away.

use std::time::{Duration, Instant};

use tidegate_wire::Owner;
use tidegate_wire::control::ControlKeys;

use crate::support::PATIENCE;
use crate::support::site::{Sentry, Site};

const OLD: &str = "the secret of the tests";
const NEW: &str = "the next secret of the tests";

fn own(site: &Site, name: &str) -> ControlKeys {
    let line = tidegate_wire::own_key(&site.key_file(), Owner::Sentry, name).expect("a secret");
    ControlKeys::of(name, line.as_bytes(), &site.key_file()).expect("its own")
}

fn is_welcome(site: &Site, keys: &ControlKeys, name: &str) -> bool {
    Sentry::welcomed(site, keys, name).is_some()
}

#[test]
fn a_sentry_with_a_key_of_its_own_speaks_for_itself_only() {
    let site = Site::start("");
    let one = own(&site, "one");
    assert!(is_welcome(&site, &one, "one"));
    assert!(!is_welcome(&site, &one, "two"), "it says that it is another");
    assert!(is_welcome(&site, &ControlKeys::derive(OLD.as_bytes()), "two"), "who has the secret is anybody");
    assert_eq!(site.records("sentry-registered"), 2);
}

#[test]
fn a_key_changes_without_a_pause_and_who_has_the_old_one_is_cut_off() {
    let site = Site::start("");
    let [old, new] = [OLD, NEW].map(|secret| ControlKeys::derive(secret.as_bytes()));
    let own_before = own(&site, "own");
    assert!(!is_welcome(&site, &new, "new"));
    std::fs::write(site.key_file(), format!("{NEW}\n{OLD}\n")).expect("a file");
    let until = |what: &str, condition: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    };
    until("the new one is good", &mut || is_welcome(&site, &new, "new"));
    assert!(is_welcome(&site, &old, "old"), "so is the old one");
    assert!(is_welcome(&site, &own_before, "own"), "and what followed from it");

    // A file that makes no sense changes nothing.
    std::fs::write(site.key_file(), "short").expect("a file");
    let looks = Instant::now() + Duration::from_secs(4);
    until("it was read", &mut || {
        assert!(is_welcome(&site, &new, "new"), "the keys of before are in force");
        Instant::now() > looks
    });

    std::fs::write(site.key_file(), NEW).expect("a file");
    // One with the old key is there at any time.
    let mut last = None;
    until("the old one is taken out", &mut || {
        let next = Sentry::welcomed(&site, &old, "old");
        let is_over = next.is_none();
        last = next.or(last.take());
        is_over
    });
    until("who was connected with it is cut off", &mut || {
        site.audit().to_string().contains("was taken out of the key file")
    });
    assert!(!is_welcome(&site, &own_before, "own"), "and so is what followed from it");
    assert!(is_welcome(&site, &new, "new"));
}
