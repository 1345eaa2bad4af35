//! Web users as the SURGE model has them: sessions of pages with embedded objects, and think times between them.
//!
//! *Source.* P. Barford and M. Crovella, *Generating representative Web workloads* (1998), with the parameters of
//! M. Andreolini, E. Casalicchio, M. Colajanni and M. Mambelli, *A cluster-based Web system providing differentiated
//! and guaranteed services* (2004), table 1. *Awkward cases.* The distributions are continuous and pages are not: a
//! session has at least one page, its number rounded to the nearest; a page has as many objects as the draw has whole
//! ones, up to a bound, because a Pareto tail of index 1.33 now and then makes a page of a million. A browser asks for
//! the objects of a page together with it, and the think time begins there: what waiting for answers adds is for a
//! driver that has answers.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ArrivalProcess, Arrivals, Distribution, Profile, Rng, rng, uniform};

/// A population of Web users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Surge {
    /// Pages that a user asks for before leaving.
    pub pages_per_session: Distribution,
    /// Time between two pages of a session, seconds.
    pub think_time: Distribution,
    /// Objects embedded in a page.
    pub objects_per_page: Distribution,
    /// Objects embedded in a page at most.
    pub most_objects: u32,
    /// Size of a page, bytes.
    pub page_bytes: Distribution,
    /// Size of an embedded object, bytes.
    pub object_bytes: Distribution,
    /// Share of pages that are made on demand and cost little.
    pub dynamic_light: f64,
    /// Share of pages that are made on demand and cost processor time.
    pub dynamic_cpu: f64,
    /// Share of pages that are made on demand and cost processor and disk time.
    pub dynamic_cpu_and_disk: f64,
    /// Share of users of the top class.
    pub top_users: f64,
}

/// What kind of thing is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// A page from a file.
    Static,
    /// A page made on demand that costs little.
    DynamicLight,
    /// A page made on demand that costs processor time.
    DynamicCpu,
    /// A page made on demand that costs processor and disk time.
    DynamicCpuAndDisk,
    /// An object embedded in a page.
    Object,
}

/// A page of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Time since the page before; 0 for the first.
    pub after: Duration,
    /// What kind of page it is.
    pub kind: Asked,
    /// Its size, bytes.
    pub bytes: u64,
    /// The sizes of its objects, bytes.
    pub objects: Vec<u64>,
}

/// A request of a population.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurgeRequest {
    /// When, since the start.
    pub at: Duration,
    /// The number of the session, in the order in which sessions begin.
    pub session: u64,
    /// Whether its user is of the top class.
    pub is_top: bool,
    /// What is asked for.
    pub asked: Asked,
    /// Size of the answer, bytes.
    pub bytes: u64,
}

/// A page of a population, with what is embedded in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurgePage {
    /// When it is asked for, since the start.
    pub at: Duration,
    /// The number of the session.
    pub session: u64,
    /// What kind of page it is.
    pub kind: Asked,
    /// How many objects are embedded in it.
    pub objects: u32,
    /// Size of the page and its objects together, bytes.
    pub bytes: u64,
}

/// Shares that make no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SurgeError {
    /// A share outside 0 to 1, or shares of pages that are more than the whole.
    #[error("`{key}` is {value}, but must be from 0 to 1, and the shares of dynamic pages at most 1 together")]
    Share {
        /// The key at fault.
        key: &'static str,
        /// Its value.
        value: f64,
    },
}

impl Default for Surge {
    /// The parameters of the paper's table 1.
    fn default() -> Surge {
        let known =
            |made: Result<Distribution, crate::DistributionError>| made.expect("the table's parameters are good");
        Surge {
            pages_per_session: known(Distribution::inverse_gaussian(3.86, 9.46)),
            think_time: known(Distribution::pareto(1.4, 1.0)),
            objects_per_page: known(Distribution::pareto(1.33, 2.0)),
            most_objects: 1000,
            page_bytes: known(Distribution::lognormal_pareto(7.630, 1.001, 10_240.0, 1.0)),
            object_bytes: known(Distribution::lognormal_log(8.215, 1.46)),
            dynamic_light: 0.10,
            dynamic_cpu: 0.06,
            dynamic_cpu_and_disk: 0.04,
            top_users: 0.2,
        }
    }
}

impl Surge {
    /// Checks the shares.
    ///
    /// # Errors
    /// The first that makes no sense.
    pub fn check(&self) -> Result<(), SurgeError> {
        let shares = [
            ("dynamic_light", self.dynamic_light),
            ("dynamic_cpu", self.dynamic_cpu),
            ("dynamic_cpu_and_disk", self.dynamic_cpu_and_disk),
            ("top_users", self.top_users),
        ];
        if let Some(&(key, value)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(SurgeError::Share { key, value });
        }
        let sum: f64 = shares[..3].iter().map(|(_, share)| share).sum();
        if sum > 1.0 + 1e-9 { Err(SurgeError::Share { key: "dynamic_light", value: sum }) } else { Ok(()) }
    }

