//! What Apache serves here: CGI scripts and files of a SURGE-like mix. As in Debian's settings, text is compressed for
//! clients that take it: a script then costs four or five times as much as a file, in the paper 4.2 times.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::configure::{pairs, prefix};
use crate::scenario::{Namespaces, Scenario};
use crate::service::apache::{Apache, ApacheError, Site, write};

/// Turns of the script's loop. Most of what a script costs is its process.
const TURNS: u32 = 2_500;
/// The smallest file, bytes: with it a request for a file is for 15.7 KB on average, as in the paper's table 1.
const SMALLEST: f64 = 4_700.0;

/// Starts it in the caller's network namespace. A type of several URLs is a mix of files, one of a single URL a file of
/// its `response_bytes`.
pub(super) fn start(scenario: &Scenario, own: &Namespaces, listen: SocketAddr) -> Result<Apache, ApacheError> {
    let folder = Apache::folder();
    let files = folder.join("files");
    let mut directories = String::new();
    for (class, request) in pairs(scenario) {
        let (place, of) = (prefix(scenario, class, request), &scenario.requests[request]);
        let directory = files.join(&place[1..place.len() - 1]);
        let is_script = own.scripts.contains(&of.name);
        let settings = match (is_script, of.urls) {
            (true, _) => "Options +ExecCGI\n  SetHandler cgi-script",
            (false, 1) => "ForceType application/octet-stream",
            (false, _) => "ForceType text/html",
        };
        directories += &format!("<Directory {}>\n  {settings}\n</Directory>\n", directory.display());
        for number in 0..of.urls as usize {
            let file = directory.join(number.to_string());
            match (is_script, of.urls) {
                (true, _) => write_script(&file)?,
                (false, 1) => write(&file, &"x".repeat(of.response_bytes as usize))?,
                (false, count) => write(&file, &text(size(number, count as usize), number))?,
            }
        }
    }
    let first =
        pairs(scenario).next().map_or_else(PathBuf::new, |(c, r)| PathBuf::from(prefix(scenario, c, r)).join("0"));
    Apache::serve(Site {
        folder,
        listen,
        cores: scenario.servers.cores as usize,
        modules: &["cgi", "filter", "deflate"],
        settings: &configuration(&files, &directories),
        first: &first.to_string_lossy(),
    })
}

/// How often a file of a mix is asked for: the n-th most popular in proportion to 1/n (Zipf).
pub(super) fn popularity(number: u32) -> f64 {
    1.0 / f64::from(number + 1)
}

/// Debian's defaults for processes (prefork, 150 workers) and compression. Each connection has one request, as those of
/// the paper's clients, so that what waits waits in the listen queue, with and without a sentry before it.
fn configuration(files: &Path, directories: &str) -> String {
    let files = files.display();
    format!(
        "KeepAlive Off\nAddOutputFilterByType DEFLATE text/html\n\
         StartServers 5\nMinSpareServers 5\nMaxSpareServers 10\nMaxRequestWorkers 150\nMaxConnectionsPerChild 0\n\
         DocumentRoot {files}\n<Directory {files}>\n  Require all granted\n</Directory>\n{directories}"
    )
}

/// Fixed work, so that a busy machine makes it slower and never smaller.
fn write_script(file: &Path) -> Result<(), ApacheError> {
    let text = format!(
        "#!/bin/sh\ni=0\nwhile [ $i -lt {TURNS} ]; do i=$((i+1)); done\nprintf 'Content-Type: text/plain\\n\\n%s\\n' $i\n"
    );
    write(file, &text)?;
    let mode = fs::set_permissions(file, fs::Permissions::from_mode(0o755));
    mode.map_err(|error| ApacheError::File { path: file.to_owned(), error })
}

/// Sizes in bytes: a body of a few KB and a heavy tail below the large ones (SURGE).
fn size(number: usize, count: usize) -> usize {
    let u = (number as f64 + 0.5) / count as f64;
    // A Pareto distribution by its quantiles, shuffled so that popularity and size have nothing to do with each other.
    let spread = (u * 17.0).fract().max(0.02);
    ((SMALLEST / spread.powf(1.0 / 1.2)) as usize).min(50_000)
}

/// So many bytes of a page: words of which few are frequent, which can be compressed as pages can.
fn text(bytes: usize, seed: usize) -> String {
    let mut state = seed as u64 + 1;
    let mut random = |below: u64| {
        // Knuth's generator: the high bits are good.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let words: Vec<String> =
        (0..600).map(|_| (0..2 + random(8)).map(|_| char::from(b'a' + random(26) as u8)).collect::<String>()).collect();
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        let range = 1 + random(600);
        text += &words[random(range) as usize];
        text += if random(12) == 0 { "</p>\n<p>" } else { " " };
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_files_are_small_and_some_are_not() {
        const FILES: usize = 40;
        let size = |number| size(number, FILES);
        let mut sizes: Vec<usize> = (0..FILES).map(size).collect();
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() / FILES;
        let weights: f64 = (0..FILES as u32).map(popularity).sum();
        let asked = (0..FILES).map(|number| size(number) as f64 * popularity(number as u32)).sum::<f64>() / weights;
        assert!((15_000.0..16_500.0).contains(&asked), "{asked}");
        assert_eq!(text(500, 3).len(), 500);
        assert!(sizes[FILES / 2] < mean && sizes[FILES - 1] > 4 * sizes[FILES / 2], "{sizes:?}");
    }
}
