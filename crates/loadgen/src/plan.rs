//! Plan of a run: streams of requests, and the limits of the run.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use tidegate_workload::{ArrivalProcess, Profile, Retry, Tenants};
use tokio::sync::watch;

use crate::protocol::Protocol;
use crate::script::Script;
use crate::tls::{Secure, Trust};

/// No run and no patience is longer: instants beyond it cannot be kept everywhere.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// No URL weighs more, so that all of them together have a sum.
const HEAVIEST: f64 = 1e12;

/// A whole run: who sends what, for how long, and within which limits.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The streams; several may share a class and are then reported together.
    pub streams: Vec<Stream>,
    /// How long requests are sent. Answers are awaited afterwards, at most for the longest timeout.
    pub duration: Duration,
    /// Seed of all randomness: arrivals and the choice among URLs.
    pub seed: u64,
    /// Response time within which an answer counts as goodput; without one, every 2xx and 3xx does.
    pub target: Option<Duration>,
    /// What clients speak.
    pub protocol: Protocol,
    /// Whose certificates they believe, where URLs begin with `https://`.
    pub trust: Trust,
    /// Whether they come back to TLS sessions that they had, as browsers do: a handshake then costs both sides less.
    pub resumes: bool,
    /// Connections to each destination at most. A request that finds all of them busy waits for one.
    pub connections: usize,
    /// Requests at once on one connection at most, where they share connections; the server may allow fewer.
    pub per_connection: usize,
    /// Requests that may be outstanding at most; one more is not sent, and counted as such.
    pub outstanding: usize,
    /// Whether connections are kept for further requests.
    pub keep_alive: bool,
    /// Who stands for a host and port, where that changes meanwhile: its requests go to them in turn, as if each had
    /// asked a name server that gives its answers in turn. While there is nobody, to the host itself.
    pub members: Vec<(String, watch::Receiver<Vec<SocketAddr>>)>,
    /// How long a client waits for a connection before it gives up; `None`: as long as for the answer. Less than a
    /// second, it keeps the client's kernel from trying again on its own (Banga and Druschel's S-clients).
    pub connect_timeout: Option<Duration>,
}

/// Requests of one class: where to, and how often.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Name under which results are reported.
    pub class: String,
    /// Request method.
    pub method: Method,
    /// Absolute `http://` or `https://` URLs with their weights.
    pub urls: Vec<(Uri, f64)>,
    /// Extra header fields.
    pub headers: HeaderMap,
    /// Request body; empty for none. In gRPC the whole message, which has what goes before it added.
    pub body: Bytes,
    /// How arrivals are spread around the rate.
    pub arrivals: ArrivalProcess,
    /// The rate over time.
    pub profile: Profile,
    /// The requests one by one, in place of arrivals, rate and weights.
    pub script: Option<Script>,
    /// How long a client waits for the whole answer, from the scheduled instant; of one that stays open, for its
    /// beginning. Then it leaves, and closes its connection.
    pub timeout: Duration,
    /// What a client does whose request was refused, failed or took too long; each try counts as a request. `None`:
    /// nothing.
    pub retry: Option<Retry>,
    /// Whose requests they are: each names its tenant in [`TENANT`].
    pub tenants: Option<Tenants>,
}

