//! Addresses: where applications and the admin API listen, and where servers are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidegate_config::{At, Report};
use tidegate_wire::KeyError;

use super::super::place::{NOT_BUILT, Place, socket_path, split_port};
use super::super::raw::{RawAdmin, RawApplication, RawListenTable};
use super::super::{Admin, Listen, ProxyIn, SocketFile, Spoken};
use super::Resolver;

impl Resolver<'_, '_, '_> {
    /// Where each application listens; overlaps, also with the admin listener, are reported.
    pub(super) fn listens(&mut self, apps: &[At<RawApplication>], admin: Option<&At<RawAdmin>>) -> Vec<Vec<Listen>> {
        let mut taken: Vec<(Listen, String)> = Vec::new();
        if let Some(listen) = admin.and_then(|admin| admin.value.listen.as_ref())
            && let Ok(address) = listen_address(&listen.value)
        {
            taken.push((address.into(), ADMIN.to_owned()));
        }
        let mut all = Vec::new();
        for app in apps {
            let name = app.value.name.as_ref().map_or("default", |name| &name.value);
            let listen = self.listen(&app.value, &app.span);
            let own = format!("application \"{name}\"");
            for (listen, span) in &listen {
                let is_rival = |(other, owner): &&(Listen, String)| {
                    let is_own = *owner == own;
                    // The very same one may be shared with other applications (`routing.rs`).
                    let is_shared = !is_own && owner != ADMIN && listen.is_same(other);
                    overlap(listen, other, is_own) && !is_shared
                };
                if let Some((_, owner)) = taken.iter().find(is_rival) {
                    let instead = if listen.socket.is_some() { "in another place" } else { "on another port" };
                    self.report.error(span, format!("{listen} is already taken by {owner}; listen {instead}"));
                }
                taken.push((*listen, own.clone()));
            }
            all.push(listen.into_iter().map(|(listen, _)| listen).collect());
        }
        all
    }

    fn listen(&mut self, app: &RawApplication, span: &Range<usize>) -> Vec<(Listen, Range<usize>)> {
        let has_tls = app.tls.is_some();
        let Some(given) = &app.listen else {
            let listen = Listen { tls: has_tls, ..SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)).into() };
            return vec![(listen, span.clone())];
        };
        if given.value.0.is_empty() && self.complete {
            self.report.error(&given.span, "listen is empty; write for example listen = \"0.0.0.0:8080\"");
        }
        let mut out = Vec::new();
        for item in &given.value.0 {
            let RawListenTable { address, mode, tls, proxy, redirect } = item.value.0.clone();
            let redirect = redirect.and_then(|given| self.redirect(&given, tls.as_ref()));
            let proxy = self.choice("proxy", proxy, ProxyIn::ALL, ProxyIn::name);
            if proxy != ProxyIn::Off && !trusts_someone(app) && self.complete {
                let message = "who may send PROXY headers? name their networks in [application.forwarded] trust";
                self.report.error(&item.span, message);
            }
            if let Some(tls) = tls.as_ref().filter(|tls| tls.value && !has_tls && self.complete) {
                let message = "there is no certificate for this listener; add [application.tls] to the application";
                self.report.error(&tls.span, message);
            }
            let Some(address) = address else {
                self.missing(&item.span, "this listener has no address; add address = \":8080\"");
                continue;
            };
            let place = match self.listen_socket(&address, mode) {
                Some(socket) => socket.map(|socket| (NOWHERE, Some(socket))),
                None => listen_address(&address.value).map(|address| (address, None)),
            };
            match place {
                Ok((address, socket)) => {
                    let tls = tls.map_or(has_tls && redirect.is_none(), |tls| tls.value);
                    out.push((Listen { address, socket, tls, proxy, redirect }, item.span.clone()));
                }
                Err(problem) => self.report.error(&item.span, format!("listen = \"{}\": {problem}", address.value)),
            }
        }
        out
    }

    /// The Unix socket to listen on, if that is what the address is.
    fn listen_socket(&mut self, address: &At<String>, mode: Option<At<String>>) -> Option<Result<SocketFile, String>> {
        let Some(path) = address.value.trim().strip_prefix("unix:") else {
            if let Some(mode) = mode {
                self.report.error(&mode.span, "mode is for Unix sockets, address = \"unix:/run/...\"; leave it out");
            }
            return None;
        };
        let parsed = mode
            .as_ref()
            .map_or(Some(SOCKET_MODE), |mode| u32::from_str_radix(&mode.value, 8).ok().filter(|mode| *mode <= 0o777));
        if let (None, Some(mode)) = (parsed, &mode) {
            let message =
                format!("mode = \"{}\" is none; write permissions in octal, for example \"0660\"", mode.value);
            self.report.error(&mode.span, message);
        }
        Some(socket_path(path).map(|path| SocketFile::new(path, parsed.unwrap_or(SOCKET_MODE))))
    }

    /// The port of https that a listener sends its clients to.
    fn redirect(&mut self, given: &At<u64>, tls: Option<&At<bool>>) -> Option<NonZeroU16> {
        if tls.is_some_and(|tls| tls.value) {
            self.report.error(&given.span, "a listener either speaks TLS or sends its clients there; leave one out");
        }
        let port = u16::try_from(given.value).ok().and_then(NonZeroU16::new);
        if port.is_none() {
            let message = format!("redirect = {} is no port; write that of https, for example 443", given.value);
            self.report.error(&given.span, message);
        }
        port
    }

    /// The admin listener: on loopback anyone may ask, elsewhere only who has the token.
    pub(super) fn admin(&mut self, raw: At<RawAdmin>) -> Admin {
        let (span, raw) = (raw.span, raw.value);
        let listen = match raw.listen {
            None => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9900))),
            Some(given) => listen_address(&given.value)
                .map_err(|problem| self.report.error(&given.span, format!("listen = \"{}\": {problem}", given.value)))
                .ok(),
        };
        let given = raw.token.is_some() || raw.token_file.is_some();
        let token = match (raw.token, raw.token_file) {
            (Some(_), Some(file)) => {
                self.report.error(&file.span, "give \"token\" or \"token_file\" in [admin], not both");
                None
            }
            (Some(token), None) => Some(self.token(token)),
            (None, Some(file)) => self.token_from(file),
            (None, None) => None,
        };
        if listen.is_some_and(|address| !address.ip().is_loopback()) && !given && self.complete {
            self.report.error(
                &span,
                "the admin listener is not on loopback, so it needs a token; add token = \"...\" or token_file = \"...\" \
                 to [admin], or listen on 127.0.0.1",
            );
        }
        Admin { listen, token, scaler: raw.scaler.is_some_and(|scaler| scaler.value) }
    }

    /// Where datagrams are heard: at `port` on loopback when nothing is said.
    pub(super) fn udp_listen(&mut self, given: Option<At<String>>, port: u16) -> SocketAddr {
        let otherwise = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        given.map_or(otherwise, |given| {
            udp_address(&given.value).unwrap_or_else(|problem| {
                self.report.error(&given.span, format!("listen = \"{}\": {problem}", given.value));
                otherwise
            })
        })
    }

    /// The keys that follow from what is in a file, and where that is.
    pub(super) fn keys<K>(
        &mut self,
        file: &At<String>,
        from_bytes: impl FnOnce(&[u8], &Path) -> Result<K, KeyError>,
    ) -> Option<(PathBuf, K)> {
        let path = Path::new(&file.value);
        self.secret(path, &file.span);
        let keys = match self.world.read(path) {
            Ok(bytes) => from_bytes(&bytes, path).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the key file \"{}\" cannot be read: {error}", file.value)),
        };
        let keys = keys.map_err(|problem| self.report.error(&file.span, problem)).ok()?;
        Some((self.world.absolute(path), keys))
    }

    /// A file with a secret in it, which should be nobody else's to read.
    pub(super) fn secret(&mut self, path: &Path, span: &Range<usize>) {
        if let Some(message) = self.world.exposed(path) {
            self.report.warn(span, message);
        }
    }

    /// The token is what the file holds, without white space around it.
    fn token_from(&mut self, file: At<String>) -> Option<String> {
        let At { value: path, span } = file;
        self.secret(Path::new(&path), &span);
        match self.world.read(Path::new(&path)).map(String::from_utf8) {
            Ok(Ok(text)) => return Some(self.token(At { value: text.trim().to_owned(), span })),
            Ok(Err(_)) => self.report.error(&span, format!("token_file \"{path}\" is not text")),
            Err(error) => self.report.error(&span, format!("token_file \"{path}\" cannot be read: {error}")),
        }
        None
    }

    fn token(&mut self, token: At<String>) -> String {
        let usable = token.value.len() >= 16 && token.value.bytes().all(|b| b.is_ascii_graphic());
        if !usable {
            self.report.error(&token.span, "token must be 16 or more printable ASCII characters, without spaces");
        }
        token.value
    }

    /// A server's address, checked. Names are looked up once it is in force.
    pub(super) fn server_address(&mut self, given: &At<String>) -> Option<String> {
        let text = given.value.trim();
        match self.check_server(text) {
            Ok(()) => Some(text.to_owned()),
            Err(problem) => {
                self.report.error(&given.span, format!("server \"{}\": {problem}", given.value));
                None
            }
        }
    }

    fn check_server(&self, text: &str) -> Result<(), String> {
        let (_, text) = Spoken::of(text);
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.split('/').next().unwrap_or(rest);
            return Err(format!(
                "leave {scheme}:// out; write \"{rest}\", or \"https://{rest}\" for TLS, \"h2c://{rest}\" for HTTP/2"
            ));
        }
        match Place::of(text)? {
            Place::Behind(asker) => Err(format!(
                "what {} knows is no address; only servers = [\"{}\"] is meant so",
                asker.title(),
                asker.name()
            )),
            Place::Pods(_) if !cfg!(feature = "kubernetes") => Err(NOT_BUILT.to_owned()),
            _ => Ok(()),
        }
    }
}

