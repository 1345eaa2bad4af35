//! `/api/events`: what the engine and the process did, recent first, then live, as server-sent events.
//!
//! Every message's id says how far each source was read when it was sent, so a viewer that reconnects with
//! `Last-Event-ID` gets exactly what it missed, as far as it is kept. A viewer that cannot follow is cut off, and
//! reconnects when it can: nothing waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream, SelectAll, Stream, StreamExt};
use serde_json::{Map, Value, json};
use tidegate_engine::{ClassId, Event, Fact, Facts, ServerId};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Admin;
use crate::app::App;
use crate::board::{Board, Notice};
use crate::event_ring::Stamped;
use crate::in_force::InForce;

/// Viewers at one time.
const VIEWERS: usize = 64;

/// The name of the process among the sources. No application is called so: names are not empty.
const PROCESS: &str = "";

/// One event of one source, ready to be sent.
#[derive(Clone, Debug)]
struct Item {
    source: Arc<str>,
    number: u64,
    name: &'static str,
    data: Value,
}

/// `None`: the source was faster than the viewer.
type Source = BoxStream<'static, Option<Item>>;

pub(super) async fn stream(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let Some(seat) = Seat::take(admin.clone()) else { return full() };
    respond(messages(&admin, &headers, seat))
}

/// Kept events after the viewer's last one, then live ones, to the end of the stream.
pub(super) fn messages(admin: &Admin, headers: &HeaderMap, seat: Seat) -> impl Stream<Item = Message> + use<> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let feed = Feed::open(&admin.board, last, seat);
    stream::unfold(feed, |mut feed| async move { feed.next().await.map(|message| (message, feed)) })
}

/// An answer of server-sent events.
pub(super) fn respond(messages: impl Stream<Item = Message> + Send + 'static) -> Response {
    Sse::new(messages.map(Ok::<_, Infallible>))
        .keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
        .into_response()
}

/// The answer when no place is free.
pub(super) fn full() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{VIEWERS} viewers are here already\n")).into_response()
}

/// What a viewer is sent.
struct Feed {
    boot: u128,
    /// The next number of each source, as the viewer knows.
    next: BTreeMap<Arc<str>, u64>,
    kept: VecDeque<Item>,
    live: SelectAll<Source>,
    _seat: Seat,
}

impl Feed {
    /// Everything kept that comes after `last`, then what is new. Listening begins before the kept events are read, so
    /// nothing falls between; what then comes twice is recognised by its number.
    fn open(board: &Arc<Board>, last: &str, seat: Seat) -> Self {
        let boot = board.began_at().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let next = position(last, boot);
        let mut live = SelectAll::new();
        let mut kept = Vec::new();
        let notices = board.subscribe();
        kept.extend(board.notices().iter().map(|notice| (notice.at.as_nanos() as u64, from_notice(notice))));
        live.push(follow(notices, |notice| from_notice(&notice)));
        for app in board.applications().iter() {
            let (news, reader) = (app.events.subscribe(), app.clone());
            let current = app.live();
            kept.extend(
                app.events.recent().iter().map(|stamped| (stamped.at.as_nanos(), from_app(app, &current, stamped))),
            );
            live.push(follow(news, move |stamped| from_app(&reader, &reader.live(), &stamped)));
        }
        // Each source is in order; among sources, time decides.
        kept.sort_by_key(|(at, item)| (*at, item.number));
        let kept = kept.into_iter().map(|(_, item)| item).collect();
        Feed { boot, next, kept, live, _seat: seat }
    }

    /// The next message; `None` ends the stream.
    async fn next(&mut self) -> Option<Message> {
        loop {
            let item = match self.kept.pop_front() {
                Some(item) => item,
                None => self.live.next().await??,
            };
            let next = self.next.entry(item.source.clone()).or_insert(0);
            if item.number >= *next {
                *next = item.number + 1;
                return Some(self.message(&item));
            }
        }
    }

    fn message(&self, item: &Item) -> Message {
        let message = Message::default().id(self.id()).event(item.name);
        // Control characters are escaped in JSON, so the data is one line.
        message.data(item.data.to_string())
    }

    /// `boot&source=next&...`; sources are in hexadecimal, as their names may hold anything.
    fn id(&self) -> String {
        let mut id = format!("{:x}", self.boot);
        for (source, next) in &self.next {
            let name: String = source.bytes().map(|byte| format!("{byte:02x}")).collect();
            id.push_str(&format!("&{name}={next}"));
        }
        id
    }
}

/// Reads an id. One of another run of the process, or none at all, means from the beginning.
fn position(id: &str, boot: u128) -> BTreeMap<Arc<str>, u64> {
    let mut parts = id.split('&');
    if parts.next().and_then(|part| u128::from_str_radix(part, 16).ok()) != Some(boot) {
        return BTreeMap::new();
    }
    let read = |part: &str| {
        let (name, next) = part.split_once('=')?;
        let digits = name.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let name = String::from_utf8(digits.collect::<Option<Vec<u8>>>()?).ok()?;
        Some((Arc::from(name), next.parse().ok()?))
    };
    parts.filter_map(read).collect()
}

