//! An emulated user, who has one session after the other.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderValue, SET_COOKIE};
use http::{Request, Uri};
use tidegate_workload::{Retry, Rng, Wait, rng, uniform};
use tokio::time::{sleep_until, timeout_at};

use super::file::Capture;
use super::shared::Shared;
use super::template::Known;
use crate::exchange::{Client, Page, Told};
use crate::grpc;

use crate::plan::is_secure;
use crate::protocol::Protocol;
use crate::record::Outcome;
use crate::report::ErrorKind;

/// What the runtime's timers count, seconds.
const TIMER: f64 = 1e-3;

/// A user of a group.
pub(super) struct User {
    shared: Rc<Shared>,
    group: usize,
    client: Client,
    rng: Rng,
    known: Known,
    cookies: BTreeMap<String, String>,
    /// What the service asked to wait for, when it refused last; `None`: not to come again.
    retry_after: Option<Duration>,
}

/// How a user takes what became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A page, even if it says that there is no such thing.
    Page,
    /// A refusal, a failure, or nothing in time: the session is broken.
    Nothing,
}

impl User {
    pub(super) fn new(shared: Rc<Shared>, group: usize, number: u32, stream: u64) -> User {
        let known = Known { user: number, class: shared.group(group).class.clone(), captured: BTreeMap::new() };
        User {
            client: shared.way.client(&shared.destination, None),
            rng: rng(shared.plan.seed, stream),
            known,
            cookies: BTreeMap::new(),
            retry_after: Some(Duration::ZERO),
            group,
            shared,
        }
    }

    /// Until the end of the run.
    pub(super) async fn run(mut self) {
        while self.is_awake().await {
            self.shared.sessions.set(self.shared.sessions.get() + 1);
            self.cookies.clear();
            self.known.captured.clear();
            self.session().await;
            let shared = Rc::clone(&self.shared);
            let group = shared.group(self.group);
            let pause = group.pause.as_ref().unwrap_or(&group.think).sample(&mut self.rng);
            self.wait(pause).await;
        }
    }

    /// Waits until there is a place for this user; false at the end of the run.
    async fn is_awake(&self) -> bool {
        loop {
            let at = self.shared.start.elapsed();
            if at >= self.shared.plan.duration {
                return false;
            }
            if self.is_active(at) {
                return true;
            }
            let change = self.shared.next_change(self.group, at).unwrap_or(self.shared.plan.duration);
            sleep_until((self.shared.start + change.min(self.shared.plan.duration)).into()).await;
        }
    }

    async fn session(&mut self) {
        let shared = Rc::clone(&self.shared);
        let group = shared.group(self.group);
        let mut next = self.draw(&group.requests, group.requests.values().sum());
        while let Some(request) = next {
            if self.request_with_tries(request, group.retry.as_ref()).await == Met::Nothing {
                shared.sessions_broken.set(shared.sessions_broken.get() + 1);
                return;
            }
            let thinking = group.think.sample(&mut self.rng);
            self.wait(thinking).await;
            let at = shared.start.elapsed();
            if at >= shared.plan.duration || !self.is_active(at) {
                return;
            }
            let name = &shared.plan.file.requests[request].name;
            next = match group.next.get(name) {
                Some(row) => self.draw(row, 1.0),
                // Without a table every request is drawn anew, and sessions do not end; a row that is missing ends it.
                None if group.next.is_empty() => self.draw(&group.requests, group.requests.values().sum()),
                None => None,
            };
        }
    }

    /// The next request, of those whose text can be filled in; the rest of `sum` is the end of the session.
    fn draw(&mut self, row: &BTreeMap<String, f64>, sum: f64) -> Option<usize> {
        let file = &self.shared.plan.file;
        let all = row.iter().filter_map(|(name, weight)| Some((file.request(name)?, *weight)));
        let (possible, lost): (Vec<_>, Vec<_>) = all.partition(|(request, _)| self.can_ask(*request));
        // What cannot be asked leaves its share to what can.
        let sum = sum - lost.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut at = uniform(&mut self.rng) * sum;
        possible.into_iter().find_map(|(request, weight)| {
            at -= weight;
            (at < 0.0).then_some(request)
        })
    }

