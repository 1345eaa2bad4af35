//! What is typed of listeners, TLS, and servers.

use super::acme::RawAcme;
use tidegate_config::{At, Kind, List, Read, Report, Value, section, wrong};

section! {
    pub(in crate::config) struct RawListenTable ("in listen of [[application]]") {
        /// Address to listen on, as the short form has it. Required.
        address: String,
        /// Of a [Unix socket](tls.md#unix-sockets): the permissions of its file. Default: `"0660"`.
        mode: String,
        /// Whether connections begin with a TLS handshake. Default: `true` if there is `[application.tls]`, and no
        /// `redirect`.
        tls: bool,
        /// Whether connections begin with a [PROXY header](tls.md#proxy-protocol): `"off"`, `"optional"`, or
        /// `"required"`. Only networks in `forwarded.trust` may send one. Default: `"off"`.
        proxy: String,
        /// Port of https: every request is answered with 308 to the same place there, and no server is asked. Default:
        /// none.
        redirect: u64,
    }
}

/// A listener: its address, or a table.
#[derive(Clone, Debug)]
pub(in crate::config) struct RawListen(pub(in crate::config) RawListenTable);

impl Read for RawListen {
    const KIND: Kind = Kind::Table(&RawListenTable::SECTION);

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(address) = value.get_ref().as_str() {
            return Some(RawListen::at(At { value: address.to_owned(), span: value.span() }));
        }
        match value.get_ref().as_table() {
            Some(table) => Some(RawListen(RawListenTable::read_table(table, report))),
            None => wrong(value, key, "addresses such as \":8080\", or tables with an address", report),
        }
    }
}

impl RawListen {
    /// The short form.
    pub(in crate::config) fn at(address: At<String>) -> Self {
        RawListen(RawListenTable { address: Some(address), ..RawListenTable::default() })
    }
}

section! {
    pub(in crate::config) struct RawTls ("in [application.tls]") {
        /// Certificates with their keys; the one is sent whose name the client asks for, else the first. Read again
        /// when a file changes. Default: none.
        certificate: List<RawCertificate>,
        /// A certificate that is [ordered from an authority](tls.md#acme), beside those of `certificate`. Default:
        /// none.
        acme: RawAcme,
        /// `true`, instead of `certificate`: one that is made at the start, which no client trusts. Default: `false`.
        self_signed: bool,
        /// The oldest version of TLS that is spoken: `"1.2"` or `"1.3"`. Default: `"1.2"`.
        min_version: String,
        /// [Certificates of clients](tls.md#client-certificates): `"off"`, `"optional"`, or `"required"`. Default:
        /// `"off"`.
        clients: String,
        /// PEM file with the authorities whose certificates of clients are good. Default: none.
        client_ca: String,
        /// Whether a request must be for the host that the handshake named; 421 otherwise. Default: `true`.
        match_host: bool,
    }
}

section! {
    pub(in crate::config) struct RawServerTls ("in [application.server_tls]") {
        /// PEM file with the authorities that are believed. Default: those of this machine.
        ca: String,
        /// The name that servers' certificates must have. Default: that of the server's address.
        name: String,
        /// PEM file with the certificate that the sentry shows to servers. Default: none.
        cert: String,
        /// PEM file with its key. Default: none.
        key: String,
        /// `false`: any server is believed, and so is anybody in between. Default: `true`.
        verify: bool,
    }
}

section! {
    pub(in crate::config) struct RawCertificate ("in [[application.tls.certificate]]") {
        /// PEM file with the certificate and those that it hangs on. Required.
        cert: String,
        /// PEM file with its key. Required.
        key: String,
    }
}

section! {
    pub(in crate::config) struct RawServerTable ("in servers of [[application]]") {
        /// What it is called in metrics, logs and on the dashboard. Default: its address.
        name: String,
        /// `"host:port"`, where a host with [a name](names.md) is all of its addresses;
        /// `"srv:_http._tcp.shop.internal"` for what SRV records say; `"kubernetes:shop:http"` for [pods of a
        /// service](kubernetes.md#a-sentry-before-a-service); `"unix:/run/app.sock"` for a Unix socket. Before it,
        /// `https://` for [TLS](tls.md#tls-to-servers), `h2c://` for [HTTP/2](http2.md#servers), `h2://` for both.
        /// Required.
        address: String,
        /// Instead of `address`: [a file of servers](names.md#files-of-servers), read again when it changes. Default:
        /// none.
        file: String,
        /// `"application"`, or `"data"`: a data server that has the application's software too, for
        /// [stealing](softscale.md). Default: `"application"`.
        role: String,
        /// Number of processors, if known. Default: learned.
        cores: f64,
        /// Weight for `wrr`, and for the limits on requests in flight. Default: `1.0`.
        weight: f64,
        /// Limit on requests in flight, streams and tunnels at the server. Default: none.
        max_connections: u64,
    }
}

/// A server: its address, or a table.
#[derive(Clone, Debug)]
pub(in crate::config) struct RawServer(pub(in crate::config) RawServerTable);

impl Read for RawServer {
    const KIND: Kind = Kind::Table(&RawServerTable::SECTION);

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(address) = value.get_ref().as_str() {
            let address = At { value: address.to_owned(), span: value.span() };
            return Some(RawServer(RawServerTable { address: Some(address), ..RawServerTable::default() }));
        }
        match value.get_ref().as_table() {
            Some(table) => Some(RawServer(RawServerTable::read_table(table, report))),
            None => wrong(value, key, "addresses such as \"127.0.0.1:9001\", or tables with an address", report),
        }
    }
}