    /// How many pages a session has.
    pub fn pages(&self, rng: &mut Rng) -> u64 {
        self.pages_per_session.sample(rng).round().max(1.0) as u64
    }

    /// A page, the first of its session or a later one.
    pub fn page(&self, is_first: bool, rng: &mut Rng) -> Page {
        let after = if is_first { 0.0 } else { self.think_time.sample(rng) };
        let objects = (self.objects_per_page.sample(rng) as u64).min(u64::from(self.most_objects));
        Page {
            after: Duration::try_from_secs_f64(after).unwrap_or(Duration::MAX),
            kind: self.kind(uniform(rng)),
            bytes: self.page_bytes.sample(rng) as u64,
            objects: (0..objects).map(|_| self.object_bytes.sample(rng) as u64).collect(),
        }
    }

    /// The requests of users who come at the rate of `sessions`, in order of time. Sessions go on after the profile's
    /// end until they are over. Equal seeds give equal requests; memory grows with the sessions that go on at a time.
    ///
    /// # Errors
    /// When the shares make no sense.
    pub fn requests(&self, sessions: &Profile, seed: u64) -> Result<SurgeRequests, SurgeError> {
        self.check()?;
        let mut starts = ArrivalProcess::Poisson.arrivals(sessions, seed, 0);
        let next_start = starts.next();
        Ok(SurgeRequests {
            surge: self.clone(),
            starts,
            next_start,
            begun: 0,
            rng: rng(seed, 1),
            active: BinaryHeap::new(),
            due: VecDeque::new(),
        })
    }

    /// The same, page by page: for drivers that send a page and its objects over one connection, as one request.
    ///
    /// # Errors
    /// When the shares make no sense.
    pub fn page_views(&self, sessions: &Profile, seed: u64) -> Result<SurgePages, SurgeError> {
        Ok(SurgePages(self.requests(sessions, seed)?.peekable()))
    }

    fn kind(&self, drawn: f64) -> Asked {
        let light = self.dynamic_light;
        let cpu = light + self.dynamic_cpu;
        match drawn {
            drawn if drawn < light => Asked::DynamicLight,
            drawn if drawn < cpu => Asked::DynamicCpu,
            drawn if drawn < cpu + self.dynamic_cpu_and_disk => Asked::DynamicCpuAndDisk,
            _ => Asked::Static,
        }
    }
}

/// The requests of a population, in order of time.
#[derive(Debug, Clone)]
pub struct SurgeRequests {
    surge: Surge,
    starts: Arrivals,
    next_start: Option<Duration>,
    begun: u64,
    rng: Rng,
    /// Sessions by their next page.
    active: BinaryHeap<Reverse<Session>>,
    /// Requests of the page that was last looked at.
    due: VecDeque<SurgeRequest>,
}

#[derive(Debug, Clone)]
struct Session {
    next: Duration,
    number: u64,
    is_top: bool,
    pages_left: u64,
    page: Page,
}

impl SurgeRequests {
    fn begin(&mut self, at: Duration) {
        let is_top = uniform(&mut self.rng) < self.surge.top_users;
        let pages_left = self.surge.pages(&mut self.rng) - 1;
        let page = self.surge.page(true, &mut self.rng);
        self.active.push(Reverse(Session { next: at, number: self.begun, is_top, pages_left, page }));
        self.begun += 1;
        self.next_start = self.starts.next();
    }

    fn ask(&mut self, mut session: Session) {
        let Session { next: at, number, is_top, .. } = session;
        let request = |asked, bytes| SurgeRequest { at, session: number, is_top, asked, bytes };
        self.due.push_back(request(session.page.kind, session.page.bytes));
        self.due.extend(session.page.objects.iter().map(|&bytes| request(Asked::Object, bytes)));
        if session.pages_left > 0 {
            session.pages_left -= 1;
            session.page = self.surge.page(false, &mut self.rng);
            session.next = at.saturating_add(session.page.after);
            self.active.push(Reverse(session));
        }
    }
}

impl Iterator for SurgeRequests {
    type Item = SurgeRequest;

    fn next(&mut self) -> Option<SurgeRequest> {
        loop {
            if let Some(request) = self.due.pop_front() {
                return Some(request);
            }
            let next_page = self.active.peek().map(|Reverse(session)| session.next);
            match (self.next_start, next_page) {
                (None, None) => return None,
                (Some(start), page) if page.is_none_or(|page| start <= page) => self.begin(start),
                _ => {
                    let Reverse(session) = self.active.pop()?;
                    self.ask(session);
                }
            }
        }
    }
}

/// The pages of a population, in order of time.
#[derive(Debug, Clone)]
pub struct SurgePages(std::iter::Peekable<SurgeRequests>);

impl Iterator for SurgePages {
    type Item = SurgePage;