    async fn request_with_tries(&mut self, request: usize, retry: Option<&Retry>) -> Met {
        let tries = retry.map_or(1, |retry| retry.tries);
        for left in (0..tries).rev() {
            let met = self.request(request).await;
            let Some(retry) = retry.filter(|_| met == Met::Nothing && left > 0) else { return met };
            let own = |rng: &mut Rng| retry.time.as_ref().map_or(0.0, |time| time.sample(rng));
            let wait = match retry.wait {
                Wait::AtOnce => 0.0,
                Wait::RetryAfter => match self.retry_after {
                    Some(after) => after.as_secs_f64(),
                    None => return met,
                },
                Wait::Own => own(&mut self.rng),
            };
            let stretched = wait * (1.0 + retry.jitter * uniform(&mut self.rng));
            self.wait(stretched).await;
            if Instant::now() >= self.shared.end() {
                return met;
            }
        }
        Met::Nothing
    }

    /// One request from asking to the last byte, counted.
    async fn request(&mut self, request: usize) -> Met {
        let Some(message) = self.message(request) else { return Met::Nothing };
        let shared = Rc::clone(&self.shared);
        let (plan, template) = (&shared.plan, &shared.plan.file.requests[request]);
        let mut page = Page { keeps_body: !template.capture.is_empty(), ..Page::default() };
        let (instant, at) = (Instant::now(), shared.start.elapsed());
        shared.offered(self.group, request, at);
        let (held, deadline) = (Cell::new(false), instant + plan.file.timeout());
        let sent = || shared.sent(self.group, request);
        let told = Told::new(&held, &sent, &|_| ());
        let make = || {
            let mut message = message.clone();
            if plan.protocol == Protocol::Grpc {
                grpc::say_timeout(message.headers_mut(), deadline.saturating_duration_since(Instant::now()));
            }
            message
        };
        let exchange = self.client.exchange(make, &told, Some(&mut page));
        let outcome = match timeout_at(deadline.into(), exchange).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(kind)) => Outcome::Failed(kind),
            Err(_) => Outcome::Failed(ErrorKind::Timeout),
        };
        shared.ended(self.group, request, at, instant.elapsed(), outcome);
        self.read(&page, &template.capture);
        self.retry_after = Some(Duration::ZERO);
        let Outcome::Answered { status, by_sentry, retry_after, .. } = outcome else { return Met::Nothing };
        self.retry_after = retry_after;
        match status.as_http() {
            401 | 403 | 429 | 500.. => Met::Nothing,
            _ if by_sentry => Met::Nothing,
            _ => Met::Page,
        }
    }

    /// The request's bytes, if everything in it is known.
    fn message(&self, request: usize) -> Option<Request<Bytes>> {
        let (prepared, plan) = (&self.shared.requests[request], &self.shared.plan);
        let path: Uri = prepared.path.fill(&self.known)?.parse().ok()?;
        let mut fields = Vec::new();
        for (name, text) in &prepared.form {
            fields.push(format!("{}={}", encode(name), encode(&text.fill(&self.known)?)));
        }
        let body = fields.join("&");
        let is_call = plan.protocol == Protocol::Grpc;
        let mut message = Request::new(if is_call { grpc::framed(body.as_bytes()) } else { Bytes::from(body) });
        *message.method_mut() = prepared.method.clone();
        *message.uri_mut() = path;
        let headers = message.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(plan.base().authority()?.as_str()).ok()?);
        if !prepared.form.is_empty() && !is_call {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        }
        if !self.cookies.is_empty() {
            let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            headers.insert(COOKIE, HeaderValue::from_str(&cookies.join("; ")).ok()?);
        }
        for (name, text) in &prepared.headers {
            headers.insert(name.clone(), HeaderValue::from_str(&text.fill(&self.known)?).ok()?);
        }
        self.shared.way.fit(&mut message, is_secure(plan.base()));
        Some(message)
    }

    /// Takes cookies, and what later requests need, out of an answer.
    fn read(&mut self, page: &Page, capture: &BTreeMap<String, Capture>) {
        for cookie in page.headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().ok().and_then(|text| text.split(';').next()?.split_once('='));
            if let Some((name, value)) = pair {
                self.cookies.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        if capture.is_empty() {
            return;
        }
        let body = String::from_utf8_lossy(&page.body);
        for (name, capture) in capture {
            let found = occurrences(&body, capture);
            match found.get((uniform(&mut self.rng) * found.len() as f64) as usize) {
                Some(text) => self.known.captured.insert(name.clone(), (*text).to_owned()),
                None => self.known.captured.remove(name),
            };
        }
    }

    /// Thinks, at most to the end of the run. Timers count milliseconds: who thinks for less goes on at once, after the
    /// others had their turn, for a millisecond is longer than a fast service takes.
    async fn wait(&self, seconds: f64) {
        if seconds < TIMER / 2.0 {
            return tokio::task::yield_now().await;
        }
        let due = Duration::try_from_secs_f64(seconds).ok().and_then(|time| Instant::now().checked_add(time));
        let end = self.shared.end();
        sleep_until(due.map_or(end, |due| due.min(end)).into()).await;
        if let Some(due) = due.filter(|due| *due < end) {
            self.shared.health.borrow_mut().taken(due, Instant::now());
        }
    }

    fn is_active(&self, at: Duration) -> bool {
        self.known.user <= self.shared.active(self.group, at)
    }

    fn can_ask(&self, request: usize) -> bool {
        let prepared = &self.shared.requests[request];
        let forms = prepared.form.iter().map(|(_, text)| text);
        let headers = prepared.headers.iter().map(|(_, text)| text);
        let mut texts = [&prepared.path].into_iter().chain(forms).chain(headers);
        texts.all(|text| text.names().all(|name| self.known.captured.contains_key(name)))
    }
}

