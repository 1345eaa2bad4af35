//! Requests that are written down one by one, where a rate and a list of URLs do not say enough: those of sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// The requests of a stream, in order of time. It can be read several times, and gives the same each time.
#[derive(Clone)]
pub struct Script(Arc<Read>);

type Read = dyn Fn() -> Lines + Send + Sync;
type Lines = Box<dyn Iterator<Item = ScriptedRequest>>;

/// One request of a [`Script`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedRequest {
    /// When it is sent, since the start.
    pub at: Duration,
    /// Which of the stream's URLs it asks for, from 0; the last one where there are fewer.
    pub url: usize,
    /// Header fields besides the stream's; one of the same name takes its place.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Script {
    /// A script that `read` reads from its beginning.
    pub fn new<I>(read: impl Fn() -> I + Send + Sync + 'static) -> Script
    where
        I: Iterator<Item = ScriptedRequest> + 'static,
    {
        Script(Arc::new(move || Box::new(read())))
    }

    /// The requests from the beginning.
    pub fn requests(&self) -> impl Iterator<Item = ScriptedRequest> + use<> {
        (self.0)()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}
