//! Where the client is a proxy that sends requests on itself: it is told that it may, and the request's place is kept
//! until it tells of the end.
//!
//! *Applied.* nginx asks by a request of its own and has this answer; of a question of HAProxy's ([`crate::spop`]) it
//! is what is decided, and told in other words.
//!
//! *Source.* nginx's `X-Accel-Redirect`: with the name of a location, the request goes on there as it came, with its
//! method and its body.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header, request};
use tidegate_engine::{Open, Outcome, ServerId, Timestamp};
use tokio::task::spawn_local;

use super::{DRAINED, Exchange};
use crate::body::ResponseBody;
use crate::config::RequestKind;
use crate::counters::Counter;
use crate::ending::Ending;
use crate::ends::{Expected, Served, Told};
use crate::headers;
use crate::record::RecordEnd;
use crate::share::WorkerApp;
use crate::upload::RequestBody;
use crate::upstream::failure::Failure;

const GO_ON: HeaderName = HeaderName::from_static("x-accel-redirect");
/// The location that nginx sends admitted requests to.
const ADMITTED: HeaderValue = HeaderValue::from_static("@admitted");

/// A place is given up when nobody has told of its end for so many times the target, or for this long: the line was
/// lost, or a client takes its time with an answer that its server is done with.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(10));
/// The same for the first requests: of what is sent to a port at which nobody listened a moment ago, Linux drops the
/// first datagram of each socket, and so nginx loses a line of each of its processes. Little is known of the servers by
/// then, and a place that is taken for nothing would teach that they are slow.
const PATIENCE_AT_FIRST: (u32, Duration) = (2, Duration::from_secs(1));
/// How many lines are the first.
const FIRST: u64 = 100;
/// How long the end is waited for of what is open, which has no place.
const LONGEST_OPEN: Duration = Duration::from_secs(24 * 3600);

/// Whether an answer tells who asked to send the request on.
pub(crate) fn goes_on<B>(answer: &Response<B>) -> bool {
    answer.headers().contains_key(GO_ON)
}

impl Exchange {
    /// Tells who asked to send the request on.
    pub(super) fn hand_over(
        mut self,
        parts: &request::Parts,
        body: &RequestBody,
        server: ServerId,
    ) -> Response<ResponseBody> {
        let id = headers::request_id(&parts.headers);
        self.ending.note(parts, headers::request_id);
        self.ending.offer(&parts.headers);
        self.ending.server = Some(server);
        let Some(end) = id.and_then(|id| self.worker.app.ends.expect(id.as_bytes())) else {
            return self.fail(Failure::NoId, &parts.headers);
        };
        if body.still_to_come().is_none_or(|most| most > DRAINED) {
            self.client.close.set(true);
        }
        let mut answer = Response::new(());
        answer.headers_mut().insert(GO_ON, ADMITTED);
        self.explain(answer.headers_mut());
        let Exchange { worker, client, mut ending, .. } = self;
        let now = worker.now();
        let most = match open(&mut ending, parts, now) {
            true => LONGEST_OPEN,
            false => {
                let heard = worker.app.ends.heard();
                let (targets, least) = if heard < FIRST { PATIENCE_AT_FIRST } else { PATIENCE };
                (ending.longest_target() * targets).max(least)
            }
        };
        ending.place.is_elsewhere = true;
        ending.leave_connection();
        spawn_local(accompany(worker.clone(), ending, now, (end, most)));
        answer.map(|()| ResponseBody::whole(Bytes::new(), &client, &worker, None))
    }
}

/// Whether by its head it is open, and no work: then it has no place from now on.
fn open(ending: &mut Ending, parts: &request::Parts, now: Timestamp) -> bool {
    let kind = match ending.kind() {
        RequestKind::Poll => Open::Poll,
        RequestKind::Stream => Open::Stream,
        RequestKind::Ordinary if parts.headers.contains_key(header::UPGRADE) => Open::Tunnel,
        _ => return false,
    };
    ending.open(kind, now);
    true
}

/// Keeps its place from `sent_at` until its end is told, or for `most` at the longest.
async fn accompany(
    worker: Rc<WorkerApp>,
    mut ending: Box<Ending>,
    sent_at: Timestamp,
    (end, most): (Expected, Duration),
) {
    match tokio::time::timeout(most, end).await {
        Ok(Some(told)) if told.is_done => learn(&mut ending, told, sent_at),
        // Its client left, or the proxy asked again under the same id.
        Ok(told) => {
            ending.status = told.map_or(0, |told| told.status);
            return;
        }
        Err(_) => {
            worker.lane().bump(Counter::EndsMissing);
            // How long it took its server is not known.
            ending.place.permit = None;
            ending.end = RecordEnd::TimedOut;
        }
    }
    ending.report();
}

fn learn(ending: &mut Ending, told: Told, sent_at: Timestamp) {
    (ending.status, ending.bytes_out) = (told.status, told.bytes);
    ending.end = RecordEnd::Complete;
    match told.served {
        // No server was at work for it.
        Served::Nowhere => ending.place.permit = None,
        Served::Failed => (ending.end, ending.outcome) = (RecordEnd::ServerFailed, Outcome::failed()),
        Served::Answered { head, whole } => {
            let first_byte = sent_at + head;
            ending.begin_answer(first_byte);
            ending.first_byte = Some(first_byte.since(ending.arrived()));
            let answered = ending.answered(None);
            ending.outcome = Outcome { service_time: Some(whole), ..answered.outcome() };
            ending.end = answered.end();
        }
    }
}
