//! What a helper is asked, and what it answers: values in JSON, each with its length before it.
//!
//! Nothing of what comes in is text that goes on anywhere: classes have numbers here, and no names.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rules::{Plan, SourceClass};

/// Said at the door: who speaks another one is not let in.
pub(super) const VERSION: u8 = 1;

/// A longer message is none, bytes.
const LONGEST: usize = 4 << 20;

/// The most of a plan's parts: addresses, classes, and networks of one class.
const ADDRESSES: usize = 1000;
const CLASSES: usize = 1000;
const NETWORKS: usize = 50_000;

/// Numbers that are no mistake: shares and connections.
const NUMBERS: std::ops::RangeInclusive<f64> = 0.0..=1e9;

/// What is to be done.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ask {
    /// Install rules.
    Install(Wanted),
    /// Let in so many connections per second; all.
    Rate(Option<f64>),
    /// Prolong the lease.
    Renew,
    /// Count.
    Counts,
}

/// A plan without names.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    listen: Vec<SocketAddr>,
    classes: Vec<(Vec<IpNet>, f64)>,
    rest_share: f64,
    exempt: Vec<IpNet>,
    depth: f64,
    /// Not if another policer has the table.
    pub(super) only_if_free: bool,
}

/// What came of it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// The rate is in force; whether rules were changed.
    Changed(bool),
    /// Of each class, the rest's last: let in, and refused. How often rules were changed.
    Counts {
        /// By class.
        classes: Vec<(u64, u64)>,
        /// Since the rules were installed.
        changes: u64,
    },
    /// Another policer has the table, or nothing was installed.
    TakenOver,
    /// The kernel refuses: why.
    Failed(String),
    /// It will not be done: why.
    Refused(String),
}

impl Wanted {
    pub(super) fn new(plan: &Plan, only_if_free: bool) -> Wanted {
        Wanted {
            listen: plan.listen.clone(),
            classes: plan.classes.iter().map(|class| (class.from.clone(), class.share)).collect(),
            rest_share: plan.rest_share,
            exempt: plan.exempt.clone(),
            depth: plan.depth,
            only_if_free,
        }
    }

    /// The plan, if it makes sense.
    pub(super) fn plan(self) -> Result<Plan, String> {
        let shares = self.classes.iter().map(|(_, share)| *share).chain([self.rest_share]);
        let is_sound = (1..=ADDRESSES).contains(&self.listen.len())
            && self.listen.iter().all(|address| address.port() != 0)
            && self.classes.len() <= CLASSES
            && self.classes.iter().all(|(from, _)| from.len() <= NETWORKS)
            && self.exempt.len() <= NETWORKS
            && shares.clone().all(|share| NUMBERS.contains(&share))
            && shares.sum::<f64>() > 0.0
            && NUMBERS.contains(&self.depth);
        if !is_sound {
            return Err("the plan makes no sense".to_owned());
        }
        let class = |(at, (from, share)): (usize, (Vec<IpNet>, f64))| SourceClass { name: at.to_string(), from, share };
        Ok(Plan {
            listen: self.listen,
            classes: self.classes.into_iter().enumerate().map(class).collect(),
            rest_share: self.rest_share,
            exempt: self.exempt,
            depth: self.depth,
        })
    }
}

/// Whether it is a rate.
pub(super) fn is_rate(rate: Option<f64>) -> bool {
    rate.is_none_or(|rate| NUMBERS.contains(&rate))
}

pub(super) fn send(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let length = u32::try_from(text.len()).ok().filter(|length| *length as usize <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("too much for one message"))?;
    to.write_all(&[&length.to_le_bytes(), text.as_slice()].concat())
}

/// `None`: there is no more.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than any message"));
    }
    let mut text = Vec::new();
    from.take(length as u64).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            listen: vec!["0.0.0.0:80".parse().unwrap(), "[::1]:81".parse().unwrap()],
            classes: vec![(vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()], 3.0)],
            rest_share: 1.0,
            exempt: vec!["10.1.2.3/32".parse().unwrap()],
            depth: 20.0,
            only_if_free: false,
        }
    }

    #[test]
    fn what_is_said_is_heard() {
        let mut wire = Vec::new();
        let said = [Ask::Install(wanted()), Ask::Rate(Some(0.5)), Ask::Rate(None), Ask::Renew, Ask::Counts];
        said.iter().for_each(|ask| send(&mut wire, ask).expect("sent"));
        let mut wire = wire.as_slice();
        let heard: Vec<Ask> = std::iter::from_fn(|| receive(&mut wire).expect("whole")).collect();
        assert_eq!(heard, said);
        let plan = wanted().plan().expect("it makes sense");
        assert_eq!(Wanted::new(&plan, false), wanted());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bent: [fn(&mut Wanted); 8] = [
            |wanted| wanted.listen.clear(),
            |wanted| wanted.listen[0].set_port(0),
            |wanted| wanted.listen = vec![wanted.listen[0]; ADDRESSES + 1],
            |wanted| wanted.classes = vec![wanted.classes[0].clone(); CLASSES + 1],
            |wanted| wanted.exempt = vec![wanted.exempt[0]; NETWORKS + 1],
            |wanted| wanted.classes[0].1 = -1.0,
            |wanted| (wanted.classes[0].1, wanted.rest_share) = (0.0, 0.0),
            |wanted| wanted.depth = f64::NAN,
        ];
        for (at, bend) in bent.iter().enumerate() {
            let mut wanted = wanted();
            bend(&mut wanted);
            assert!(wanted.plan().is_err(), "number {at}");
        }
        assert!(is_rate(None) && is_rate(Some(0.0)) && !is_rate(Some(-1.0)) && !is_rate(Some(f64::INFINITY)));
        let mut long = (LONGEST as u32 + 1).to_le_bytes().to_vec();
        long.extend([b' '; 10]);
        assert!(receive::<Ask>(&mut long.as_slice()).is_err());
        for text in ["{\"install\":{}}", "\"flush\"", "{\"rate\":\"1; flush ruleset\"}", "[", ""] {
            let mut wire = (text.len() as u32).to_le_bytes().to_vec();
            wire.extend(text.as_bytes());
            assert!(receive::<Ask>(&mut wire.as_slice()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = receive::<Ask>(&mut bytes.as_slice());
            let _ = receive::<Answer>(&mut bytes.as_slice());
        }
    }
}
