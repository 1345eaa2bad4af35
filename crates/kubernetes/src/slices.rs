//! Endpoint slices to pods: pure.
//!
//! *Awkward cases.* A service has several slices; one for each kind of address, and more when there are many. Where a
//! pod has both kinds, IPv4 counts. While it moves from one slice to another it may be in both: then the better news
//! counts. `ready` missing means ready (`EndpointConditions` in the API).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// A pod, as its service sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// What tells it from every other one, at any time.
    pub uid: String,
    /// Its name; none where the service does not say that it is a pod.
    pub name: Option<String>,
    /// Where it serves.
    pub address: SocketAddr,
    /// Whether it is to get requests.
    pub is_ready: bool,
    /// Whether somebody wants it to go.
    pub is_terminating: bool,
}

/// The pods of a service's slices, at the port of that name or number; else at the first one.
pub fn pods<'a>(slices: impl Iterator<Item = &'a EndpointSlice>, port: Option<&str>) -> Vec<Pod> {
    let mut found: BTreeMap<String, (bool, Pod)> = BTreeMap::new();
    for slice in slices {
        let Some(port) = number(slice.ports.as_deref().unwrap_or_default(), port) else { continue };
        for pod in slice.endpoints.iter().filter_map(|endpoint| pod(endpoint, port)) {
            let rank = |pod: &Pod, four: bool| (!pod.is_terminating, pod.is_ready, four);
            let four = slice.address_type == "IPv4";
            let better = found.get(&pod.uid).is_none_or(|(was, other)| rank(&pod, four) > rank(other, *was));
            if better {
                found.insert(pod.uid.clone(), (four, pod));
            }
        }
    }
    found.into_values().map(|(_, pod)| pod).collect()
}

fn number(ports: &[EndpointPort], wanted: Option<&str>) -> Option<u16> {
    let is_tcp = |port: &&EndpointPort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let is_wanted = |port: &&EndpointPort| match wanted {
        Some(wanted) => {
            port.name.as_deref() == Some(wanted) || port.port.is_some_and(|port| port.to_string() == wanted)
        }
        None => true,
    };
    ports.iter().filter(is_tcp).find(is_wanted).and_then(|port| u16::try_from(port.port?).ok())
}

fn pod(endpoint: &Endpoint, port: u16) -> Option<Pod> {
    // Names in place of addresses are of services outside.
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let address = SocketAddr::new(ip, port);
    let target = endpoint.target_ref.as_ref();
    let is_pod = target.is_some_and(|target| target.kind.as_deref() == Some("Pod"));
    let conditions = endpoint.conditions.as_ref();
    let is_terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
    Some(Pod {
        uid: target.and_then(|target| target.uid.clone()).unwrap_or_else(|| address.to_string()),
        name: target.filter(|_| is_pod).and_then(|target| target.name.clone()),
        address,
        is_ready: conditions.and_then(|conditions| conditions.ready).unwrap_or(true) && !is_terminating,
        is_terminating,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(slices: &[Value], port: Option<&str>) -> Vec<String> {
        let parse = |slice: &Value| serde_json::from_value::<EndpointSlice>(slice.clone()).expect("a slice");
        let slices: Vec<EndpointSlice> = slices.iter().map(parse).collect();
        let line = |pod: &Pod| {
            let state = if pod.is_terminating {
                "ends"
            } else if pod.is_ready {
                "ready"
            } else {
                "not ready"
            };
            format!("{} {} {state}", pod.uid, pod.address)
        };
        pods(slices.iter(), port).iter().map(line).collect()
    }

    fn slice(kind: &str, endpoints: Value) -> Value {
        let ports = json!([
            { "name": "dns", "port": 53, "protocol": "UDP" },
            { "name": "admin", "port": 9000, "protocol": "TCP" },
            { "name": "http", "port": 8080 },
        ]);
        json!({ "metadata": { "name": kind }, "addressType": kind, "endpoints": endpoints, "ports": ports })
    }

    fn endpoint(uid: &str, address: &str, conditions: Value) -> Value {
        json!({ "addresses": [address], "conditions": conditions, "targetRef": { "kind": "Pod", "name": uid, "uid": uid } })
    }

    #[test]
    fn conditions_say_how_a_pod_is() {
        let endpoints = json!([
            endpoint("a", "10.0.0.1", json!({ "ready": true, "serving": true, "terminating": false })),
            endpoint("b", "10.0.0.2", json!({ "ready": false })),
            endpoint("c", "10.0.0.3", json!({ "ready": true, "serving": true, "terminating": true })),
            endpoint("d", "10.0.0.4", json!({})),
            { "addresses": ["10.0.0.5"] },
            { "addresses": ["example.com"] },
            { "addresses": [] },
        ]);
        let all = seen(&[slice("IPv4", endpoints)], Some("http"));
        let expected = [
            "10.0.0.5:8080 10.0.0.5:8080 ready",
            "a 10.0.0.1:8080 ready",
            "b 10.0.0.2:8080 not ready",
            "c 10.0.0.3:8080 ends",
            "d 10.0.0.4:8080 ready",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_port_is_found_by_name_or_number_or_is_the_first_one() {
        let one = [slice("IPv4", json!([endpoint("a", "10.0.0.1", json!({}))]))];
        assert_eq!(seen(&one, Some("admin")), ["a 10.0.0.1:9000 ready"]);
        assert_eq!(seen(&one, Some("8080")), ["a 10.0.0.1:8080 ready"]);
        assert_eq!(seen(&one, None), ["a 10.0.0.1:9000 ready"]);
        assert!(seen(&one, Some("dns")).is_empty() && seen(&one, Some("none")).is_empty());
        assert!(seen(&[json!({ "metadata": {}, "addressType": "IPv4", "endpoints": null })], None).is_empty());
    }

    #[test]
    fn a_pod_in_several_slices_counts_once() {
        let six =
            slice("IPv6", json!([endpoint("a", "2001:db8::1", json!({})), endpoint("b", "2001:db8::2", json!({}))]));
        let four = slice("IPv4", json!([endpoint("a", "10.0.0.1", json!({}))]));
        let moved = slice("IPv4", json!([endpoint("a", "10.0.0.1", json!({ "ready": false }))]));
        let expected = ["a 10.0.0.1:8080 ready", "b [2001:db8::2]:8080 ready"];
        assert_eq!(seen(&[six.clone(), four.clone(), moved.clone()], Some("http")), expected);
        assert_eq!(seen(&[moved, four, six], Some("http")), expected);
    }
}
