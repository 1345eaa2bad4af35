//! Clients: streams that arrive whatever happens, and users who wait for their answers. Both may try again.

use std::time::Duration;

use tidegate_engine::{AbandonedBy, ClassId, Decision, Request, RequestTypeId, Ticket, Timestamp, Watch};
use tidegate_workload::{Arrivals, Retry, Rng, Wait, rng, uniform};

use super::manner::Mannered;
use super::menu::{Menu, draw, spread, sums};
use super::pages::Source;
use super::part::{LANES, Part};
use super::{Besides, Flying, Happening, NOT_YET, Run};
use crate::agenda::{Agenda, SlotId};
use crate::park::{NOBODY, Task, in_billionths};
use crate::report::Subject;
use crate::world::{Stream, Url, Users, World};

/// Who made a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Client {
    Stream {
        number: u16,
    },
    User {
        group: u16,
        user: u32,
        menu: u16,
    },
    Page {
        menu: u16,
    },
    /// An offer, with the key of its URL.
    Given {
        request_type: u16,
        key: u64,
    },
}

/// How a try ended, for the client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Answered,
    /// Answered when nobody waited any more.
    TooLate,
    /// With the time after which to come back.
    Refused(Duration),
    Failed,
    /// The client left.
    TimedOut,
}

/// Who asks, and for what.
pub(super) struct Clients<'w> {
    arrivals: Vec<(Arrivals, SlotId)>,
    /// Per stream, how its clients behave.
    pub(super) manners: Vec<Mannered>,
    /// Which of the arrivals are this sentry's.
    pub(super) part: Part,
    /// Of the streams, then of the users' groups by state, then of the sessions by kind of page.
    pub(super) menus: Vec<Menu<'w>>,
    groups: Vec<Group<'w>>,
    pub(super) sources: Vec<Source<'w>>,
    rng: Rng,
}

/// Users of one kind.
pub(super) struct Group<'w> {
    users: &'w Users,
    /// The first state's menu.
    first_menu: u16,
    start: Vec<f64>,
    next: Vec<Vec<f64>>,
    /// Each user's state.
    states: Vec<u16>,
    rng: Rng,
}

/// Streams of random numbers for users begin here; those for arrivals are numbered from 1.
const USERS: u64 = 1 << 32;

impl<'w> Clients<'w> {
    pub(super) fn new(world: &'w World, seed: u64, lane: u64, plans: &mut Agenda<Happening>) -> Clients<'w> {
        let arrivals = world.streams.iter().enumerate().map(|(at, stream)| {
            let profile = stream.profile.until(world.duration);
            let slot = plans.slot(Happening::Arrival { stream: at as u16 });
            (stream.process.arrivals(&profile, seed, at as u64 + 1), slot)
        });
        let arrivals = arrivals.collect();
        let mut menus = world.streams.iter().map(|stream| Menu::new(stream.class, &stream.urls)).collect();
        Clients {
            arrivals,
            manners: Mannered::all(world, seed),
            part: Part::new(world.streams.len()),
            groups: Group::all(&world.users, seed, &mut menus),
            sources: Source::all(world, seed, &mut menus, plans),
            menus,
            rng: rng(seed, lane.wrapping_mul(LANES)),
        }
    }

    /// The first arrival of each stream.
    pub(super) fn plan_arrivals(&mut self, plans: &mut Agenda<Happening>) {
        (0..self.arrivals.len()).for_each(|stream| self.plan_arrival(stream, plans));
    }

    /// The next arrival of a stream.
    pub(super) fn plan_arrival(&mut self, stream: usize, plans: &mut Agenda<Happening>) {
        let (arrivals, slot) = &mut self.arrivals[stream];
        if let Some(at) = arrivals.next() {
            plans.plan(*slot, Timestamp::ZERO + at);
        }
    }
}

impl<'w> Group<'w> {
    pub(super) fn all(users: &'w [Users], seed: u64, menus: &mut Vec<Menu<'w>>) -> Vec<Group<'w>> {
        let mut groups = Vec::new();
        for (at, users) in users.iter().enumerate() {
            let first_menu = menus.len() as u16;
            menus.extend(users.states.iter().map(|urls: &Vec<Url>| Menu::new(users.class, urls)));
            groups.push(Group {
                users,
                first_menu,
                start: sums(users.start.iter().copied()),
                next: users.next.iter().map(|row| sums(row.iter().copied())).collect(),
                states: vec![0; users.count as usize],
                rng: rng(seed, USERS + at as u64),
            });
        }
        groups
    }

