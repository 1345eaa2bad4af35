//! A question that was not refused at once: a task with its request's way through the sentry in it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request};
use http_body::Body;

use super::Shared;
use super::frame::{Of, Set};
use super::question;
use crate::body::ResponseBody;
use crate::client::Sharer;
use crate::permit::Arrival;
use crate::proxy::{hand_over, handle};
use crate::reject::{self, DECISION};
use crate::serve::{Over, poll_over};
use crate::upload::Source;

/// A question.
pub(super) struct Asked {
    shared: Rc<Shared>,
    of: Of,
    own: Sharer,
}

impl Asked {
    /// A request with this head, for which that was decided.
    pub(super) fn new(shared: &Rc<Shared>, of: Of, arrival: Arrival, head: &HeaderMap) -> Self {
        let own = Sharer::new(&shared.worker, &shared.client, Some(arrival), head);
        shared.opened();
        Asked { shared: shared.clone(), of, own }
    }

    /// Goes along with it until it is decided. `changes`: what is to be another in it once it goes on.
    pub(super) async fn run(self, parts: request::Parts, changes: Vec<(&'static str, Set)>) {
        let (worker, client) = (&self.shared.worker, &self.own.client);
        let answer = {
            let request = Request::from_parts(parts, Source::None);
            let mut handling = pin!(handle(worker.clone(), client.clone(), request));
            poll_fn(|cx| {
                client.remember(cx);
                match handling.as_mut().poll(cx) {
                    Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
                    // Its time is up, and nobody who was polled took note.
                    Poll::Pending => match poll_over(worker, client) {
                        Poll::Ready(Over::Cut) => Poll::Ready(None),
                        _ => Poll::Pending,
                    },
                }
            })
            .await
        };
        match answer {
            Some(answer) if hand_over::goes_on(&answer) => self.go_on(answer, changes),
            Some(answer) => self.refuse(answer).await,
            None => self.shared.refuse(self.of, reject::error(503, "time-out")),
        }
    }

    fn go_on(&self, answer: Response<ResponseBody>, mut changes: Vec<(&'static str, Set)>) {
        changes.extend(answer.headers().get(DECISION).map(|value| ("decision", question::text(value))));
        self.shared.answer(self.of, &changes);
    }

    async fn refuse(&self, answer: Response<ResponseBody>) {
        let (head, mut body) = answer.into_parts();
        let mut page = Bytes::new();
        // It is all here: an answer of a server's is none of these.
        while let Some(Ok(piece)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            page = piece.into_data().unwrap_or(page);
        }
        drop(body);
        self.shared.refuse(self.of, Response::from_parts(head, page));
        if let Some(ending) = self.own.client.take_ending() {
            ending.report();
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.shared.closed();
    }
}
