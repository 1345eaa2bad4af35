//! What a run gave: per class in total, and per class and second.

use std::time::Duration;

use tidegate_engine::{Event, Setup, Snapshot, Timestamp};
use tidegate_workload::outcome::Course;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Per class, most important first.
    pub classes: Vec<ClassReport>,
    /// Per stream of the world, by second of arrival.
    pub courses: Vec<Course>,
    /// How long requests arrived.
    pub duration: Duration,
    /// What the engine said meanwhile.
    pub events: Vec<(Timestamp, Event)>,
    /// The controller at the end.
    pub snapshot: Snapshot,
}

/// One class.
#[derive(Clone, Debug)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// By second of arrival (offered, refused) or of the answer (the rest).
    pub seconds: Vec<Second>,
}

/// One second of a class.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u32,
    /// Requests refused.
    pub refused: u32,
    /// Response times of the requests answered, seconds.
    pub responses: Vec<f32>,
    /// Of these, within the target.
    pub in_target: u32,
}

impl Report {
    /// A class's figures over the seconds `from..to`.
    pub fn span(&self, class: usize, from: usize, to: usize) -> Second {
        let seconds = &self.classes[class].seconds;
        let mut sum = Second::default();
        for second in &seconds[from.min(seconds.len())..to.min(seconds.len())] {
            sum.add(second);
        }
        sum
    }

    /// All classes' figures over the seconds `from..to`.
    pub fn span_all(&self, from: usize, to: usize) -> Second {
        let mut sum = Second::default();
        (0..self.classes.len()).for_each(|class| sum.add(&self.span(class, from, to)));
        sum
    }
}

impl Second {
    /// The response time below which the share `q` of the answers lies, seconds; 0 without answers.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.responses.clone();
        sorted.sort_by(f32::total_cmp);
        let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).map_or(0.0, |&seconds| f64::from(seconds))
    }

    /// Requests answered.
    pub fn answered(&self) -> usize {
        self.responses.len()
    }

    fn add(&mut self, other: &Second) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.in_target += other.in_target;
        self.responses.extend_from_slice(&other.responses);
    }
}

pub(crate) struct ReportBuilder {
    classes: Vec<ClassReport>,
    courses: Vec<Course>,
    /// Answers that take longer have nobody left to read them.
    patience: Duration,
}

/// A request, as far as the report is concerned.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) class: usize,
    pub(crate) stream: usize,
    pub(crate) arrived: Timestamp,
    /// The response-time target when it arrived.
    pub(crate) target: Duration,
}

impl ReportBuilder {
    pub(crate) fn new(setup: &Setup, streams: usize, patience: Duration) -> Self {
        let class = |name: &str| ClassReport { name: name.to_owned(), seconds: Vec::new() };
        let classes = setup.classes.iter().map(|c| class(&c.name)).collect();
        ReportBuilder { classes, courses: vec![Course::default(); streams], patience }
    }

    pub(crate) fn offered(&mut self, subject: Subject) {
        self.second(subject.arrived, subject.class).offered += 1;
        self.courses[subject.stream].offered(subject.arrived.since(Timestamp::ZERO));
    }

    pub(crate) fn refused(&mut self, now: Timestamp, subject: Subject) {
        self.second(now, subject.class).refused += 1;
        self.courses[subject.stream].refused(subject.arrived.since(Timestamp::ZERO));
    }

    pub(crate) fn answered(&mut self, now: Timestamp, subject: Subject) {
        let response = now.since(subject.arrived);
        let second = self.second(now, subject.class);
        second.responses.push(response.as_secs_f32());
        second.in_target += u32::from(response <= subject.target);
        let (course, arrived) = (&mut self.courses[subject.stream], subject.arrived.since(Timestamp::ZERO));
        if response > self.patience {
            course.failed(arrived);
        } else {
            course.answered(arrived, response, subject.target);
        }
    }

    pub(crate) fn finish(self, duration: Duration, events: Vec<(Timestamp, Event)>, snapshot: Snapshot) -> Report {
        Report { classes: self.classes, courses: self.courses, duration, events, snapshot }
    }

    fn second(&mut self, now: Timestamp, class: usize) -> &mut Second {
        let at = (now.as_nanos() / 1_000_000_000) as usize;
        let seconds = &mut self.classes[class].seconds;
        if seconds.len() <= at {
            seconds.resize_with(at + 1, Second::default);
        }
        &mut seconds[at]
    }
}
