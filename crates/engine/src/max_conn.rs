//! Limits on requests in flight per server, by kind of requests.
//!
//! *Intuition.* A page from a file and a page that runs a program are different guests: a server that holds eighty of
//! the first well is at its end with twenty of the second. So requests in flight are counted apart, in *kinds* of
//! request types, and each kind has two marks: how many a server holds while it answers within the target, and how many
//! at its breaking point.
//!
//! *Source.* M. Andreolini et al. (2004), section 5.2: `MaxConn_S(SLA(T_S))`, `MaxConn_D(SLA(T_D))`, `MaxConn_D`.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::RequestTypeId;
use crate::setup::{Setup, SetupError, SetupPlace};

/// So many kinds can be told apart.
pub const MOST_KINDS: usize = 8;

/// What a server of weight 1 can have in flight of one kind of requests.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct MaxConn {
    /// Name of the kind.
    pub name: String,
    /// The request types that are of this kind; the one of its name, when empty.
    #[serde(default)]
    pub request_types: Vec<String>,
    /// In flight at a server while it answers within the target: `max_conn(T)`.
    pub within_target: f64,
    /// In flight at a server at its breaking point: `max_conn`.
    pub most: f64,
}

impl MaxConn {
    /// What is assumed of a server of which nobody said anything: every request is of one kind, and the breaking point
    /// is Apache's default number of workers (150), with the paper's ratio of the two marks.
    pub fn unknown() -> MaxConn {
        MaxConn { name: String::from("all"), request_types: Vec::new(), within_target: 104.0, most: 150.0 }
    }

    /// The share of a server's limit that is used while the target is held: the paper's safety factor.
    pub fn safety(&self) -> f64 {
        self.within_target / self.most
    }

    /// How many of a kind a server may hold before a class is refused: the most important class has all that it can
    /// hold, the least important what it holds within the target, those between have marks evenly in between.
    pub(crate) fn mark(&self, class: usize, classes: usize) -> f64 {
        let importance = match classes {
            0 | 1 => 1.0,
            _ => (classes - 1 - class) as f64 / (classes - 1) as f64,
        };
        self.within_target + (self.most - self.within_target) * importance
    }

    fn is_of(&self, request_type: &str) -> bool {
        match self.request_types.as_slice() {
            [] => self.name == request_type,
            named => named.iter().any(|name| name == request_type),
        }
    }
}

/// Which kind each request type is of, and the kinds' marks.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    limits: Vec<MaxConn>,
    of_type: Vec<Option<u8>>,
}

impl Kinds {
    pub(crate) fn new(setup: &Setup) -> Kinds {
        if setup.max_conn.is_empty() {
            let of_type = alloc::vec![Some(0); setup.request_types.len()];
            return Kinds { limits: alloc::vec![MaxConn::unknown()], of_type };
        }
        let kind = |name: &String| setup.max_conn.iter().position(|limit| limit.is_of(name)).map(|at| at as u8);
        Kinds { limits: setup.max_conn.clone(), of_type: setup.request_types.iter().map(kind).collect() }
    }

    /// The kind of a request type; `None`: it is counted nowhere.
    pub(crate) fn of(&self, request_type: RequestTypeId) -> Option<usize> {
        self.of_type.get(request_type.index()).copied().flatten().map(usize::from)
    }

    /// The kinds' marks.
    pub(crate) fn limits(&self) -> &[MaxConn] {
        &self.limits
    }
}

/// What the servers of a partition are and hold together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// Sum of the weights of the servers that take requests.
    pub(crate) weight: f64,
    /// In flight there, by kind.
    pub(crate) by_kind: [u32; MOST_KINDS],
    /// In service there that others sent, by kind, as nuclei tell.
    pub(crate) others: [f64; MOST_KINDS],
}

/// Checks the marks.
///
/// # Errors
/// The first that makes no sense.
pub(crate) fn check(setup: &Setup) -> Result<(), SetupError> {
    let given = setup.max_conn.len();
    if given > MOST_KINDS {
        return Err(SetupError::Count { what: "entries of max_conn", least: 0, most: MOST_KINDS, given });
    }
    for (at, limit) in setup.max_conn.iter().enumerate() {
        let bad = |problem: &str| Err(SetupError::wrong(SetupPlace::MaxConn(limit.name.clone()), problem));
        if !(limit.within_target.is_finite() && limit.within_target > 0.0) {
            return bad("within_target must be more than zero");
        }
        if !(limit.most.is_finite() && limit.most >= limit.within_target) {
            return bad("most must be at least within_target: a server breaks later than it misses its target");
        }
        if setup.max_conn[..at].iter().any(|other| other.name == limit.name) {
            return bad("is there twice; name each kind once");
        }
        let known = |name: &String| setup.request_types.contains(name);
        if !limit.request_types.iter().all(known) || (limit.request_types.is_empty() && !known(&limit.name)) {
            return bad("names a request type that is not there; list those it counts in request_types");
        }
        let before = |name: &String| setup.max_conn[..at].iter().any(|other| other.is_of(name));
        if setup.request_types.iter().any(|name| limit.is_of(name) && before(name)) {
            return bad("counts a request type that another entry counts too");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{Sla, Statistic};

    fn setup(limits: &[(&str, &[&str], f64, f64)]) -> Setup {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("marks", sla, []);
        setup.request_types = ["default", "page", "cart", "search"].map(String::from).to_vec();
        let limit = |&(name, types, within_target, most): &(&str, &[&str], f64, f64)| MaxConn {
            name: String::from(name),
            request_types: types.iter().map(|name| String::from(*name)).collect(),
            within_target,
            most,
        };
        setup.max_conn = limits.iter().map(limit).collect();
        setup
    }

    #[test]
    fn types_are_of_the_kind_that_names_them() {
        let setup = setup(&[("page", &[], 85.0, 100.0), ("dynamic", &["cart", "search"], 18.0, 26.0)]);
        check(&setup).expect("it makes sense");
        let kinds = Kinds::new(&setup);
        let of: Vec<Option<usize>> = (0..5).map(|at| kinds.of(RequestTypeId(at))).collect();
        assert_eq!(of, [None, Some(0), Some(1), Some(1), None]);
    }

    #[test]
    fn nothing_said_is_one_kind_of_everything() {
        let kinds = Kinds::new(&setup(&[]));
        assert!((0..4).all(|at| kinds.of(RequestTypeId(at)) == Some(0)));
    }

    #[test]
    fn nonsense_is_named() {
        let problem = |limits: &[(&str, &[&str], f64, f64)]| match check(&setup(limits)) {
            Err(error) => alloc::format!("{error}"),
            Ok(()) => panic!("{limits:?} makes no sense"),
        };
        assert!(problem(&[("page", &[], 0.0, 2.0)]).contains("more than zero"));
        assert!(problem(&[("page", &[], 5.0, 2.0)]).contains("at least within_target"));
        assert!(problem(&[("pages", &[], 1.0, 2.0)]).contains("not there"));
        assert!(problem(&[("page", &[], 1.0, 2.0), ("page", &[], 1.0, 2.0)]).contains("twice"));
        assert!(problem(&[("a", &["cart"], 1.0, 2.0), ("b", &["cart"], 1.0, 2.0)]).contains("another entry"));
        let many: Vec<(&str, &[&str], f64, f64)> = alloc::vec![("page", &[], 1.0, 2.0); 9];
        assert!(problem(&many).contains("0 to 8"));
    }
}
