//! From a request to its class, request type, resource tags, URL key and tenant.
//!
//! Rules are compiled once ([`Classifier::compile`]). A request then meets only the rules that can match it: exact
//! paths and hosts are found by hash, prefixes by one walk over the path's segments; rules that ask for neither, by
//! the value of a header or a cookie, and those that ask for none of it are in a short list of their own. Everything
//! else is looked at for those candidates only. Nothing is allocated.
//!
//! # Paths
//!
//! Rules see a *normal form* of the path, so that a client cannot change its class by spelling a resource in another
//! way (`//checkout`, `/x/../checkout`, `/%63heckout`): `path.rs` says which readings are folded together. A door that
//! sends on what it was sent refuses or respells such paths first ([`reading`], [`canonical()`]), so that the server
//! reads what the rules read. Paths keep their case. The query plays no part.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod access;
mod canonical;
mod certain;
pub mod due;
mod dynamic;
mod glob;
mod host;
mod path;
mod radix;
mod rewrite;
mod routes;
mod rules;
mod tenant;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod values;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;
use thiserror::Error;

use certain::Certain;
use due::DeadlineBy;
use rules::{Target, with_literal, with_target};
use tenant::Tenants;
use tidegate_engine::{AffinityKey, ClassId, Request, RequestTypeId, Tags, UrlKey};

pub use access::Access;
pub use canonical::{Paths, Reading, canonical, reading};
pub use rewrite::Rewrite;
pub use routes::{Route, Routes};
pub use rules::Matcher;
pub use tenant::{NamedTenant, TenantSource, TenantsBy, named_tenant, network_of};

/// What the classifier may ask of a request. Drivers implement it over their own request type.
pub trait RequestView {
    /// The method, as sent.
    fn method(&self) -> &str;
    /// The authority or `Host`, with or without port.
    fn host(&self) -> Option<&str>;
    /// The request target: path and, when there is one, query.
    fn path(&self) -> &str;
    /// The first value of a header; `lowercase_name` is in lower case.
    fn header(&self, lowercase_name: &str) -> Option<&[u8]>;
    /// The last value of a header, where it comes several times.
    fn last_header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.header(lowercase_name)
    }
    /// The client's address.
    fn client(&self) -> Option<IpAddr>;
    /// The names in the client's certificate, where it showed one and it is good.
    fn certificate_names(&self) -> &[String] {
        &[]
    }
}

/// What the rules are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassifierSetup {
    /// Per class, most important first: any of its rules makes a request belong. No rules: everything belongs.
    pub classes: Vec<Vec<Rule>>,
    /// Request types in order; the first whose rules match is the request's. Type 0 ("default") is not in the list.
    pub request_types: Vec<TypeRules>,
    /// Makes URL keys unpredictable to clients. Random in production, and kept through reloads; fixed in tests.
    pub seed: u64,
    /// What ties a request to others of its page or session; `None`: nothing.
    pub affinity: Option<AffinityBy>,
    /// Where requests say how long their clients wait.
    pub deadline: DeadlineBy,
    /// On whose behalf requests come.
    pub tenants: TenantsBy,
}

/// What holds the name of a page or session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffinityBy {
    /// The value of this cookie.
    Cookie(String),
    /// The value of this header, named in lower case.
    Header(String),
}

/// A request type's rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeRules {
    /// Any of them makes a request be of the type. No rules: everything is.
    pub rules: Vec<Rule>,
    /// The resources that requests of the type strain.
    pub tags: Tags,
}

/// A condition on a request: everything given must hold; an empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// One of these methods, exactly.
    pub methods: Vec<String>,
    /// One of these hosts, without regard to case or port: `example.org`, or `*.example.org` for all names below it.
    pub hosts: Vec<String>,
    /// Pattern for the path; `None`: any path.
    pub path: Option<PathMatch>,
    /// All of these headers.
    pub headers: Vec<ValueMatch>,
    /// All of these cookies.
    pub cookies: Vec<ValueMatch>,
    /// The client's address is in one of these.
    pub networks: Vec<Network>,
    /// One of these is a name in the client's certificate: exactly, or for `*.example.org` a name below it.
    pub certificates: Vec<String>,
    /// Whether the answer is made for the request (by its method, query, or a program's name), or is a file's.
    pub dynamic: Option<bool>,
}

