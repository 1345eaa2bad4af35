//! What all users of a run share: the plan, and what is counted.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use tidegate_workload::Users;

use super::template::Template;
use super::{UsersPlan, UsersReport};
use crate::client::Way;
use crate::health::{Health, warnings};
use crate::plan::Destination;
use crate::progress::Progress;
use crate::record::{ClassRecord, Outcome, summarise};

/// What all users share.
pub(super) struct Shared {
    pub(super) plan: UsersPlan,
    pub(super) way: Way,
    pub(super) destination: Destination,
    pub(super) requests: Vec<Prepared>,
    pub(super) start: Instant,
    pub(super) health: RefCell<Health>,
    pub(super) opened: Cell<u64>,
    pub(super) sessions: Cell<u64>,
    pub(super) sessions_broken: Cell<u64>,
    by_request: RefCell<Vec<ClassRecord>>,
    by_group: RefCell<Vec<ClassRecord>>,
}

/// A request type, made ready.
pub(super) struct Prepared {
    pub(super) method: http::Method,
    pub(super) path: Template,
    pub(super) form: Vec<(String, Template)>,
    pub(super) headers: Vec<(http::HeaderName, Template)>,
}

impl Shared {
    pub(super) fn new(plan: UsersPlan, way: Way, destination: Destination) -> Shared {
        let record = |name: &str| ClassRecord::new(name.to_owned(), plan.target);
        Shared {
            requests: plan.file.requests.iter().map(Prepared::new).collect(),
            by_request: RefCell::new(plan.file.requests.iter().map(|request| record(&request.name)).collect()),
            by_group: RefCell::new(plan.file.users.iter().map(|group| record(group.label())).collect()),
            health: RefCell::new(Health::new()),
            opened: Cell::new(0),
            sessions: Cell::new(0),
            sessions_broken: Cell::new(0),
            way,
            destination,
            start: Instant::now(),
            plan,
        }
    }

    /// When nobody begins a request any more.
    pub(super) fn end(&self) -> Instant {
        self.start + self.plan.duration
    }

    pub(super) fn group(&self, index: usize) -> &Users {
        &self.plan.file.users[index]
    }

    /// How many users of a group there are at `at` after the start.
    pub(super) fn active(&self, group: usize, at: Duration) -> u32 {
        let group = self.group(group);
        let mut changes = self.plan.file.active.iter().filter(|active| active.users == group.label()).peekable();
        if changes.peek().is_none() {
            return group.count;
        }
        let before = changes.filter(|active| active.at.0 <= at.as_secs_f64());
        before.max_by(|a, b| a.at.0.total_cmp(&b.at.0)).map_or(0, |active| active.count)
    }

    /// When the number of the group's users changes next, after the start.
    pub(super) fn next_change(&self, group: usize, at: Duration) -> Option<Duration> {
        let label = self.group(group).label();
        let changes = self.plan.file.active.iter().filter(|active| active.users == label).map(|active| active.at.0);
        let next = changes.filter(|change| *change > at.as_secs_f64()).min_by(f64::total_cmp);
        next.map(Duration::from_secs_f64)
    }

    pub(super) fn offered(&self, group: usize, request: usize, at: Duration) {
        self.by_request.borrow_mut()[request].offered(at);
        self.by_group.borrow_mut()[group].offered(at);
    }

    pub(super) fn sent(&self, group: usize, request: usize) {
        self.by_request.borrow_mut()[request].sent();
        self.by_group.borrow_mut()[group].sent();
    }

    pub(super) fn ended(&self, group: usize, request: usize, at: Duration, took: Duration, outcome: Outcome) {
        self.by_request.borrow_mut()[request].ended(at, took, outcome);
        self.by_group.borrow_mut()[group].ended(at, took, outcome);
    }

    pub(super) fn progress(&self, length: Duration, finished: bool) -> Progress {
        let classes = self.by_request.borrow_mut().iter_mut().map(|record| record.progress(length)).collect();
        Progress { elapsed: self.start.elapsed(), duration: self.plan.duration, finished, classes }
    }

    pub(super) fn report(&self, stopped: bool) -> UsersReport {
        let sent_for = self.start.elapsed().min(self.plan.duration).as_secs_f64();
        let (requests, total) = summarise(&self.by_request.borrow(), sent_for);
        let (groups, _) = summarise(&self.by_group.borrow(), sent_for);
        let generator = self.health.borrow().report(self.opened.get(), 0);
        let seconds = 0..sent_for.ceil() as u64;
        let groups_at = |at| (0..groups.len()).map(|group| self.active(group, at)).sum();
        let active: Vec<u32> = seconds.map(|second| groups_at(Duration::from_secs(second))).collect();
        UsersReport {
            seed: self.plan.seed,
            sent_for,
            target: self.plan.target.map(|target| target.as_secs_f64()),
            stopped,
            users: active.iter().copied().max().unwrap_or(0),
            sessions: self.sessions.get(),
            sessions_broken: self.sessions_broken.get(),
            warnings: warnings(&generator, &total, usize::MAX),
            requests,
            groups,
            total,
            active,
            generator,
        }
    }
}

#[cfg(test)]
impl Shared {
    /// Of users who reach nobody.
    pub(super) fn of(plan: UsersPlan) -> Shared {
        let way = Way::of_users(&plan).expect("no TLS");
        let authority = plan.base().authority().expect("an authority").to_string();
        Shared::new(plan, way, Destination { authority, addresses: Vec::new(), secure: None })
    }
}

impl Prepared {
    fn new(request: &super::RequestTemplate) -> Prepared {
        let template = |text: &String| Template::parse(text).expect("the file was checked");
        let header = |(name, text): (&String, &String)| (name.parse().expect("the file was checked"), template(text));
        Prepared {
            method: request.method.parse().expect("the file was checked"),
            path: template(&request.path),
            form: request.form.iter().map(|(name, text)| (name.clone(), template(text))).collect(),
            headers: request.headers.iter().map(header).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UsersFile;
    use super::*;

    #[test]
    fn users_come_and_go() {
        let text = r#"
            users = [{ class = "all", count = 7, think = { distribution = "constant", value = 1 }, requests = { a = 1 } }]
            active = [{ users = "all", at = "10s", count = 30 }, { users = "all", at = 0, count = 3 }]
            request = [{ name = "a", path = "/" }]
        "#;
        let file = UsersFile::parse(text, "text").unwrap();
        let plan = UsersPlan::new(file, "http://127.0.0.1:1", Duration::from_secs(20)).unwrap();
        let shared = Shared::of(plan);
        let at = |seconds| {
            (shared.active(0, Duration::from_secs(seconds)), shared.next_change(0, Duration::from_secs(seconds)))
        };
        assert_eq!(at(0), (3, Some(Duration::from_secs(10))));
        assert_eq!(at(10), (30, None));
    }
}
