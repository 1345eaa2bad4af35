//! Where the commands of a document are run: a folder, a network and processes of its own.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::command::{output, root};

/// The programs that a document's commands find by their names, and how they were built.
const OURS: [(&str, &str); 2] = [("tidegate", "debug"), ("tidegate-mail", "debug")];

/// What takes longer hangs, however slow the machine is: a command, and one that compiles. That one may have to wait
/// for the release build of the tests' run, which takes six minutes beside a neighbour.
const LONGEST: Duration = Duration::from_secs(240);
const LONGEST_BUILD: Duration = Duration::from_secs(1500);

/// How long a server has to listen, to end, and what was started to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A document's folder, and what runs there.
#[derive(Debug)]
pub struct Scene {
    folder: PathBuf,
    running: Vec<Running>,
}

/// Something that goes on.
#[derive(Debug)]
struct Running {
    line: String,
    address: Option<String>,
    child: Child,
    said: PathBuf,
}

/// Makes a new network namespace's loopback work.
///
/// # Errors
/// When the system does not do it.
pub fn raise_network() -> Result<()> {
    output(Command::new("ip").args(["link", "set", "lo", "up"])).map(|_| ())
}

/// Gives the machine another address.
///
/// # Errors
/// When the system does not do it.
pub fn add_address(address: &str) -> Result<()> {
    output(Command::new("ip").args(["addr", "add", &format!("{address}/32"), "dev", "lo"])).map(|_| ())
}

impl Scene {
    /// Makes the folder: the entries of the checkout, and the programs built in `target`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn set(folder: PathBuf, target: &Path) -> Result<Self> {
        for inner in ["bin", "target/release"] {
            fs::create_dir_all(folder.join(inner))?;
            for (name, profile) in OURS {
                symlink(target.join(profile).join(name), folder.join(inner).join(name))?;
            }
        }
        for entry in fs::read_dir(root())? {
            let name = entry?.file_name();
            if name != "target" {
                symlink(root().join(&name), folder.join(&name))?;
            }
        }
        Ok(Self { folder, running: Vec::new() })
    }

    /// Puts a file there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.folder.join(name), text).with_context(|| format!("{name} cannot be written"))
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it takes too long or does not end well; with what it said.
    pub fn run(&self, line: &str) -> Result<()> {
        let mut running = self.start(line, None)?;
        let longest = if is_cargo(line) { LONGEST_BUILD } else { LONGEST };
        match running.end_within(longest)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("`{line}` ended with {status}\n{}", running.words()),
            None => {
                running.signal(Signal::KILL);
                bail!("`{line}` takes longer than {longest:?}\n{}", running.words())
            }
        }
    }

    /// Starts what goes on, and waits until it listens. What listened there before is told to end first.
    ///
    /// # Errors
    /// When it ends, or does not listen.
    pub fn serve(&mut self, line: &str, address: Option<&str>) -> Result<()> {
        if let Some(at) = address.and_then(|_| self.running.iter().position(|old| old.address.as_deref() == address)) {
            self.running.remove(at).stop()?;
        }
        let mut running = self.start(line, address.map(str::to_owned))?;
        let deadline = Instant::now() + PATIENCE;
        while address.is_some_and(|address| TcpStream::connect(address).is_err()) {
            if let Some(status) = running.child.try_wait()? {
                bail!("`{line}` ended with {status}\n{}", running.words());
            }
            if Instant::now() > deadline {
                bail!("`{line}` does not listen at {}\n{}", address.unwrap_or_default(), running.words());
            }
            sleep(LOOK);
        }
        self.running.push(running);
        Ok(())
    }

    /// Runs a command again and again until it ends well.
    ///
    /// # Errors
    /// When it never does; with what it said last.
    pub fn until(&self, line: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.run(line) {
                Err(error) if Instant::now() > deadline => return Err(error.context("asked in vain")),
                Err(_) => sleep(5 * LOOK),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Whether everything that goes on still does.
    ///
    /// # Errors
    /// Names what does not.
    pub fn check(&mut self) -> Result<()> {
        for running in &mut self.running {
            if let Some(status) = running.child.try_wait()? {
                bail!("`{}` ended with {status}\n{}", running.line, running.words());
            }
        }
        Ok(())
    }

    /// Ends what goes on, the last first: clients before their servers.
    ///
    /// # Errors
    /// When something does not end as it is told.
    pub fn end(mut self) -> Result<()> {
        while let Some(running) = self.running.pop() {
            running.stop()?;
        }
        Ok(())
    }

    fn start(&self, line: &str, address: Option<String>) -> Result<Running> {
        let said = self.folder.join(format!("said-{}", fs::read_dir(&self.folder)?.count()));
        let out = File::create(&said)?;
        let bin = self.folder.join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path)).chain(system))?;
        // Cargo knows a workspace by its real path.
        let at = if is_cargo(line) { root() } else { self.folder.clone() };
        let child = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", line])
            .current_dir(at)
            .env("PATH", path)
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_INSTALL_ROOT", &self.folder)
            .env("SCENE", &self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("cannot start bash")?;
        Ok(Running { line: line.to_owned(), address, child, said })
    }
}

