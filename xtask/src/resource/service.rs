//! The service: Apache as Debian builds it, unmodified, with CGI scripts and files of a SURGE-like mix.

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
/// Turns of the script's loop: some milliseconds of a processor.
const TURNS: u32 = 6_000;

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
    ((2_000.0 / spread.powf(1.0 / 1.2)) as usize).min(50_000)
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
        fs::write(root.join("files").join(&file(number)[1..]), vec![b'x'; size(number)])?;
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

/// Debian's defaults for processes (prefork, 150 workers), without persistent connections, as the paper's clients.
fn configuration(root: &Path, listen: SocketAddr) -> String {
    let modules = ["mpm_prefork", "authz_core", "mime", "dir", "alias", "cgi"];
    let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules: String = modules.into_iter().map(load).collect();
    let (files, root) = (root.join("files").display().to_string(), root.display());
    format!(
        "ServerRoot {root}\nServerName localhost\nListen {listen}\nPidFile {files}/run/pid\nErrorLog {root}/error.log\n\
         DefaultRuntimeDir {files}/run\n{modules}User www-data\nGroup www-data\nTypesConfig /etc/mime.types\n\
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
        assert!(sizes[FILES / 2] < mean && sizes[FILES - 1] > 5 * sizes[FILES / 2], "{sizes:?}");
    }
}