/// What comes from a channel, as items; `None` once when the viewer lags, and then the end.
fn follow<T: Clone + Send + 'static>(
    news: broadcast::Receiver<T>,
    item: impl Fn(T) -> Item + Clone + Send + 'static,
) -> Source {
    let step = move |mut news: broadcast::Receiver<T>| {
        let item = item.clone();
        async move {
            match news.recv().await {
                Ok(value) => Some((Some(item(value)), news)),
                Err(RecvError::Lagged(_)) => Some((None, news)),
                Err(RecvError::Closed) => None,
            }
        }
    };
    stream::unfold(news, step).boxed()
}

fn from_notice(notice: &Notice) -> Item {
    let data = json!({ "at": notice.at.as_secs_f64(), "event": notice.kind.name(), "text": notice.text });
    Item { source: PROCESS.into(), number: notice.number, name: notice.kind.name(), data }
}

fn from_app(app: &App, live: &InForce, stamped: &Stamped) -> Item {
    let mut data = describe(&stamped.event, live);
    data["application"] = app.name().into();
    data["at"] = stamped.at.as_secs_f64().into();
    data["event"] = stamped.event.name().into();
    data["number"] = stamped.number.into();
    Item { source: app.name().into(), number: stamped.number, name: stamped.event.name(), data }
}

/// An event's particulars, with names for numbers.
fn describe(event: &Event, live: &InForce) -> Value {
    let class = |id: ClassId| json!({ "rank": id.index() + 1, "name": live.class_name(id) });
    let server = |id: ServerId| match live.server(id) {
        Some(server) => Value::from(server.name.as_str()),
        None => Value::from(id.0),
    };
    match event {
        Event::Admission(facts) => particulars(facts, &class, &server),
        Event::CapacityLearned { server: id, from, to } => json!({ "server": server(*id), "from": from, "to": to }),
        Event::TargetChanged { from, to } => json!({ "from": from, "to": to }),
        Event::ServerChanged { server: id, status } => json!({ "server": server(*id), "status": status }),
        Event::ServerMoved { server: id, from, to } => {
            json!({ "server": server(*id), "from": class(*from), "to": class(*to) })
        }
        Event::PartitionsSet { servers } => json!({ "servers": servers }),
        Event::RefusalBegan { class: id, reason } => json!({ "class": class(*id), "reason": reason.name() }),
        Event::RefusalEnded { class: id, refused } => json!({ "class": class(*id), "refused": refused }),
        Event::RunawayCancelled { class: id, server: at, used, predicted } => {
            json!({ "class": class(*id), "server": server(*at), "used": used, "predicted": predicted })
        }
        // A newer engine's event, or a dispatch policy's: its name still says something.
        _ => json!({}),
    }
}

/// What only one policy says, with names for numbers.
fn particulars(facts: &Facts, class: &dyn Fn(ClassId) -> Value, server: &dyn Fn(ServerId) -> Value) -> Value {
    let named = |fact: &Fact| match fact.present() {
        Some(Fact::Class(id)) => class(*id),
        Some(Fact::Server(id)) => server(*id),
        _ => json!(fact),
    };
    facts.iter().map(|(key, fact)| (key.to_owned(), named(fact))).collect::<Map<_, _>>().into()
}

/// A viewer's place, given back when it leaves.
pub(super) struct Seat(Arc<Admin>);

impl Seat {
    pub(super) fn take(admin: Arc<Admin>) -> Option<Seat> {
        let taken = admin.viewers.fetch_update(Relaxed, Relaxed, |viewers| (viewers < VIEWERS).then_some(viewers + 1));
        taken.ok().map(|_| Seat(admin))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_from_its_id() {
        let next = BTreeMap::from([(Arc::from(PROCESS), 2), (Arc::from("sh&p=é"), 17)]);
        let feed_id = |next: &BTreeMap<Arc<str>, u64>| {
            let mut id = format!("{:x}", 255);
            for (source, next) in next {
                id.push_str(&format!("&{}={next}", source.bytes().map(|b| format!("{b:02x}")).collect::<String>()));
            }
            id
        };
        assert_eq!(position(&feed_id(&next), 255), next);
        assert_eq!(position(&feed_id(&next), 254), BTreeMap::new(), "another run of the process");
        for nonsense in ["", "ff", "ff&", "ff&x", "ff&zz=1", "ff&7=x", "ff&é=1", "&&&"] {
            assert_eq!(position(nonsense, 255), BTreeMap::new(), "{nonsense}");
        }
    }
}
