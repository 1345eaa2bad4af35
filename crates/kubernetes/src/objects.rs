//! The objects of a kind that there are now.
//!
//! *Intuition.* They are listed once, and then watched.
//!
//! *Awkward cases.* A watch ends all the time, and goes on from where it was; from a version that is not kept any more
//! (410), everything is listed anew. An API server that has too much to do (429), fails (5xx), or is not reached is
//! asked again, ever less often; how long it asks to be left alone (`Retry-After`) is kept to by the client library,
//! within a call's time. A watch over which nothing comes any more, not even its end, is given up.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::access::Access;
use crate::trouble::{AGAIN, Kind, Pause, Trouble};

/// A watch is asked to end after so long, seconds; one that says nothing for longer is dead.
const WATCH_SECONDS: u32 = 60;
const WATCH_DEAD: Duration = Duration::from_secs(75);
/// A watch that ends sooner, again and again, is no reason to ask without end.
const WATCH_LEAST: Duration = Duration::from_millis(500);
/// Objects of one answer.
const PAGE: u32 = 500;

/// An object of a namespace.
pub trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Those of a namespace that have some labels, followed.
pub struct Objects<K> {
    access: Arc<Access>,
    /// What they are called in words.
    what: String,
    labels: Option<String>,
    found: BTreeMap<String, K>,
    /// Where they are from; `None`: they are to be listed.
    version: Option<String>,
    watch: Option<Watch<K>>,
    /// Since when it runs.
    watched: Instant,
    pause: Pause,
    /// Not before this.
    due: Instant,
}

type Watch<K> = Pin<Box<dyn Stream<Item = Result<WatchEvent<K>, Error>> + Send>>;

impl<K: Object> Objects<K> {
    /// Those with these labels, `key=value`, or all; `what` is what errors call them.
    pub fn new(access: Arc<Access>, what: &str, labels: Option<String>) -> Objects<K> {
        let now = Instant::now();
        Objects {
            access,
            what: what.to_owned(),
            labels,
            found: BTreeMap::new(),
            version: None,
            watch: None,
            watched: now,
            pause: Pause::default(),
            due: now,
        }
    }

    /// What there was when it was heard of last.
    pub fn all(&self) -> impl Iterator<Item = &K> {
        self.found.values()
    }

    /// Waits until there is something to hear: that there are others, or, once a minute, that there are not.
    ///
    /// # Errors
    /// When nothing is known any more; what was known last holds. Said once, until all is well again.
    pub async fn next(&mut self) -> Result<(), Trouble> {
        loop {
            sleep(self.due.saturating_duration_since(Instant::now())).await;
            let Err(trouble) = self.step().await else { return Ok(()) };
            let is_new = self.pause.is_fresh();
            (self.version, self.watch) = (None, None);
            self.due = Instant::now() + if trouble.kind == Kind::Gone { AGAIN } else { self.pause.longer() };
            self.access.mend(&trouble).await;
            if is_new && trouble.kind != Kind::Gone {
                return Err(trouble);
            }
        }
    }

    /// Lists, or follows the watch to its next event or its end.
    async fn step(&mut self) -> Result<(), Trouble> {
        let Some(version) = self.version.clone() else {
            let (found, version) = self.list().await?;
            (self.found, self.version) = (found, Some(version));
            return Ok(());
        };
        if self.watch.is_none() {
            self.watch = Some(self.open(&version).await?);
            self.watched = Instant::now();
        }
        while let Some(watch) = &mut self.watch {
            let silent = |_| Trouble::passing(format!("the watch of {} says nothing any more", self.what));
            let Some(event) = timeout(WATCH_DEAD, watch.next()).await.map_err(silent)? else { break };
            let event = event.map_err(|error| self.trouble(&error))?;
            if self.take(event)? {
                return Ok(());
            }
        }
        self.watch = None;
        self.pause = Pause::default();
        self.due = self.watched + WATCH_LEAST;
        Ok(())
    }

    async fn list(&mut self) -> Result<(BTreeMap<String, K>, String), Trouble> {
        let api = self.access.api::<K>();
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector.clone_from(&self.labels);
        let mut found = BTreeMap::new();
        loop {
            let page = self.access.call("listing", &self.what, api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(|object| Some((object.meta().name.clone()?, object))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok((found, page.metadata.resource_version.unwrap_or_default())),
            }
        }
    }

    async fn open(&mut self, version: &str) -> Result<Watch<K>, Trouble> {
        let api = self.access.api::<K>();
        let mut params = WatchParams { bookmarks: true, ..WatchParams::default() }.timeout(WATCH_SECONDS);
        params.label_selector.clone_from(&self.labels);
        let open = api.watch(&params, version);
        Ok(Box::pin(self.access.call(WATCHING, &self.what, open).await?))
    }

    /// Takes an event of the watch; whether anything is other than before.
    fn take(&mut self, event: WatchEvent<K>) -> Result<bool, Trouble> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.version.clone_from(&object.meta().resource_version);
                self.found.insert(object.meta().name.clone().unwrap_or_default(), object);
            }
            WatchEvent::Deleted(object) => {
                self.version.clone_from(&object.meta().resource_version);
                self.found.remove(object.meta().name.as_deref().unwrap_or_default());
            }
            WatchEvent::Bookmark(bookmark) => {
                self.version = Some(bookmark.metadata.resource_version);
                return Ok(false);
            }
            WatchEvent::Error(status) => return Err(self.trouble(&Error::Api(status))),
        }
        Ok(true)
    }

    fn trouble(&self, error: &Error) -> Trouble {
        Trouble::from_error(WATCHING, &self.what, error)
    }
}

/// What a watch does.
const WATCHING: &str = "watching";

impl<K> Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("what", &self.what).field("version", &self.version).finish_non_exhaustive()
    }
}
