//! What is typed: every table of the file and its keys, nothing yet filled in or checked against each other.

mod acme;
mod front;
mod health;
mod mirror;
mod routing;
mod syn;
mod upgrade;
mod who;

use tidegate_config::{Bytes, List, PerSecond, RawSla, Share, Time, section};

pub(super) use self::acme::RawAcme;
pub(super) use self::front::{
    RawCertificate, RawListen, RawListenTable, RawServer, RawServerTable, RawServerTls, RawTls,
};
pub(super) use self::health::{RawField, RawHealth, RawStatus};
pub(super) use self::mirror::RawMirror;
pub(super) use self::routing::{RawAccess, RawRequestHeader, RawResponseHeader, RawRewrite, RawRoute};
pub(super) use self::syn::{RawSynClass, RawSynPolicing};
pub(super) use self::upgrade::RawUpgrade;
pub(super) use self::who::{RawAffinity, RawDeadline, RawTenant, RawTenants};
use super::policy::{AdmissionChoice, DispatchChoice, PartitionChoice};

section! {
    /// The file.
    pub(super) struct RawConfig ("at the top level") {
        /// `"off"`, `"stdout"` or a file: one line of JSON for each request, reopened on SIGHUP. Default: `"off"`.
        access_log: String,
        /// The process as a whole.
        sentry: RawSentry,
        /// The admin API: dashboard, metrics, state, changes. Restart to change. Default: none.
        admin: RawAdmin,
        /// Where [nuclei](nucleus.md) report to. Default: none.
        reports: RawReports,
        /// The other sentries [before the same servers](fleet.md). Default: none.
        peers: RawPeers,
        /// Where [nginx](nginx.md) and [HAProxy](haproxy.md) tell of the ends of requests, as datagrams of syslog
        /// (UDP). Only listened on where one of them asks; restart to change. Default: `"127.0.0.1:9902"`.
        ends: String,
        /// Where spans of requests go, in a program built with [tracing](tracing.md). Restart to change. Default: none.
        traces: RawTraces,
        /// The [control plane](control.md) to follow; `servers` may then be left out. Restart to change. Default: none.
        control: RawControl,
        /// Handing over to a [successor](upgrade.md) without losing a connection.
        upgrade: RawUpgrade,
        /// One or more; a name each when there are several. Required.
        application: List<RawApplication>,
    }
}

section! {
    pub(super) struct RawSentry ("in [sentry]") {
        /// Worker threads; restart to change. Default: one for each processor.
        workers: u64,
        /// How long SIGTERM waits for requests in flight. Default: `"30s"`.
        drain: Time,
        /// Name servers for [names](names.md) of servers and other sentries, such as `"10.0.0.2:53"`. Default: those of
        /// `/etc/resolv.conf`.
        resolvers: List<String>,
    }
}

section! {
    pub(super) struct RawAdmin ("in [admin]") {
        /// Address to listen on. Any address other than loopback needs a token. Default: `"127.0.0.1:9900"`.
        listen: String,
        /// 16 or more characters, sent as `Authorization: Bearer ...` for all but `/healthz`, `/readyz`, health
        /// over gRPC and the dashboard's own files. Without a token the API allows no changes. Default: none.
        token: String,
        /// Instead of `token`: a file that holds it. Default: none.
        token_file: String,
        /// Whether [KEDA](kubernetes.md#keda-without-prometheus), which can send no token, may ask without one how many
        /// servers are needed; restart to change. Default: `false`.
        scaler: bool,
    }
}

section! {
    pub(super) struct RawReports ("in [reports]") {
        /// Where it listens, UDP; restart to change. Default: `"127.0.0.1:9901"`.
        listen: String,
        /// A file with the secret that nuclei share or that their own [keys](keys.md) follow from, 16 bytes or more;
        /// what is in it may change. Required.
        key_file: String,
        /// A nucleus without a report for this long is silent. Default: three of its own intervals.
        silent_after: Time,
        /// How its server is treated then: `"estimate"`, like one without a nucleus, or `"exclude"`, it gets no
        /// requests until its nucleus reports again, unless half the servers get none already. Default:
        /// `"estimate"`.
        when_silent: String,
    }
}

