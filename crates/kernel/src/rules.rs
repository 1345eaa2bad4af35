//! Policing rules: their description, and their text for `nft`.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::owner::Owner;

/// What is to be policed.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where the service listens. An unspecified address stands for all of this machine's.
    pub listen: Vec<SocketAddr>,
    /// Classes of clients by their addresses; the rest is a class of its own, the last.
    pub classes: Vec<SourceClass>,
    /// The rest's part of the rate, in proportion to the classes' shares.
    pub rest_share: f64,
    /// Clients that are never policed: those that check the service's health.
    pub exempt: Vec<IpNet>,
    /// Connections that may come at once, of all classes together.
    pub depth: f64,
}

/// Clients with a part of the rate of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceClass {
    /// Name of the class of clients.
    pub name: String,
    /// Where its clients are.
    pub from: Vec<IpNet>,
    /// Its part of the rate, in proportion to the others' shares.
    pub share: f64,
}

/// Connections of a class since the policer was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Its name; `rest` is the last.
    pub class: String,
    /// Let in while a rate was set.
    pub admitted: u64,
    /// Connections that were dropped.
    pub refused: u64,
}

/// The hook for what comes to this machine, not through it; early, before other tables' filters.
const HOOK: &str = "type filter hook input priority raw; policy accept;";
/// The rate with which rules are installed; none is in force until the first lease.
const FIRST_RATE: u64 = 1_000_000;

impl Plan {
    /// The name of the table: of the first address.
    pub(crate) fn table(&self) -> String {
        let Some(first) = self.listen.first() else { return "tidegate_none".to_owned() };
        let address = match first.ip() {
            ip if ip.is_unspecified() => "any".to_owned(),
            ip => ip.to_string().replace(':', "_"),
        };
        format!("tidegate_{address}_{}", first.port())
    }

    /// Every port, once.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.listen.iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The names of the classes, the rest's last.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.classes.iter().map(|class| class.name.clone());
        names.chain(["rest".to_owned()]).collect()
    }

    /// Each class's part of the rate, the rest's last; they sum to 1.
    pub(crate) fn parts(&self) -> Vec<f64> {
        let shares: Vec<f64> = self.classes.iter().map(|class| class.share).chain([self.rest_share]).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter().map(|share| share / sum).collect()
    }

    /// Connections of a class that may come at once: all that may, if they come from it alone.
    pub(crate) fn depths(&self) -> Vec<u32> {
        self.parts().iter().map(|part| (self.depth * part).round().max(2.0) as u32).collect()
    }

    /// The rules, in one transaction that replaces whatever is there under the table's name.
    pub(crate) fn to_nft(&self, owner: &Owner) -> String {
        let mut text = format!("add table inet {table}\ndelete table inet {table}\n", table = self.table());
        // Writing into a string cannot fail.
        let mut line = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        line(format!("table inet {} {{", self.table()));
        line(format!(" chain {owner} {{ }}"));
        line(" set alive { type inet_service; flags timeout; }".to_owned());
        for (family, of, is_v4) in [("ipv4_addr", "4", true), ("ipv6_addr", "6", false)] {
            let (exempt, classes) = (declared(&self.exempt(is_v4)), declared(&self.elements(is_v4)));
            line(format!(" set exempt{of} {{ type {family}; flags interval;{exempt} }}"));
            line(format!(" map from{of} {{ type {family} : verdict; flags interval;{classes} }}"));
        }
        for (class, depth) in self.depths().into_iter().enumerate() {
            line(format!(" counter admitted_{class} {{ }}\n counter refused_{class} {{ }}"));
            line(format!(
                " chain class_{class} {{\n  limit rate over {FIRST_RATE}/second burst {depth} packets counter name \
                 \"refused_{class}\" drop\n  counter name \"admitted_{class}\" accept\n }}"
            ));
        }
        let rest = self.classes.len();
        line(" chain police {\n  ip saddr @exempt4 accept\n  ip6 saddr @exempt6 accept".to_owned());
        line(format!("  ip saddr vmap @from4\n  ip6 saddr vmap @from6\n  goto class_{rest}\n }}"));
        line(format!(" chain arrivals {{\n  {HOOK}"));
        for address in &self.listen {
            let to = match address.ip() {
                ip if ip.is_unspecified() => String::new(),
                IpAddr::V4(ip) => format!("ip daddr {ip} "),
                IpAddr::V6(ip) => format!("ip6 daddr {ip} "),
            };
            let port = address.port();
            line(format!("  {to}tcp dport {port} tcp dport @alive tcp flags & (fin|syn|rst|ack) == syn goto police"));
        }
        line(" }\n}".to_owned());
        text
    }

    /// The elements of the map of a family: prefixes with the chain of their class.
    fn elements(&self, is_v4: bool) -> Vec<String> {
        let classes = self.classes.iter().enumerate();
        let of = |(at, class): (usize, &SourceClass)| {
            let nets = IpNet::aggregate(&class.from);
            nets.into_iter().filter(move |net| is_of(net, is_v4)).map(move |net| format!("{net} : goto class_{at}"))
        };
        classes.flat_map(of).collect()
    }

    fn exempt(&self, is_v4: bool) -> Vec<String> {
        let nets = IpNet::aggregate(&self.exempt);
        nets.iter().filter(|net| is_of(net, is_v4)).map(IpNet::to_string).collect()
    }

    /// Two classes that an address is of both, if there are any.
    pub(crate) fn overlap(&self) -> Option<(&str, &str)> {
        let meet = |a: &SourceClass, b: &SourceClass| {
            a.from.iter().any(|net| b.from.iter().any(|other| net.contains(other) || other.contains(net)))
        };
        let pairs =
            self.classes.iter().enumerate().flat_map(|(at, a)| self.classes[at + 1..].iter().map(move |b| (a, b)));
        pairs.into_iter().find(|(a, b)| meet(a, b)).map(|(a, b)| (a.name.as_str(), b.name.as_str()))
    }
}

