//! Servers by name, by SRV records and in files, with a real DNS server whose answers change.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hickory_server::proto::op::ResponseCode;
use tidegate_engine::{ServerSetup, Sla, Statistic, Status};
use tidegate_sentry::Sentry;
use tidegate_sentry::app::Governed;
use tidegate_sentry::config::{Application, Config, Server, ServerFile};
use tidegate_sentry::names::Seen;
use tidegate_sentry::record::NoRecords;

use super::support::dns::Dns;
use super::support::{Door, RawServer, Running, application, config, ok, until};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Servers on one port of two addresses, each of which says who it is; `/hold` waits for the door.
fn pair(door: &Door) -> (RawServer, RawServer, u16) {
    let (one, two) = loop {
        let one = TcpListener::bind((ONE, 0)).expect("a port");
        let port = one.local_addr().expect("an address").port();
        // Somebody else may have that port there.
        if let Ok(two) = TcpListener::bind((TWO, port)) {
            break (one, two);
        }
    };
    let port = one.local_addr().expect("an address").port();
    let serve = |listener: TcpListener, says: &'static str| {
        let door = door.clone();
        RawServer::start_on(listener, move |mut peer| {
            while let Some(asked) = peer.request() {
                if asked.target == "/hold" {
                    door.wait();
                }
                let host = asked.field("host").unwrap_or_default().to_owned();
                if !peer.send(ok(&format!("{says} {host}"))) {
                    return;
                }
            }
        })
    };
    (serve(one, "one"), serve(two, "two"), port)
}

/// An application with these servers, by name.
fn of(addresses: &[&str]) -> Application {
    let mut application = application(&[]);
    for address in addresses {
        application.servers.push(Server { name: (*address).to_owned(), address: (*address).to_owned() });
        application.setup.servers.push(ServerSetup::new(*address));
    }
    application
}

fn asking(dns: &Dns, application: Application) -> Config {
    let mut config = config(application, 1);
    config.sentry.resolvers = vec![dns.address];
    config
}

fn start(dns: &Dns, application: Application) -> Running {
    let handle = Sentry::start(asking(dns, application), Arc::new(NoRecords)).expect("a sentry");
    let address = handle.addresses("app")[0];
    Running { handle, address }
}

/// Servers that are not on their way out, by name.
fn servers(sentry: &Running) -> Vec<String> {
    let live = sentry.app().live();
    let mut names: Vec<_> =
        live.servers().filter(|server| server.status() != Status::Draining).map(|server| server.name.clone()).collect();
    names.sort();
    names
}

fn seen(sentry: &Running) -> Seen {
    sentry.handle.names().expect("names").all().remove(0)
}

fn says(sentry: &Running) -> String {
    let answer = sentry.ask(GET);
    assert_eq!(answer.status, 200);
    answer.text().split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_name_s_servers_come_and_go_with_its_addresses() {
    let (dns, door) = (Dns::start(), Door::default());
    let (_one, _two, port) = pair(&door);
    dns.set("shop.test", &[ONE]);
    let sentry = start(&dns, of(&[&format!("shop.test:{port}")]));
    let (first, second) = (format!("shop.test/127.0.0.1:{port}"), format!("shop.test/127.0.0.2:{port}"));
    assert_eq!(servers(&sentry), std::slice::from_ref(&first), "known when it starts");
    assert_eq!(says(&sentry), "one");
    let named = sentry.ask("GET / HTTP/1.0\r\n\r\n").text();
    assert_eq!(named, format!("one shop.test:{port}"), "asked by its name");
    let before = sentry.app().live().servers().next().cloned().expect("a server");

    dns.set("shop.test", &[TWO, ONE]);
    until("the other enters", || servers(&sentry) == [first.clone(), second.clone()]);
    let after = sentry.app().live().servers().find(|server| server.name == first).cloned().expect("it stays");
    assert!(Arc::ptr_eq(&before, &after), "with all that is known of it");
    until("both serve", || says(&sentry) == "two");

    // One that goes finishes what it has.
    let mut holding = sentry.client();
    dns.set("shop.test", &[ONE]);
    until("the other goes", || servers(&sentry) == [first.clone()]);
    holding.send("GET /hold HTTP/1.1\r\nhost: a\r\n\r\n");
    until("a request is there", || sentry.app().in_flight() == 1);
    dns.set("shop.test", &[TWO]);
    until("it changes places", || servers(&sentry) == [second.clone()]);
    let draining = sentry.app().live().servers().any(|server| server.name == first);
    assert!(draining, "it has a request still");
    for _ in 0..20 {
        assert_eq!(says(&sentry), "two");
    }
    door.open();
    assert_eq!(holding.answer().text(), "one a");
    dns.set("shop.test", &[ONE, TWO]);
    until("it comes back", || servers(&sentry).len() == 2);
    until("all changes are counted", || seen(&sentry).changes == 5);
    sentry.assert_quiet();
}

#[test]
fn while_dns_is_away_the_servers_stay() {
    let (dns, door) = (Dns::start(), Door::default());
    let (_one, _two, port) = pair(&door);
    dns.set("shop.test", &[ONE]);
    let sentry = start(&dns, of(&[&format!("shop.test:{port}")]));
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NXDomain] {
        dns.fail(Some(code));
        until("it is noticed", || seen(&sentry).state == "stale");
        let asked = dns.queries();
        until("it is asked again", || dns.queries() > asked + 1);
        assert_eq!((servers(&sentry).len(), says(&sentry)), (1, "one".to_owned()), "{code}");
        assert!(seen(&sentry).problem.is_some() && seen(&sentry).good_at.is_some());
        dns.fail(None);
        until("it is back", || seen(&sentry).state == "fresh");
    }
    assert_eq!(seen(&sentry).changes, 1);
}

