//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender};

use rustix::fs::OFlags;
use tracing::error;

use super::line;
use crate::config::AccessLog as Destination;

/// What the writer is told.
pub(super) enum Message {
    /// Write this.
    Line(Vec<u8>),
    /// Open the file anew.
    Reopen,
    /// Write elsewhere from now on.
    Redirect(Destination),
    /// Write everything, then answer.
    Flush(SyncSender<()>),
    /// Write everything and end.
    Stop,
}

pub(super) struct Writer {
    destination: Destination,
    out: BufWriter<Box<dyn Write + Send>>,
    dropped: Arc<AtomicU64>,
    queued: Arc<AtomicU64>,
    /// How many of the dropped lines the log admits to.
    told: u64,
    /// The last write failed: one message is enough.
    failing: bool,
}

impl Writer {
    pub(super) fn open(destination: &Destination, dropped: Arc<AtomicU64>, queued: Arc<AtomicU64>) -> io::Result<Self> {
        let out = BufWriter::with_capacity(64 * 1024, sink(destination)?);
        Ok(Writer { destination: destination.clone(), out, dropped, queued, told: 0, failing: false })
    }

    /// Writes until told to stop. What is queued is written in one go, so that a busy log costs few system calls and a
    /// quiet one is up to date at once.
    pub(super) fn run(mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            let mut next = Some(message);
            while let Some(message) = next {
                if matches!(message, Message::Stop) {
                    self.flush();
                    return;
                }
                self.handle(message);
                next = queue.try_recv().ok();
            }
            self.flush();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Line(line) => {
                self.queued.fetch_sub(line.len() as u64, Relaxed);
                self.write(&line);
            }
            Message::Reopen => self.open_again(self.destination.clone()),
            Message::Redirect(destination) => {
                if destination != self.destination {
                    self.open_again(destination);
                }
            }
            Message::Flush(done) => {
                self.flush();
                // Whoever asked may have given up.
                let _ = done.try_send(());
            }
            Message::Stop => {}
        }
    }

    fn open_again(&mut self, destination: Destination) {
        self.flush();
        match sink(&destination) {
            Ok(sink) => {
                self.out = BufWriter::with_capacity(64 * 1024, sink);
                self.destination = destination;
            }
            Err(error) => error!(%error, "the access log cannot be opened and goes on as before"),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let written = self.out.write_all(bytes);
        self.judge(written);
    }

    fn flush(&mut self) {
        let flushed = self.out.flush();
        self.judge(flushed);
        let dropped = self.dropped.load(Relaxed);
        if dropped <= self.told || self.failing {
            return;
        }
        let told = self.out.write_all(&line::dropped(dropped - self.told)).and_then(|()| self.out.flush());
        match told {
            Ok(()) => self.told = dropped,
            // It is no request's line, and is told again.
            Err(_) => drop(self.renew()),
        }
    }

    fn judge(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.failing = false,
            Err(error) => {
                if !self.failing {
                    error!(%error, "the access log cannot be written; lines are lost until it can");
                }
                self.failing = true;
                self.forget();
            }
        }
    }

    /// Throws away what the buffer holds: it would be tried again with every line, and grow.
    fn forget(&mut self) {
        let lines = self.renew().iter().filter(|&&b| b == b'\n').count();
        self.dropped.fetch_add(lines as u64, Relaxed);
    }

    /// Begins with an empty buffer; what the old one held.
    fn renew(&mut self) -> Vec<u8> {
        let Ok(sink) = sink(&self.destination) else { return Vec::new() };
        let old = std::mem::replace(&mut self.out, BufWriter::with_capacity(64 * 1024, sink));
        old.into_parts().1.unwrap_or_default()
    }
}

fn sink(destination: &Destination) -> io::Result<Box<dyn Write + Send>> {
    Ok(match destination {
        Destination::Off => Box::new(io::sink()),
        Destination::Stdout => Box::new(io::stdout()),
        Destination::File(path) => Box::new(open_file(path)?),
    })
}