/// Who has the admin API's address.
const ADMIN: &str = "the admin listener";

/// The permissions of a Unix socket's file: its user and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// The address of who has none: the clients of Unix sockets, as networks name them.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn trusts_someone(app: &RawApplication) -> bool {
    let trust = app.forwarded.as_ref().and_then(|forwarded| forwarded.value.trust.as_ref());
    trust.is_some_and(|trust| !trust.value.0.is_empty())
}

/// An address for datagrams: `:80` is every address of IPv4.
pub(super) fn udp_address(text: &str) -> Result<SocketAddr, String> {
    let address = listen_address(text)?;
    let says_nothing = !text.trim().starts_with('[');
    Ok(if address.is_ipv6() && says_nothing { (Ipv4Addr::UNSPECIFIED, address.port()).into() } else { address })
}

/// `1.2.3.4:80`, `[::1]:80`, `localhost:80`, or `:80` for every address, of both families where there are both.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if text.parse::<IpAddr>().is_ok() {
        let with_port = if text.contains(':') { format!("[{text}]:8080") } else { format!("{text}:8080") };
        return Err(format!("the port is missing; write for example \"{with_port}\""));
    }
    let (host, port) = split_port(text)?;
    match host {
        "" | "*" | "[*]" => Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        "localhost" => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        _ => Err("listen on an address of this machine, not a name; write for example \"0.0.0.0:8080\"".to_owned()),
    }
}

