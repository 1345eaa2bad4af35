//! The settings, and the configuration of each.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;

use crate::bench::load::CONNECTIONS;
use crate::bench::service::free_address;

/// One thing of which there is much.
#[derive(Debug)]
pub struct Setting {
    /// As in `--only`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Connections with a request at any time.
    pub connections: u32,
    /// Connections without one.
    pub idle: usize,
    /// Whether the configuration is read again all the while.
    pub reloads: bool,
    /// Seconds of load before what counts: all connections to servers are open.
    pub warm_up: f64,
    much: Much,
}

#[derive(Debug, Clone, Copy)]
enum Much {
    Nothing,
    /// Classification rules that do not match, by paths and hosts, each kind in turn.
    Rules(usize),
    /// The same by a header field alone.
    Headers(usize),
    Servers(usize),
    /// Each with an address of its own; the last is asked.
    Listeners(usize),
    /// All at one address, told by their paths; the last is asked.
    Routes(usize),
}

const fn setting(name: &'static str, much: Much, title: &'static str) -> Setting {
    Setting { name, title, connections: CONNECTIONS, idle: 0, reloads: false, warm_up: 1.0, much }
}

/// Every setting. The first is the one to which ratios are taken.
pub const SETTINGS: &[Setting] = &[
    setting("plain", Much::Nothing, "one application, one server, no rule"),
    setting("rules-100", Much::Rules(100), "100 classification rules, none of which matches"),
    setting("rules-10000", Much::Rules(10_000), "10,000 such rules"),
    Setting {
        reloads: true,
        ..setting("reloads", Much::Rules(10_000), "the same, read again twice a second under load")
    },
    setting("headers-1000", Much::Headers(1_000), "1,000 rules by a header field alone"),
    setting("servers-100", Much::Servers(100), "100 servers"),
    Setting { warm_up: 3.0, ..setting("servers-1000", Much::Servers(1_000), "1,000 servers") },
    // Each check asks for a connection of its own, each request for a kept one: 10,000 must open first.
    Setting { warm_up: 10.0, ..setting("servers-10000", Much::Servers(10_000), "10,000 servers") },
    setting("listeners-100", Much::Listeners(100), "100 applications, each at an address of its own"),
    setting("listeners-1000", Much::Listeners(1_000), "1,000 such applications"),
    setting("routes-1000", Much::Routes(1_000), "1,000 applications at one address, told by their paths"),
    Setting { idle: 9_000, ..setting("idle-9000", Much::Nothing, "9,000 connections that rest") },
    Setting {
        connections: 4_000,
        warm_up: 3.0,
        ..setting("active-4000", Much::Nothing, "4,000 connections that ask as fast as they are answered")
    },
];

impl Setting {
    /// The program's file.
    ///
    /// # Errors
    /// When no address is free.
    pub fn configuration(&self, listen: SocketAddr, admin: SocketAddr, origin: SocketAddr) -> Result<String> {
        let mut text = format!("[sentry]\nworkers = 1\n\n[admin]\nlisten = \"{admin}\"\n");
        let one = |text: &mut String, name: &str, listen: SocketAddr, more: &str| {
            application(text, name, listen, &[origin], more);
        };
        match self.much {
            Much::Nothing => one(&mut text, "bench", listen, ""),
            Much::Rules(count) => one(&mut text, "bench", listen, &rules(count, by_place)),
            Much::Headers(count) => one(&mut text, "bench", listen, &rules(count, by_header)),
            Much::Servers(count) => {
                application(&mut text, "bench", listen, &addresses(count, origin.port()), "");
            }
            Much::Listeners(count) => {
                for number in 1..count {
                    one(&mut text, &format!("bench-{number}"), free_address()?, "");
                }
                one(&mut text, "bench", listen, "");
            }
            Much::Routes(count) => {
                for number in 1..count {
                    let route = format!("route = [{{ path = \"/bench-{number}\" }}]\n");
                    one(&mut text, &format!("bench-{number}"), listen, &route);
                }
                one(&mut text, "bench", listen, "route = [{ path = \"/1k\" }]\n");
            }
        }
        Ok(text)
    }
}

fn application(text: &mut String, name: &str, listen: SocketAddr, servers: &[SocketAddr], more: &str) {
    let servers: Vec<_> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    let _ = write!(
        text,
        "\n[[application]]\nname = \"{name}\"\nlisten = \"{listen}\"\nservers = [{}]\n\
         limits = {{ connections = 12000 }}\n\
         timeouts = {{ client_idle = \"600s\" }}\n{more}",
        servers.join(", ")
    );
}

/// Rules of a class that no request belongs to.
fn rules(count: usize, rule: fn(usize) -> String) -> String {
    let mut text = String::from("\n[[application.class]]\nname = \"gold\"\nmatch = [\n");
    for number in 0..count {
        let _ = writeln!(text, "    {},", rule(number));
    }
    text.push_str("]\n\n[[application.class]]\nname = \"others\"\n");
    text
}

fn by_place(number: usize) -> String {
    match number % 4 {
        0 => format!("{{ path = \"/none-{number}\" }}"),
        1 => format!("{{ path_prefix = \"/none-{number}\" }}"),
        2 => format!("{{ path_glob = \"/none-{number}/*/list\" }}"),
        _ => format!("{{ host = \"none-{number}.example\" }}"),
    }
}

fn by_header(number: usize) -> String {
    format!("{{ header = {{ name = \"x-tier\", value = \"none-{number}\" }} }}")
}

/// So many addresses of 127.0.0.0/8, from 127.1.0.1 on.
fn addresses(count: usize, port: u16) -> Vec<SocketAddr> {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    (first..).take(count).map(|address| SocketAddr::from((Ipv4Addr::from(address), port))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn each_setting_has_as_many_as_it_says() {
        for setting in SETTINGS {
            let text = setting.configuration(address(1), address(2), address(3)).unwrap();
            let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", setting.name));
            let applications = table["application"].as_array().unwrap();
            let (first, last) = (&applications[0], applications.last().unwrap());
            let rules = first.get("class").map_or(0, |classes| classes[0]["match"].as_array().unwrap().len());
            let count = [applications.len(), first["servers"].as_array().unwrap().len(), rules];
            let wanted = match setting.much {
                Much::Nothing => [1, 1, 0],
                Much::Rules(rules) | Much::Headers(rules) => [1, 1, rules],
                Much::Servers(servers) => [1, servers, 0],
                Much::Listeners(applications) | Much::Routes(applications) => [applications, 1, 0],
            };
            assert_eq!(count, wanted, "{}", setting.name);
            assert_eq!(last["listen"].as_str(), Some("127.0.0.1:1"), "{}", setting.name);
        }
    }
}
