//! No room on the disk: what was acknowledged is there, and with room it goes on.

use std::path::Path;
use std::process::{Command, Stdio};

use tidegate_control::backend::FileBackend;
use tidegate_control::plane::{Input, Plane};
use tidegate_engine::Timestamp;

use crate::crash::site;
use crate::support::Store;
use crate::support::folder::folder;

/// Blocks of 512 bytes that a file may have: 6 MiB, a few times what an empty store takes.
const BLOCKS: u64 = 12_288;
/// Bytes of an input's text: some dozens of them fill it.
const LONG: usize = 100_000;

fn open(path: &Path) -> (Store, Plane) {
    let mut store = FileBackend::new(path).open(1).expect("opens");
    let plane = store.plane(site()).expect("reads");
    (store, plane)
}

fn note(number: u64) -> Input {
    let now = Timestamp::from_nanos(1_000_000_000 + number);
    Input::Note { now, kind: String::from("filler"), reason: format!("{number}{}", "x".repeat(LONG)) }
}

/// How many of the notes are on record.
fn notes(store: &Store) -> Vec<u64> {
    let audit = store.audit(0, 100_000).expect("reads");
    let fillers = audit.iter().filter(|record| record["kind"] == "filler");
    let number = |record: &serde_json::Value| record["text"].as_str()?.trim_end_matches('x').parse().ok();
    fillers.filter_map(number).collect()
}

#[test]
#[ignore = "is the process that the test of a full disk starts"]
fn the_store() {
    let Some(path) = std::env::var_os("STORE") else { return };
    let (mut store, mut plane) = open(Path::new(&path));
    for number in 0..10_000 {
        if let Err(error) = store.handle(&mut plane, &note(number)) {
            println!("full after {number}: {error}");
            return;
        }
    }
    println!("never full");
}

#[test]
fn what_was_acknowledged_before_the_disk_was_full_is_there_and_it_goes_on() {
    let folder = folder();
    let path = folder.path().join("control.redb");
    // With the signal ignored a file that may not grow is an error, as on a disk without room.
    let limited = format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "disk_full::the_store", "--ignored", "--nocapture"])
        .env("STORE", &path)
        .stderr(Stdio::inherit())
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let (_, full) = said.split_once("full after ").unwrap_or_else(|| panic!("it did not become full: {said}"));
    let (acknowledged, why) = full.split_once(": ").expect("the number and the reason");
    let acknowledged: u64 = acknowledged.parse().expect("a number");
    assert!(acknowledged > 5, "full at once: {said}");
    assert!(why.contains("control.redb") || why.to_lowercase().contains("large"), "it says what and why: {why}");

    let (mut store, mut plane) = open(&path);
    assert!(notes(&store).starts_with(&(0..acknowledged).collect::<Vec<_>>()), "acknowledged, and gone");
    store.handle(&mut plane, &note(100_000)).expect("there is room again");
    drop(store);
    let (store, again) = open(&path);
    assert_eq!(notes(&store).last(), Some(&100_000));
    let text = |plane: &Plane| serde_json::to_string(&plane.state()).expect("text");
    assert_eq!(text(&again), text(&plane));
}
