//! What it takes to classify a request, in nanoseconds. Prints a Markdown table; `TIDEGATE_BENCH_SHORT=1` takes fewer
//! rounds.

use std::hint::black_box;

use tidegate_classify::{Classifier, ClassifierSetup, PathMatch, RequestView, Rule, ValueMatch, ValuePattern};

// Shared with the engine's benchmark.
#[path = "../../engine/benches/rows/mod.rs"]
mod rows;
use rows::{HEAD, Scale, row};

fn main() {
    let scale = Scale::asked_for();
    println!("{HEAD}");
    classifying(scale);
}

fn classifying(scale: Scale) {
    for count in [20, 1_000, 10_000] {
        for (what, setup) in [("", rules(count)), (" by a cookie alone", cookies(count))] {
            let classifier = Classifier::compile(&setup).expect("sound rules");
            let requests: Vec<Plain> =
                (0..64).map(|i| Plain { path: format!("/area{}/item/{i}?q=1", i * 37 % count) }).collect();
            row(scale, &format!("classify with {count} rules{what}"), None, 1_024, || {
                for i in 0..1_024 {
                    black_box(classifier.classify(&requests[i % 64]));
                }
            });
        }
    }
}

/// `count` rules of one class, each with another value of a cookie.
fn cookies(count: usize) -> ClassifierSetup {
    let cookie = |i: usize| ValueMatch { name: "tier".into(), value: ValuePattern::Exact(format!("tier-{i}")) };
    let rules = (0..count).map(|i| Rule { cookies: vec![cookie(i)], ..Rule::default() }).collect();
    ClassifierSetup { classes: vec![rules, Vec::new()], ..ClassifierSetup::default() }
}

/// `count` rules over ten classes: prefixes, and every tenth with a cookie.
fn rules(count: usize) -> ClassifierSetup {
    let cookie = || ValueMatch { name: "tier".into(), value: ValuePattern::Exact("gold".into()) };
    let rule = |i: usize| Rule {
        path: Some(PathMatch::Prefix(format!("/area{i}"))),
        cookies: if i.is_multiple_of(10) { vec![cookie()] } else { Vec::new() },
        ..Rule::default()
    };
    let mut classes: Vec<Vec<Rule>> = (0..10).map(|class| (class..count).step_by(10).map(rule).collect()).collect();
    classes.push(Vec::new());
    ClassifierSetup { classes, ..ClassifierSetup::default() }
}

struct Plain {
    path: String,
}

impl RequestView for Plain {
    fn method(&self) -> &str {
        "GET"
    }

    fn host(&self) -> Option<&str> {
        Some("shop.example.org")
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        (lowercase_name == "cookie").then_some(b"theme=dark; tier=gold")
    }

    fn client(&self) -> Option<std::net::IpAddr> {
        None
    }
}
