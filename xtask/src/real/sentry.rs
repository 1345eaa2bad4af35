//! The sentry before the real service, started in one line.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::service::{Service, free_address};
use crate::command;

/// In clear text.
pub const HTTP: &str = "http";
/// Over TLS.
pub const HTTPS: &str = "https";

const ANSWER: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// A running sentry; it stops when dropped.
pub struct Sentry {
    service: Service,
    admin: SocketAddr,
    scheme: &'static str,
}

impl Sentry {
    /// Starts the release binary on one core: where to listen, what to protect, the target, and nothing else; over TLS
    /// with a certificate that it makes.
    ///
    /// # Errors
    /// When it is not built or does not listen.
    pub fn start(scheme: &'static str, service: SocketAddr, target: &str, core: usize, dir: &Path) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let mut tidegate = Command::new(command::tidegate());
        tidegate.args(["run", "--listen", &listen.to_string(), "--to", &service.to_string()]);
        tidegate.args(["--target", target, "--admin", &admin.to_string()]);
        if scheme == HTTPS {
            tidegate.args(["--tls", "self-signed"]);
        }
        let service = Service::start(&format!("tidegate-{scheme}"), tidegate, core, listen, dir)?;
        Ok(Self { service, admin, scheme })
    }

    /// Starts it on one core with a file that says where to listen and has no admin API.
    ///
    /// # Errors
    /// When it is not built, refuses the file, or does not listen.
    pub fn with_file(text: &str, listen: SocketAddr, core: usize, dir: &Path) -> Result<Self> {
        let (admin, file) = (free_address()?, dir.join("tidegate.toml"));
        std::fs::write(&file, format!("{text}\n[admin]\nlisten = \"{admin}\"\n"))?;
        let mut tidegate = Command::new(command::tidegate());
        tidegate.arg("run").arg("-c").arg(&file);
        let service = Service::start("tidegate", tidegate, core, listen, dir)?;
        Ok(Self { service, admin, scheme: HTTP })
    }

    /// Where it listens, as URLs begin.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.service.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.service.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// Waits until nothing is in flight and nothing waits, and gives whether it came to that.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn settle(&self) -> Result<bool> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let busy = busy(&state(self.admin)?)?;
            if busy == 0 || Instant::now() > deadline {
                return Ok(busy == 0);
            }
            thread::sleep(POLL);
        }
    }
}

/// The state, as the admin API gives it.
///
/// # Errors
/// When it does not.
pub fn state(admin: SocketAddr) -> Result<Value> {
    let (status, body) = ask(admin, "/api/state")?;
    if status != 200 {
        bail!("the admin API answers /api/state with {status}");
    }
    serde_json::from_str(&body).context("/api/state is not JSON")
}

/// What the admin API answers to a path: the status, and the body.
///
/// # Errors
/// When it gives no answer.
pub fn ask(admin: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(admin).context("the admin API does not listen")?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n").as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said).context("the admin API gave no answer")?;
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("the admin API answers {path} with `{head}`"))?, body.to_owned()))
}

/// Requests in flight and waiting.
///
/// # Errors
/// When the state does not say.
pub fn busy(state: &Value) -> Result<u64> {
    let applications = state["applications"].as_array().context("/api/state has no list `applications`")?;
    let count = |name: &str, app: &Value| app[name].as_u64().with_context(|| format!("/api/state has no `{name}`"));
    applications.iter().map(|app| Ok(count("in_flight", app)? + count("waiting", app)?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_read_and_what_is_missing_is_said() {
        let app = |in_flight: u64, waiting: u64| json!({ "in_flight": in_flight, "waiting": waiting });
        assert_eq!(busy(&json!({ "applications": [app(2, 1), app(0, 4)] })).unwrap(), 7);
        assert!(busy(&json!({})).is_err());
        assert!(busy(&json!({ "applications": [{ "in_flight": 0 }] })).unwrap_err().to_string().contains("waiting"));
    }
}
