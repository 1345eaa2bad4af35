//! Users who wait for their answers: each asks, reads, thinks, and asks for the next thing, as a table of
//! transitions says (a Markov chain over the request types).
//!
//! *Intuition.* An open loop shows what a service does with more requests than it can take; a closed one shows what
//! it does to people: who waits does not ask meanwhile, who is refused goes away and begins anew. *Awkward cases.* A
//! user who needs something that was never on a page (a message out of an empty folder) does something else. A
//! service that answers nobody is asked little: read response times and time-outs together, never the rate alone.
//! *Source.* Welsh and Culler 2003, section 4.1: users of a mail service, 20 ms of thinking, and 5 s after a refusal
//! before the user signs in again. The tables are those of scenario files ([`tidegate_workload::Users`]).

mod check;
mod drive;
mod file;
mod report;
mod shared;
mod template;
mod user;

use std::time::Duration;

use http::Uri;

use crate::plan::LONGEST;
use crate::protocol::Protocol;
use crate::tls::Trust;

pub use file::{Active, Capture, RequestTemplate, UsersError, UsersFile};
pub use report::UsersReport;

pub(crate) use drive::drive;

/// A run of users.
#[derive(Debug, Clone)]
pub struct UsersPlan {
    pub(crate) file: UsersFile,
    base: Uri,
    /// How long users begin new requests. Answers are awaited afterwards, at most for the timeout.
    pub duration: Duration,
    /// Seed of all randomness.
    pub seed: u64,
    /// Response time within which an answer counts as goodput; without one, every 2xx and 3xx does.
    pub target: Option<Duration>,
    /// Whether users keep their connection for further requests.
    pub keep_alive: bool,
    /// What users speak; in gRPC, what a form says is the message.
    pub protocol: Protocol,
    /// Whose certificates they believe, where the URL begins with `https://`.
    pub trust: Trust,
}

impl UsersPlan {
    /// Users of the service at `url`, of which scheme, host and port count; seed 1, HTTP/1.1, keep-alive, the file's
    /// target.
    ///
    /// # Errors
    /// When `url` is not an absolute `http://` or `https://` URL, or the duration is 0 or longer than a year.
    pub fn new(file: UsersFile, url: &str, duration: Duration) -> Result<UsersPlan, UsersError> {
        let error = |reason: String| UsersError::Url { url: url.to_owned(), reason };
        let base: Uri = url.parse().map_err(|e| error(format!("not a URL ({e})")))?;
        if !matches!(base.scheme_str(), Some("http" | "https")) || base.authority().is_none() {
            return Err(error("must start with http:// and a host, such as http://127.0.0.1:8025".to_owned()));
        }
        if duration.is_zero() {
            return Err(UsersError::Duration("the duration is 0: no request would be sent"));
        }
        if duration > LONGEST {
            return Err(UsersError::Duration("the duration is longer than a year"));
        }
        let target = file.target();
        let (protocol, trust) = (Protocol::H1, Trust::System);
        Ok(UsersPlan { file, base, duration, seed: 1, target, keep_alive: true, protocol, trust })
    }

    /// Where the service is.
    pub(crate) fn base(&self) -> &Uri {
        &self.base
    }

    /// What the users do.
    pub fn file(&self) -> &UsersFile {
        &self.file
    }
}
