//! A control group of a service on one core: how much processor time it uses, and may use.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// In which a share of the processor is counted, microseconds: short, so that nobody waits long for the next one.
const PERIOD: f64 = 10_000.0;

/// A control group, so that the service's processor time can be told from everybody else's.
#[derive(Debug)]
pub struct Group {
    folders: Vec<PathBuf>,
    /// Its name, as a nucleus wants it.
    pub name: String,
}

impl Group {
    /// Makes it, of version 1 or 2.
    ///
    /// # Errors
    /// When there are no control groups, or they cannot be made.
    pub fn new(core: usize) -> Result<Self> {
        let (mount, name) = (PathBuf::from("/sys/fs/cgroup"), format!("tidegate-{}", std::process::id()));
        let v1 = ["cpuset", "cpuacct", "cpu"].map(|controller| mount.join(controller).join(&name));
        let is_v2 = mount.join("cgroup.controllers").exists();
        let folders = if is_v2 { vec![mount.join(&name)] } else { v1.to_vec() };
        let group = Self { folders, name };
        for folder in &group.folders {
            // Two controllers may share a hierarchy.
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            if folder.join("cpuset.cpus").exists() {
                fs::write(folder.join("cpuset.cpus"), core.to_string())?;
                fs::write(folder.join("cpuset.mems"), "0")?;
            }
        }
        Ok(group)
    }

    /// Puts a process and what it starts from now on into it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn take(&self, pid: u32) -> Result<()> {
        for pid in crate::bench::proc_fs::tree(pid) {
            for folder in &self.folders {
                let taken = fs::write(folder.join("cgroup.procs"), pid.to_string());
                // A child may have ended meanwhile.
                taken.or_else(|error| if crate::bench::proc_fs::is_runnable(pid) { Err(error) } else { Ok(()) })?;
            }
        }
        Ok(())
    }

    /// Bounds it to a share of the core; `None`: all of it.
    ///
    /// # Errors
    /// When the system has no bandwidth control.
    pub fn bound(&self, share: Option<f64>) -> Result<()> {
        let quota = share.map(|share| (share * PERIOD).round().max(1_000.0));
        for folder in &self.folders {
            let (v1, v2) = (folder.join("cpu.cfs_quota_us"), folder.join("cpu.max"));
            if v1.exists() {
                fs::write(folder.join("cpu.cfs_period_us"), format!("{PERIOD:.0}"))?;
                return Ok(fs::write(v1, quota.map_or("-1".to_owned(), |quota| format!("{quota:.0}")))?);
            }
            if v2.exists() {
                let quota = quota.map_or("max".to_owned(), |quota| format!("{quota:.0}"));
                return Ok(fs::write(v2, format!("{quota} {PERIOD:.0}"))?);
            }
        }
        bail!("control groups here cannot bound processor time (the controller cpu is off)")
    }

    /// Processor time that its processes have used, seconds; also those that have ended, whoever started them.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn used(&self) -> Result<f64> {
        for folder in &self.folders {
            if let Ok(nanos) = fs::read_to_string(folder.join("cpuacct.usage")) {
                return Ok(nanos.trim().parse::<f64>()? / 1e9);
            }
            if let Ok(stat) = fs::read_to_string(folder.join("cpu.stat")) {
                let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
                if let Some(usage) = usage {
                    return Ok(usage.trim().parse::<f64>()? / 1e6);
                }
            }
        }
        bail!("the control group {} tells no processor time", self.name)
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
