//! Services that follow a [`Protocol`](crate::Protocol): it is asked about each request and call, and hears of its end.

use tidegate_engine::Timestamp;

use super::{Happening, Run, clients::Fate};
use crate::agenda::{Agenda, SlotId};
use crate::park::{Asking, Ending, NOBODY};
use crate::protocol::{Asked, Cooperation, Hop, Released, Stay, Turn, Verdict};
use crate::world::World;

/// The protocol at work, and what it was asked about.
pub(super) struct Agreed {
    cooperation: Box<dyn Cooperation>,
    calls: slab::Slab<Agreement>,
    timer: SlotId,
    timeout: Timestamp,
}

/// A request or call that the protocol was asked about, and has not heard the end of.
#[derive(Clone, Copy)]
struct Agreement {
    what: What,
    hop: Hop,
    asked: Asked,
    /// When it was let in.
    since: Timestamp,
}

#[derive(Clone, Copy)]
enum What {
    Request(u32),
    Call(Asking),
}

impl Agreed {
    pub(super) fn new(world: &World, plans: &mut Agenda<Happening>) -> Option<Agreed> {
        let cooperation = world.protocol?.build(world);
        let timer = plans.slot(Happening::ProtocolTimeout);
        Some(Agreed { cooperation, calls: slab::Slab::new(), timer, timeout: Timestamp::MAX })
    }
}

impl Run<'_> {
    /// A request comes to the first service: whether it may go on to the sentry there, which lets everything in.
    pub(super) fn agrees(&mut self, now: Timestamp, request: u32) -> bool {
        if self.agreed.is_none() || self.requests[request as usize].call != NOBODY {
            return true;
        }
        let hop = Hop { from: None, to: 0 };
        let (number, verdict) = self.ask_protocol(now, What::Request(request), request, hop);
        self.requests[request as usize].call = number;
        match verdict {
            Verdict::In => return true,
            Verdict::Wait => {}
            Verdict::Out => self.refuse_agreed(now, number),
        }
        false
    }

    /// A call is made by a server.
    pub(super) fn ask_about_call(&mut self, now: Timestamp, asking: Asking, from: usize, request: u32) {
        let hop = Hop { from: Some(from), to: usize::from(asking.tier) + 1 };
        let (number, verdict) = self.ask_protocol(now, What::Call(asking), request, hop);
        match verdict {
            Verdict::In => self.send_agreed(now, number),
            Verdict::Wait => {}
            Verdict::Out => self.refuse_agreed(now, number),
        }
    }

    /// What the protocol has to say, and is to hear.
    pub(super) fn follow_protocol(&mut self, now: Timestamp) {
        while let Some(computed) = self.park.next_computed() {
            let Some(agreed) = &mut self.agreed else { continue };
            let Some(call) = agreed.calls.get(computed.call as usize) else { continue };
            let waited = (now.seconds_since(call.since) - computed.work).max(0.0);
            let turn = Turn { waited, work: computed.work };
            agreed.cooperation.processed(now, call.hop, &call.asked, &turn);
        }
        while let Some(released) = self.agreed.as_mut().and_then(|agreed| agreed.cooperation.next_released(now)) {
            self.release(now, released);
        }
        let Some(agreed) = &mut self.agreed else { return };
        let at = agreed.cooperation.next_timeout();
        if at < agreed.timeout {
            agreed.timeout = at;
            self.plans.plan(agreed.timer, at.max(now));
        }
    }

    pub(super) fn time_out_protocol(&mut self, now: Timestamp) {
        let Some(agreed) = &mut self.agreed else { return };
        agreed.timeout = Timestamp::MAX;
        agreed.cooperation.time_out(now);
    }

    /// Something that was let in is over.
    pub(super) fn end_agreed(&mut self, now: Timestamp, number: u32, ending: Ending) {
        let Some(agreed) = &mut self.agreed else { return };
        let Some(call) = agreed.calls.try_remove(number as usize) else { return };
        let stay = Stay { response: now.seconds_since(call.since), ending };
        agreed.cooperation.ended(now, call.hop, &call.asked, &stay);
    }

    fn ask_protocol(&mut self, now: Timestamp, what: What, request: u32, hop: Hop) -> (u32, Verdict) {
        let flying = &self.requests[request as usize];
        let (class, api, lot) = (flying.subject.class, flying.subject.request_type, lot(flying.task.seed));
        let agreed = self.agreed.as_mut().expect("a protocol asks");
        let number = agreed.calls.vacant_key() as u32;
        let asked = Asked { number, class, api, lot };
        agreed.calls.insert(Agreement { what, hop, asked, since: now });
        (number, agreed.cooperation.asks(now, hop, &asked))
    }

    fn release(&mut self, now: Timestamp, released: Released) {
        let Some(call) = self.agreed.as_mut().and_then(|agreed| agreed.calls.get_mut(released.number as usize)) else {
            return;
        };
        call.since = now;
        match call.what {
            _ if !released.goes => self.refuse_agreed(now, released.number),
            What::Call(_) => self.send_agreed(now, released.number),
            What::Request(request) if self.requests[request as usize].gone => {
                self.end_agreed(now, released.number, Ending::Failed);
                self.close(now, request, Fate::TimedOut);
            }
            What::Request(request) => self.at_sentry(now, request),
        }
    }

    /// A call goes to a server of its service, the one with the least to do.
    fn send_agreed(&mut self, now: Timestamp, number: u32) {
        let Some(call) = self.agreed.as_ref().and_then(|agreed| agreed.calls.get(number as usize)) else { return };
        let What::Call(asking) = call.what else { return };
        let server = self.park.choose_of(asking.tier);
        let goes = server.is_some_and(|server| self.park.let_in(now, asking, server, number, &mut self.plans));
        if !goes {
            self.end_agreed(now, number, Ending::Failed);
            self.park.turn_away(now, asking, Ending::Failed, &mut self.plans);
        }
    }

    fn refuse_agreed(&mut self, now: Timestamp, number: u32) {
        let Some(call) = self.agreed.as_mut().and_then(|agreed| agreed.calls.try_remove(number as usize)) else {
            return;
        };
        match call.what {
            What::Call(asking) => self.park.turn_away(now, asking, Ending::Refused, &mut self.plans),
            What::Request(request) => self.refuse(now, request, std::time::Duration::from_secs(1)),
        }
    }
}

/// Whose a request is, as a number in `[0, 1)`.
fn lot(seed: u64) -> f64 {
    (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1u64 << 53) as f64
}
