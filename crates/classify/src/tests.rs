use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::testing::{PlainRequest, compare};
use super::*;

fn get(path: &str) -> PlainRequest {
    PlainRequest { method: "GET".to_string(), path: path.to_string(), ..PlainRequest::default() }
}

fn prefix(prefix: &str) -> Rule {
    Rule { path: Some(PathMatch::Prefix(prefix.to_string())), ..Rule::default() }
}

fn host(host: &str) -> Rule {
    Rule { hosts: vec![host.to_string()], ..Rule::default() }
}

fn classes(classes: Vec<Vec<Rule>>) -> Classifier {
    Classifier::compile(&ClassifierSetup { classes, ..ClassifierSetup::default() }).expect("valid rules")
}

fn problem(rule: Rule) -> RuleProblem {
    let setup = ClassifierSetup { classes: vec![vec![rule]], ..ClassifierSetup::default() };
    match Classifier::compile(&setup) {
        Err(ClassifyError::ClassRule { class: 0, rule: 0, problem }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prefix_ends_at_a_segment() {
    let classifier = classes(vec![vec![prefix("/checkout")], vec![]]);
    for inside in
        ["/checkout", "/checkout/", "/checkout/x", "/checkout?x", "/checkout/x?y", "//checkout", "/%63heckout"]
    {
        assert_eq!(classifier.classify(&get(inside)).class, ClassId(0), "{inside}");
    }
    for outside in ["/checkoutx", "/Checkout", "/", "/checkout/../x", "/x?/checkout", "/checkout%2f..%2fx", "*", ""] {
        assert_eq!(classifier.classify(&get(outside)).class, ClassId(1), "{outside}");
    }
    let below = classes(vec![vec![prefix("/a/")], vec![]]);
    assert_eq!(below.classify(&get("/a/b")).class, ClassId(0));
    assert_eq!(below.classify(&get("/a")).class, ClassId(1));
    let all = classes(vec![vec![prefix("/")], vec![]]);
    assert_eq!(all.classify(&get("/x")).class, ClassId(0));
}

#[test]
fn the_most_important_class_wins_wherever_its_rule_is_filed() {
    let cookie = ValueMatch { name: "tier".to_string(), value: ValuePattern::Exact("gold".to_string()) };
    let gold = Rule { cookies: vec![cookie], ..Rule::default() };
    let exact = Rule { path: Some(PathMatch::Exact("/a/b".to_string())), ..Rule::default() };
    let classifier = classes(vec![vec![gold], vec![prefix("/a")], vec![exact, host("*.example")], vec![]]);
    let class = |request: &PlainRequest| classifier.classify(request).class.0;
    let mut request = get("/a/b");
    assert_eq!(class(&request), 1);
    request.headers = vec![("cookie".to_string(), b"x=y; tier=gold".to_vec())];
    assert_eq!(class(&request), 0);
    let elsewhere = PlainRequest { host: Some("Shop.EXAMPLE:8080".to_string()), ..get("/b") };
    assert_eq!(class(&elsewhere), 2);
    assert_eq!(class(&get("/b")), 3);
}

#[test]
fn nothing_matching_is_the_last_class_and_the_default_type() {
    let request_types = vec![TypeRules { rules: vec![prefix("/db")], tags: Tags(0b10) }];
    let setup = ClassifierSetup {
        classes: vec![vec![prefix("/a")], vec![prefix("/b")]],
        request_types,
        seed: 1,
        ..ClassifierSetup::default()
    };
    let classifier = Classifier::compile(&setup).expect("valid");
    let found = classifier.classify(&get("/c"));
    assert_eq!((found.class, found.request_type, found.tags), (ClassId(1), RequestTypeId(0), Tags(0)));
    let found = classifier.classify(&get("/db/x"));
    assert_eq!((found.class, found.request_type, found.tags), (ClassId(1), RequestTypeId(1), Tags(0b10)));
}

#[test]
fn url_keys_follow_host_and_path_but_not_the_query_and_differ_by_seed() {
    let with_seed = |seed| {
        let setup = ClassifierSetup { classes: vec![vec![]], seed, ..ClassifierSetup::default() };
        Classifier::compile(&setup).expect("valid")
    };
    let classifier = with_seed(1);
    let key = |request: &PlainRequest| classifier.classify(request).url;
    assert_eq!(key(&get("/a?x=1")), key(&get("/a?x=2")));
    assert_eq!(key(&get("/a//b")), key(&get("/a/b")));
    assert_ne!(key(&get("/a")), key(&get("/b")));
    assert_ne!(key(&get("/a")), key(&PlainRequest { host: Some("h".to_string()), ..get("/a") }));
    assert_ne!(with_seed(2).classify(&get("/a")).url, key(&get("/a")));
}

#[test]
fn an_ipv4_client_is_one_on_an_ipv6_socket_too() {
    let inside = Rule { networks: vec!["10.0.0.0/8".parse().expect("a network")], ..Rule::default() };
    let classifier = classes(vec![vec![inside], vec![]]);
    let class = |client: &str| {
        let client = Some(client.parse().expect("an address"));
        classifier.classify(&PlainRequest { client, ..get("/") }).class.0
    };
    assert_eq!((class("10.1.2.3"), class("::ffff:10.1.2.3"), class("11.1.2.3"), class("fd00::1")), (0, 0, 1, 1));
}

#[test]
fn an_odd_path_too_long_to_read_is_in_no_class_that_asks_for_a_path() {
    let classifier = classes(vec![vec![prefix("/")], vec![]]);
    let long = "/".to_string() + &"%61".repeat(5000);
    assert_eq!(classifier.classify(&get(&long)).class, ClassId(1));
    let plain = "/".to_string() + &"a".repeat(15_000);
    assert_eq!(classifier.classify(&get(&plain)).class, ClassId(0));
}

#[test]
fn rules_that_could_never_match_are_errors() {
    let path = |path: PathMatch| Rule { path: Some(path), ..Rule::default() };
    let text = String::from;
    assert_eq!(problem(prefix("checkout")), RuleProblem::Path(text("checkout")));
    assert_eq!(problem(path(PathMatch::Exact(text("/a?b")))), RuleProblem::Path(text("/a?b")));
    assert_eq!(problem(path(PathMatch::Glob(text("/a/../*")))), RuleProblem::Glob(text("/a/../*")));
    assert!(matches!(problem(path(PathMatch::Glob("/*".repeat(200)))), RuleProblem::GlobTooLong(_, 127)));
    for bad in ["shop.example:80", "a*.example", "", "*."] {
        assert_eq!(problem(host(bad)), RuleProblem::Host(text(bad)));
    }
    assert_eq!(problem(Rule { methods: vec![text("GE T")], ..Rule::default() }), RuleProblem::Method(text("GE T")));
    assert!(matches!(Classifier::compile(&ClassifierSetup::default()), Err(ClassifyError::Classes { given: 0 })));
}

proptest! {
    // Rules and requests made of bytes meet in few cases: many are needed to try every condition.
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn agrees_with_the_naive_matcher(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        compare(&data);
    }
}

/// Before anything is asked, only what no request can change counts: hosts, networks, and classes of everybody.
#[test]
fn a_class_is_certain_where_no_request_can_be_less() {
    let network = |text: &str| Rule { networks: vec![text.parse().expect("a network")], ..Rule::default() };
    let office = Rule { hosts: vec!["*.office.example".to_string()], ..network("10.0.0.0/8") };
    let slow = Rule { path: Some(PathMatch::Prefix("/".to_string())), ..network("192.0.2.0/24") };
    let classifier = classes(vec![vec![office, slow], vec![prefix("/x")], vec![host("shop.example")], vec![]]);
    let class = |host: Option<&str>, client: &str| {
        let client = client.parse().expect("an address");
        let class = classifier.class_at_least(host, client);
        for path in ["/", "/x"] {
            let request = PlainRequest { client: Some(client), host: host.map(str::to_string), ..get(path) };
            assert!(classifier.classify(&request).class <= class, "{path} of {client} to {host:?}");
        }
        class.0
    };
    assert_eq!(class(Some("a.office.example"), "10.1.2.3"), 0);
    assert_eq!(class(Some("a.office.example"), "::ffff:10.1.2.3"), 0);
    assert_eq!(class(Some("a.office.example"), "192.0.2.1"), 3, "with a path it is not certain");
    assert_eq!(class(Some("SHOP.example"), "10.1.2.3"), 2);
    assert_eq!(class(None, "10.1.2.3"), 3);
    let everybody = classes(vec![vec![prefix("/x")], vec![]]);
    assert_eq!(everybody.class_at_least(None, IpAddr::from([127, 0, 0, 1])), ClassId(1));
    let none = classes(vec![vec![prefix("/x")], vec![prefix("/y")]]);
    assert_eq!(none.class_at_least(None, IpAddr::from([127, 0, 0, 1])), ClassId(1), "the last has what is left");
}
