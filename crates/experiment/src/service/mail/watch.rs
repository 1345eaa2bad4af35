//! What the service's controllers do, second by second, as it says itself under `/api/stages`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::outcome::Control;
use crate::scenario::Scenario;

/// Looks at a running service.
#[derive(Debug)]
pub(super) struct Watcher {
    address: SocketAddr,
    classes: Vec<String>,
    requests: Vec<String>,
}

#[derive(Deserialize)]
struct State {
    graph: Graph,
}

#[derive(Deserialize)]
struct Graph {
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    name: String,
    policing: bool,
    quality: f64,
    classes: Vec<Class>,
}

#[derive(Deserialize)]
struct Class {
    class: usize,
    rate: f64,
    percentile: Option<f64>,
}

impl Watcher {
    pub(super) fn new(scenario: &Scenario, address: SocketAddr) -> Watcher {
        let classes = scenario.classes.iter().map(|class| class.name.clone()).collect();
        let requests = scenario.requests.iter().map(|request| request.name.clone()).collect();
        Watcher { address, classes, requests }
    }

    /// The controllers now. Nothing when the service does not answer at once: the next second brings another look.
    pub(super) async fn look(&mut self, second: u64) -> Vec<Control> {
        match timeout(PATIENCE, ask(self.address)).await {
            Ok(Some(state)) => self.controls(second, state),
            _ => Vec::new(),
        }
    }

    fn controls(&self, second: u64, state: State) -> Vec<Control> {
        let mut controls = Vec::new();
        for stage in state.graph.stages {
            let request = if stage.name == ALL { "all".to_owned() } else { stage.name };
            if request != "all" && !self.requests.contains(&request) {
                continue;
            }
            let told_apart = stage.classes.len() == self.classes.len();
            controls.extend(stage.classes.iter().map(|class| Control {
                second,
                request: request.clone(),
                class: if told_apart { self.classes[class.class - 1].clone() } else { "all".to_owned() },
                rate: stage.policing.then_some(class.rate),
                percentile: class.percentile,
                quality: stage.quality,
            }));
        }
        controls
    }
}

async fn ask(address: SocketAddr) -> Option<State> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = http::Request::get("/api/stages").header("host", "mail").body(Empty::<Bytes>::new()).ok()?;
    let exchange = async {
        let response = sender.send_request(request).await.ok()?;
        response.into_body().collect().await.ok().map(|body| body.to_bytes())
    };
    let body = tokio::select! {
        body = exchange => body?,
        _ = connection => return None,
    };
    serde_json::from_slice(&body).ok()
}

/// The stage that the mail service has where one controller is for all.
const ALL: &str = "all-requests";

const PATIENCE: Duration = Duration::from_millis(800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_by_request_type_and_class() {
        let scenario = Scenario::parse(include_str!("../../../../../scenarios/w7.toml"), "w7.toml").unwrap();
        let watcher = Watcher::new(&scenario, SocketAddr::from(([127, 0, 0, 1], 1)));
        let stage = |name: &str| {
            serde_json::json!({ "name": name, "policing": name != "login", "quality": 1.0, "classes": [
                { "class": 1, "rate": 4.0, "percentile": null, "other": 1 }, { "class": 2, "rate": 0.5, "percentile": 2.0 },
            ] })
        };
        let state = serde_json::json!({ "graph": { "stages": [stage("login"), stage("static"), stage(ALL)] } });
        let seen: Vec<_> = watcher.controls(3, serde_json::from_value(state).unwrap());
        let short: Vec<_> = seen.iter().map(|c| (&c.request[..], &c.class[..], c.rate, c.percentile)).collect();
        assert_eq!(
            short,
            [
                ("login", "high", None, None),
                ("login", "low", None, Some(2.0)),
                ("all", "high", Some(4.0), None),
                ("all", "low", Some(0.5), Some(2.0)),
            ]
        );
    }
}