section! {
    pub(super) struct RawPeers ("in [peers]") {
        /// Where it hears of them and speaks to them from, UDP: an address by which they know this sentry, or
        /// `":9903"` where it has one address towards them. Restart to change. Default: `"127.0.0.1:9903"`.
        listen: String,
        /// Where the others are: addresses such as `"10.0.0.2:9903"`, and [names](fleet.md#sentries-by-name) such as
        /// `"sentries.example:9903"`, which are all of their addresses. All sentries may have the same list: one that
        /// finds itself there leaves itself out. Required.
        sentries: List<String>,
        /// A file with the secret that the sentries share, 16 bytes or more; what is in it may [change](keys.md).
        /// Required.
        key_file: String,
    }
}

section! {
    pub(super) struct RawTraces ("in [traces]") {
        /// The collector's address for traces: OTLP over HTTP, in clear text. Default:
        /// `"http://127.0.0.1:4318/v1/traces"`.
        endpoint: String,
        /// Share of the traces that begin here to keep; a client's own decision is followed. Default: `"100%"`.
        share: Share,
        /// Service name of this sentry's spans. Default: `"tidegate"`.
        service: String,
    }
}

section! {
    pub(super) struct RawControl ("in [control]") {
        /// Address of the control plane, `host:port`; several if there are several: the sentry follows the leader.
        /// Required.
        connect: List<String>,
        /// A file with the secret that sentries and the control plane share, or with this sentry's own [key](keys.md);
        /// what is in it may change. Required.
        key_file: String,
        /// This sentry's name; it must be unique. Required.
        name: String,
        /// IP addresses that [DNS](control.md#names) gives clients for this sentry. Default: those that its
        /// applications listen on, and for `0.0.0.0` and `[::]` the one from which it connects.
        addresses: List<String>,
    }
}

