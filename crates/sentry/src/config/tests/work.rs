//! What the file says of work: kinds of classes and types, room for what is open, and which time a target bounds.

use tidegate_engine::{Bounds, ClassId, Request, RequestTypeId};

use super::super::{OPEN_BYTES, RequestKind};
use super::{accepted, refused};

const TOP: &str = "[[application]]\nservers = \"127.0.0.1:9001\"\n";

fn kinds(of_class: &str, of_type: &str) -> RequestKind {
    let text = format!(
        "{TOP}[[application.class]]\nname = \"live\"\nmatch = {{ path_prefix = \"/live\" }}\n{of_class}\n\
         [[application.class]]\nname = \"rest\"\n\
         [[application.request_type]]\nname = \"news\"\nmatch = {{ path = \"/live/news\" }}\n{of_type}\n"
    );
    let config = accepted(&text).config;
    let again = accepted(&config.to_toml()).config;
    assert_eq!(config.to_toml(), again.to_toml(), "what is shown means the same");
    let app = &config.applications[0];
    let other = Request { class: ClassId(1), ..Request::default() };
    assert_eq!(app.kind(&other), RequestKind::Ordinary, "another class's");
    app.kind(&Request { request_type: RequestTypeId(1), ..Request::default() })
}

#[test]
fn a_type_s_kind_goes_before_its_class_s() {
    assert_eq!(kinds("", ""), RequestKind::Ordinary);
    assert_eq!(kinds("kind = \"stream\"", ""), RequestKind::Stream);
    assert_eq!(kinds("kind = \"poll\"", "kind = \"work\""), RequestKind::Work);
    assert_eq!(kinds("", "kind = \"poll\""), RequestKind::Poll);
}

#[test]
fn an_unknown_kind_is_told_with_those_that_there_are() {
    for place in
        ["[[application.class]]\nname = \"c\"", "[[application.request_type]]\nname = \"t\"\nmatch = {path=\"/\"}"]
    {
        let told = refused(&format!("{TOP}{place}\nkind = \"strem\"\n"));
        assert!(told.contains("\"ordinary\", \"stream\", \"poll\", \"upload\", \"work\""), "{told}");
    }
}

#[test]
fn what_is_open_is_bounded_by_its_memory_too() {
    let most = |limits: &str| {
        accepted(&format!("{TOP}[application.limits]\n{limits}\n")).config.applications[0].setup.most_open
    };
    assert_eq!(most(""), 10_000);
    assert_eq!(most("open = 7"), 7);
    assert_eq!(most("open = 1000000"), 10_000, "memory for as many as by default");
    assert_eq!(most("open_bytes = \"16MiB\""), (16 << 20) / OPEN_BYTES as usize);
    assert_eq!(most("open_bytes = 0"), 0);
}

#[test]
fn a_target_bounds_the_time_to_the_last_byte_or_to_the_first() {
    let sla = |more: &str| {
        let config = accepted(&format!("{TOP}sla = {{ target = \"1s\"{more} }}\n")).config;
        accepted(&config.to_toml()).config.applications[0].setup.sla.bounds()
    };
    assert_eq!(sla(""), Bounds::Response);
    assert_eq!(sla(", of = \"response\""), Bounds::Response);
    assert_eq!(sla(", of = \"first-byte\""), Bounds::FirstByte);
    let told = refused(&format!("{TOP}sla = {{ target = \"1s\", of = \"last-byte\" }}\n"));
    assert!(told.contains("unknown time \"last-byte\"; known here: response, first-byte"), "{told}");
}

#[test]
fn statuses_that_say_refused_below_are_those_of_errors() {
    let statuses = |given: &str| {
        let config = accepted(&format!("{TOP}{given}\n")).config;
        accepted(&config.to_toml()).config.applications[0].refused_below.clone()
    };
    assert_eq!((statuses(""), statuses("refused_below = []")), (vec![], vec![]));
    assert_eq!((statuses("refused_below = 503"), statuses("refused_below = [400, 599]")), (vec![503], vec![400, 599]));
    for (given, told) in [
        ("refused_below = [503, 399]", "refused_below = 399 is out of range; give 400 to 599"),
        ("refused_below = 600", "refused_below = 600 is out of range; give 400 to 599"),
        ("refused_below = \"503\"", "refused_below"),
        ("refuse_below = [503]", "refused_below"),
    ] {
        let message = refused(&format!("{TOP}{given}\n"));
        assert!(message.contains(told), "{given}: {message}");
    }
}