/// Whether two listeners would get each other's connections. Port 0 is a port of one's own. Every IPv6 address is every
/// address, but beside every IPv4 address of the same application it is only that.
fn overlap(a: &Listen, b: &Listen, same_owner: bool) -> bool {
    if a.socket.is_some() || b.socket.is_some() {
        return a.socket.map(|file| file.path()) == b.socket.map(|file| file.path());
    }
    let (a, b) = (a.address, b.address);
    let meet = match (a.ip(), b.ip()) {
        (one, other) if one == other => true,
        (IpAddr::V6(any), IpAddr::V4(other)) | (IpAddr::V4(other), IpAddr::V6(any)) => {
            any.is_unspecified() && !(same_owner && other.is_unspecified())
        }
        (one, other) => one.is_unspecified() || other.is_unspecified(),
    };
    a.port() == b.port() && a.port() != 0 && meet
}

/// Used by rules and forwarding: `10.0.0.0/8`, a single address, or `unix` for who comes by a Unix socket.
pub(super) fn network(given: &At<String>, report: &mut Report<'_>) -> Option<tidegate_classify::Network> {
    let text = given.value.trim();
    let text = if text == "unix" { "0.0.0.0" } else { text };
    let single = text.parse::<IpAddr>().map(tidegate_classify::Network::from);
    let parsed = single.or_else(|_| text.parse::<tidegate_classify::Network>()).ok();
    if parsed.is_none() {
        let message = format!("\"{}\" is not a network; write it like \"10.0.0.0/8\"", given.value);
        report.error(&given.span, message);
    }
    parsed
}