fn is_cargo(line: &str) -> bool {
    line.starts_with("cargo ")
}

impl Running {
    /// Ends it as an operator would; it must do so in time, and say that all is well.
    fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        match self.end_within(PATIENCE)? {
            Some(status) if status.success() || status.signal() == Some(Signal::TERM.as_raw()) => Ok(()),
            Some(status) => bail!("`{}`, told to end, ended with {status}\n{}", self.line, self.words()),
            None => {
                self.signal(Signal::KILL);
                bail!("`{}` does not end\n{}", self.line, self.words())
            }
        }
    }

    fn end_within(&mut self, time: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + time;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            sleep(LOOK);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process_group(group, signal);
        }
    }

    /// The end of what it said.
    fn words(&self) -> String {
        const MOST: u64 = 4000;
        let mut text = Vec::new();
        let read = File::open(&self.said).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
            file.read_to_end(&mut text)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("({} cannot be read: {error})", self.said.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(name: &str) -> Scene {
        let folder = std::env::temp_dir().join(format!("tidegate-scene-{name}-{}", std::process::id()));
        Scene::set(folder, Path::new("/nowhere")).unwrap()
    }

    fn end(scene: Scene) {
        let folder = scene.folder.clone();
        scene.end().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_command_that_does_not_end_well_is_an_error_with_its_words() {
        let scene = scene("run");
        scene.write("a.txt", "as shown\n").unwrap();
        scene.run("grep -q shown a.txt && test -d docs").unwrap();
        for wrong in ["echo oh no; false", "false | cat", "no-such-program", "echo oh no >&2; exit 3"] {
            let error = scene.run(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && (!wrong.contains("oh no") || error.contains("oh no\n")), "{error}");
        }
        end(scene);
    }

    #[test]
    fn what_goes_on_is_watched_and_ended() {
        let mut scene = scene("serve");
        scene.serve("trap 'touch ended; exit 0' TERM; touch ready; tail -f /dev/null & wait", None).unwrap();
        scene.until("test -e ready").unwrap();
        scene.check().unwrap();
        let folder = scene.folder.clone();
        scene.end().unwrap();
        assert!(folder.join("ended").exists(), "it was told, and not killed");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_should_go_on_and_does_not_is_an_error() {
        let mut scene = scene("ends");
        scene.serve("echo bye; exit 0", None).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match scene.check() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < deadline, "nobody saw that it ended"),
            }
        };
        assert!(error.contains("ended with exit status: 0"), "{error}");
        assert!(scene.serve("exit 4", Some("127.0.0.1:1")).unwrap_err().to_string().contains("exit status: 4"));
        scene.running.clear();
        end(scene);
    }
}
