//! Dividing cores by cpusets: groups of our own in version 1; in version 2 the groups that the sides are in already,
//! where the controller is switched on for them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_wire::IsolationProblem;

use crate::source::cgroup::Cgroups;

use super::list::CoreList;
use super::saved::Saved;
use super::select::Found;
use super::settings::IsolationConfig;

/// The two groups.
#[derive(Debug)]
pub(super) struct Cpusets {
    data: PathBuf,
    application: PathBuf,
    /// Processes have to be moved into them.
    are_own: bool,
}

impl Cpusets {
    /// Makes or finds the groups. What is changed is noted before.
    pub(super) fn prepare(config: &IsolationConfig, saved: &mut Saved) -> Result<Cpusets, IsolationProblem> {
        match Cgroups::find(&config.root).ok_or(IsolationProblem::Refused)? {
            cgroups @ Cgroups::V1(_) => Cpusets::make(cgroups.folder("cpuset", Path::new("")), config, saved),
            cgroups @ Cgroups::V2(_) => Cpusets::find(&cgroups, config, saved),
        }
    }

    /// Moves the boundary; with `place`, processes are moved into the groups too.
    pub(super) fn divide(
        &self,
        found: &Found,
        place: bool,
        data: &CoreList,
        application: &CoreList,
    ) -> Result<(), IsolationProblem> {
        for (folder, cores, processes) in
            [(&self.data, data, &found.data), (&self.application, application, &found.application)]
        {
            fs::write(folder.join("cpuset.cpus"), cores.to_string()).map_err(problem)?;
            for process in processes.iter().filter(|_| place && self.are_own) {
                match fs::write(folder.join("cgroup.procs"), process.pid.to_string()) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    moved => moved.map_err(problem)?,
                }
            }
        }
        Ok(())
    }

    fn make(root: PathBuf, config: &IsolationConfig, saved: &mut Saved) -> Result<Cpusets, IsolationProblem> {
        let name = config.state_file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let own = root.join(format!("tidegate-{name}"));
        let mems = fs::read_to_string(root.join("cpuset.mems")).map_err(problem)?;
        let (data, application) = (own.join("data"), own.join("application"));
        for folder in [&own, &data, &application] {
            saved.remember_folder(folder).map_err(|_| IsolationProblem::NoStateFile)?;
            match fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(problem)?,
            }
            fs::write(folder.join("cpuset.mems"), mems.trim()).map_err(problem)?;
            fs::write(folder.join("cpuset.cpus"), config.cores.to_string()).map_err(problem)?;
        }
        Ok(Cpusets { data, application, are_own: true })
    }

    fn find(cgroups: &Cgroups, config: &IsolationConfig, saved: &mut Saved) -> Result<Cpusets, IsolationProblem> {
        let mut folder = |group: &Option<PathBuf>| {
            let folder = cgroups.folder("cpuset", group.as_deref().ok_or(IsolationProblem::Refused)?);
            saved.remember_file(&folder.join("cpuset.cpus")).map_err(|error| match error.kind() {
                // The controller is not switched on for this group.
                io::ErrorKind::NotFound => IsolationProblem::Refused,
                _ => IsolationProblem::NoStateFile,
            })?;
            Ok(folder)
        };
        Ok(Cpusets {
            data: folder(&config.data.cgroup)?,
            application: folder(&config.application.cgroup)?,
            are_own: false,
        })
    }
}

fn problem(error: io::Error) -> IsolationProblem {
    match error.kind() {
        io::ErrorKind::PermissionDenied => IsolationProblem::NoPermission,
        _ => IsolationProblem::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::settings::{Method, Side};
    use crate::source::testing::Tree;

    fn config(tree: &Tree, group: &str) -> IsolationConfig {
        let side = |name: &str| Side { cgroup: Some(PathBuf::from(name)), ..Side::default() };
        IsolationConfig {
            cores: "0-3".parse().expect("cores"),
            method: Method::Cpuset,
            data: side("db.service"),
            application: side(group),
            hold: std::time::Duration::from_secs(3),
            state_file: tree.root().join("state.json"),
            root: tree.root().to_owned(),
        }
    }

    #[test]
    fn version_2_is_divided_by_the_groups_own_files_and_put_back() {
        let tree = Tree::new(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu"),
            ("sys/fs/cgroup/db.service/cpuset.cpus", "\n"),
            ("sys/fs/cgroup/app.service/cpuset.cpus", "0-1\n"),
        ]);
        let config = config(&tree, "app.service");
        let mut saved = Saved::open(&config.state_file);
        let cpusets = Cpusets::prepare(&config, &mut saved).expect("there");
        let read = |group: &str| {
            let file = tree.root().join("sys/fs/cgroup").join(group).join("cpuset.cpus");
            fs::read_to_string(file).expect("a file")
        };
        let list = |text: &str| text.parse::<CoreList>().expect("cores");
        cpusets.divide(&Found::default(), true, &list("0-2"), &list("3")).expect("divided");
        assert_eq!((read("db.service").as_str(), read("app.service").as_str()), ("0-2", "3"));
        // As the nucleus after one that was killed does it.
        Saved::open(&config.state_file).put_back();
        assert_eq!((read("db.service").as_str(), read("app.service").as_str()), ("\n", "0-1\n"));
        assert!(!config.state_file.exists());
    }

    #[test]
    fn version_2_without_the_controller_is_refused() {
        let tree =
            Tree::new(&[("sys/fs/cgroup/cgroup.controllers", "cpu"), ("sys/fs/cgroup/db.service/cpu.max", "max")]);
        let config = config(&tree, "app.service");
        let problem = Cpusets::prepare(&config, &mut Saved::open(&config.state_file)).expect_err("no such file");
        assert_eq!(problem, IsolationProblem::Refused);
    }
}
