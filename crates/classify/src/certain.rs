//! The class that whoever comes from an address to a host has in any case, before anything was asked.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use tidegate_engine::ClassId;

use super::{Matcher, RequestView, Rule};

/// The rules of classes that ask for nothing but hosts and networks.
#[derive(Clone, Debug)]
pub(super) struct Certain {
    matcher: Matcher,
    /// Whose rules the matcher's groups are.
    classes: Box<[ClassId]>,
    last: ClassId,
}

impl Certain {
    /// Of classes whose rules were compiled before: that they make sense is known.
    pub(super) fn of(classes: &[Vec<Rule>], last: ClassId) -> Certain {
        let mut groups = Vec::new();
        let mut numbers = Vec::new();
        for (number, rules) in classes.iter().enumerate() {
            let certain: Vec<Rule> = rules.iter().filter(|rule| is_certain(rule)).cloned().collect();
            // A class without rules is everybody's.
            if rules.is_empty() || !certain.is_empty() {
                groups.push(certain);
                numbers.push(ClassId(number as u8));
            }
        }
        let matcher = Matcher::compile(groups.iter().map(Vec::as_slice)).unwrap_or_default();
        Certain { matcher, classes: numbers.into(), last }
    }

    pub(super) fn class(&self, host: Option<&str>, client: IpAddr) -> ClassId {
        self.matcher.find(&Nothing { host, client }).map_or(self.last, |group| self.classes[group])
    }
}

/// Whether a rule holds whatever is asked.
fn is_certain(rule: &Rule) -> bool {
    let Rule { methods, hosts: _, path, headers, cookies, networks: _, certificates, dynamic } = rule;
    let asks_nothing = methods.is_empty() && headers.is_empty() && cookies.is_empty() && certificates.is_empty();
    asks_nothing && path.is_none() && dynamic.is_none()
}

/// Nothing was asked yet.
struct Nothing<'a> {
    host: Option<&'a str>,
    client: IpAddr,
}

impl RequestView for Nothing<'_> {
    fn method(&self) -> &str {
        ""
    }

    fn host(&self) -> Option<&str> {
        self.host
    }

    fn path(&self) -> &str {
        "/"
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.client)
    }
}