/// A condition on the path. The query plays no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The path equals this text.
    Exact(String),
    /// This path and everything below it: `/a` matches `/a` and `/a/b`, not `/ab`. `/a/` matches only what is below.
    Prefix(String),
    /// `*` stands for any characters within a segment, `**` for any characters at all.
    Glob(String),
}

/// A condition on a named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMatch {
    /// The header's name (in any case) or the cookie's.
    pub name: String,
    /// What its value must be.
    pub value: ValuePattern,
}

/// What a value must be. Values are compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePattern {
    /// Anything: it is there.
    Present,
    /// The value equals this text.
    Exact(String),
    /// The value begins with this text.
    Prefix(String),
    /// It has this in it.
    Contains(String),
}

/// A block of addresses in CIDR form.
pub type Network = ipnet::IpNet;

/// Rules, compiled. Immutable: a reload compiles a new one.
#[derive(Clone, Debug)]
pub struct Classifier {
    classes: Matcher,
    last_class: ClassId,
    certain: Certain,
    types: Matcher,
    tags: Box<[Tags]>,
    hasher: SipHasher13,
    affinity: Option<AffinityBy>,
    deadline: DeadlineBy,
    tenants: Tenants,
}

impl Classifier {
    /// Compiles a setup.
    ///
    /// # Errors
    /// The first rule that no request could match as it is written, or too many classes or types.
    pub fn compile(setup: &ClassifierSetup) -> Result<Classifier, ClassifyError> {
        let (classes, types) = (setup.classes.len(), setup.request_types.len());
        if !(1..=255).contains(&classes) {
            return Err(ClassifyError::Classes { given: classes });
        }
        if types > 65_534 {
            return Err(ClassifyError::Types { given: types });
        }
        let class = |(class, rule, problem)| ClassifyError::ClassRule { class, rule, problem };
        let request_type = |(index, rule, problem)| ClassifyError::TypeRule { request_type: index + 1, rule, problem };
        let last_class = ClassId((classes - 1) as u8);
        Ok(Classifier {
            classes: Matcher::compile(setup.classes.iter().map(Vec::as_slice)).map_err(class)?,
            last_class,
            certain: Certain::of(&setup.classes, last_class),
            types: Matcher::compile(setup.request_types.iter().map(|t| t.rules.as_slice())).map_err(request_type)?,
            tags: setup.request_types.iter().map(|t| t.tags).collect(),
            hasher: tenant::keyed(setup.seed),
            affinity: setup.affinity.clone(),
            deadline: setup.deadline.clone(),
            tenants: Tenants::compile(&setup.tenants, setup.seed),
        })
    }

    /// What the engine needs to know of a request: the first class and the first type that match (the last class and
    /// type 0 when none does), the type's tags, the URL's key, and the tenant. Allocates nothing.
    pub fn classify(&self, view: &impl RequestView) -> Request {
        with_target(view, true, |target| self.classify_target(target, view))
    }

    /// The same for a path that is sent on although it can be read in two ways ([`Paths::AsIs`]): the less important
    /// class of its readings, resolved and as written, so that nothing is gained by it; the type as written, else
    /// resolved; and the URL as written.
    pub fn classify_ambiguous(&self, view: &impl RequestView) -> Request {
        let resolved = self.classify(view);
        let written = with_literal(view, |target| self.classify_target(target, view));
        let by_type = if written.request_type == RequestTypeId(0) { &resolved } else { &written };
        Request {
            class: written.class.max(resolved.class),
            request_type: by_type.request_type,
            tags: by_type.tags,
            ..written
        }
    }

    fn classify_target(&self, target: Target<'_>, view: &impl RequestView) -> Request {
        let class = self.classes.find_target(target, view).map_or(self.last_class, |group| ClassId(group as u8));
        let request_type = self.types.find_target(target, view);
        Request {
            class,
            request_type: RequestTypeId(request_type.map_or(0, |group| group as u16 + 1)),
            tags: request_type.map_or(Tags(0), |group| self.tags[group]),
            url: self.url_key(target, view),
            affinity: self.affinity_key(view),
            tenant: self.tenants.of(view),
            ..Request::default()
        }
    }