/// The field that names a request's tenant: the stream's class and the tenant's rank in it, from 1.
pub const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// The field in which a retry says which try it is, where clients say so.
pub(crate) const ATTEMPT: HeaderName = HeaderName::from_static("x-envoy-attempt-count");

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A URL that cannot be used.
    #[error("URL {url:?}: {reason}")]
    Url {
        /// The URL as it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header field that is not allowed in HTTP.
    #[error("header {name:?}: {reason}")]
    Header {
        /// Its name as given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A stream or the plan lacks something.
    #[error("{0}")]
    Invalid(String),
}

impl Plan {
    /// A plan with the usual limits: HTTP/1.1, 1024 connections per destination, 20,000 requests outstanding,
    /// keep-alive, seed 1.
    pub fn new(streams: Vec<Stream>, duration: Duration) -> Plan {
        Plan {
            streams,
            duration,
            seed: 1,
            target: None,
            protocol: Protocol::H1,
            trust: Trust::System,
            resumes: true,
            connections: 1024,
            per_connection: usize::MAX,
            outstanding: 20_000,
            keep_alive: true,
            members: Vec::new(),
            connect_timeout: None,
        }
    }

    /// Checks that the plan can be run and sends something.
    ///
    /// # Errors
    /// The first thing that is missing or contradictory.
    pub fn validate(&self) -> Result<(), PlanError> {
        let invalid = |text: &str| Err(PlanError::Invalid(text.to_owned()));
        if self.streams.is_empty() {
            return invalid("the plan has no stream: nothing would be sent");
        }
        if self.duration.is_zero() {
            return invalid("the duration is 0: nothing would be sent");
        }
        if self.duration > LONGEST {
            return invalid("the duration is longer than a year");
        }
        if self.connections == 0 || self.per_connection == 0 || self.outstanding == 0 {
            return invalid(
                "the limits of connections, of requests on one and of outstanding requests must be at least 1",
            );
        }
        self.streams.iter().try_for_each(|stream| stream.validate(self.duration))
    }

    /// The names of the classes, in the order in which they first appear.
    pub fn classes(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for stream in &self.streams {
            if !names.contains(&stream.class) {
                names.push(stream.class.clone());
            }
        }
        names
    }
}

impl Stream {
    /// A stream of Poisson GET requests with a timeout of 10 s; add at least one URL.
    pub fn new(class: impl Into<String>, profile: Profile) -> Stream {
        Stream {
            class: class.into(),
            method: Method::GET,
            urls: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            arrivals: ArrivalProcess::Poisson,
            profile,
            script: None,
            timeout: Duration::from_secs(10),
            retry: None,
            tenants: None,
        }
    }

    /// Adds a URL that gets the share `weight / sum of weights` of the requests.
    ///
    /// # Errors
    /// When `url` is not an absolute `http://` or `https://` URL, or `weight` is not above 0, or is more than 1e12.
    pub fn url(mut self, url: &str, weight: f64) -> Result<Stream, PlanError> {
        let error = |reason: &str| PlanError::Url { url: url.to_owned(), reason: reason.to_owned() };
        if !(weight > 0.0 && weight <= HEAVIEST) {
            return Err(error("its weight must be a number above 0, and at most 1e12"));
        }
        let uri: Uri = url.parse().map_err(|e| error(&format!("not a URL ({e})")))?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(_) => return Err(error("must start with http:// or https://")),
            None => return Err(error("must start with http:// and a host, such as http://127.0.0.1:8080/")),
        }
        self.urls.push((uri, weight));
        Ok(self)
    }

    /// Adds a header field to every request.
    ///
    /// # Errors
    /// When the name or value is not allowed in HTTP.
    pub fn header(mut self, name: &str, value: &str) -> Result<Stream, PlanError> {
        let error = |reason: String| PlanError::Header { name: name.to_owned(), reason };
        let field = HeaderName::try_from(name).map_err(|e| error(e.to_string()))?;
        let value = HeaderValue::try_from(value).map_err(|e| error(e.to_string()))?;
        self.headers.append(field, value);
        Ok(self)
    }

    /// Sets the arrival process.
    #[must_use]
    pub fn arrivals(mut self, arrivals: ArrivalProcess) -> Stream {
        self.arrivals = arrivals;
        self
    }

    /// Sends what is written down, in place of arrivals at the profile's rate and URLs by their weights.
    #[must_use]
    pub fn script(mut self, script: Script) -> Stream {
        self.script = Some(script);
        self
    }

    /// Sets how long a client waits, from the scheduled instant.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Stream {
        self.timeout = timeout;
        self
    }

    /// Sets what a client does that was not answered.
    #[must_use]
    pub fn retry(mut self, retry: Option<Retry>) -> Stream {
        self.retry = retry;
        self
    }

    /// Sets whose requests they are.
    #[must_use]
    pub fn tenants(mut self, tenants: Option<Tenants>) -> Stream {
        self.tenants = tenants;
        self
    }

    /// Sets method and body.
    #[must_use]
    pub fn sending(mut self, method: Method, body: impl Into<Bytes>) -> Stream {
        self.method = method;
        self.body = body.into();
        self
    }

    /// The header fields of a request to `authority`, `Host` included.
    pub(crate) fn headers_for(&self, authority: &str) -> HeaderMap {
        let mut headers = self.headers.clone();
        if !headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(authority)
        {
            headers.insert(HOST, host);
        }
        headers
    }

    fn validate(&self, duration: Duration) -> Result<(), PlanError> {
        let invalid = |text: &str| Err(PlanError::Invalid(format!("class {:?}: {text}", self.class)));
        if self.urls.is_empty() {
            return invalid("has no URL");
        }
        if self.tenants.is_some_and(|tenants| !tenants.makes_sense()) {
            return invalid("its tenants are none, too many, or drawn by no law");
        }
        if self.timeout.is_zero() {
            return invalid("its timeout is 0: no answer could come in time");
        }
        if self.timeout > LONGEST {
            return invalid("its timeout is longer than a year");
        }
        let is_empty = match &self.script {
            Some(script) => script.requests().next().is_none_or(|first| first.at >= duration),
            None => self.profile.expected_until(duration) <= 0.0,
        };
        if is_empty {
            return invalid("its rate is 0 for the whole duration: nothing would be sent");
        }
        Ok(())
    }
}