section! {
    pub(super) struct RawApplication ("in [[application]]") {
        /// What it is called in metrics, logs and on the dashboard. Default: `"default"`.
        name: String,
        /// Addresses, or tables; `":8080"` is every address, IPv4 and IPv6; `"unix:/run/shop.sock"` is a
        /// [Unix socket](tls.md#unix-sockets). Several applications may [share](routing.md) one. Default:
        /// `"127.0.0.1:8080"`.
        listen: List<RawListen>,
        /// [Which requests](routing.md) are this application's, where several share a listener: `{ host = "..." }`,
        /// `{ path = "..." }`, or both; any of several. Default: what no other application has.
        route: List<RawRoute>,
        /// [Who may ask at all](routing.md#who-may-ask).
        access: RawAccess,
        /// What of a path [servers are not told](routing.md#paths-and-headers).
        rewrite: RawRewrite,
        /// [Header fields](routing.md#paths-and-headers) to set, add or remove in requests to servers, in this order.
        /// Default: none.
        request_header: List<RawRequestHeader>,
        /// The same in answers to clients. Default: none.
        response_header: List<RawResponseHeader>,
        /// [TLS](tls.md) in front. Default: none, plain HTTP.
        tls: RawTls,
        /// TLS to servers whose addresses begin with `https://` or `h2://`.
        server_tls: RawServerTls,
        /// Whether servers are told by [PROXY headers](tls.md#proxy-headers-to-servers) for whom a connection is:
        /// `"off"`, `"v1"` or `"v2"`. Each connection of a client then has one of its own to the server. Default:
        /// `"off"`.
        server_proxy: String,
        /// Addresses such as `"127.0.0.1:9001"`, or tables; [names](names.md) are all of their addresses; `"envoy"`,
        /// `"nginx"`, `"haproxy"`: [Envoy](envoy.md), [nginx](nginx.md) or [HAProxy](haproxy.md) asks, and sends
        /// requests on itself. Required.
        servers: List<RawServer>,
        /// A file that `tidegate profile` wrote: [what it says](profile.md#in-a-configuration) of `target`,
        /// `default_cost`, `max_conn` and stealing holds here too, and must not contradict what is here. Default: none.
        profile: String,
        /// Short for `sla = { target = ... }`. Default: `"1s"`.
        target: Time,
        /// The response-time target, where it is more than one bound of the 95th percentile. Default: from `target`.
        sla: RawSla,
        /// The admission policy: [its name](policies.md#admission), or `{ policy = "...", ... }` with its settings.
        /// Default: `"waiting"`.
        admission: AdmissionChoice,
        /// Which server gets a request: [a policy](policies.md#dispatch), likewise; `{ policy = "softscale", profile =
        /// "FILE" }` has its [settings](softscale.md#the-profile) in a file of their own. Default: `"jsq"`.
        dispatch: DispatchChoice,
        /// Which servers a class may use: [a policy](policies.md#partition), likewise. Default: `"none"`.
        partition: PartitionChoice,
        /// Keeps the requests of a session on one server. Default: none.
        affinity: RawAffinity,
        /// What tells [tenants](tenants.md) apart. Default: the client's network.
        tenants: RawTenants,
        /// Where requests say [how long their clients wait](work.md#deadlines). Default: `grpc-timeout` and
        /// `x-envoy-expected-rq-timeout-ms`, from anybody.
        deadline: RawDeadline,
        /// Which requests in flight may be ended for the sake of more important ones: `"runaways"`, those that have
        /// used [several times what was expected](work.md#runaways), or `"off"`. Default: `"off"`.
        cancel: String,
        /// Statuses, 400 to 599, by which servers say that [a service further down](services.md) refused the request,
        /// without the field by which sentries say so. Default: `[]`.
        refused_below: List<u64>,
        /// Limits on requests in flight per server, by kind of request: for `admission = "switch"` and partitions.
        /// Default: one kind of all requests, 104 within the target and 150 at most.
        max_conn: List<RawMaxConn>,
        /// Decide and count, but refuse nothing. Default: `false`.
        shadow: bool,
        /// Cost of a request whose URL and type are unknown. Default: a quarter of the target.
        default_cost: Time,
        /// With no server up, `"try"` them nevertheless, or `"refuse"`. Default: `"try"`.
        when_all_down: String,
        /// Most important first; only the last may be without `match`. Default: one class, `default`.
        class: List<RawClass>,
        /// Kinds of requests; the first that matches is a request's. Default: none.
        request_type: List<RawType>,
        /// Tenants that are to get more or less than others. Default: none.
        tenant: List<RawTenant>,
        /// Requests that are never policed, health checks for example. Default: none.
        exempt: List<RawRule>,
        /// Paths that [can be read in two ways](security.md#one-request-one-meaning), `//a` or `/a%2F..`: `"strict"`
        /// refuses them, `"merge"` resolves them for rules and servers, `"as-is"` sends them on as they are and takes
        /// the less important class. Default: `"strict"`.
        paths: String,
        /// Answer clients that close their sending side (`nc -N`). Who leaves is not noticed then. Default: `false`.
        half_close: bool,
        /// How long each part of a request may take.
        timeouts: RawTimeouts,
        /// Limits on what is accepted.
        limits: RawLimits,
        /// How the sentry determines which servers are up.
        health: RawHealth,
        /// Copies of requests for [a shadow server](health.md#mirror). Default: none.
        mirror: RawMirror,
        /// When a request that a server did not answer is retried on another.
        retry: RawRetry,
        /// Connections to servers.
        pool: RawPool,
        /// Headers that inform servers about clients.
        forwarded: RawForwarded,
        /// How `admission = "resource"` polices [new connections](resource.md#new-connections). Restart to change.
        syn_policing: RawSynPolicing,
        /// Answers to refused clients.
        rejection: RawRejection,
    }
}

section! {
    pub(super) struct RawMaxConn ("in [[application.max_conn]]") {
        /// Name of the kind, such as `"dynamic"`. Required.
        name: String,
        /// The request types that count. Default: the type of that name.
        request_types: List<String>,
        /// In flight at a server of weight 1 while it answers within the target. Required.
        within_target: f64,
        /// In flight there at its breaking point. Required.
        most: f64,
    }
}