    /// The class that every request of `client` to `host` has at least, by rules that ask for hosts and networks alone;
    /// a request may turn out to be more important. `host`: `None` where it may ask for any.
    pub fn class_at_least(&self, host: Option<&str>, client: IpAddr) -> ClassId {
        self.certain.class(host, client)
    }

    /// The session that an answer begins by its `set-cookie` header: the key that the client's next request will have.
    /// [`AffinityKey::NONE`] where it sets another cookie, or none is looked at.
    pub fn session_begun(&self, set_cookie: &[u8]) -> AffinityKey {
        let Some(AffinityBy::Cookie(name)) = &self.affinity else { return AffinityKey::NONE };
        self.key_of(values::cookie_set(set_cookie, name.as_bytes()))
    }

    /// A keyed hash of the page's or session's name: clients cannot aim at each other's places.
    fn affinity_key(&self, view: &impl RequestView) -> AffinityKey {
        let name = match &self.affinity {
            None => None,
            Some(AffinityBy::Cookie(name)) => values::cookie_of(view, name),
            Some(AffinityBy::Header(name)) => view.header(name),
        };
        self.key_of(name)
    }

    fn key_of(&self, name: Option<&[u8]>) -> AffinityKey {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return AffinityKey::NONE };
        let mut hasher = self.hasher;
        hasher.write(name);
        AffinityKey(hasher.finish().max(1))
    }

    /// A keyed hash of host and path: clients cannot aim at each other's entries in the cost table.
    fn url_key(&self, target: Target<'_>, view: &impl RequestView) -> UrlKey {
        let mut hasher = self.hasher;
        hasher.write(target.host.unwrap_or("").as_bytes());
        // A host has no zero byte, so the border between host and path is never in doubt.
        hasher.write_u8(0);
        hasher.write(target.path.unwrap_or_else(|| path::without_query(view.path())));
        UrlKey(hasher.finish())
    }
}

/// Why rules cannot be compiled. Positions count from 0 in the lists of [`ClassifierSetup`]; people are shown them
/// from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClassifyError {
    /// No class, or too many.
    #[error("{given} classes: give 1 to 255")]
    Classes {
        /// How many were given.
        given: usize,
    },
    /// Too many request types.
    #[error("{given} request types: give at most 65534")]
    Types {
        /// How many were given.
        given: usize,
    },
    /// A mistake in the rule of a class.
    #[error("class {}, rule {}: {problem}", class + 1, rule + 1)]
    ClassRule {
        /// Index of the class, from 0.
        class: usize,
        /// Which of its rules.
        rule: usize,
        /// The mistake in the rule.
        problem: RuleProblem,
    },
    /// A request type's rule.
    #[error("request type {request_type}, rule {}: {problem}", rule + 1)]
    TypeRule {
        /// Which type; 1 is the first of the list, as 0 is "default".
        request_type: usize,
        /// Which of its rules.
        rule: usize,
        /// The mistake in the rule.
        problem: RuleProblem,
    },
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleProblem {
    /// The text is not an HTTP method.
    #[error("\"{0}\" is not a method; write for example \"GET\"")]
    Method(String),
    /// The text is not a host name or pattern.
    #[error("\"{0}\" is not a host; write \"example.org\" or \"*.example.org\", without a port")]
    Host(String),
    /// The text is not a path pattern.
    #[error("\"{0}\" is not a path; begin with \"/\" and leave the query out")]
    Path(String),
    /// Not a glob.
    #[error(
        "\"{0}\" is not a path pattern; begin with \"/\", and write characters as they are (no escapes, \"//\", \"..\")"
    )]
    Glob(String),
    /// A glob whose part from the first star on is too long.
    #[error("\"{0}\" has more than {1} characters from its first star on")]
    GlobTooLong(String, usize),
    /// Not a header name.
    #[error("\"{0}\" is not a header name")]
    Header(String),
    /// A header name that never comes through.
    #[error("\"{0}\" has an underscore; such fields are dropped, as servers take them for those with a hyphen")]
    Underscore(String),
    /// Not a cookie name.
    #[error("\"{0}\" is not a cookie name")]
    Cookie(String),
    /// Not a name in a certificate.
    #[error("\"{0}\" is no name in a certificate; write \"billing.internal\" or \"*.internal\"")]
    Certificate(String),
}

#[cfg(test)]
mod tests;