/// Where requests go, once for each host and port and way to speak with it.
#[derive(Clone)]
pub(crate) struct Destination {
    /// Host and port as written.
    pub(crate) authority: String,
    pub(crate) addresses: Vec<SocketAddr>,
    /// TLS, if it is spoken there.
    pub(crate) secure: Option<Secure>,
}

impl Destination {
    /// Whether a URL leads there.
    pub(crate) fn is_of(&self, url: &Uri) -> bool {
        url.authority().is_some_and(|of| of.as_str() == self.authority) && is_secure(url) == self.secure.is_some()
    }
}

pub(crate) fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(rate: &str) -> Stream {
        Stream::new("gold", rate.parse().unwrap()).url("http://127.0.0.1:1/", 1.0).unwrap()
    }

    #[test]
    fn a_plan_that_sends_nothing_is_refused() {
        let second = Duration::from_secs(1);
        assert!(Plan::new(vec![stream("5/s")], second).validate().is_ok());
        for (plan, part) in [
            (Plan::new(vec![], second), "no stream"),
            (Plan::new(vec![stream("5/s")], Duration::ZERO), "duration is 0"),
            (Plan::new(vec![stream("0/s")], second), "rate is 0"),
            (Plan::new(vec![stream("2s:5/s")], second), "rate is 0"),
            (Plan::new(vec![stream("5/s").script(Script::new(std::iter::empty))], second), "rate is 0"),
            (Plan::new(vec![Stream::new("x", "5/s".parse().unwrap())], second), "no URL"),
            (Plan::new(vec![stream("5/s").timeout(Duration::ZERO)], second), "timeout is 0"),
            (Plan::new(vec![stream("5/s").tenants(Some(Tenants { count: 0, zipf: 0.0 }))], second), "tenants"),
            (Plan::new(vec![stream("5/s").timeout(Duration::MAX)], second), "longer than a year"),
            (Plan::new(vec![stream("5/s")], Duration::MAX), "longer than a year"),
        ] {
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn wrong_urls_and_headers_say_why() {
        for (url, part) in
            [("ftp://a/", "must start with http:// or https://"), ("/x", "must start with"), ("http://", "URL")]
        {
            let error = stream("1/s").url(url, 1.0).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for weight in [f64::NAN, f64::INFINITY, f64::MAX, 0.0, -1.0] {
            assert!(stream("1/s").url("http://a/", weight).is_err());
        }
        assert!(stream("1/s").header("a b", "c").is_err());
        assert!(stream("1/s").header("a", "c\n").is_err());
    }
}
