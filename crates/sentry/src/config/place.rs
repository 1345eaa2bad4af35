//! Where a server is: what follows the scheme in its address.

use std::net::SocketAddr;
use std::path::Path;

/// What makes a name of a service, to be looked up by SRV.
const SERVICE: &str = "srv:";
/// What makes a service of Kubernetes, whose pods are the servers.
const PODS: &str = "kubernetes:";
/// Why a build without the feature cannot follow them, and what to do.
pub(crate) const NOT_BUILT: &str = "this program was built without Kubernetes; build it with --features kubernetes";
/// What makes a path of a Unix socket.
const SOCKET: &str = "unix:";

/// A proxy that asks for its clients, and sends their requests on itself. It is named instead of the servers behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Envoy, by `ext_proc`.
    Envoy,
    /// nginx, by a request that it sends on once it is told so.
    Nginx,
    /// HAProxy, by SPOP.
    Haproxy,
}

impl Asker {
    const ALL: [Asker; 3] = [Asker::Envoy, Asker::Nginx, Asker::Haproxy];

    /// What is said instead of an address.
    pub const fn name(self) -> &'static str {
        match self {
            Asker::Envoy => "envoy",
            Asker::Nginx => "nginx",
            Asker::Haproxy => "haproxy",
        }
    }

    /// What people call it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Asker::Envoy => "Envoy",
            Asker::Nginx => "nginx",
            Asker::Haproxy => "HAProxy",
        }
    }

    /// Which of them is named where an address could stand, if one is.
    pub fn of(address: &str) -> Option<Asker> {
        Asker::ALL.into_iter().find(|asker| asker.name() == address)
    }

    /// Whether it tells of the ends of requests by datagrams.
    pub(crate) const fn tells_ends(self) -> bool {
        match self {
            Asker::Envoy => false,
            Asker::Nginx | Asker::Haproxy => true,
        }
    }

    /// Whether it asks by requests as clients do.
    pub(crate) const fn asks_by_http(self) -> bool {
        match self {
            Asker::Envoy | Asker::Haproxy => false,
            Asker::Nginx => true,
        }
    }
}

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// At an address.
    Address(SocketAddr),
    /// At all addresses of a name, on a port.
    Host { name: &'a str, port: u16 },
    /// Where the SRV records of a name say.
    Service(&'a str),
    /// At the pods of a service of Kubernetes.
    Pods(Pods<'a>),
    /// At a Unix socket of this machine.
    Socket(&'a Path),
    /// Wherever a proxy that asks sends it.
    Behind(Asker),
}

/// The pods of a service of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pods<'a> {
    pub(crate) service: &'a str,
    /// `None`: the one in which this sentry runs.
    pub(crate) namespace: Option<&'a str>,
    /// Name or number; `None`: the first TCP port of the service.
    pub(crate) port: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// What `at` says, an address without its scheme.
    ///
    /// # Errors
    /// Why it says nothing.
    pub(crate) fn of(at: &'a str) -> Result<Self, String> {
        if let Some(asker) = Asker::of(at) {
            return Ok(Place::Behind(asker));
        }
        if let Some(path) = at.strip_prefix(SOCKET) {
            return socket_path(path).map(Place::Socket);
        }
        if let Some(name) = at.strip_prefix(SERVICE) {
            return service(name);
        }
        if let Some(service) = at.strip_prefix(PODS) {
            return pods(service).map(Place::Pods);
        }
        if at.contains('/') {
            return Err("a server has no path; write \"host:port\"".to_owned());
        }
        if let Ok(address) = at.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err("port 0 is no port; write \"host:port\"".to_owned()),
                _ => Ok(Place::Address(address)),
            };
        }
        let (name, port) = split_port(at)?;
        if port == 0 {
            return Err("port 0 is no port; write \"host:port\"".to_owned());
        }
        if !is_name(name) {
            return Err("this is neither a name nor an address; write \"host:port\"".to_owned());
        }
        Ok(Place::Host { name, port })
    }
}

/// The absolute path of a Unix socket.
///
/// # Errors
/// Why it cannot be one.
pub(crate) fn socket_path(path: &str) -> Result<&Path, String> {
    if !path.starts_with('/') {
        return Err("a Unix socket needs its whole path; write \"unix:/run/app.sock\"".to_owned());
    }
    // `sun_path` of `sockaddr_un`, less the zero at its end.
    if path.len() > 107 || path.contains('\0') {
        return Err("the path of a Unix socket has at most 107 bytes, and no zero byte".to_owned());
    }
    Ok(Path::new(path))
}

fn service(name: &str) -> Result<Place<'_>, String> {
    if name.contains(':') {
        return Err("the ports are in the SRV records; leave yours out, or leave \"srv:\" out".to_owned());
    }
    let mut labels = name.splitn(3, '.');
    let is_label = |label: Option<&str>| label.is_some_and(|label| label.len() > 1 && label.starts_with('_'));
    let well_formed = is_label(labels.next()) && is_label(labels.next()) && labels.next().is_some_and(is_name);
    if !well_formed {
        return Err("SRV records belong to a service; write \"srv:_http._tcp.shop.internal\"".to_owned());
    }
    Ok(Place::Service(name))
}

