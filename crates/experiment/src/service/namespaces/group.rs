//! A control group of Apache: how much processor time it uses, and may use.

use std::fs;
use std::path::{Path, PathBuf};

use super::NamespacesError;

/// In which a share of the processors is counted, microseconds: short, so that nobody waits long for the next one.
const PERIOD: f64 = 10_000.0;

/// A control group, so that Apache's processor time can be told from everybody else's.
#[derive(Debug)]
pub(super) struct Group {
    folders: Vec<PathBuf>,
    /// Its name, as a nucleus wants it.
    pub(super) name: String,
}

impl Group {
    /// Makes it on the first processors, of version 1 or 2.
    ///
    /// # Errors
    /// When there are no control groups, or they cannot be made.
    pub(super) fn new(cores: u32) -> Result<Group, NamespacesError> {
        let (mount, name) = (PathBuf::from("/sys/fs/cgroup"), format!("tidegate-{}", std::process::id()));
        let v1 = ["cpuset", "cpuacct", "cpu"].map(|controller| mount.join(controller).join(&name));
        let is_v2 = mount.join("cgroup.controllers").exists();
        let folders = if is_v2 { vec![mount.join(&name)] } else { v1.to_vec() };
        let group = Group { folders, name };
        for folder in &group.folders {
            // Two controllers may share a hierarchy.
            fs::create_dir_all(folder).map_err(failed(folder))?;
            if folder.join("cpuset.cpus").exists() {
                write(&folder.join("cpuset.cpus"), &format!("0-{}", cores.saturating_sub(1)))?;
                write(&folder.join("cpuset.mems"), "0")?;
            }
        }
        Ok(group)
    }

    /// Puts a process, its children, and what they start from now on into it.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn take(&self, pid: u32) -> Result<(), NamespacesError> {
        for folder in &self.folders {
            write(&folder.join("cgroup.procs"), &pid.to_string())?;
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            for child in children.split_whitespace() {
                // It may have ended meanwhile.
                let _ = write(&folder.join("cgroup.procs"), child);
            }
        }
        Ok(())
    }

    /// Bounds it to so many processors; `None`: all that it has.
    ///
    /// # Errors
    /// When the system has no bandwidth control.
    pub(super) fn bound(&self, processors: Option<f64>) -> Result<(), NamespacesError> {
        let quota = processors.map(|share| format!("{:.0}", (share * PERIOD).round().max(1_000.0)));
        for folder in &self.folders {
            let (v1, v2) = (folder.join("cpu.cfs_quota_us"), folder.join("cpu.max"));
            if v1.exists() {
                write(&folder.join("cpu.cfs_period_us"), &format!("{PERIOD:.0}"))?;
                return write(&v1, &quota.unwrap_or_else(|| "-1".to_owned()));
            }
            if v2.exists() {
                return write(&v2, &format!("{} {PERIOD:.0}", quota.unwrap_or_else(|| "max".to_owned())));
            }
        }
        Err(NamespacesError::Group("bound processor time (the controller cpu is off)"))
    }

    /// Processor time that its processes have used, seconds; also those that have ended, whoever started them.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(super) fn used(&self) -> Result<f64, NamespacesError> {
        let number = |text: &str, unit: f64| text.trim().parse::<f64>().ok().map(|used| used * unit);
        let used = |folder: &PathBuf| {
            if let Ok(nanos) = fs::read_to_string(folder.join("cpuacct.usage")) {
                return number(&nanos, 1e-9);
            }
            let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
            number(stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?, 1e-6)
        };
        self.folders.iter().find_map(used).ok_or(NamespacesError::Group("tell processor time"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Whatever is still there keeps it; it holds nothing but a name then.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), NamespacesError> {
    fs::write(path, text).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> NamespacesError {
    let what = path.display().to_string();
    move |error| NamespacesError::System { what, error }
}
