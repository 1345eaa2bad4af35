//! `/api/stream`: what the dashboard lives on. First `hello` and the state now, then a `second` each
//! second, and every event in between.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event as Message;
use futures_util::future::ready;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Map, Value, json};
use tidegate_engine::Reason;
use tokio::sync::broadcast;

use super::Admin;
use super::events::{self, Seat};
use crate::history::KEPT;

pub(super) async fn stream(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let Some(seat) = Seat::take(admin.clone()) else { return events::full() };
    let seconds = seconds(admin.recorder.subscribe());
    let first = Message::default().event("hello").data(hello(&admin).to_string());
    let now = Message::default().event("second").data(admin.recorder.now(&admin.board));
    let seconds = stream::iter([first, now]).chain(seconds);
    // When one of the two is over, so is the answer: the viewer asks again and misses nothing.
    let both = stream::select(ended(seconds.boxed()), ended(events::messages(&admin, &headers, seat).boxed()));
    events::respond(both.take_while(|message| ready(message.is_some())).filter_map(ready))
}

/// What does not change while the process runs.
fn hello(admin: &Admin) -> Value {
    let began_at = admin.board.began_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    let reasons: Map<String, Value> =
        Reason::ALL.iter().map(|reason| (reason.name().to_owned(), reason.explanation().into())).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "began_at": began_at.as_secs_f64(),
        "kept": KEPT,
        "changes": admin.token.is_some(),
        "reasons": reasons,
    })
}

/// Until the viewer lags.
fn seconds(news: broadcast::Receiver<Arc<str>>) -> impl Stream<Item = Message> + Send + 'static {
    stream::unfold(news, |mut news| async move {
        let second = news.recv().await.ok()?;
        Some((Message::default().event("second").data(&*second), news))
    })
}

/// The same, with its end as an item.
fn ended<T>(items: impl Stream<Item = T>) -> impl Stream<Item = Option<T>> {
    items.map(Some).chain(stream::once(ready(None)))
}