    fn next(&mut self) -> Option<SurgePage> {
        let SurgeRequest { at, session, asked: kind, bytes, .. } = self.0.next()?;
        let mut page = SurgePage { at, session, kind, objects: 0, bytes };
        while let Some(object) = self.0.next_if(|request| request.asked == Asked::Object) {
            page.objects += 1;
            page.bytes = page.bytes.saturating_add(object.bytes);
        }
        Some(page)
    }
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        (self.next, self.number) == (other.next, other.number)
    }
}

impl Eq for Session {}

impl PartialOrd for Session {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Session {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.next, self.number).cmp(&(other.next, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::kolmogorov_smirnov;

    /// What is expected of a whole number made from a draw: the sum over k of the probability to be at least k.
    fn expected(least: u32, most: u32, at_least: impl Fn(f64) -> f64) -> f64 {
        f64::from(least) + (least + 1..=most).map(|k| at_least(f64::from(k))).sum::<f64>()
    }

    #[test]
    fn pages_follow_table_1() {
        let (surge, mut rng) = (Surge::default(), rng(4, 0));
        let n = 40_000;
        let pages: Vec<Page> = (0..n).map(|_| surge.page(false, &mut rng)).collect();
        let mut think: Vec<f64> = pages.iter().map(|page| page.after.as_secs_f64()).collect();
        think.sort_by(f64::total_cmp);
        assert!(kolmogorov_smirnov(&surge.think_time, &think) < 1.95 / f64::from(n).sqrt());
        let objects = pages.iter().map(|page| page.objects.len() as f64).sum::<f64>() / f64::from(n);
        let theory = expected(2, surge.most_objects, |k| 1.0 - surge.objects_per_page.cdf(k));
        assert!((objects / theory - 1.0).abs() < 0.1, "{objects} objects for {theory}");
        assert!(pages.iter().all(|page| (2..=1000).contains(&page.objects.len())));
        let mut bytes: Vec<f64> = pages.iter().map(|page| page.bytes as f64 + 0.5).collect();
        bytes.sort_by(f64::total_cmp);
        assert!(kolmogorov_smirnov(&surge.page_bytes, &bytes) < 0.015);
        for (kind, share) in [(Asked::Static, 0.8), (Asked::DynamicLight, 0.1), (Asked::DynamicCpuAndDisk, 0.04)] {
            let found = pages.iter().filter(|page| page.kind == kind).count() as f64 / f64::from(n);
            assert!((found - share).abs() < 0.006, "{kind:?}: {found}");
        }
    }

    #[test]
    fn sessions_come_at_the_rate_of_the_profile_and_have_as_many_pages() {
        let surge = Surge { top_users: 0.3, ..Surge::default() };
        let profile: Profile = "0s:20/s, 500s:end".parse().unwrap();
        let requests: Vec<SurgeRequest> = surge.requests(&profile, 9).unwrap().collect();
        assert!(requests.is_sorted_by_key(|request| request.at));
        let sessions = requests.iter().map(|request| request.session).max().unwrap() + 1;
        assert!((sessions as f64 - 10_000.0).abs() < 450.0, "{sessions}");
        let pages = requests.iter().filter(|request| request.asked != Asked::Object).count() as f64 / sessions as f64;
        let theory = expected(1, 200, |k| 1.0 - surge.pages_per_session.cdf(k - 0.5));
        assert!((pages - theory).abs() < 0.1, "{pages} pages a session for {theory}");
        let tops = requests.iter().filter(|r| r.is_top && r.asked != Asked::Object).count() as f64;
        assert!((tops / (pages * sessions as f64) - 0.3).abs() < 0.03);
        assert_eq!(requests, surge.requests(&profile, 9).unwrap().collect::<Vec<_>>());
        assert!(requests != surge.requests(&profile, 10).unwrap().collect::<Vec<_>>());
    }

    #[test]
    fn page_views_are_the_requests_put_together() {
        let (surge, profile) = (Surge::default(), "0s:20/s, 50s:end".parse().unwrap());
        let requests: Vec<SurgeRequest> = surge.requests(&profile, 9).unwrap().collect();
        let pages: Vec<SurgePage> = surge.page_views(&profile, 9).unwrap().collect();
        let objects = requests.iter().filter(|request| request.asked == Asked::Object).count();
        assert_eq!(pages.len() + objects, requests.len());
        assert_eq!(pages.iter().map(|page| page.objects as usize).sum::<usize>(), objects);
        let bytes = |request: &SurgeRequest| u128::from(request.bytes);
        assert_eq!(pages.iter().map(|page| u128::from(page.bytes)).sum::<u128>(), requests.iter().map(bytes).sum());
        assert!(pages.is_sorted_by_key(|page| page.at) && pages.iter().all(|page| page.kind != Asked::Object));
    }

    #[test]
    fn shares_that_make_no_sense() {
        let bad = Surge { dynamic_cpu: 0.95, ..Surge::default() };
        assert!(bad.requests(&"1/s".parse().unwrap(), 1).unwrap_err().to_string().contains("`dynamic_light` is 1.09"));
        let bad = Surge { top_users: -0.1, ..Surge::default() };
        assert!(bad.check().unwrap_err().to_string().contains("`top_users` is -0.1"));
    }
}
