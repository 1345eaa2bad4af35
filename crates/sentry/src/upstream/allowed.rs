//! How many streams a server allows at once. hyper keeps to it and tells nobody, so SETTINGS are read on their way to
//! it, however they are cut.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use super::sharing::Shared;

/// What a server allows on one connection.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// `None`: it has not said anything yet.
    streams: Cell<Option<usize>>,
    is_known: Notify,
    /// Where others may wait for more.
    home: Weak<Shared>,
}

impl Allowed {
    pub(super) fn new(home: &Rc<Shared>) -> Rc<Self> {
        Rc::new(Allowed { home: Rc::downgrade(home), ..Allowed::default() })
    }

    /// Streams at once, as of now.
    pub(super) fn streams(&self) -> usize {
        self.streams.get().unwrap_or(0)
    }

    /// Until the server has said it.
    pub(super) async fn known(&self) {
        self.is_known.notified().await;
    }

    /// The server's SETTINGS are over; `said`: what they say of streams. Who says nothing at first allows any number.
    fn note(&self, said: Option<u32>) {
        let streams = said.map(|said| usize::try_from(said).unwrap_or(usize::MAX));
        self.streams.set(streams.or(self.streams.get()).or(Some(usize::MAX)));
        self.is_known.notify_one();
        if let Some(home) = self.home.upgrade() {
            home.settle();
        }
    }
}

const HEAD: usize = 9;
const SETTINGS: u8 = 4;
/// One of SETTINGS: what, and how much.
const SETTING: usize = 6;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];

/// Where in a server's frames a connection is.
#[derive(Debug)]
pub(super) struct Frames {
    allowed: Rc<Allowed>,
    /// Bytes until the next frame's head.
    skip: usize,
    /// Bytes of SETTINGS until then.
    settings: usize,
    part: [u8; HEAD],
    /// How much of it is here.
    have: usize,
    /// What these SETTINGS say.
    said: Option<u32>,
}

impl Frames {
    pub(super) fn new(allowed: Rc<Allowed>) -> Self {
        Frames { allowed, skip: 0, settings: 0, part: [0; HEAD], have: 0, said: None }
    }

    /// Bytes come.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let wanted = if self.settings > 0 { SETTING } else { HEAD };
            let taken = (wanted - self.have).min(bytes.len());
            self.part[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == wanted {
                self.have = 0;
                if self.settings > 0 { self.take_setting() } else { self.take_head() }
            }
        }
    }

    fn take_head(&mut self) {
        let [a, b, c, kind, flags, ..] = self.part;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let is_ack = flags & 1 == 1;
        if kind != SETTINGS || is_ack || !length.is_multiple_of(SETTING) {
            self.skip = length;
            return;
        }
        (self.settings, self.said) = (length, None);
        if length == 0 {
            self.allowed.note(None);
        }
    }

    fn take_setting(&mut self) {
        let [a, b, w, x, y, z, ..] = self.part;
        if [a, b] == MAX_CONCURRENT_STREAMS {
            self.said = Some(u32::from_be_bytes([w, x, y, z]));
        }
        self.settings -= SETTING;
        if self.settings == 0 {
            self.allowed.note(self.said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let length = (settings.len() * SETTING) as u8;
        let mut frame = vec![0, 0, length, SETTINGS, flags, 0, 0, 0, 0];
        for (what, value) in settings {
            frame.extend(what.to_be_bytes());
            frame.extend(value.to_be_bytes());
        }
        frame
    }

    #[test]
    fn what_is_allowed_is_what_was_said_last_however_it_is_cut() {
        let data = [&[0, 0, 12, 0, 0, 0, 0, 0, 1][..], &settings(0, &[])[..9], &[0; 3]].concat();
        let all = [
            (settings(0, &[(1, 7), (3, 10), (4, 9)]), 10),
            (data, 10),
            (settings(0, &[(4, 70_000)]), 10),
            (settings(1, &[]), 10),
            (settings(0, &[(3, 1), (3, 3)]), 3),
            (settings(0, &[]), 3),
            (settings(0, &[(3, 0)]), 0),
        ];
        for step in 1..40 {
            let allowed = Rc::<Allowed>::default();
            let mut frames = Frames::new(allowed.clone());
            for (bytes, streams) in &all {
                bytes.chunks(step).for_each(|part| frames.read(part));
                assert_eq!(allowed.streams(), *streams, "in pieces of {step}: {bytes:?}");
            }
        }
    }

    #[test]
    fn who_says_nothing_of_streams_allows_any_number() {
        for said in [&[][..], &[(1, 7)]] {
            let allowed = Rc::<Allowed>::default();
            assert_eq!(allowed.streams(), 0, "not known yet");
            Frames::new(allowed.clone()).read(&settings(0, said));
            assert_eq!(allowed.streams(), usize::MAX);
        }
    }
}
