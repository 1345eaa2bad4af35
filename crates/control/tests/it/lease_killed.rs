//! A leader that is killed at any request, again and again: nothing is lost and nothing doubled.

use std::hash::{BuildHasher, Hasher, RandomState};

use tidegate_control::backend::{StoreError, Turn};
use tidegate_control::plane::{Input, Plane};

use crate::support::home::{Home, LONG, PREFIX, lead, numbers, period, site, stand, text};
use crate::support::until;

/// Seeds with which it once failed.
const REGRESSIONS: [u64; 0] = [];

#[test]
fn killed_at_any_request_nothing_is_lost_and_nothing_doubled() {
    REGRESSIONS.into_iter().for_each(killed_again_and_again);
    killed_again_and_again(seed());
}

/// The seed of what is drawn: `TIDEGATE_SEED`, else any; printed, so that a failure shows it.
fn seed() -> u64 {
    let given = std::env::var("TIDEGATE_SEED").ok();
    let given = given.map(|text| text.parse().expect("TIDEGATE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    seed
}

fn killed_again_and_again(seed: u64) {
    let mut state = seed;
    let mut dice = move |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let home = Home::start();
    let mut alone = Alone { plane: Plane::new(site()).expect("a site"), records: 0 };
    let (mut second, mut pending) = (0, None);
    for life in 0..60 {
        home.api.delete("leases", PREFIX);
        // In the midst of taking over, or later.
        home.api.gone_after((dice(3) == 0).then(|| dice(40) as usize));
        let candidate = home.candidate(&format!("life-{life}"), LONG);
        let store = stand(&candidate).ok().and_then(|turn| match turn {
            Turn::Mine(store) => Some(store),
            Turn::Others(_) => None,
        });
        if let Some((mut plane, mut store)) = store.and_then(|mut store| Some((store.plane(site()).ok()?, store))) {
            alone.follows(&plane, pending.take());
            assert_eq!(text(&plane), text(&alone.plane), "seed {seed}, life {life}");
            home.api.gone_after(Some(dice(150) as usize));
            if dice(3) == 0 {
                // The last write is carried out, and nobody says so.
                home.api.lose(1, ["PUT /api/", "POST /api/", "/test-state", "/test-audit"][dice(4) as usize]);
            }
            loop {
                let outcome = match dice(40) {
                    0 => store.keep_state(&plane),
                    _ => {
                        second += 1;
                        pending = Some(period(second));
                        store.handle(&mut plane, &period(second)).map(|_| alone.handle(&pending.take().expect("one")))
                    }
                };
                match outcome {
                    Ok(()) => {}
                    Err(StoreError::Away(_)) => break,
                    Err(error) => panic!("seed {seed}, life {life}: {error}"),
                }
            }
        }
        home.api.gone_after(None);
        home.api.lose_none();
    }
    home.api.delete("leases", PREFIX);
    let (store, plane) = lead(&home.candidate("last", LONG));
    alone.follows(&plane, pending.take());
    assert_eq!(text(&plane), text(&alone.plane), "seed {seed}");
    assert!(second > 300, "{second} inputs");
    let mut once = numbers(&store);
    assert_eq!(once.len(), alone.records, "every record is there");
    assert!(once.is_sorted());
    once.dedup();
    assert_eq!(once.len(), alone.records, "none twice");
    until("what crashes left is gone", || home.api.names("configmaps").len() <= 8);
}

/// A plane that nothing happens to.
struct Alone {
    plane: Plane,
    records: usize,
}

impl Alone {
    fn handle(&mut self, input: &Input) {
        self.plane.handle(input);
        self.records += self.plane.take_records().len();
    }

    /// An input of which nobody was told may be written all the same.
    fn follows(&mut self, written: &Plane, pending: Option<Input>) {
        if let Some(input) = pending.filter(|_| text(written) != text(&self.plane)) {
            self.handle(&input);
        }
    }
}