section! {
    pub(super) struct RawClass ("in [[application.class]]") {
        /// What it is called. Required.
        name: String,
        /// Value of an answer within the target, in any unit. Default: `1.0`.
        revenue: f64,
        /// Guaranteed rate: up to it requests are always admitted, without a test. Default: `"0/s"`.
        min_rate: PerSecond,
        /// Most guaranteed requests at once. Default: a tenth of a second of `min_rate`, at least 1.
        burst: f64,
        /// File sent to refused clients of this class. Default: that of `[application.rejection]`.
        page: String,
        /// [What counts as work](work.md), for requests whose type does not say: `"stream"`, `"poll"` or `"work"`, as
        /// for types. Default: `"ordinary"`.
        kind: String,
        /// Rules, any of which makes a request belong. Default: everything.
        r#match: List<RawRule>,
    }
}

section! {
    pub(super) struct RawType ("in [[application.request_type]]") {
        /// What it is called. Required.
        name: String,
        /// Rules, any of which makes a request belong. Required.
        r#match: List<RawRule>,
        /// Resources that the type uses heavily; at most 64 different ones. Default: none.
        tags: List<String>,
        /// [What counts as work](work.md): `"stream"`, the answer goes on as things happen; `"poll"`, it comes when
        /// something happens; `"upload"`, its body goes to the server as it comes; `"work"`, it is work to the last
        /// byte. Default: `"ordinary"`, the answer's
        /// content type and pace say whether it is a stream.
        kind: String,
    }
}

section! {
    pub(super) struct RawRule ("in a match rule") {
        /// `"GET"`, or several, of which one must fit. Default: any.
        method: List<String>,
        /// `"example.org"`, or `"*.example.org"` for the names below it; one of several must fit. Case and port play no
        /// part. Default: any.
        host: List<String>,
        /// Exactly this path. Default: any.
        path: String,
        /// `"/a"` is `/a` and all below it, not `/ab`; `"/a/"` is only what is below. Default: any.
        path_prefix: String,
        /// `*` within a segment, `**` across segments. Default: any.
        path_glob: String,
        /// Header fields that must all be there. Default: none.
        header: List<RawValueMatch>,
        /// Cookies that must all be there. Default: none.
        cookie: List<RawValueMatch>,
        /// `"10.0.0.0/8"` or an address, of the client's end of the connection; one of several must fit. Default: any.
        network: List<String>,
        /// [A name in the client's certificate](tls.md#client-certificates): `"billing.internal"`, or
        /// `"*.internal"`; one of several must fit. Default: any.
        certificate: List<String>,
        /// `true`: the answer is made for the request, which is not `GET` or `HEAD`, or has a query, or names a program
        /// (`/cgi-bin/`, `.php`, `.cgi` and the like); `false`: it is a file's. Default: any.
        dynamic: bool,
    }
}

section! {
    pub(super) struct RawValueMatch ("in header or cookie of a match rule") {
        /// Name of the field or cookie. Required.
        name: String,
        /// Its whole value. Default: any.
        value: String,
        /// What its value begins with. Default: any.
        prefix: String,
        /// What is somewhere in its value. Default: any.
        contains: String,
    }
}

section! {
    pub(super) struct RawTimeouts ("in [application.timeouts]") {
        /// Until a request's head is complete. Default: `"10s"`.
        header: Time,
        /// Until a connection's PROXY header and TLS handshake are done. Default: `"10s"`.
        handshake: Time,
        /// Without a byte of a body, in either direction; `limits.body_rate` is an average over this time. Default:
        /// `"30s"`.
        body_idle: Time,
        /// Until a connection to a server is open. Default: `"2s"`.
        connect: Time,
        /// Until a server begins to answer. Default: `"60s"`.
        first_byte: Time,
        /// A request as a whole; not once it is [a stream](work.md#streams-long-polls-and-tunnels), and of an
        /// [upload by rule](work.md#slow-clients) from the end of its body. Default: `"1h"`.
        request: Time,
        /// A client's connection without a request. Default: `"75s"`.
        client_idle: Time,
        /// A connection to a server without a request; half of those that are not needed for a sixth of it close each
        /// sixth. Default: `"30s"`.
        server_idle: Time,
    }
}

