//! What a policy's sentries say: who comes, and who is refused.
//!
//! *Awkward cases.* Sentries count since their start: rates are differences, and one that started anew has none yet.
//! Sentries that know each other all reckon with what comes to all of them, so the largest of their needs is the need.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::parts::ADMIN;
use crate::policy::{ClassLoad, Load};

/// A sentry answers within this time, or is left out.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer that is read.
const LONGEST: usize = 8 << 20;

/// What they say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// How many answered.
    pub(crate) sentries: i32,
    /// Requests a second; `None`: not known yet.
    pub(crate) load: Option<Load>,
    /// The same of each class.
    pub(crate) classes: Vec<ClassLoad>,
    /// Servers that the load needs; `None`: nobody knows.
    pub(crate) servers_needed: Option<i32>,
}

/// What each sentry said last.
#[derive(Debug, Default)]
pub(crate) struct Meter(BTreeMap<IpAddr, Said>);

/// What a sentry said.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    uptime: f64,
    classes: Vec<Counts>,
    servers_needed: Option<i32>,
}

/// Of a class, since the sentry's start.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    name: String,
    offered: u64,
    refused: u64,
}

impl Meter {
    /// Takes what sentries answered; who is not among them is forgotten.
    pub(crate) fn take(&mut self, answers: &[(IpAddr, Value)]) -> Figures {
        let now: BTreeMap<IpAddr, Said> =
            answers.iter().filter_map(|(ip, state)| Some((*ip, Said::of(state)?))).collect();
        let mut classes: Vec<(String, f64, f64)> = Vec::new();
        for (ip, said) in &now {
            let Some(rates) = self.0.get(ip).and_then(|before| said.since(before)) else { continue };
            for (name, offered, refused) in rates {
                match classes.iter_mut().find(|class| class.0 == name) {
                    Some(class) => (class.1, class.2) = (class.1 + offered, class.2 + refused),
                    None => classes.push((name, offered, refused)),
                }
            }
        }
        let load = |offered: f64, refused: f64| Load {
            offered_per_second: offered.round() as i64,
            refused_per_second: refused.round() as i64,
        };
        let sum = |of: fn(&(String, f64, f64)) -> f64| classes.iter().map(of).sum();
        let figures = Figures {
            sentries: i32::try_from(now.len()).unwrap_or(i32::MAX),
            load: (!classes.is_empty()).then(|| load(sum(|class| class.1), sum(|class| class.2))),
            classes: classes.iter().map(|(name, o, r)| ClassLoad { name: name.clone(), load: load(*o, *r) }).collect(),
            servers_needed: now.values().filter_map(|said| said.servers_needed).max(),
        };
        self.0 = now;
        figures
    }
}

impl Said {
    /// What `/api/state` says of the one application.
    fn of(state: &Value) -> Option<Said> {
        let application = &state["applications"][0];
        let class = |class: &Value| {
            let rejected = class["rejected"].as_array()?.iter().filter_map(|pair| pair[1].as_u64());
            Some(Counts {
                name: class["name"].as_str()?.to_owned(),
                offered: class["offered"].as_u64()?,
                refused: rejected.sum(),
            })
        };
        Some(Said {
            uptime: state["uptime"].as_f64()?,
            classes: application["classes"].as_array()?.iter().map(class).collect::<Option<_>>()?,
            servers_needed: application["servers_needed"].as_u64().and_then(|needed| i32::try_from(needed).ok()),
        })
    }

    /// Of each class what came and what was refused, requests a second; `None`: it started anew.
    fn since(&self, before: &Said) -> Option<Vec<(String, f64, f64)>> {
        let seconds = self.uptime - before.uptime;
        if seconds <= 0.0 {
            return None;
        }
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let class = |class: &Counts| {
            let then = before.classes.iter().find(|one| one.name == class.name)?;
            Some((class.name.clone(), rate(class.offered, then.offered), rate(class.refused, then.refused)))
        };
        Some(self.classes.iter().filter_map(class).collect())
    }
}

/// What the sentry at an address says of itself; `Err`: why not.
pub(crate) async fn ask(ip: IpAddr, token: &str) -> Result<Value, String> {
    let asked = timeout(PATIENCE, ask_state(SocketAddr::new(ip, ADMIN), token)).await;
    asked.unwrap_or_else(|_| Err(format!("it does not answer within {PATIENCE:?}")))
}

async fn ask_state(address: SocketAddr, token: &str) -> Result<Value, String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(|error| words(&error))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| words(&error))?;
    // Its errors show as those of the request.
    let _driven = tokio::spawn(connection);
    let request = Request::get("/api/state")
        .header(header::HOST, address.to_string())
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.map_err(|error| words(&error))?).await.map_err(|error| words(&error))?;
    match answer.status() {
        StatusCode::OK => {}
        status => return Err(format!("it answers {status}")),
    }
    let body = Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| words(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(uptime: f64, gold: [u64; 2], rest: [u64; 2], needed: Option<u64>) -> Value {
        let class = |name: &str, [offered, refused]: [u64; 2]| {
            let rejected = [("sla-target", refused - refused / 2), ("deadline", refused / 2)];
            json!({ "name": name, "offered": offered, "rejected": rejected })
        };
        let application = json!({ "classes": [class("gold", gold), class("rest", rest)], "servers_needed": needed });
        json!({ "uptime": uptime, "applications": [application] })
    }

    #[test]
    fn rates_are_what_came_between_two_answers_of_all_sentries() {
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut meter = Meter::default();
        let first =
            meter.take(&[(one, state(10.0, [100, 0], [50, 10], None)), (other, state(5.0, [0, 0], [0, 0], None))]);
        assert_eq!((first.sentries, first.load, first.servers_needed), (2, None, None));
        let answers =
            [(one, state(20.0, [200, 0], [150, 60], Some(3))), (other, state(15.0, [100, 0], [300, 101], Some(4)))];
        let second = meter.take(&answers);
        assert_eq!(second.load, Some(Load { offered_per_second: 60, refused_per_second: 15 }));
        assert_eq!(second.classes[0].load, Load { offered_per_second: 20, refused_per_second: 0 });
        assert_eq!(second.servers_needed, Some(4));
        // One started anew, and one is gone.
        let third = meter.take(&[(one, state(1.0, [5, 0], [5, 0], None))]);
        assert_eq!((third.sentries, third.load), (1, None));
        let nonsense = meter.take(&[(one, json!({ "uptime": "long" }))]);
        assert_eq!(nonsense, Figures::default());
    }
}
