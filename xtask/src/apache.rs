//! The real service: an Apache with PHP as Debian ships both, and nothing of ours in it.
//!
//! What runs is Debian's binary with Debian's own `apache2.conf`, its modules in their default selection with their
//! default settings (prefork with 150 workers, connections kept for 5 s), in a server root of its own. Ours are only
//! what every operator writes: the port, the site, a page, and the scripts.
//!
//! [`launch`] starts any Apache, for services that are laid out otherwise.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::service::{Service, free_address};
use crate::command::find_program;

/// A script of the service.
#[derive(Debug)]
pub struct Script {
    /// Its name in tables.
    pub name: &'static str,
    /// Its path in URLs. Each has its own: costs are learned by path, the query does not count.
    pub path: &'static str,
    /// Its part of the requests; the parts sum to 1.
    pub share: f64,
    /// How much it does: fixed work, so that a busy machine makes it slower and never smaller.
    rounds: u32,
}

/// The service's scripts; about 5, 10 and 30 ms of a processor of 2024.
pub const SCRIPTS: [Script; 3] = [
    Script { name: "light", path: "/light.php", share: 0.5, rounds: 7_000 },
    Script { name: "medium", path: "/medium.php", share: 0.3, rounds: 14_000 },
    Script { name: "heavy", path: "/heavy.php", share: 0.2, rounds: 42_000 },
];

const DEBIAN: &str = "/etc/apache2";

/// What `apache2` and `libapache2-mod-php` enable when they are installed, less `php`, whose name has its version in
/// it.
const MODULES: &[&str] = &[
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "filter",
    "mime",
    "mpm_prefork",
    "negotiation",
    "reqtimeout",
    "setenvif",
    "status",
];

const SETTINGS: &[&str] = &["charset", "localized-error-pages", "other-vhosts-access-log", "security", "serve-cgi-bin"];

/// Starts the service on one core, its files in `dir`, and checks that every script answers.
///
/// # Errors
/// When Apache or PHP is missing, or it does not serve.
pub fn start(core: usize, dir: &Path) -> Result<Service> {
    let (root, listen) = (dir.join("apache"), free_address()?);
    lay_out(&root, listen)?;
    let mut options = Command::new(program()?);
    options.args(["-C", "ServerName localhost", "-f", &format!("{DEBIAN}/apache2.conf")]).current_dir(&root);
    options.envs([("APACHE_RUN_USER", "www-data"), ("APACHE_RUN_GROUP", "www-data")]);
    for (variable, place) in [
        ("APACHE_PID_FILE", "run/apache2.pid"),
        ("APACHE_RUN_DIR", "run"),
        ("APACHE_LOCK_DIR", "run"),
        ("APACHE_LOG_DIR", "log"),
    ] {
        options.env(variable, root.join(place));
    }
    let paths = SCRIPTS.iter().map(|script| script.path);
    launch(options, &root, "log/error.log", (core, listen), dir, paths)
}

/// Apache's program.
///
/// # Errors
/// When it is missing.
pub fn program() -> Result<PathBuf> {
    find_program("apache2").context("the service is Apache; install the Debian package apache2")
}

/// Starts an Apache whose server root is `root` on a core, and checks that it answers at every path. Its log is below
/// the root; what it prints goes to `dir`.
///
/// # Errors
/// When it does not serve.
pub fn launch<'p>(
    mut apache: Command,
    root: &Path,
    log: &str,
    (core, listen): (usize, SocketAddr),
    dir: &Path,
    paths: impl IntoIterator<Item = &'p str>,
) -> Result<Service> {
    apache.args(["-D", "FOREGROUND", "-d"]).arg(root);
    // When it stops, Apache signals its whole process group: that must not be ours.
    apache.process_group(0);
    let service = Service::start("apache2", apache, core, listen, dir)?;
    for path in paths {
        let status = service.status(path)?;
        if status != 200 {
            let text = fs::read_to_string(root.join(log)).unwrap_or_default();
            bail!("Apache answers {path} with {status}: {}", text.lines().last().unwrap_or("nothing in its log"));
        }
    }
    Ok(service)
}

fn lay_out(root: &Path, listen: SocketAddr) -> Result<()> {
    for folder in ["mods-enabled", "conf-enabled", "sites-enabled", "run", "log", "files"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let php = php_module().context("Apache cannot run PHP; install the Debian package libapache2-mod-php")?;
    for module in MODULES.iter().copied().chain([php.as_str()]) {
        enable("mods", module, root)?;
    }
    for setting in SETTINGS {
        enable("conf", setting, root)?;
    }
    fs::write(root.join("ports.conf"), format!("Listen {listen}\n"))?;
    fs::write(root.join("sites-enabled/000-default.conf"), site(listen, &root.join("files")))?;
    for script in &SCRIPTS {
        fs::write(root.join("files").join(script.path.trim_start_matches('/')), script.text())?;
    }
    // The workers run as www-data.
    for folder in [root.parent().unwrap_or(root), root, &root.join("files")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Links what is there of `<kind>-available/<name>.load` and `.conf`, as `a2enmod` and `a2enconf` do.
fn enable(kind: &str, name: &str, root: &Path) -> Result<()> {
    for ending in ["load", "conf"] {
        let file = format!("{name}.{ending}");
        let source = Path::new(DEBIAN).join(format!("{kind}-available")).join(&file);
        if source.exists() {
            let link = root.join(format!("{kind}-enabled")).join(&file);
            symlink(&source, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    Ok(())
}

/// Such as `php8.2`.
fn php_module() -> Option<String> {
    let entries = fs::read_dir(PathBuf::from(DEBIAN).join("mods-available")).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let modules = names.filter_map(|name| name.strip_suffix(".load").map(str::to_owned));
    modules.filter(|name| name.starts_with("php")).max()
}

/// Debian's default site, elsewhere.
fn site(listen: SocketAddr, files: &Path) -> String {
    let files = files.display();
    format!(
        "<VirtualHost {listen}>\n  DocumentRoot {files}\n  ErrorLog ${{APACHE_LOG_DIR}}/error.log\n  \
         CustomLog ${{APACHE_LOG_DIR}}/access.log combined\n</VirtualHost>\n\
         <Directory {files}>\n  Options Indexes FollowSymLinks\n  AllowOverride None\n  Require all granted\n\
         </Directory>\n"
    )
}

impl Script {
    /// Hashes in a chain, then a list to sort: processor time, no waiting.
    fn text(&self) -> String {
        format!(
            "<?php
$text = 'tide';
$numbers = [];
for ($i = 0; $i < {rounds}; $i++) {{
    $text = hash('sha256', $text . $i);
    $numbers[] = crc32($text);
}}
sort($numbers);
header('Content-Type: text/plain');
echo $text, ' ', $numbers[0], \"\\n\";
",
            rounds = self.rounds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_a_whole_and_the_paths_differ() {
        let whole: f64 = SCRIPTS.iter().map(|script| script.share).sum();
        assert!((whole - 1.0).abs() < 1e-12);
        let mut paths: Vec<_> = SCRIPTS.iter().map(|script| script.path).collect();
        paths.dedup();
        assert_eq!(paths.len(), SCRIPTS.len());
    }

    #[test]
    fn a_script_holds_its_work() {
        let text = SCRIPTS[2].text();
        assert!(text.starts_with("<?php\n") && text.contains("$i < 42000;"), "{text}");
    }
}