section! {
    pub(super) struct RawLimits ("in [application.limits]") {
        /// Bytes of a request's head. Default: `"16KiB"`.
        header_bytes: Bytes,
        /// Header fields of a request. Default: `100`.
        headers: u64,
        /// Bytes of a request's body. Default: none.
        body_bytes: Bytes,
        /// Connections of clients. Beyond it, idle ones [make room](security.md#who-gives-way). Default: `100000`.
        connections: u64,
        /// TLS handshakes under way at once. Default: `4096`.
        handshakes: u64,
        /// Requests in the class queues. Default: `10000`.
        waiting: u64,
        /// Bytes that clients sent ahead or leave unread, and that TLS and HTTP/2 take (up to 44 KiB a connection).
        /// When the former are half of it, none is [read ahead](work.md#slow-clients); beyond it, who holds most
        /// [gives way](security.md#who-gives-way). Default: a quarter of
        /// [the memory that there is](security.md#how-much-that-is).
        held_bytes: Bytes,
        /// Bytes of a request's body that are [read before it is admitted](work.md#slow-clients), and of an answer that
        /// are taken from its server while its client does not read; `0`: neither. Default: `"256KiB"`.
        ahead: Bytes,
        /// Bytes a second that a body must bring and the reader of an answer must take, on average over
        /// `timeouts.body_idle`; `0`: any. Default: `"500B"`.
        body_rate: Bytes,
        /// Streams, long polls and tunnels that are open [without a place](work.md). Default: `10000`.
        open: u64,
        /// Memory for them, 64 KiB each; beyond it they keep their places, as beyond `open`. Default: `"625MiB"`.
        open_bytes: Bytes,
        /// Requests at once on one connection of [HTTP/2](http2.md); `0`: HTTP/1 only. Default: `100`.
        streams: u64,
    }
}

section! {
    pub(super) struct RawRetry ("in [application.retry]") {
        /// How often a request is retried on another server, when that is safe. Default: `1`.
        attempts: u64,
        /// Largest share of retries among the requests. Default: `"20%"`.
        budget: Share,
    }
}

section! {
    pub(super) struct RawPool ("in [application.pool]") {
        /// Idle connections that each worker keeps to a server. Default: `10000`.
        idle_per_server: u64,
    }
}

section! {
    pub(super) struct RawForwarded ("in [application.forwarded]") {
        /// Send `X-Forwarded-For`, `-Proto` and `-Host`. Default: `true`.
        x_forwarded: bool,
        /// Send `Forwarded` (RFC 7239). Default: `false`.
        forwarded: bool,
        /// Send `X-Request-ID`. Default: `true`.
        request_id: bool,
        /// Networks of clients whose own such fields are kept. Default: none.
        trust: List<String>,
        /// Further fields that no other client may send, as servers learn by them who asks and for what. Default:
        /// `X-Real-IP`, `X-Original-URL` and [others](security.md#one-request-one-meaning).
        identity: List<String>,
        /// Protocols that a connection may change to; other wishes are not passed on. Default: `"websocket"`.
        upgrade: List<String>,
    }
}

section! {
    pub(super) struct RawRejection ("in [application.rejection]") {
        /// Status of a refusal, 400 to 599. Default: `503`.
        status: u64,
        /// File sent to refused clients. Default: built in, as HTML, JSON or text by `Accept`.
        page: String,
        /// Tell refused clients why, and their class: in `Tidegate-Decision` and the built-in page. Services and
        /// sentries that call this one [need it](services.md). Default: `true`.
        details: bool,
        /// Send `Tidegate-Decision` with admitted requests' answers, too. Default: `false`.
        decision_on_admitted: bool,
    }
}