/// A named pipe that nobody reads is an error, and is not waited for.
fn open_file(path: &Path) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().append(true).create(true).custom_flags(without_waiting).open(path);
    let opened = opened.and_then(|file| {
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(file)
    });
    opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::AccessLog;
    use super::super::line::tests::record;
    use super::*;
    use crate::record::RecordSink;
    use std::path::PathBuf;
    use std::sync::mpsc::sync_channel;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidegate-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn rotation_moves_the_file_and_goes_on_in_a_new_one() {
        let folder = folder("rotate");
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        let log = AccessLog::open(&Destination::File(path.clone())).expect("opens");
        log.record("shop", "gold", &record("/before"));
        log.flush();
        std::fs::rename(&path, &moved).expect("moves");
        log.record("shop", "gold", &record("/still-there"));
        log.reopen();
        log.record("shop", "gold", &record("/after"));
        drop(log);
        let paths = |path: &Path| lines(path).iter().map(|l| l["path"].to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&moved), ["\"/before\"", "\"/still-there\""]);
        assert_eq!(paths(&path), ["\"/after\""]);
        std::fs::remove_dir_all(folder).expect("cleans up");
    }

    #[test]
    fn dropped_lines_are_told_of() {
        let folder = folder("drop");
        let path = folder.join("access.log");
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer::open(&Destination::File(path.clone()), dropped.clone(), Arc::default()).expect("opens");
        let (queue, receiver) = sync_channel(8);
        dropped.store(3, Relaxed);
        queue.send(Message::Line(b"{}\n".to_vec())).expect("room");
        queue.send(Message::Stop).expect("room");
        writer.run(&receiver);
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[1]["dropped"]), (2, &3.into()));
        std::fs::remove_dir_all(folder).expect("cleans up");
    }

    #[test]
    fn without_room_on_the_disk_lines_are_dropped_and_counted_until_there_is() {
        let folder = folder("enospc");
        let path = folder.join("access.log");
        let log = AccessLog::open(&Destination::File(PathBuf::from("/dev/full"))).expect("opens");
        for _ in 0..3 {
            log.record("shop", "gold", &record("/lost"));
            log.flush();
        }
        assert_eq!(log.dropped().load(Relaxed), 3);
        log.redirect(&Destination::File(path.clone()));
        log.record("shop", "gold", &record("/kept"));
        drop(log);
        let lines = lines(&path);
        let told = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum::<u64>();
        assert!(lines.iter().any(|line| line["path"] == "/kept"), "{lines:?}");
        assert_eq!(told, 3, "{lines:?}");
        std::fs::remove_dir_all(folder).expect("cleans up");
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_blocks() {
        // A pipe that nobody reads: the writer hangs in its first write.
        let folder = folder("full");
        let path = folder.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        // Opening for reading and writing does not wait for another end.
        let reader = OpenOptions::new().read(true).write(true).open(&path).expect("opens");
        let log = AccessLog::open(&Destination::File(path.clone())).expect("opens");
        let dropped = log.dropped();
        for _ in 0..super::super::QUEUE * 2 {
            log.record("shop", "gold", &record("/"));
        }
        assert!(dropped.load(Relaxed) > 0, "twice the queue was offered, and a pipe holds 64 KiB");
        let drain = std::thread::spawn(move || {
            let mut reader = reader;
            let mut buffer = [0; 65_536];
            let mut all = Vec::new();
            // The log's last line tells of the dropped ones.
            while !String::from_utf8_lossy(&all).contains("\"dropped\"") {
                let n = io::Read::read(&mut reader, &mut buffer).expect("reads");
                all.extend_from_slice(&buffer[..n]);
            }
        });
        drop(log);
        drain.join().expect("the dropped lines are told of");
        std::fs::remove_dir_all(folder).expect("cleans up");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = AccessLog::open(&Destination::File("/nonexistent/dir/access.log".into())).expect_err("no folder");
        assert!(error.to_string().starts_with("/nonexistent/dir/access.log: "), "{error}");
    }

    #[test]
    fn off_is_off() {
        let log = AccessLog::open(&Destination::Off).expect("opens");
        assert!(!log.enabled());
    }
}
