//! A connection's first bytes: HTTP/2, HAProxy's greeting, or a first request of HTTP/1. Only here may a client choose;
//! a preface that comes later is no request.

use std::io;
use std::task::{Context, Poll, ready};

use super::sift::Step;
use super::{Gate, HOLD_AT_MOST, Turn};
use crate::client::Wait;
use crate::http2::{self, preface};
use crate::spop;

impl Gate {
    /// Takes over an answer that could not be written at once.
    pub(crate) fn owe(&mut self, out: &[u8]) {
        self.is_new = false;
        self.out.extend_from_slice(out);
    }

    /// Takes over what was read of a connection and not looked at: it may be the first bytes of HTTP/2.
    pub(crate) fn hold(&mut self, bytes: Vec<u8>) {
        self.held = bytes;
    }

    /// Takes over from a pass that was made before there was a gate: what it left, and what it found.
    pub(crate) fn resume(&mut self, left: &[u8], out: &[u8], step: Step) {
        self.is_new = false;
        self.held.extend_from_slice(left);
        self.out.extend_from_slice(out);
        self.take_step(step);
    }

    /// What the connection, of which the first bytes are held, speaks, if it is not HTTP/1.
    ///
    /// # Errors
    /// When it agreed to speak HTTP/2, and speaks something else.
    pub(super) fn poll_beginning(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Turn>>> {
        let agreed = self.io.agreed_on_http2();
        while http2::is_spoken(&self.worker)
            && agreed != Some(false)
            && let Some(is_whole) = preface::begins(self.held())
        {
            if is_whole {
                return Poll::Ready(Ok(Some(Turn::Http2)));
            }
            if self.client.waits_for() != Wait::Header {
                self.client.wait(Wait::Header, self.worker.deadline(|timeouts| timeouts.header));
            }
            if ready!(self.poll_fill(cx, HOLD_AT_MOST))? == 0 {
                break;
            }
        }
        if agreed == Some(true) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        self.is_new = false;
        // Whoever waits for a head has been over what is held; here nobody was.
        self.client.wait(Wait::Idle, self.worker.deadline(|timeouts| timeouts.header));
        let is_spop = spop::begins(self.held()) && spop::is_spoken(&self.worker);
        Poll::Ready(Ok(is_spop.then_some(Turn::Spop)))
    }
}
