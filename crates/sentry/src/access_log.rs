//! The access log: one JSON object per request and line.
//!
//! Workers format a line and put it into a bounded queue; a thread of its own writes. When the disk cannot follow,
//! lines are dropped and counted, and the count is written as a line of its own once there is room again: requests
//! never wait for their log. On SIGHUP the file is reopened by name, so that it can be moved away first.

mod line;
mod writer;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use crate::board::Board;
use crate::config;
use crate::record::{RecordSink, RequestRecord};
use line::Names;
use writer::{Message, Writer};

/// Lines in the queue, and their bytes: a client can make a line long.
const QUEUE: usize = 8192;
const QUEUE_BYTES: u64 = 4 << 20;

/// The access log. Dropping it writes what is queued.
#[derive(Debug)]
pub struct AccessLog {
    enabled: AtomicBool,
    dropped: Arc<AtomicU64>,
    /// Bytes of the lines in the queue.
    queued: Arc<AtomicU64>,
    board: OnceLock<Weak<Board>>,
    queue: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Opens the log and starts its writer.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub fn open(destination: &config::AccessLog) -> io::Result<Self> {
        let dropped = Arc::new(AtomicU64::new(0));
        let (queue, lines) = sync_channel(QUEUE);
        let queued = Arc::new(AtomicU64::new(0));
        let writer = Writer::open(destination, dropped.clone(), queued.clone())?;
        let thread = std::thread::Builder::new().name("tidegate-log".to_owned()).spawn(move || writer.run(&lines))?;
        Ok(AccessLog {
            enabled: AtomicBool::new(*destination != config::AccessLog::Off),
            dropped,
            queued,
            board: OnceLock::new(),
            queue,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Tells the log where names of servers and request types are found. Until then numbers are written.
    pub fn attach(&self, board: &Arc<Board>) {
        // A second call would bring the same board.
        let _ = self.board.set(Arc::downgrade(board));
    }

    /// Opens the file anew under its name, after it was moved away.
    pub fn reopen(&self) {
        self.control(Message::Reopen);
    }

    /// Writes to another place from now on (a reload). When it cannot be opened, the old one stays in use and the
    /// reason is logged.
    pub fn redirect(&self, destination: &config::AccessLog) {
        self.control(Message::Redirect(destination.clone()));
        self.enabled.store(*destination != config::AccessLog::Off, Relaxed);
    }

    /// Waits until everything queued before is written.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        self.control(Message::Flush(done));
        // The writer is gone: there is nothing to wait for.
        let _ = written.recv();
    }

    /// Lines dropped so far.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        self.dropped.clone()
    }

    /// Called by the control side only, which may wait for the writer.
    fn control(&self, message: Message) {
        // The writer ends only with the log itself.
        let _ = self.queue.send(message);
    }
}

impl RecordSink for AccessLog {
    fn enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    fn record(&self, app: &str, class_name: &str, record: &RequestRecord<'_>) {
        if !self.enabled() {
            return;
        }
        let board = self.board.get().and_then(Weak::upgrade);
        let live = board.and_then(|board| board.application(app)).map(|app| app.live());
        let line = line::format(app, class_name, record, Names(live.as_deref()));
        let length = line.len() as u64;
        let has_room = self.queued.fetch_add(length, Relaxed) + length <= QUEUE_BYTES;
        if !has_room || self.queue.try_send(Message::Line(line)).is_err() {
            self.queued.fetch_sub(length, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.control(Message::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the writer has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_fill_the_queue_sooner() {
        let (queue, lines) = sync_channel(QUEUE);
        let [dropped, queued] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        // Nobody writes: the disk stands still.
        let log = AccessLog {
            enabled: AtomicBool::new(true),
            dropped: dropped.clone(),
            queued: queued.clone(),
            board: OnceLock::new(),
            queue,
            thread: Mutex::new(None),
        };
        let path = "/".repeat(16_000);
        for _ in 0..1000 {
            log.record("app", "rest", &line::tests::record(&path));
        }
        let kept = lines.try_iter().map(|message| if let Message::Line(line) = message { line.len() } else { 0 });
        let (kept, count) = kept.fold((0, 0), |(bytes, count), line| (bytes + line as u64, count + 1));
        assert_eq!((kept, count + dropped.load(Relaxed)), (queued.load(Relaxed), 1000));
        assert!(kept <= QUEUE_BYTES && kept > QUEUE_BYTES - 20_000, "{kept}");
    }
}
