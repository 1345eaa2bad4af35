//! What clients speak.

use std::fmt;
use std::str::FromStr;

use http::Version;
use serde::{Deserialize, Serialize};

/// What clients speak with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time.
    #[default]
    H1,
    /// HTTP/2: requests share connections. In clear text it is known before the first byte ("prior knowledge"), over
    /// TLS it is agreed on in the handshake.
    H2,
    /// gRPC over HTTP/2: unary calls.
    Grpc,
}

impl Protocol {
    /// Every one, as it is written.
    pub const NAMES: [&str; 3] = ["h1", "h2", "grpc"];

    /// As it is written.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether requests share connections.
    pub fn is_multiplexed(self) -> bool {
        self != Protocol::H1
    }

    /// What is proposed in a TLS handshake.
    pub(crate) fn alpn(self) -> &'static [u8] {
        if self.is_multiplexed() { b"h2" } else { b"http/1.1" }
    }

    pub(crate) fn version(self) -> Version {
        if self.is_multiplexed() { Version::HTTP_2 } else { Version::HTTP_11 }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Protocol, String> {
        let all = [Protocol::H1, Protocol::H2, Protocol::Grpc];
        let found = all.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| format!("unknown protocol \"{text}\"; expected one of {}", Self::NAMES.join(", ")))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in Protocol::NAMES {
            assert_eq!(name.parse::<Protocol>().map(|protocol| protocol.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("h3".parse::<Protocol>(), Err("unknown protocol \"h3\"; expected one of h1, h2, grpc".to_owned()));
    }
}
