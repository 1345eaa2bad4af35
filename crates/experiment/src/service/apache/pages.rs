//! The URLs of a scenario, each a PHP file that uses processor time: so much that its service time on this machine's
//! idle core is the scenario's. A URL always costs the same, as a file has one size; the URLs of a type are spread over
//! the type's distribution.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tidegate_testbed::{STATUS_PATH, free_address};
use tidegate_workload::{ServiceTime, rng};

use super::{Apache, ApacheError, MODULES, Site, write};
use crate::scenario::Scenario;

/// Rounds of the script that is timed.
const ROUNDS: u32 = 60_000;
/// It is timed so often; the median counts.
const TIMES: usize = 5;

impl Apache {
    /// Starts one on the processors `0..servers.cores`, with a file for each URL of the scenario; at `listen`, or
    /// anywhere on this machine.
    ///
    /// # Errors
    /// When Apache or PHP is missing, or it does not serve.
    pub fn start(scenario: &Scenario, seed: u64, listen: Option<SocketAddr>) -> Result<Apache, ApacheError> {
        let php = php_module()?;
        let folder = Apache::folder();
        let files = folder.join("files");
        write(&files.join("calibrate"), &script(ROUNDS, 0))?;
        let listen = listen.map_or_else(free_address, Ok).map_err(ApacheError::Start)?;
        let apache = Apache::serve(Site {
            folder,
            listen,
            cores: scenario.servers.cores as usize,
            modules: &["status"],
            settings: &configuration(&files, &php),
            first: "/calibrate",
        })?;
        let rounds_per_second = apache.calibrate()?;
        for (path, seconds, bytes) in pages(scenario, seed) {
            let rounds = (seconds * rounds_per_second).round() as u32;
            write(&files.join(path.trim_start_matches('/')), &script(rounds, bytes))?;
        }
        if let Some((first, ..)) = pages(scenario, seed).next() {
            apache.ask(&first)?;
        }
        Ok(apache)
    }

    /// How many rounds it does in a second of processor time.
    fn calibrate(&self) -> Result<f64, ApacheError> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let text = self.ask("/calibrate")?;
            let seconds: Option<f64> = text.trim().parse().ok().filter(|seconds| *seconds > 0.0);
            times.push(seconds.ok_or_else(|| self.error("/calibrate", format!("it answers {text:?}")))?);
        }
        times.sort_by(f64::total_cmp);
        Ok(f64::from(ROUNDS) / times[TIMES / 2])
    }
}

/// Every URL's path, its service time in seconds, and the size of its answer.
fn pages(scenario: &Scenario, seed: u64) -> impl Iterator<Item = (String, f64, u64)> {
    let classes = scenario.classes.iter();
    classes.flat_map(move |class| {
        scenario.requests.iter().flat_map(move |request| {
            let times = spread(&request.service, request.urls as usize, seed);
            let page = move |(number, seconds)| {
                (format!("/{}/{}/{number}", class.name, request.name), seconds, request.response_bytes)
            };
            times.into_iter().enumerate().map(page)
        })
    })
}

/// So many values that are spread as the law is: the middles of equally many draws, so that their mean is the law's.
fn spread(law: &ServiceTime, count: usize, seed: u64) -> Vec<f64> {
    const DRAWS: usize = 1000;
    let mut rng = rng(seed, 1);
    let mut draws: Vec<f64> = (0..count * DRAWS).map(|_| law.sample(&mut rng)).collect();
    draws.sort_by(f64::total_cmp);
    draws.chunks(DRAWS).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// Hashes in a chain: processor time, no waiting. It says how much it was, unless it has something to send.
fn script(rounds: u32, bytes: u64) -> String {
    let says = match bytes {
        0 => "$after = getrusage();\n$used = fn($at) => $at['ru_utime.tv_sec'] + $at['ru_stime.tv_sec'] \
              + 1e-6 * ($at['ru_utime.tv_usec'] + $at['ru_stime.tv_usec']);\necho $used($after) - $used($before);"
            .to_owned(),
        bytes => format!("echo str_repeat('tidegate', {});", bytes.div_ceil(8)),
    };
    format!(
        "<?php\nheader('Content-Type: text/plain');\n$before = getrusage();\n$text = 'tide';\n\
         for ($i = 0; $i < {rounds}; $i++) {{ $text = hash('sha256', $text . $i); }}\n{says}\n"
    )
}

fn configuration(files: &Path, php: &str) -> String {
    let files = files.display();
    let status = STATUS_PATH.split('?').next().unwrap_or(STATUS_PATH);
    format!(
        "LoadModule php_module {MODULES}/{php}\n\
         StartServers 32\nMinSpareServers 16\nMaxSpareServers 150\nMaxRequestWorkers 150\nMaxConnectionsPerChild 0\n\
         KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\nTimeout 60\n\
         DocumentRoot {files}\n<Directory {files}>\n  Require all granted\n  SetHandler application/x-httpd-php\n</Directory>\n\
         <Location {status}>\n  SetHandler server-status\n</Location>\n"
    )
}

fn php_module() -> Result<String, ApacheError> {
    let names = fs::read_dir(MODULES).map_err(|_| ApacheError::Missing(MODULES.to_owned()))?;
    let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let php = names.filter(|name| name.starts_with("libphp") && name.ends_with(".so")).max();
    php.ok_or_else(|| ApacheError::Missing("PHP for Apache".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_spread_as_the_law_is() {
        let law = ServiceTime::uniform(0.02, 0.04).unwrap();
        let times = spread(&law, 20, 1);
        assert!(times.is_sorted() && times.len() == 20);
        assert!((times.iter().sum::<f64>() / 20.0 - 0.03).abs() < 0.0005);
        assert!(times[0] < 0.021 && times[19] > 0.039);
    }

    #[test]
    fn a_script_holds_its_work_and_its_size() {
        let text = script(700, 4096);
        assert!(text.contains("$i < 700;") && text.contains("str_repeat('tidegate', 512)"), "{text}");
        assert!(script(5, 0).contains("getrusage()"));
    }
}
