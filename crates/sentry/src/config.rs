//! The configuration: what it means, after parsing and resolving.
//!
//! What is typed and what it means are two types. The types here are the meaning: complete, checked, nothing missing.

mod acme;
mod front;
mod headers;
mod health;
mod limits;
mod mirror;
mod parse;
mod peers;
mod place;
mod policy;
mod raw;
mod render;
pub(crate) mod resolve;
mod routing;
mod server_file;
mod servers;
mod socket;
mod syn;
#[cfg(test)]
mod tests;
mod upgrade;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use tidegate_classify::{ClassifierSetup, Network, Paths, Rule};
use tidegate_engine::{Request, Setup};

pub use acme::{Acme, AcmeChallenge, UntilIssued};
pub(crate) use front::Spoken;
pub use front::{CertificateFiles, ClientCertificates, Listen, ProxyIn, ProxyOut, ServerTls, Tls, TlsVersion};
pub(crate) use headers::Part;
pub use headers::{Action, HeaderChange, Placeholder, Value};
pub use health::{Asks, CheckWith, Health};
pub use limits::{Limits, OPEN_BYTES, Timeouts};
pub use mirror::Mirror;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use parse::fuzz;
pub use parse::{Checked, OneLine};
pub use peers::{PeerPlace, Peers};
pub use place::Asker;
#[cfg(not(feature = "kubernetes"))]
pub(crate) use place::NOT_BUILT;
pub(crate) use place::{Place, Pods, domain};
pub use routing::Routing;
pub use server_file::ServerFile;
pub use servers::{Pool, Retry, Server};
pub use socket::SocketFile;
pub use syn::{SynClass, SynPolicing, SynWith};
pub use tidegate_config::{ConfigErrors, Problem};
pub use upgrade::Upgrade;

/// Everything a sentry process does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The process as a whole.
    pub sentry: SentryConfig,
    /// The admin listener.
    pub admin: Admin,
    /// Where nuclei report to; `None` for nowhere.
    pub reports: Option<Reports>,
    /// The other sentries before the same servers; `None`: there are none, or nothing is said of them.
    pub peers: Option<Peers>,
    /// Where ends of requests are told of that others send on, UDP; `None`: nobody tells of any.
    pub ends: Option<SocketAddr>,
    /// Where spans go; `None` for nowhere.
    pub traces: Option<Traces>,
    /// The control plane that it follows; `None` for none.
    pub control: Option<Control>,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// How it hands over to a successor.
    pub upgrade: Upgrade,
    /// The applications, in file order.
    pub applications: Vec<Application>,
    /// The file it was read from; `None` for the one-line form.
    pub source: Option<PathBuf>,
}

/// Settings of the process as a whole. The number of workers takes effect at the next start.
#[derive(Clone, Debug, PartialEq)]
pub struct SentryConfig {
    /// Worker threads, one runtime and one listener each.
    pub workers: usize,
    /// How long a drain may take before connections are cut.
    pub drain: Duration,
    /// Who is asked for names of servers; nobody: whom `/etc/resolv.conf` names.
    pub resolvers: Vec<SocketAddr>,
}

/// The admin listener: metrics, health, state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admin {
    /// Where it listens; `None` for no admin listener.
    pub listen: Option<SocketAddr>,
    /// The bearer token that every request but `/healthz` and `/readyz` must carry. Always there when `listen` is not
    /// loopback.
    pub token: Option<String>,
    /// Whether who scales servers may ask without it how many are needed.
    pub scaler: bool,
}

/// Where the spans of requests go: by OTLP over HTTP. Takes effect at the next start.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// The collector's address for traces.
    pub endpoint: String,
    /// Of the traces that begin at this sentry, the share whose spans are kept, 0 to 1.
    pub share: f64,
    /// The name under which this sentry's spans are kept.
    pub service: String,
}

impl Default for Traces {
    fn default() -> Self {
        let endpoint = "http://127.0.0.1:4318/v1/traces".to_owned();
        Traces { endpoint, share: 1.0, service: "tidegate".to_owned() }
    }
}

/// The listener for reports of nuclei.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Where it listens, UDP.
    pub listen: SocketAddr,
    /// The file with the secrets from which nuclei's keys follow.
    pub key_file: PathBuf,
    /// The keys that follow from them.
    pub keys: tidegate_wire::Keys,
    /// A nucleus that was not heard for this long is silent; `None`: three of its own intervals.
    pub silent_after: Option<Duration>,
    /// What becomes of a server whose nucleus is silent.
    pub when_silent: WhenSilent,
}

/// The control plane that a sentry follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where it listens, `host:port`; where several share the work, each of them.
    pub connect: Vec<String>,
    /// The file with the secret that sentries and the control plane share, or with this sentry's own key.
    pub key_file: PathBuf,
    /// The keys that follow from it.
    pub keys: tidegate_wire::control::ControlKeys,
    /// This sentry's name, one of its own among all sentries.
    pub name: String,
    /// What clients are told for it by DNS; empty: where its applications listen.
    pub addresses: Vec<IpAddr>,
}

/// What becomes of a server whose nucleus reported before and is silent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenSilent {
    /// It gets no requests until its nucleus speaks again, unless more than half the servers would get none.
    Exclude,
    /// It is judged by what the sentry sees itself, as a server without a nucleus.
    #[default]
    Estimate,
}

impl WhenSilent {
    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            WhenSilent::Exclude => "exclude",
            WhenSilent::Estimate => "estimate",
        }
    }
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    #[default]
    Off,
    /// To standard output.
    Stdout,
    /// Appended to a file, which is reopened on SIGHUP.
    File(PathBuf),
}