    fn begin(&mut self, user: u32) {
        self.states[user as usize] = draw(&self.start, &mut self.rng) as u16;
    }

    /// To the next state. `false`: the session is over.
    fn step(&mut self, user: u32) -> bool {
        let row = &self.next[usize::from(self.states[user as usize])];
        let at = uniform(&mut self.rng);
        let next = row.partition_point(|sum| *sum <= at);
        if next < row.len() {
            self.states[user as usize] = next as u16;
        }
        next < row.len()
    }
}

impl Client {
    /// Where its URLs stand; `None`: nowhere.
    pub(super) fn menu(self) -> Option<usize> {
        match self {
            Client::Stream { number } => Some(usize::from(number)),
            Client::User { menu, .. } | Client::Page { menu } => Some(usize::from(menu)),
            Client::Given { .. } => None,
        }
    }
}

impl Run<'_> {
    /// A stream's request arrives.
    pub(super) fn arrive(&mut self, now: Timestamp, number: u16) {
        let menu = &self.clients.menus[usize::from(number)];
        let url = menu.draw(&mut self.clients.rng);
        let task = task(&menu.urls[url as usize], &mut self.clients.rng);
        let lasts = lasting(&menu.urls[url as usize], &mut self.clients.rng);
        let (tenant, besides) = self.clients.manners[usize::from(number)].draw(lasts);
        let stream = &self.world.streams[usize::from(number)];
        if stream.manner.absent {
            return;
        }
        let flying = self.flying(now, Client::Stream { number }, stream.class, number, url, task);
        let flying = Flying { besides, subject: Subject { tenant, ..flying.subject }, ..flying };
        if besides.sends > 0.0 && self.world.holds_bodies {
            return self.begin_sending(now, flying);
        }
        let leaves = stream.manner.patience.or(stream.manner.deadline).is_some();
        if self.sentries.first().desk.is_some() || self.agreed.is_some() || stream.retry.is_some() || leaves {
            return self.come(now, flying);
        }
        let tenant = self.tenant(&flying.subject);
        let asked = Request { tenant, ..self.clients.menus[usize::from(number)].request(url) };
        self.come_once(now, flying, asked);
    }

    /// Every user begins with a pause of its own.
    pub(super) fn start_users(&mut self) {
        for (at, group) in self.clients.groups.iter_mut().enumerate() {
            for user in 0..group.users.count {
                group.begin(user);
                let think = group.users.think.sample(&mut group.rng);
                let thought = Happening::Thought { group: at as u16, user };
                self.plans.once(Timestamp::from_secs_f64(think) + group.users.from, thought);
            }
        }
    }

    /// A user has thought, and asks.
    pub(super) fn ask(&mut self, now: Timestamp, at: u16, user: u32) {
        let group = &mut self.clients.groups[usize::from(at)];
        if now > self.end || now >= Timestamp::ZERO + group.users.until {
            return;
        }
        let menu = group.first_menu + group.states[user as usize];
        let urls = &self.clients.menus[usize::from(menu)];
        let url = urls.draw(&mut group.rng);
        let task = task(&urls.urls[url as usize], &mut group.rng);
        let lasts = lasting(&urls.urls[url as usize], &mut group.rng);
        let (class, course) = (group.users.class, self.world.streams.len() as u16 + at);
        let flying = self.flying(now, Client::User { group: at, user, menu }, class, course, url, task);
        self.come(now, Flying { besides: Besides { lasts, ..Besides::default() }, ..flying });
    }

    /// A client tries again what it tried before.
    pub(super) fn try_again(&mut self, now: Timestamp, request: u32) {
        let mut flying = self.requests.remove(request as usize);
        let course = usize::from(flying.subject.course);
        if now > self.end {
            self.report.clients[course].given_up += 1;
            return;
        }
        self.report.clients[course].retries += 1;
        flying.subject.arrived = now;
        flying.subject.target = self.world.target(now);
        self.come(now, Flying { tries: flying.tries + 1, counted: false, ..flying });
    }

    /// A try is over on the server's side; its client goes on, unless it left before.
    pub(super) fn close(&mut self, now: Timestamp, request: u32, fate: Fate) {
        if let Some(timer) = self.requests[request as usize].timer.take() {
            self.plans.cancel(timer);
        }
        if !self.requests[request as usize].gone {
            self.go_on(now, request, fate);
        }
        self.requests.remove(request as usize);
    }

    pub(super) fn flying(
        &mut self,
        now: Timestamp,
        client: Client,
        class: u8,
        course: u16,
        url: u32,
        task: Task,
    ) -> Flying {
        self.report.clients[usize::from(course)].wanted += 1;
        let request_type = match client {
            Client::Given { request_type, .. } => request_type,
            _ => client.menu().map_or(0, |menu| self.clients.menus[menu].urls[url as usize].request_type),
        };
        Flying {
            subject: Subject { class, course, tenant: 0, request_type, arrived: now, target: self.world.target(now) },
            client,
            url,
            task,
            sentry: self.sentries.draw(usize::from(course)),
            ticket: None,
            started: now,
            served_in: Duration::ZERO,
            tries: 1,
            besides: Besides::default(),
            call: NOBODY,
            job: NOT_YET,
            timer: None,
            gone: false,
            waiting: false,
            pooled: false,
            counted: false,
        }
    }

    /// A request comes to the sentry.
    pub(super) fn come(&mut self, now: Timestamp, flying: Flying) {
        self.report.offered(flying.subject);
        let patience = self.patience(flying.client);
        let request = self.requests.insert(flying) as u32;
        if let Some(patience) = patience.filter(|patience| *patience < DAYS) {
            let timer = self.plans.once(now + patience, Happening::Impatience { request });
            self.requests[request as usize].timer = Some(timer);
        }
        self.at_sentry(now, request);
    }

    /// After how long a client leaves, if it does.
    fn patience(&self, client: Client) -> Option<Duration> {
        match client {
            Client::Stream { number } => {
                let Stream { retry, manner, .. } = &self.world.streams[usize::from(number)];
                let leaves = retry.is_some() || manner.deadline.is_some();
                let patience = manner.patience.or(leaves.then_some(self.world.patience));
                [patience, manner.deadline].into_iter().flatten().min()
            }
            Client::User { .. } => Some(self.world.patience),
            Client::Page { .. } | Client::Given { .. } => None,
        }
    }

    /// The same in short, for what most requests are: no sentry of limited speed, and a client that does not come back.
    /// A refused one leaves no trace but counts.
    pub(super) fn come_once(&mut self, now: Timestamp, flying: Flying, asked: Request) {
        self.report.offered(flying.subject);
        let sentry = self.sentries.of(flying.sentry);
        let let_in = sentry.kernel.lets_in(now);
        let decision = let_in.then(|| sentry.controller.handle_arrival(now, asked));
        if let None | Some(Decision::Reject(_)) = decision {
            self.report.refused(now, flying.subject);
            self.report.clients[usize::from(flying.subject.course)].given_up += 1;
        } else if let Some(decision) = decision {
            let request = self.requests.insert(flying) as u32;
            self.decided(now, request, decision);
        }
    }

    /// The request as the sentry sees it.
    pub(super) fn asked(&self, flying: &Flying) -> Request {
        match flying.client {
            Client::Given { request_type, key } => Request {
                class: ClassId(flying.subject.class),
                request_type: RequestTypeId(request_type),
                url: spread(key),
                ..Request::default()
            },
            Client::Stream { number: menu } | Client::User { menu, .. } | Client::Page { menu } => {
                let request = self.clients.menus[usize::from(menu)].request(flying.url);
                let (deadline, says) = self.says(flying.client);
                // It runs while the request is sent, too.
                let sends = if self.world.holds_bodies && flying.tries == 1 { flying.besides.sends } else { 0.0 };
                let left = |deadline: Duration| deadline.saturating_sub(Duration::from_secs_f64(sends));
                let deadline = deadline.map(|deadline| flying.subject.arrived + left(deadline));
                let is_retry = says && flying.tries > 1;
                Request { deadline, is_retry, tenant: self.tenant(&flying.subject), ..request }
            }
        }
    }

    /// What clients say with their requests: how long they wait, and whether they tried before.
    fn says(&self, client: Client) -> (Option<Duration>, bool) {
        let (deadline, retry) = match client {
            Client::Stream { number } => {
                let stream = &self.world.streams[usize::from(number)];
                (stream.manner.deadline, stream.retry)
            }
            Client::User { group, .. } => (None, self.clients.groups[usize::from(group)].users.retry),
            Client::Page { .. } | Client::Given { .. } => (None, None),
        };
        (deadline, retry.is_some_and(|retry| retry.says))
    }

    /// The controller ended a request for the sake of others: its client has an answer, though not the one it wants.
    pub(super) fn cancelled(&mut self, now: Timestamp, sentry: u16, ticket: Ticket) {
        let Some(request) = self.request_of(sentry, ticket) else { return };
        let flying = &mut self.requests[request as usize];
        let (timer, subject) = (flying.timer.take(), flying.subject);
        let is_news = !std::mem::replace(&mut flying.gone, true);
        timer.into_iter().for_each(|timer| self.plans.cancel(timer));
        self.sentries.of(sentry).controller.handle_abandon(now, ticket, AbandonedBy::Controller, Watch::Driver);
        if is_news {
            self.report.failed(subject);
            self.go_on(now, request, Fate::Failed);
        }
        if self.let_go(now, request, ticket) == Some(true) {
            self.requests.remove(request as usize);
        }
    }

    /// What a client does after a try.
    pub(super) fn go_on(&mut self, now: Timestamp, request: u32, fate: Fate) {
        let Flying { client, subject, tries, .. } = self.requests[request as usize];
        let counts = &mut self.report.clients[usize::from(subject.course)];
        if let Fate::Answered = fate {
            counts.satisfied += 1;
            return self.user_goes_on(now, client, true);
        }
        let retry = match client {
            Client::Stream { number } => self.world.streams[usize::from(number)].retry,
            Client::User { group, .. } => self.clients.groups[usize::from(group)].users.retry,
            Client::Page { .. } | Client::Given { .. } => None,
        };
        match retry {
            Some(retry) if tries < retry.tries && now <= self.end => self.plan_retry(now, request, retry, fate),
            _ => {
                counts.given_up += 1;
                self.user_goes_on(now, client, false);
            }
        }
    }

    /// The next try is a request of its own: of the one before, the server may still have work.
    fn plan_retry(&mut self, now: Timestamp, request: u32, retry: Retry, fate: Fate) {
        let seconds = match (retry.wait, fate) {
            (Wait::Own, _) => retry.time.map_or(0.0, |time| time.sample(&mut self.aside)),
            (Wait::RetryAfter, Fate::Refused(after)) => after.as_secs_f64(),
            _ => 0.0,
        };
        let stretch = 1.0 + retry.jitter * uniform(&mut self.aside);
        let Flying { subject, client, url, task, tries, besides, .. } = self.requests[request as usize];
        let again = Flying {
            subject,
            client,
            url,
            task,
            tries,
            besides,
            call: NOBODY,
            job: NOT_YET,
            sentry: self.sentries.draw(usize::from(subject.course)),
            ticket: None,
            started: now,
            served_in: Duration::ZERO,
            timer: None,
            gone: false,
            waiting: false,
            pooled: false,
            counted: true,
        };
        let request = self.requests.insert(again) as u32;
        self.plans.once(now + Duration::from_secs_f64(seconds * stretch), Happening::Again { request });
    }

    fn user_goes_on(&mut self, now: Timestamp, client: Client, satisfied: bool) {
        let Client::User { group: at, user, .. } = client else { return };
        let group = &mut self.clients.groups[usize::from(at)];
        let stays = satisfied && group.step(user);
        let time = if stays {
            group.users.think.sample(&mut group.rng)
        } else {
            group.begin(user);
            group.users.pause.sample(&mut group.rng)
        };
        self.plans.once(now + Duration::from_secs_f64(time), Happening::Thought { group: at, user });
    }
}

/// A patience that outlasts every run needs no timer.
const DAYS: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a request is open besides, seconds.
fn lasting(url: &Url, rng: &mut Rng) -> f64 {
    url.lasts.map_or(0.0, |lasts| in_billionths(lasts.time.sample(rng)))
}

/// A request's work. What follows the processors has a seed of its own, so that it is the same under every policy.
pub(super) fn task(url: &Url, rng: &mut Rng) -> Task {
    let work = in_billionths(url.cost.sample(rng));
    let seed = if url.program == 0 { 0 } else { (uniform(rng) * (1u64 << 53) as f64) as u64 };
    Task { work, program: url.program, seed }
}
