//! What the file says of tenants.

use tidegate_classify::TenantSource;

use super::{accepted, refused};

const TOP: &str = "[[application]]\nservers = \"127.0.0.1:9001\"\n";

fn source(tenants: &str) -> TenantSource {
    let config = accepted(&format!("{TOP}{tenants}\n")).config;
    let again = accepted(&config.to_toml()).config;
    assert_eq!(config.to_toml(), again.to_toml(), "what is shown means the same");
    config.applications[0].classifier.tenants.source.clone()
}

#[test]
fn what_tells_tenants_apart() {
    for (typed, means) in [
        ("", TenantSource::Network),
        ("tenants = {}", TenantSource::Network),
        ("tenants = { by = \"nobody\" }", TenantSource::Nobody),
        ("tenants = { by = \"certificate\" }", TenantSource::Certificate),
        ("tenants = { cookie = \"Account\" }", TenantSource::Cookie("Account".to_owned())),
        ("tenants = { header = \"X-Api-Key\" }", TenantSource::Header("x-api-key".to_owned())),
    ] {
        assert_eq!(source(typed), means, "{typed}");
    }
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let tenant = |keys: &str| format!("[[application.tenant]]\nname = \"a\"\n{keys}");
    let by_cookie = "tenants = { cookie = \"c\" }\n";
    for (typed, told) in [
        ("tenants = { header = \"a b\" }".to_owned(), "\"a b\" is not a header name"),
        ("tenants = { by = \"header\" }".to_owned(), "write \"network\", \"certificate\" or \"nobody\""),
        ("tenants = { by = \"network\", cookie = \"a\" }".to_owned(), "give one of by, header and cookie"),
        ("[[application.tenant]]\nnetwork = \"10.0.0.0/8\"".to_owned(), "add name = "),
        (tenant(""), "add network = "),
        (tenant("value = \"k\""), "add tenants = { header = "),
        (tenant("network = \"10.0.0.0/99\""), "\"10.0.0.0/99\" is not a network"),
        (format!("tenants = {{ by = \"nobody\" }}\n{}", tenant("network = \"10.0.0.0/8\"")), "leave one of them out"),
        (format!("{by_cookie}{}", tenant("value = [\"k\", \" l\"]")), "begins or ends with a space"),
        (format!("{by_cookie}{}", tenant("value = [\"k\", \"k\"]")), "value \"k\" is there twice"),
        (tenant("network = \"10.0.0.0/8\"\nmin_rate = \"9/s\"\nmax_rate = \"8/s\""), "min_rate promises more"),
        (tenant("network = \"10.0.0.0/8\"\nweight = 0"), "weight = 0 is out of range"),
        (format!("{0}\n{0}", tenant("network = \"10.0.0.0/8\"")), "tenant \"a\" is there twice"),
    ] {
        let said = refused(&format!("{TOP}{typed}\n"));
        assert!(said.contains(told), "{typed}: {said}");
    }
}