/// One protected service.
#[derive(Clone, Debug)]
pub struct Application {
    /// Its name, unique in the file.
    pub name: String,
    /// Where it listens.
    pub listen: Vec<Listen>,
    /// Which requests are its own, where others listen there too.
    pub routing: Routing,
    /// How it speaks TLS to its clients; `None`: not at all.
    pub tls: Option<Tls>,
    /// How it speaks TLS to servers; `None`: to none, or as is the default.
    pub server_tls: Option<ServerTls>,
    /// Whether its servers are told by PROXY headers for whom a connection is.
    pub server_proxy: ProxyOut,
    /// What its controller needs.
    pub setup: Setup,
    /// What its classifier needs. Request type `i + 1` of `setup` is `request_types[i]` here; 0 is "default".
    pub classifier: ClassifierSetup,
    /// What requests of each type are, by the numbers of `setup.request_types`; those beyond its end are ordinary.
    pub kinds: Vec<RequestKind>,
    /// The same by class, for requests of which their type says nothing.
    pub class_kinds: Vec<RequestKind>,
    /// Names of the resource tags; tag number `i` is bit `i`.
    pub tags: Vec<String>,
    /// Its servers, in the order of `setup.servers`.
    pub servers: Vec<Server>,
    /// Files of more servers.
    pub server_files: Vec<ServerFile>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How large things may be.
    pub limits: Limits,
    /// How servers are checked.
    pub health: Health,
    /// Which requests a shadow server gets, too; `None`: none.
    pub mirror: Option<Mirror>,
    /// When a failed request is tried again elsewhere.
    pub retry: Retry,
    /// Connections kept open to servers.
    pub pool: Pool,
    /// What servers are told of the client.
    pub forwarded: Forwarded,
    /// How new connections are turned away, where the policy `resource` wants that.
    pub syn: SynPolicing,
    /// What refused clients get.
    pub rejection: RejectionPages,
    /// Requests that are never policed: health checks of load balancers in front of the sentry.
    pub exempt: Vec<Rule>,
    /// What becomes of paths that can be read in two ways.
    pub paths: Paths,
    /// Statuses of servers' answers that say by themselves that a service further down refused the request.
    pub refused_below: Vec<u16>,
    /// A client that closes its sending side waits for its answer; otherwise it has left.
    pub half_close: bool,
}

/// What requests of a type are, as far as their server's work is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// They are answered, or their answers say that they are streams.
    #[default]
    Ordinary,
    /// Their answers go on as things happen, whatever their content types.
    Stream,
    /// Their answers come when something happens: the wait is no work.
    Poll,
    /// Their bodies go to their servers as they come: nothing is read before they are admitted.
    Upload,
    /// They are work to the last byte, whatever content type and pace of their answers say.
    Work,
}

impl Application {
    /// Names of its classes, the most important first.
    pub(crate) fn class_names(&self) -> Vec<String> {
        self.setup.classes.iter().map(|class| class.name.clone()).collect()
    }

    /// What a request is by the rules: those of its type, else those of its class.
    pub(crate) fn kind(&self, request: &Request) -> RequestKind {
        let of = |kinds: &[RequestKind], at: usize| kinds.get(at).copied().unwrap_or_default();
        match of(&self.kinds, request.request_type.index()) {
            RequestKind::Ordinary => of(&self.class_kinds, request.class.index()),
            kind => kind,
        }
    }
}

impl RequestKind {
    /// Every kind, in the order of messages.
    pub const ALL: [RequestKind; 5] =
        [RequestKind::Ordinary, RequestKind::Stream, RequestKind::Poll, RequestKind::Upload, RequestKind::Work];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            RequestKind::Ordinary => "ordinary",
            RequestKind::Stream => "stream",
            RequestKind::Poll => "poll",
            RequestKind::Upload => "upload",
            RequestKind::Work => "work",
        }
    }
}

/// What servers are told of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Forwarded {
    /// `X-Forwarded-For`, `-Proto`, `-Host`.
    pub x_forwarded: bool,
    /// `Forwarded` (RFC 7239).
    pub forwarded: bool,
    /// `X-Request-Id`: kept when a trusted client sends one, else made.
    pub request_id: bool,
    /// Clients whose own forwarding headers are kept and extended; all others' are replaced.
    pub trust: Vec<Network>,
    /// Fields that only those clients may send: by them servers learn who asks, and for what.
    pub identity: Vec<HeaderName>,
    /// The protocols that a connection may change to, in lower case.
    pub upgrade: Vec<String>,
}

/// Fields by which servers learn who asks, or for what, from whoever sends them.
const IDENTITY: [&str; 19] = [
    "client-cert",
    "client-cert-chain",
    "x-client-cert-name",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "front-end-https",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
    "proxy",
];

impl Default for Forwarded {
    fn default() -> Self {
        Forwarded {
            x_forwarded: true,
            forwarded: false,
            request_id: true,
            trust: Vec::new(),
            identity: IDENTITY.into_iter().map(HeaderName::from_static).collect(),
            upgrade: vec![String::from("websocket")],
        }
    }
}

/// What refused clients get.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionPages {
    /// The status of a refusal.
    pub status: u16,
    /// The operator's page per class; `None` for the built-in one.
    pub pages: Vec<Option<Page>>,
    /// Whether refused clients are told why, and their class.
    pub details: bool,
    /// Whether admitted responses carry `Tidegate-Decision` too.
    pub decision_on_admitted: bool,
}

/// A page of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub body: Bytes,
    /// The file it was read from.
    pub path: PathBuf,
}
