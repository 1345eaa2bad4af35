//! The service: Apache as Debian builds it, unmodified, with CGI scripts and files of a SURGE-like mix. As in Debian's
//! settings, text is compressed for clients that take it: a script then costs four or five times as much as a file, in
//! the paper 4.2 times.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::apache;
use crate::bench::service::Service;

/// Files of the mix; the n-th most popular is asked for in proportion to 1/n (Zipf).
pub const FILES: usize = 40;
/// The script's path, which every request of that kind has.
pub const SCRIPT: &str = "/cgi-bin/work.cgi";
/// The large file's path, and its size in bytes (the paper's 142 KB).
pub const LARGE: &str = "/islarge/file.bin";
const LARGE_BYTES: usize = 142 * 1024;
/// Turns of the script's loop. Most of what a script costs is its process.
const TURNS: u32 = 2_500;
/// The smallest file, bytes: with it a request for a file is for 15.7 KB on average, as in the paper's table 1.
const SMALLEST: f64 = 4_700.0;

const MODULES: &str = "/usr/lib/apache2/modules";

/// The path of a file of the mix.
pub fn file(number: usize) -> String {
    format!("/small/{number}.html")
}

/// Sizes in bytes: a body of a few KB and a heavy tail below the large ones (SURGE).
fn size(number: usize) -> usize {
    let u = (number as f64 + 0.5) / FILES as f64;
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

/// Starts it on one core in the caller's network namespace.
///
/// # Errors
/// When Apache is missing or does not serve.
pub fn start(core: usize, listen: SocketAddr, dir: &Path) -> Result<Service> {
    let mut options = Command::new(apache::program()?);
    let root = dir.join("apache");
    lay_out(&root, listen)?;
    options.arg("-f").arg(root.join("apache.conf"));
    let file = file(0);
    apache::launch(options, &root, "error.log", (core, listen), dir, [file.as_str(), SCRIPT, LARGE])
}

fn lay_out(root: &Path, listen: SocketAddr) -> Result<()> {
    for folder in ["small", "islarge", "cgi-bin", "run"] {
        fs::create_dir_all(root.join("files").join(folder))?;
    }
    for number in 0..FILES {
        fs::write(root.join("files").join(&file(number)[1..]), text(size(number), number))?;
    }
    fs::write(root.join("files").join(&LARGE[1..]), vec![b'x'; LARGE_BYTES])?;
    let script = root.join("files").join(&SCRIPT[1..]);
    fs::write(&script, script_text())?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("apache.conf"), configuration(root, listen))?;
    // The workers run as another user.
    for folder in [root.parent().unwrap_or(root), root, &root.join("files")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Fixed work, so that a busy machine makes it slower and never smaller.
fn script_text() -> String {
    format!(
        "#!/bin/sh\ni=0\nwhile [ $i -lt {TURNS} ]; do i=$((i+1)); done\nprintf 'Content-Type: text/plain\\n\\n%s\\n' $i\n"
    )
}

/// Debian's defaults for processes (prefork, 150 workers) and compression. Each connection has one request, as those of
/// the paper's clients, so that what waits waits in the listen queue, with and without a sentry before it.
fn configuration(root: &Path, listen: SocketAddr) -> String {
    let modules = ["mpm_prefork", "authz_core", "mime", "dir", "alias", "cgi", "filter", "deflate"];
    let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules: String = modules.into_iter().map(load).collect();
    let (files, root) = (root.join("files").display().to_string(), root.display());
    format!(
        "ServerRoot {root}\nServerName localhost\nListen {listen}\nPidFile {files}/run/pid\nErrorLog {root}/error.log\n\
         DefaultRuntimeDir {files}/run\n{modules}KeepAlive Off\n\
         AddOutputFilterByType DEFLATE text/html\nUser www-data\nGroup www-data\nTypesConfig /etc/mime.types\n\
         StartServers 5\nMinSpareServers 5\nMaxSpareServers 10\nMaxRequestWorkers 150\nMaxConnectionsPerChild 0\n\
         DocumentRoot {files}\nScriptAlias /cgi-bin/ {files}/cgi-bin/\n\
         <Directory {files}>\n  Require all granted\n</Directory>\n\
         <Directory {files}/cgi-bin>\n  Options +ExecCGI\n  Require all granted\n</Directory>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_files_are_small_and_some_are_not() {
        let mut sizes: Vec<usize> = (0..FILES).map(size).collect();
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() / FILES;
        let weights: f64 = (1..=FILES).map(|rank| 1.0 / rank as f64).sum();
        let asked: f64 = (0..FILES).map(|number| size(number) as f64 / (number + 1) as f64).sum::<f64>() / weights;
        assert!((15_000.0..16_500.0).contains(&asked), "{asked}");
        assert_eq!(text(500, 3).len(), 500);
        assert!(sizes[FILES / 2] < mean && sizes[FILES - 1] > 4 * sizes[FILES / 2], "{sizes:?}");
    }
}
