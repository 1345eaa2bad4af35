//! The external programs that tests and benchmarks need: which package holds each, and how to get them on Debian.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{find_program, run};

/// One program that is not ours.
#[derive(Debug)]
pub struct Program {
    /// The name it is asked for by; `TIDEGATE_HAVE_<NAME>` tells tests that it is there.
    pub name: &'static str,
    /// The Debian package that holds it.
    pub package: &'static str,
    /// What cannot run without it.
    pub needed_by: &'static str,
    present: Present,
}

/// How to see that a program is there.
#[derive(Debug)]
enum Present {
    /// A file of the program's name, in PATH or a system directory.
    Program,
    /// A file in this directory whose name starts so.
    File { dir: &'static str, prefix: &'static str },
}

/// Every external program that `cargo xtask test` looks after. To add one, add a row.
pub const PROGRAMS: &[Program] = &[
    program("apache2", "apache2", "the sentry before a real Apache"),
    Program {
        name: "php",
        package: "libapache2-mod-php",
        needed_by: "the sentry before a real Apache",
        present: Present::File { dir: "/usr/lib/apache2/modules", prefix: "libphp" },
    },
    program("httperf", "httperf", "load from an independent open-loop generator"),
    program("hey", "hey", "load from an independent closed-loop generator"),
    program("go", "golang-go", "a service, clients and load for gRPC, and the engine inside a service, in Go"),
    program("h2load", "nghttp2-client", "load from an independent generator for HTTP/2"),
    program("nft", "nftables", "connections policed in the kernel, in network namespaces"),
    program("faketime", "faketime", "faults: clocks that jump"),
    program("ip", "iproute2", "network namespaces, and the commands of the documents in them"),
    program("nginx", "nginx", "the comparison of proxies, and PROXY headers to it"),
    program("haproxy", "haproxy", "the comparison of proxies, and PROXY headers to and from it"),
    program("wrk", "wrk", "the comparison of proxies"),
    program("valgrind", "valgrind", "instructions for a request beside those that are recorded"),
    program("mariadbd", "mariadb-server", "the mail service on MariaDB, and its database going away"),
    program("memcached", "memcached", "stealing from a real data server"),
    program("openssl", "openssl", "certificates for comparisons, and a handshake to record"),
    program("curl", "curl", "checks with an independent client"),
    program("chromium", "chromium", "the dashboard in a real browser"),
    program("pebble", "pebble", "certificates ordered from a real ACME server"),
    program("promtool", "prometheus", "alert rules and their tests"),
    program("prometheus", "prometheus", "scrapes of a sentry under load"),
    program("systemd-analyze", "systemd", "the units of deploy/"),
    program("unshare", "util-linux", "the commands of the documents, in a network of their own"),
];

const fn program(name: &'static str, package: &'static str, needed_by: &'static str) -> Program {
    Program { name, package, needed_by, present: Present::Program }
}

impl Program {
    /// Whether it is on this machine.
    pub fn is_present(&self) -> bool {
        match self.present {
            Present::Program => find_program(self.name).is_some(),
            Present::File { dir, prefix } => fs::read_dir(dir).is_ok_and(|entries| {
                let names = entries.flatten().map(|entry| entry.file_name());
                names.into_iter().any(|name| name.to_string_lossy().starts_with(prefix))
            }),
        }
    }

    /// The variable that tells tests that it is there.
    pub fn variable(&self) -> String {
        format!("TIDEGATE_HAVE_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Sees that programs of the table are here.
///
/// # Errors
/// When one is not, with what to do.
pub fn require(names: &[&str]) -> Result<()> {
    match PROGRAMS.iter().find(|program| names.contains(&program.name) && !program.is_present()) {
        None => Ok(()),
        Some(Program { name, package, .. }) => {
            bail!("{name} is missing (Debian package {package}); run `cargo xtask programs`")
        }
    }
}

/// The programs of the table that are not on this machine.
pub fn missing() -> Vec<&'static Program> {
    PROGRAMS.iter().filter(|program| !program.is_present()).collect()
}

/// `TIDEGATE_HAVE_<PROGRAM>=1` for each program that is here.
pub fn environment() -> Vec<(String, &'static str)> {
    let here = PROGRAMS.iter().filter(|program| program.is_present());
    here.map(|program| (program.variable(), "1")).collect()
}

/// Whether missing programs can be installed here: Debian (or a child of it), as root.
pub fn can_install() -> bool {
    rustix::process::geteuid().is_root() && find_program("apt-get").is_some()
}

/// Installs the packages of the given programs, without starting any service they bring.
///
/// # Errors
/// When apt fails, or a program is still missing afterwards.
pub fn install(programs: &[&Program]) -> Result<()> {
    let _services_stay_down = ServicePolicy::deny(Path::new("/usr/sbin/policy-rc.d"))?;
    run(apt().arg("update"))?;
    let packages = programs.iter().map(|program| program.package);
    run(apt().args(["install", "-y", "--no-install-recommends"]).args(packages))?;
    let absent: Vec<_> = programs.iter().filter(|p| !p.is_present()).map(|p| p.name).collect();
    if !absent.is_empty() {
        bail!("still missing after the installation: {}", absent.join(", "));
    }
    Ok(())
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.arg("-qq").env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// While it lives, packages may not start services; afterwards the file is as it was.
struct ServicePolicy {
    path: PathBuf,
    before: Option<(Vec<u8>, fs::Permissions)>,
}

impl ServicePolicy {
    fn deny(path: &Path) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let before = match fs::read(path) {
            Ok(bytes) => Some((bytes, fs::metadata(path)?.permissions())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let guard = Self { path: path.to_owned(), before };
        // 101 is "action forbidden by policy" to invoke-rc.d.
        fs::write(path, "#!/bin/sh\nexit 101\n").with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(guard)
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        let restored = match &self.before {
            Some((bytes, permissions)) => {
                fs::write(&self.path, bytes).and_then(|()| fs::set_permissions(&self.path, permissions.clone()))
            }
            None => fs::remove_file(&self.path),
        };
        if let Err(error) = restored {
            eprintln!("warning: cannot put {} back: {error}; do it by hand", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn every_need_is_in_the_table() {
        let needs = [crate::cluster::NEEDS, crate::grpc::NEEDS, crate::profile::NEEDS, crate::real::NEEDS];
        for name in needs.concat() {
            assert!(PROGRAMS.iter().any(|program| program.name == name), "{name}");
        }
    }

    #[test]
    fn the_service_policy_is_put_back_as_it_was() {
        let dir = std::env::temp_dir().join(format!("tidegate-xtask-policy-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("policy-rc.d");

        drop(ServicePolicy::deny(&path).unwrap());
        assert!(!path.exists());

        fs::write(&path, "mine").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let guard = ServicePolicy::deny(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("exit 101"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        drop(guard);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_program_that_does_not_exist_is_missing() {
        let ghost = program("no-such-program-here", "none", "nothing");
        assert!(!ghost.is_present());
        assert_eq!(ghost.variable(), "TIDEGATE_HAVE_NO_SUCH_PROGRAM_HERE");
        let ghost = Program { present: Present::File { dir: "/no/such/dir", prefix: "lib" }, ..ghost };
        assert!(!ghost.is_present());
        assert!(program("sh", "dash", "nothing").is_present());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
    }
}
