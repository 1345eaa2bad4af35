//! The real service: Apache with PHP, as the scenario `apache-3x` has it, without a sentry.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::bench::service::{Service, free_address};
use crate::command;

/// A script of the service.
#[derive(Debug)]
pub struct Script {
    /// Its path in URLs.
    pub path: &'static str,
    /// Its part of the requests; the parts sum to 1.
    pub share: f64,
}

/// Its scripts: 5, 10 and 30 ms of a processor.
pub const SCRIPTS: [Script; 3] = [
    Script { path: "/all/light/0", share: 0.5 },
    Script { path: "/all/medium/0", share: 0.3 },
    Script { path: "/all/heavy/0", share: 0.2 },
];

/// Requests of the mix that fill a processor, per second.
pub const CAPACITY: f64 = 1e3 / 11.5;

/// It measures what its scripts take, and writes them, within this.
const START: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Starts the service on one core, and waits until every script answers.
///
/// # Errors
/// When Apache or PHP is missing, or it does not serve.
pub fn start(core: usize, dir: &Path) -> Result<Service> {
    let listen: SocketAddr = free_address()?;
    let mut apache = Command::new(command::tidegate());
    apache.args(["experiment", "apache", "apache-3x", "--listen", &listen.to_string()]);
    let service = Service::start("apache", apache, core, listen, dir)?;
    let deadline = Instant::now() + START;
    for script in &SCRIPTS {
        while service.status(script.path)? != 200 {
            if Instant::now() > deadline {
                bail!("Apache does not serve {} within {} s", script.path, START.as_secs());
            }
            thread::sleep(POLL);
        }
    }
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_are_those_of_the_scenario() {
        let whole: f64 = SCRIPTS.iter().map(|script| script.share).sum();
        assert!((whole - 1.0).abs() < 1e-12);
        let text = std::fs::read_to_string(command::root().join("scenarios/apache-3x.toml")).unwrap();
        let file: toml::Table = text.parse().unwrap();
        let requests = file["request"].as_array().unwrap();
        let paths: Vec<_> = requests.iter().map(|of| format!("/all/{}/0", of["name"].as_str().unwrap())).collect();
        assert_eq!(paths, SCRIPTS.each_ref().map(|script| script.path.to_owned()));
        let millis = |of: &toml::Value| of["service"]["value"].as_str()?.strip_suffix("ms")?.parse::<f64>().ok();
        let mean: f64 = requests.iter().zip(&SCRIPTS).map(|(of, script)| script.share * millis(of).unwrap()).sum();
        assert!((CAPACITY * mean / 1e3 - 1.0).abs() < 1e-9);
    }
}