impl Drop for User {
    /// At the end of the run, or when it is stopped.
    fn drop(&mut self) {
        self.shared.opened.set(self.shared.opened.get() + self.client.dialer().opened.get());
    }
}

fn occurrences<'a>(body: &'a str, capture: &Capture) -> Vec<&'a str> {
    let starts = body.match_indices(&capture.after).map(|(at, _)| &body[at + capture.after.len()..]);
    starts.filter_map(|rest| rest.split_once(&capture.until).map(|(text, _)| text)).collect()
}

/// As forms are encoded.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            b' ' => encoded.push('+'),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::{UsersFile, UsersPlan};
    use super::*;

    fn user() -> User {
        let text = r#"
            users = [{ class = "all", count = 1, think = { distribution = "constant", value = "1us" }, requests = { a = 1 } }]
            request = [{ name = "a", path = "/" }]
        "#;
        let file = UsersFile::parse(text, "text").unwrap();
        let plan = UsersPlan::new(file, "http://127.0.0.1:1", Duration::from_secs(20)).unwrap();
        User::new(Rc::new(Shared::of(plan)), 0, 1, 0)
    }

    /// A tick of the timer is a millisecond, longer than a fast service takes: it would be what is measured. There is
    /// no timer here, so who asks for one panics.
    #[test]
    fn who_hardly_thinks_asks_no_timer_and_lets_the_others_have_their_turn() {
        let (user, mut context) = (user(), Context::from_waker(Waker::noop()));
        for seconds in [0.0, 1e-6, 0.49e-3] {
            let mut wait = pin!(user.wait(seconds));
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending, "{seconds} s: the others' turn");
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(()), "{seconds} s");
        }
    }

    #[test]
    fn occurrences_on_a_page() {
        let capture = Capture { after: "/message/".into(), until: "\"".into() };
        let body = r#"<a href="/message/7">x</a> <a href="/message/12">y</a> /message/9"#;
        assert_eq!(occurrences(body, &capture), ["7", "12"]);
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode("a b&c=ü"), "a+b%26c%3D%C3%BC");
    }
}
