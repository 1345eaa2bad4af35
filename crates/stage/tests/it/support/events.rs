//! What code says in its log: the events of one thread, caught while a test runs.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Catches the events of this thread until it is dropped.
pub struct Events(());

thread_local! {
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

impl Events {
    pub fn catch() -> Events {
        // One for all threads: what a thread without a subscriber would say first is never asked for again.
        static CATCHER: Once = Once::new();
        CATCHER.call_once(|| tracing::subscriber::set_global_default(Catcher).expect("the only one"));
        CAUGHT.set(Some(Vec::new()));
        Events(())
    }

    /// Those so far: the level, the message, and fields as `name=value`.
    pub fn lines(&self) -> Vec<String> {
        CAUGHT.with_borrow(|caught| caught.clone().unwrap_or_default())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        CAUGHT.set(None);
    }
}

struct Catcher;

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(|lines| lines.push(line.0)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}
