//! Classification allocates nothing, whatever the request.

use tidegate_engine::fuzz::PlainRequest;
use tidegate_engine::{Classifier, ClassifierSetup, PathMatch, Rule, TypeRules, ValueMatch, ValuePattern};

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
    Classifier::compile(&ClassifierSetup { classes, request_types: types, seed: 1, affinity: None })
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
