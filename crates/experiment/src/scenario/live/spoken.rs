//! What is spoken in a live run: by clients with the sentry, and by the sentry with servers.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate_loadgen::Protocol;

use super::On;
use crate::scenario::{Live, Scenario};

/// What is spoken on the two sides of the sentry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spoken {
    /// By clients with the sentry.
    pub protocol: Protocol,
    /// By the sentry with servers; `None`: HTTP/2 where clients speak gRPC, else HTTP/1.1.
    pub server_protocol: Option<ServerProtocol>,
}

/// What a sentry speaks with servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerProtocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2 in clear text.
    H2,
}

impl FromStr for ServerProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "h1" => Ok(ServerProtocol::H1),
            "h2" => Ok(ServerProtocol::H2),
            _ => Err(format!("unknown protocol \"{text}\"; expected one of h1, h2")),
        }
    }
}

impl Spoken {
    /// What stands before the addresses of servers.
    pub fn scheme(self) -> &'static str {
        let usual = if self.protocol == Protocol::Grpc { ServerProtocol::H2 } else { ServerProtocol::H1 };
        match self.server_protocol.unwrap_or(usual) {
            ServerProtocol::H1 => "",
            ServerProtocol::H2 => "h2c://",
        }
    }

    /// What is wrong with it for a service, each with its key.
    pub(super) fn problems(self, on: &On) -> Vec<(&'static str, &'static str)> {
        let (emulated, apache) = (matches!(on, On::Emulated { .. }), matches!(on, On::Apache { .. }));
        let is_call = self.protocol == Protocol::Grpc;
        let demands = [
            (
                self.protocol == Protocol::H1 || emulated || apache,
                "protocol",
                "is only for on = \"emulated\" or \"apache\"",
            ),
            (!is_call || !apache, "protocol", "is not \"grpc\" before Apache: only emulated servers speak it"),
            (self.server_protocol.is_none() || emulated, "server_protocol", "is only for on = \"emulated\""),
            (
                !(is_call && self.server_protocol == Some(ServerProtocol::H1)),
                "server_protocol",
                "must be \"h2\" where clients speak gRPC, or be left out",
            ),
        ];
        demands.into_iter().filter(|(holds, ..)| !holds).map(|(_, key, problem)| (key, problem)).collect()
    }
}

impl Scenario {
    /// The same scenario, in whose live form that is spoken.
    ///
    /// # Errors
    /// When its service does not speak it.
    pub fn speaking(&self, spoken: Spoken) -> Result<Scenario, String> {
        if let Some((key, problem)) = spoken.problems(&self.on()).first() {
            return Err(format!("{}: live.{key} {problem}", self.id));
        }
        let live = self.live.clone().unwrap_or_default();
        Ok(Scenario { live: Some(Live { spoken, ..live }), ..self.clone() })
    }
}
