//! Sessions of Web users as streams of real requests: the very pages that the simulator plays. A user's class is in a
//! cookie, as a service would have it, and so is the session; what a page's objects and bytes cost is in a header for
//! the emulated server.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use http::header::{COOKIE, HeaderName, HeaderValue};
use tidegate_loadgen::{PlanError, Script, ScriptedRequest, Stream};
use tidegate_workload::{Sessions, SurgePage};

use crate::configure::{CLASS_COOKIE, session_prefix};
use crate::scenario::Scenario;

const MORE_COST: HeaderName = HeaderName::from_static("x-more-cost");

/// Two streams for each group: pages from files, and pages made on demand.
///
/// # Errors
/// When the sentry's address makes no URL.
pub(super) fn streams(
    scenario: &Scenario,
    sentry: &impl Fn(&str) -> SocketAddr,
    seed: u64,
) -> Result<Vec<Stream>, PlanError> {
    let mut streams = Vec::new();
    for (at, sessions) in scenario.sessions.iter().enumerate() {
        let sentry = sentry(&sessions.class);
        for (label, kinds) in sessions.labels().into_iter().zip([0..1, 1..4]) {
            let mut stream = Stream::new(label, sessions.rate.until(scenario.duration)).timeout(scenario.timeout);
            let mut firsts = Vec::new();
            for name in &sessions.types()[kinds.clone()] {
                let request = scenario.request_index(name).unwrap_or_default();
                let urls = scenario.requests[request].urls;
                firsts.push((stream.urls.len(), urls as usize));
                for number in 0..urls {
                    stream =
                        stream.url(&format!("http://{sentry}{}{number}", session_prefix(scenario, request)), 1.0)?;
                }
            }
            let group = Group { sessions: sessions.clone(), at, kinds, urls: firsts };
            streams.push(stream.script(group.script(scenario.duration, seed)));
        }
    }
    Ok(streams)
}

/// Pages of some kinds of one group.
#[derive(Clone)]
struct Group {
    sessions: Sessions,
    /// Its number in the scenario.
    at: usize,
    /// By [`Sessions::position`].
    kinds: Range<usize>,
    /// Of each kind, its first URL in the stream and how many there are.
    urls: Vec<(usize, usize)>,
}

impl Group {
    fn script(self, end: Duration, seed: u64) -> Script {
        Script::new(move || {
            let group = self.clone();
            self.sessions.pages(self.at, end, seed).filter_map(move |page| group.request(&page))
        })
    }

    fn request(&self, page: &SurgePage) -> Option<ScriptedRequest> {
        let kind = Sessions::position(page.kind);
        let (first, count) = *self.urls.get(kind.checked_sub(self.kinds.start)?)?;
        let class = &self.sessions.class;
        let cookies = format!("{CLASS_COOKIE}={class}; session={}-{}", self.at, page.session);
        let work = self.sessions.work(page.objects, page.bytes);
        let value = |text: String| HeaderValue::from_str(&text).expect("names are letters, digits, - and _");
        let headers = vec![(COOKIE, value(cookies)), (MORE_COST, value(format!("{work:.6}")))];
        Some(ScriptedRequest { at: page.at, url: first + page.session as usize % count.max(1), headers })
    }
}
