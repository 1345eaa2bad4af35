//! Original affinity of the processes whose cores are divided: in memory, and in a file for a later nucleus.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::list::CoreList;
use super::masks::{Process, mask_of};

/// How everything was.
#[derive(Debug)]
pub(super) struct Saved {
    file: PathBuf,
    was: Was,
}

/// The file's contents.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Was {
    processes: Vec<SavedProcess>,
    /// Files that were written to, and what they held.
    files: Vec<(PathBuf, String)>,
    /// Folders that were made, the innermost first.
    folders: Vec<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedProcess {
    pid: u32,
    start: u64,
    /// Cores of its first thread; of those also that were created later.
    cores: String,
    /// Its other threads then: number, start, cores.
    threads: Vec<(u32, u64, String)>,
    /// Its group in the cpuset hierarchy of version 1.
    cpuset: Option<String>,
}

impl Saved {
    /// What an earlier nucleus left in the file, if anything.
    pub(super) fn open(file: &Path) -> Saved {
        let was = match fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                warn!(file = %file.display(), %error, "the state file is invalid and is ignored");
                Was::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    error!(file = %file.display(), %error, "the state file cannot be read; what it says is not put back");
                }
                Was::default()
            }
        };
        Saved { file: file.to_owned(), was }
    }

    /// Notes what processes are allowed now, of those that are new. Call before they are changed.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub(super) fn remember<'p>(&mut self, processes: impl Iterator<Item = &'p Process>) -> io::Result<()> {
        let known: HashSet<(u32, u64)> = self.was.processes.iter().map(|saved| (saved.pid, saved.start)).collect();
        let unknown: Vec<&Process> =
            processes.filter(|process| !known.contains(&(process.pid, process.start))).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        self.was.processes.retain(|saved| saved.is_there());
        for process in unknown {
            let parent = self.was.processes.iter().find(|saved| saved.pid == process.parent);
            // A child of somebody who was changed already has its parent's new cores.
            let saved = match parent {
                Some(parent) => {
                    SavedProcess { pid: process.pid, start: process.start, threads: Vec::new(), ..parent.clone() }
                }
                None => match SavedProcess::of(process) {
                    Some(saved) => saved,
                    None => continue,
                },
            };
            self.was.processes.push(saved);
        }
        self.write()
    }

    /// Notes what a file holds now, before it is written to.
    pub(super) fn remember_file(&mut self, file: &Path) -> io::Result<()> {
        let text = fs::read_to_string(file)?;
        self.was.files.push((file.to_owned(), text));
        self.write()
    }

    /// Notes a folder that will be made.
    pub(super) fn remember_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.was.folders.insert(0, folder.to_owned());
        self.write()
    }

    /// Puts everything back as it was, as far as it is still there.
    pub(super) fn put_back(&mut self) {
        let was = std::mem::take(&mut self.was);
        if was.processes.is_empty() && was.files.is_empty() && was.folders.is_empty() {
            return;
        }
        for process in &was.processes {
            process.put_back(!was.folders.is_empty());
        }
        for (file, text) in &was.files {
            // With a line end, for nothing at all would not be written, and an empty list means no limit. The group may
            // be gone.
            let _ = fs::write(file, format!("{}\n", text.trim()));
        }
        for folder in &was.folders {
            let _ = fs::remove_dir(folder);
        }
        let _ = fs::remove_file(&self.file);
    }

    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Whole or not at all: a nucleus that is killed here must not leave half a file.
        let new = self.file.with_extension("new");
        fs::write(&new, serde_json::to_string(&self.was)?)?;
        fs::rename(new, &self.file)
    }
}

impl SavedProcess {
    fn of(process: &Process) -> Option<SavedProcess> {
        let thread = |thread: u32| {
            let start = process.thread_start(thread)?;
            Some((thread, start, mask_of(thread)?.to_string()))
        };
        let others = process.threads().into_iter().filter(|thread| *thread != process.pid);
        Some(SavedProcess {
            pid: process.pid,
            start: process.start,
            cores: mask_of(process.pid)?.to_string(),
            threads: others.filter_map(thread).collect(),
            cpuset: cpuset_of(process.pid),
        })
    }

    fn is_there(&self) -> bool {
        self.process().is_there()
    }

    fn put_back(&self, cpuset: bool) {
        let process = self.process();
        if !process.is_there() {
            return;
        }
        if let Some(group) = self.cpuset.as_deref().filter(|_| cpuset) {
            let procs = Path::new("/sys/fs/cgroup/cpuset").join(group.trim_start_matches('/')).join("cgroup.procs");
            // Its group may be gone; then it stays where it is, and its cores are put back below.
            let _ = fs::write(procs, self.pid.to_string());
        }
        let Ok(cores) = self.cores.parse::<CoreList>() else { return };
        let threads: HashMap<u32, (u64, CoreList)> = self
            .threads
            .iter()
            .filter_map(|(thread, start, cores)| Some((*thread, (*start, cores.parse().ok()?))))
            .collect();
        let own = |thread: u32| {
            let (start, cores) = threads.get(&thread)?;
            (process.thread_start(thread) == Some(*start)).then(|| cores.mask())
        };
        // Who may not put back could not have changed it.
        let _ = process.set(|thread| Some(own(thread).unwrap_or_else(|| cores.mask())));
    }

    fn process(&self) -> Process {
        Process { pid: self.pid, parent: 0, start: self.start }
    }
}

/// A process's group in the cpuset hierarchy of version 1.
fn cpuset_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = |line: &str| line.split_once(":cpuset:").map(|(_, group)| group.to_owned());
    text.lines().find_map(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;

    #[test]
    fn a_state_file_that_makes_no_sense_is_ignored_and_told_of() {
        let folder = std::env::temp_dir().join(format!("tidegate-saved-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("state.json");
        let logged = Events::catch();
        assert!(Saved::open(&file).was.processes.is_empty());
        assert_eq!(logged.lines(), Vec::<String>::new(), "there need not be one");
        fs::write(&file, "nonsense").expect("a file");
        assert!(Saved::open(&file).was.processes.is_empty());
        // A folder is no file that can be read.
        assert!(Saved::open(&folder).was.processes.is_empty());
        let lines = logged.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("WARN the state file is invalid and is ignored file="), "{lines:?}");
        assert!(lines[1].starts_with("ERROR the state file cannot be read"), "{lines:?}");
        fs::remove_dir_all(folder).expect("cleans up");
    }
}
