//! Where the file may say that one listens, and that servers are.

use super::super::{Asker, ProxyOut, SocketFile};
use super::{accepted, refused};

fn app(keys: &str) -> String {
    format!("[[application]]\n{keys}\n")
}

#[test]
fn sockets_and_both_families_mean_what_is_shown() {
    let listen = "listen = [\":80\", \"unix:/run/a.sock\", { address = \"unix:/run/b.sock\", mode = \"0600\" }]";
    let more = "servers = [\"unix:/run/app.sock\", \"h2c://unix:/run/h2.sock\", \"srv:_http._tcp.a.b\"]\n\
                server_proxy = \"v2\"\nforwarded.trust = \"unix\"\n[sentry]\nresolvers = [\"::1\", \"10.0.0.2:5353\"]";
    let config = accepted(&app(&format!("{listen}\n{more}"))).config;
    let one = &config.applications[0];
    assert_eq!(one.listen[0].address.to_string(), "[::]:80");
    let socket = |path: &str, mode| Some(SocketFile::new(std::path::Path::new(path), mode));
    assert_eq!(
        (one.listen[1].socket, one.listen[2].socket),
        (socket("/run/a.sock", 0o660), socket("/run/b.sock", 0o600))
    );
    assert!(one.forwarded.trust[0].contains(&std::net::IpAddr::from([0, 0, 0, 0])));
    assert_eq!(one.server_proxy, ProxyOut::V2);
    let resolvers: Vec<_> = config.sentry.resolvers.iter().map(ToString::to_string).collect();
    assert_eq!(resolvers, ["[::1]:53", "10.0.0.2:5353"]);
    let again = accepted(&config.to_toml()).config;
    assert_eq!(config.to_toml(), again.to_toml(), "what is shown means the same");
    assert_eq!(again.applications[0].listen, one.listen);
}

#[test]
fn mistakes_say_what_to_write() {
    let server = "servers = \"127.0.0.1:1\"";
    for (keys, hint) in [
        (format!("{server}\nlisten = \"unix:a.sock\""), "whole path"),
        (format!("{server}\nlisten = {{ address = \"unix:/a\", mode = \"9\" }}"), "in octal"),
        (format!("{server}\nlisten = {{ address = \":80\", mode = \"0600\" }}"), "mode is for Unix sockets"),
        (format!("{server}\nlisten = [\"unix:/a\", \"unix:/a\"]"), "listen in another place"),
        (format!("{server}\nlisten = [\":80\", \"127.0.0.1:80\"]"), "listen on another port"),
        (format!("{server}\nserver_proxy = \"v3\""), "\"off\" or \"v1\" or \"v2\""),
        (format!("{server}\n[sentry]\nresolvers = \"dns.internal\""), "no address of a name server"),
        ("servers = { file = \"none.toml\" }".to_owned(), "cannot be read"),
        ("servers = { file = \"none.toml\", weight = 2 }".to_owned(), "\"weight\" is for one server"),
        ("servers = \"srv:shop.internal\"".to_owned(), "srv:_http._tcp."),
    ] {
        let told = refused(&app(&keys));
        assert!(told.contains(hint), "{keys}: {told}");
    }
    let both = "listen = [\"0.0.0.0:80\", \"[::]:80\"]";
    assert_eq!(accepted(&app(&format!("{server}\n{both}"))).config.applications[0].listen.len(), 2);
    let other = format!("{}name = \"a\"\n{server}\nlisten = \"0.0.0.0:80\"\n", "[[application]]\n");
    let two = format!("{other}[[application]]\nname = \"b\"\n{server}\nlisten = \":80\"\n");
    assert!(refused(&two).contains("[::]:80 is already taken by application \"a\""));
}

#[test]
fn envoy_is_every_server_and_what_it_does_is_left_to_it() {
    let config = accepted(&app("servers = [\"envoy\"]")).config;
    let one = &config.applications[0];
    assert_eq!((&*one.servers[0].name, &*one.servers[0].address), ("envoy", Asker::Envoy.name()));
    assert_eq!(accepted(&config.to_toml()).config.to_toml(), config.to_toml(), "what is shown means the same");
    let named = accepted(&app("servers = { address = \"envoy\", name = \"mesh\", cores = 8 }")).config;
    let server = &named.applications[0].setup.servers[0];
    assert_eq!((&*server.name, server.cores), ("mesh", Some(8.0)));
    for (keys, hint) in [
        ("servers = [\"envoy\", \"127.0.0.1:1\"]", "leave the others out"),
        ("servers = [\"h2c://envoy\"]", "only servers = [\"envoy\"]"),
        ("servers = [\"envoy\"]\nresponse_header = { set = \"a\", value = \"b\" }", "leave response_header out"),
        ("servers = [\"envoy\"]\nserver_proxy = \"v2\"", "leave server_proxy out"),
        ("servers = [\"envoy\"]\nmirror = { to = \"127.0.0.1:1\" }", "leave mirror out"),
        ("servers = [\"127.0.0.1:1\"]\nmirror = { to = \"envoy\" }", "only servers = [\"envoy\"]"),
        ("servers = [\"envoy\"]\nlimits.streams = 0", "leave streams out"),
        ("servers = [\"nginx\", \"127.0.0.1:1\"]", "every server behind nginx"),
    ] {
        let told = refused(&app(keys));
        assert!(told.contains(hint), "{keys}: {told}");
    }
}

#[test]
fn ends_are_listened_for_where_somebody_tells_them() {
    let of = |text: &str| {
        let config = accepted(text).config;
        assert_eq!(accepted(&config.to_toml()).config.to_toml(), config.to_toml(), "what is shown means the same");
        config.ends
    };
    assert_eq!(of(&app("servers = [\"nginx\"]")), Some(([127, 0, 0, 1], 9902).into()));
    assert_eq!(of(&app("servers = [\"nginx\"]\nlimits.streams = 0")), Some(([127, 0, 0, 1], 9902).into()));
    assert_eq!(of(&format!("ends = \":7\"\n{}", app("servers = [\"nginx\"]"))), Some(([0, 0, 0, 0], 7).into()));
    assert_eq!(of(&app("servers = [\"haproxy\"]\nlimits.streams = 0")), Some(([127, 0, 0, 1], 9902).into()));
    assert_eq!(of(&app("servers = [\"envoy\"]")), None);
    assert!(refused(&format!("ends = \"x\"\n{}", app("servers = [\"nginx\"]"))).contains("ends = \"x\""));
}