fn pods(text: &str) -> Result<Pods<'_>, String> {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let (service, namespace) = name.split_once('.').map_or((name, None), |(name, space)| (name, Some(space)));
    let is_name = |name: &str| {
        let has_ends = !name.starts_with('-') && !name.ends_with('-');
        let is_in = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        has_ends && (1..=63).contains(&name.len()) && name.bytes().all(is_in)
    };
    if !is_name(service) || !namespace.is_none_or(is_name) {
        return Err("no service of Kubernetes; write \"kubernetes:SERVICE:PORT\", or, where it is in another \
                    namespace, \"kubernetes:SERVICE.NAMESPACE:PORT\""
            .to_owned());
    }
    if !port.is_none_or(is_name) || port.is_some_and(|port| port.parse::<u32>().is_ok_and(|n| n == 0 || n > 65535)) {
        return Err("no port of a service; write its name, such as \"http\", or its number at the pods".to_owned());
    }
    Ok(Pods { service, namespace, port })
}

/// The domain of `_service._protocol.domain`.
pub(crate) fn domain(service: &str) -> &str {
    service.splitn(3, '.').nth(2).unwrap_or(service)
}

pub(super) fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

pub(super) fn split_port(text: &str) -> Result<(&str, u16), String> {
    let missing = || match text.parse::<u16>() {
        Ok(port) => format!("the address is missing; write for example \"127.0.0.1:{port}\""),
        Err(_) if text.is_empty() => "it is empty; write for example \"127.0.0.1:8080\"".to_owned(),
        Err(_) => format!("the port is missing; write for example \"{text}:8080\""),
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(missing)?;
    let port = port.parse().map_err(|_| format!("\"{port}\" is not a port; write a number from 1 to 65535"))?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_how_its_server_is_found() {
        assert_eq!(Place::of("10.0.0.1:80"), Ok(Place::Address(([10, 0, 0, 1], 80).into())));
        assert_eq!(Place::of("[::1]:80"), Ok(Place::Address("[::1]:80".parse().expect("an address"))));
        assert_eq!(Place::of("a.internal:80"), Ok(Place::Host { name: "a.internal", port: 80 }));
        assert_eq!(Place::of("a.internal.:80"), Ok(Place::Host { name: "a.internal.", port: 80 }));
        let service = "_http._tcp.a.internal";
        assert_eq!(Place::of("srv:_http._tcp.a.internal"), Ok(Place::Service(service)));
        assert_eq!(domain(service), "a.internal");
        let pods = Pods { service: "shop", namespace: None, port: None };
        assert_eq!(Place::of("kubernetes:shop"), Ok(Place::Pods(pods)));
        assert_eq!(Place::of("kubernetes:shop:8080"), Ok(Place::Pods(Pods { port: Some("8080"), ..pods })));
        let elsewhere = Pods { namespace: Some("web"), port: Some("http"), ..pods };
        assert_eq!(Place::of("kubernetes:shop.web:http"), Ok(Place::Pods(elsewhere)));
        assert_eq!(Place::of("envoy"), Ok(Place::Behind(Asker::Envoy)));
        assert_eq!(Place::of("nginx"), Ok(Place::Behind(Asker::Nginx)));
        assert_eq!(Place::of("haproxy"), Ok(Place::Behind(Asker::Haproxy)));
        assert_eq!(Place::of("unix:/run/a b.sock"), Ok(Place::Socket(Path::new("/run/a b.sock"))));
    }

    #[test]
    fn what_is_no_place_says_what_to_write() {
        for (at, hint) in [
            ("unix:app.sock", "whole path"),
            ("unix:", "whole path"),
            ("srv:shop.internal", "srv:_http._tcp"),
            ("srv:_http._tcp", "srv:_http._tcp."),
            ("srv:_http._tcp.a:80", "ports are in the SRV records"),
            ("kubernetes:", "kubernetes:SERVICE:PORT"),
            ("kubernetes:Shop", "kubernetes:SERVICE:PORT"),
            ("kubernetes:shop.web.svc.cluster.local:http", "kubernetes:SERVICE.NAMESPACE:PORT"),
            ("kubernetes:shop:", "no port of a service"),
            ("kubernetes:shop:0", "no port of a service"),
            ("kubernetes:shop:65536", "no port of a service"),
            ("a..b:80", "neither a name nor an address"),
            ("a b:80", "neither a name nor an address"),
            ("a/b:80", "no path"),
            ("1.2.3.4:0", "port 0"),
            ("a:0", "port 0"),
            ("a:x", "not a port"),
        ] {
            let problem = Place::of(at).expect_err(at);
            assert!(problem.contains(hint), "{at}: {problem}");
        }
        assert!(Place::of(&format!("unix:/{}", "a".repeat(107))).is_err(), "longer than the system takes");
    }
}
