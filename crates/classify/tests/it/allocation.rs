//! Classification allocates nothing, whatever the request.

use std::hint::black_box;

use tidegate_classify::testing::PlainRequest;
use tidegate_classify::{
    Classifier, ClassifierSetup, PathMatch, RequestView, Rule, TypeRules, ValueMatch, ValuePattern,
};
use tidegate_engine::ClassId;

use crate::counting::allocations_in;

fn classifier() -> Classifier {
    let path = |path| Rule { path: Some(path), ..Rule::default() };
    let cookie = ValueMatch { name: "tier".to_owned(), value: ValuePattern::Exact("gold".to_owned()) };
    let first = vec![
        path(PathMatch::Exact("/pay".to_owned())),
        path(PathMatch::Glob("/api/**/pay*".to_owned())),
        Rule { hosts: vec!["*.gold.example".to_owned()], ..Rule::default() },
        Rule { cookies: vec![cookie], networks: vec!["10.0.0.0/8".parse().expect("a network")], ..Rule::default() },
    ];
    let classes = vec![first, vec![path(PathMatch::Prefix("/shop".to_owned()))], vec![]];
    let types =
        vec![TypeRules { rules: vec![path(PathMatch::Prefix("/shop/search".to_owned()))], ..Default::default() }];
    Classifier::compile(&ClassifierSetup { classes, request_types: types, seed: 1, ..ClassifierSetup::default() })
        .expect("valid rules")
}

#[test]
fn classifying_allocates_nothing() {
    let classifier = classifier();
    let request = |host: &str, path: &str| PlainRequest {
        method: "GET".to_owned(),
        host: Some(host.to_owned()),
        path: path.to_owned(),
        headers: vec![("cookie".to_owned(), b"a=b; tier=gold".to_vec())],
        client: Some("::ffff:10.1.2.3".parse().expect("an address")),
    };
    let long = "/%61".repeat(3000);
    let requests = [
        request("shop.example", "/shop/search?q=1"),
        request("A.GOLD.example:8080", "/api/v1/x/payments"),
        request("shop.example", "//shop/./%73earch/../pay"),
        request("shop.example", &long),
        request(&"h".repeat(400), ""),
    ];
    let mut found = None;
    let allocations = allocations_in(|| found = Some(requests.each_ref().map(|request| classifier.classify(request))));
    assert_eq!(allocations, 0);
    assert_eq!(
        found.expect("it ran").map(|f| f.class.0),
        [0, 0, 0, 0, 0],
        "the cookie from the inner network makes all of them gold"
    );
}

struct Plain;

impl RequestView for Plain {
    fn method(&self) -> &str {
        "GET"
    }

    fn host(&self) -> Option<&str> {
        Some("Shop.Example.org:8080")
    }

    fn path(&self) -> &str {
        "/shop//a/../%63heckout/basket?item=7"
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        (lowercase_name == "cookie").then_some(b"theme=dark; tier=gold")
    }

    fn client(&self) -> Option<std::net::IpAddr> {
        Some(std::net::IpAddr::from([127, 0, 0, 1]))
    }
}

#[test]
fn the_longest_way_through_the_rules_allocates_nothing() {
    let tier = ValueMatch { name: "tier".into(), value: ValuePattern::Exact("gold".into()) };
    let gold = Rule {
        hosts: vec!["*.example.org".into()],
        path: Some(PathMatch::Prefix("/shop/checkout".into())),
        cookies: vec![tier],
        ..Rule::default()
    };
    let globs = Rule { path: Some(PathMatch::Glob("/img/**/*.png".into())), ..Rule::default() };
    let setup = ClassifierSetup { classes: vec![vec![globs], vec![gold], vec![]], ..ClassifierSetup::default() };
    let classifier = Classifier::compile(&setup).expect("sound rules");
    assert_eq!(classifier.classify(&Plain).class, ClassId(1), "it takes the whole way");
    let found = allocations_in(|| {
        for _ in 0..1_000 {
            black_box(classifier.classify(&Plain));
        }
    });
    assert_eq!(found, 0);
}