#[test]
fn a_name_that_leads_nowhere_at_the_start_does_so_later() {
    let (dns, door) = (Dns::start(), Door::default());
    let (_one, _two, port) = pair(&door);
    let sentry = start(&dns, of(&[&format!("shop.test:{port}")]));
    assert_eq!(sentry.ask(GET).status, 503);
    assert_eq!((seen(&sentry).state, servers(&sentry).len()), ("unknown", 0));
    dns.set("shop.test", &[TWO]);
    until("it has a server", || !servers(&sentry).is_empty());
    assert_eq!(says(&sentry), "two");
}

#[test]
fn srv_records_say_ports_and_weights() {
    let (dns, door) = (Dns::start(), Door::default());
    let (one, two) = (RawServer::echo(), RawServer::echo());
    let _ = door;
    dns.set("a.test", &[ONE]);
    let (port, other) = (one.address.port(), two.address.port());
    let service = "_http._tcp.shop.test";
    dns.set_services(service, &[(1, 10, port, "a.test."), (1, 30, other, "a.test."), (2, 1, 9, "a.test.")]);
    let sentry = start(&dns, of(&["srv:_http._tcp.shop.test"]));
    let weight = |port: u16| {
        let name = format!("{service}/127.0.0.1:{port}");
        let setups = sentry.app().live().config.setup.servers.clone();
        setups.into_iter().find(|setup| setup.name == name).map(|setup| setup.weight)
    };
    assert_eq!((servers(&sentry).len(), weight(port), weight(other)), (2, Some(0.5), Some(1.5)));
    dns.set_services(service, &[(2, 1, other, "a.test.")]);
    // Servers that go are drained a moment before the new configuration is in force.
    until("the next priority is in force", || {
        servers(&sentry) == [format!("{service}/127.0.0.1:{other}")] && weight(other) == Some(1.0)
    });
    assert_eq!(sentry.ask(GET).status, 200);
}

#[test]
fn what_a_control_plane_orders_may_have_names_and_reloads_keep_what_is_known() {
    let (dns, door) = (Dns::start(), Door::default());
    let (_one, _two, port) = pair(&door);
    dns.set("shop.test", &[ONE]);
    dns.set("more.test", &[TWO]);
    let (shop, more) = (format!("shop.test:{port}"), format!("more.test:{port}"));
    let declared = of(&[&shop]);
    let sentry = start(&dns, declared.clone());
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target");
    let ordered = Server { name: "ordered".to_owned(), address: more };
    sentry.app().govern(Governed { servers: Some(vec![ordered]), sla: sla.clone() }).expect("orders");
    until("what was ordered is found", || servers(&sentry) == [format!("ordered/127.0.0.2:{port}")]);
    let before = sentry.app().live().servers().next().cloned().expect("a server");
    sentry.handle.reload(asking(&dns, declared.clone())).expect("a reload");
    let after = sentry.app().live().servers().next().cloned().expect("a server");
    assert!(Arc::ptr_eq(&before, &after), "a reload loses nothing, not for a moment");
    // By hand, below all changes of names.
    sentry.app().set_guarantee(tidegate_engine::ClassId(0), 5.0).expect("a rate");
    dns.set("more.test", &[ONE, TWO]);
    until("the name has two", || servers(&sentry).len() == 2);
    assert_eq!(sentry.app().live().config.setup.classes[0].min_rate, 5.0);
}

#[test]
fn a_file_of_servers_is_in_force_when_it_changes() {
    let (dns, door) = (Dns::start(), Door::default());
    let (one, two, _) = pair(&door);
    let path = std::env::temp_dir().join(format!("tidegate-names-{}.toml", std::process::id()));
    let write = |all: &[SocketAddr]| {
        let text: Vec<_> = all.iter().map(|address| format!("\"{address}\"")).collect();
        std::fs::write(&path, format!("servers = [{}]\n", text.join(", "))).expect("writes");
    };
    write(&[one.address]);
    let mut declared = of(&[]);
    let servers_of = ServerFile::read(&path).expect("a file");
    declared.server_files = vec![ServerFile { path: path.clone(), servers: servers_of }];
    let sentry = start(&dns, declared);
    assert_eq!(says(&sentry), "one");
    write(&[one.address, two.address]);
    until("both are in force", || servers(&sentry).len() == 2);
    std::fs::write(&path, "servers = [\"127.0.0.1\"]\n").expect("writes");
    until("it is refused", || seen(&sentry).problem.is_some_and(|why| why.contains("port is missing")));
    assert_eq!((servers(&sentry).len(), seen(&sentry).state), (2, "stale"));
    write(&[two.address]);
    until("the other is gone", || servers(&sentry) == [two.address.to_string()]);
    assert_eq!((says(&sentry), seen(&sentry).state), ("two".to_owned(), "fresh"));
    // The folder is temporary: leaving the file harms nobody.
    let _ = std::fs::remove_file(&path);
}
