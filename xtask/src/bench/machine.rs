//! What a result depends on beside the code: the machine, the versions, the day and the commit.

use std::fs;
use std::process::Command;

use crate::command::output;

/// The facts that belong to every result, as names and values.
pub fn facts() -> Vec<(&'static str, String)> {
    vec![
        ("date", today()),
        ("commit", commit()),
        ("cpu", cpu()),
        ("cores", std::thread::available_parallelism().map_or("unknown".to_owned(), |cores| cores.to_string())),
        ("memory", memory()),
        ("load before", load()),
        ("kernel", said("uname", &["-sr"])),
        ("system", system()),
        ("rustc", said("rustc", &["--version"])),
        ("wrk", said("sh", &["-c", "wrk -v 2>&1 | head -n 1"])),
    ]
}

/// The day, in universal time.
pub fn today() -> String {
    said("date", &["-u", "+%F"])
}

fn commit() -> String {
    let hash = said("git", &["rev-parse", "--short=12", "HEAD"]);
    let changed = output(Command::new("git").args(["status", "--porcelain"])).is_ok_and(|list| !list.is_empty());
    if changed { format!("{hash} with changes") } else { hash }
}

fn cpu() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory() -> String {
    field("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".to_owned())
}

/// Others' work on the machine spoils a comparison: a reader must see it.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn system() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown").trim_matches('"').to_owned()
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(program: &str, args: &[&str]) -> String {
    output(Command::new(program).args(args)).unwrap_or_else(|_| "unknown".to_owned())
}