fn is_of(net: &IpNet, is_v4: bool) -> bool {
    matches!(net, IpNet::V4(_)) == is_v4
}

/// The elements of a set or map, as its declaration has them.
fn declared(elements: &[String]) -> String {
    if elements.is_empty() { String::new() } else { format!(" elements = {{ {} }}", elements.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            listen: vec!["0.0.0.0:80".parse().unwrap(), "[::1]:81".parse().unwrap()],
            classes: vec![SourceClass {
                name: "premium".to_owned(),
                from: vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
                share: 3.0,
            }],
            rest_share: 1.0,
            exempt: vec!["10.1.2.3/32".parse().unwrap(), "10.9.0.1/32".parse().unwrap()],
            depth: 20.0,
        }
    }

    #[test]
    fn rules_say_what_is_policed() {
        let text = plan().to_nft(&Owner { pid: 7, started: 99 });
        for part in [
            "add table inet tidegate_any_80\ndelete table inet tidegate_any_80\n",
            "chain owner_7_99 { }",
            "set exempt4 { type ipv4_addr; flags interval; elements = { 10.1.2.3/32, 10.9.0.1/32 } }",
            "map from4 { type ipv4_addr : verdict; flags interval; elements = { 10.1.0.0/16 : goto class_0 } }",
            "elements = { 2001:db8::/32 : goto class_0 }",
            "burst 15 packets counter name \"refused_0\" drop",
            "burst 5 packets counter name \"refused_1\" drop",
            "\n  tcp dport 80 tcp dport @alive",
            "\n  ip6 daddr ::1 tcp dport 81 tcp dport @alive",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(plan().parts(), [0.75, 0.25]);
        assert_eq!(plan().names(), ["premium", "rest"]);
        assert_eq!(plan().overlap(), None);
        let mut both = plan();
        let inside = SourceClass { name: "inside".to_owned(), from: vec!["10.1.9.0/24".parse().unwrap()], share: 1.0 };
        both.classes.push(inside);
        assert_eq!(both.overlap(), Some(("premium", "inside")));
    }
}
