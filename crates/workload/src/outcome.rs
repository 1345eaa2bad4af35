//! What came of a run, in one shape for the simulator and for real HTTP, and whether it shows what it must.
//!
//! Everything is kept by the second in which a request *arrived*, so that the two arms of a scenario can be compared
//! and a request is counted once: `offered = admitted + refused + failed`. Memory grows with the length of the run, not
//! with the number of requests.

mod measure;
mod responses;

use std::time::Duration;

use serde::Serialize;

pub use measure::{Check, Measure};
pub use responses::Responses;

/// One arm of a scenario, run once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The loads, in the order of the scenario.
    pub streams: Vec<StreamOutcome>,
    /// The request types, in the order of the scenario; empty where they are not told apart.
    pub types: Vec<(String, Course)>,
    /// What response-time controllers did, second by second; empty without any.
    pub controls: Vec<Control>,
    /// Servers by partition, that of the most important class first, second by second; empty where servers are not
    /// divided.
    pub partitions: Vec<Vec<usize>>,
    /// Requests in flight, second by second, each of the streams in their order; empty where no expectation asks.
    pub in_flight: Vec<Vec<u32>>,
    /// Reasons not to trust the figures, in words. Always empty for a simulation.
    pub warnings: Vec<String>,
    /// What the policy reported of itself, by time: seconds and a line of text.
    pub notes: Vec<(f64, String)>,
    /// Per application, how its servers and sentries came and went; empty where they stay.
    pub provisioned: Vec<Provisioned>,
}

/// An application's servers and sentries, second by second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Provisioned {
    /// Its name.
    pub name: String,
    /// What was so in each second.
    pub seconds: Vec<Provision>,
}

/// What an application had in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Provision {
    /// Servers that served.
    pub servers: f64,
    /// Sentries.
    pub sentries: f64,
    /// The most that the target might relax to, seconds.
    pub ceiling: f64,
    /// CPU of the first sentry in use, 0 to 1.
    pub sentry_cpu: f64,
    /// The highest CPU of any sentry less the lowest.
    pub sentry_spread: f64,
}

/// A response-time controller's state at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    /// When, seconds.
    pub second: u64,
    /// Its request type, or `all`.
    pub request: String,
    /// The class.
    pub class: String,
    /// Requests per second that it lets in; `None` while it lets in all.
    pub rate: Option<f64>,
    /// Its smoothed percentile of the response time, seconds.
    pub percentile: Option<f64>,
    /// How good answers should be, 0 to 1.
    pub quality: f64,
}

/// What came of one load.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamOutcome {
    /// The load's name.
    pub name: String,
    /// Its class's name.
    pub class: String,
    /// Its course.
    pub course: Course,
}

/// Requests by the second of their arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    seconds: Vec<Second>,
}

/// Requests that arrived in one second (or longer), and what became of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that got neither an answer in time nor a refusal.
    pub failed: u64,
    /// Requests answered within the target.
    pub good: u64,
    /// Response times of the requests answered.
    pub responses: Responses,
}

/// One second in numbers, as reports have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests answered.
    pub admitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that got neither.
    pub failed: u64,
    /// Requests answered within the target.
    pub good: u64,
    /// Median response time of the admitted, seconds.
    pub p50: Option<f64>,
    /// 95th percentile of the response time of the admitted, seconds.
    pub p95: Option<f64>,
}

impl Outcome {
    /// The courses of a class, or of everything, added up.
    pub fn class(&self, class: Option<&str>) -> Course {
        self.sum(|stream| class.is_none_or(|class| stream.class == class))
    }

    /// The course of a load, by name.
    pub fn load(&self, name: &str) -> Course {
        self.sum(|stream| stream.name == name)
    }

    /// The names of the classes, in the order in which they first appear.
    pub fn classes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for stream in &self.streams {
            if !names.contains(&stream.class.as_str()) {
                names.push(&stream.class);
            }
        }
        names
    }

    /// The course of a request type, by name.
    pub fn request(&self, name: &str) -> Course {
        self.types.iter().find(|(of, _)| of == name).map(|(_, course)| course.clone()).unwrap_or_default()
    }

    /// What a reader wants to see side by side: the classes, or, where all is of one class, the loads, or, where there
    /// is one, the request types.
    pub fn groups(&self) -> Vec<(String, Course)> {
        let classes = self.classes();
        if classes.len() > 1 {
            return classes.into_iter().map(|class| (class.to_owned(), self.class(Some(class)))).collect();
        }
        if self.streams.len() == 1 && self.types.len() > 1 {
            return self.types.clone();
        }
        self.streams.iter().map(|stream| (stream.name.clone(), stream.course.clone())).collect()
    }

    fn sum(&self, which: impl Fn(&StreamOutcome) -> bool) -> Course {
        let mut sum = Course::default();
        self.streams.iter().filter(|stream| which(stream)).for_each(|stream| sum.add(&stream.course));
        sum
    }
}

impl Course {
    /// A request arrived.
    pub fn offered(&mut self, at: Duration) {
        self.at(at).offered += 1;
    }

    /// The request that arrived at `at` was refused.
    pub fn refused(&mut self, at: Duration) {
        self.at(at).refused += 1;
    }

    /// The request that arrived at `at` got neither an answer in time nor a refusal.
    pub fn failed(&mut self, at: Duration) {
        self.at(at).failed += 1;
    }

    /// The request that arrived at `at` was answered after `took`.
    pub fn answered(&mut self, at: Duration, took: Duration, target: Duration) {
        let second = self.at(at);
        second.good += u64::from(took <= target);
        second.responses.add(took);
    }

    /// Puts a second together that was counted elsewhere.
    pub fn set(&mut self, second: usize, value: Second) {
        *self.at(Duration::from_secs(second as u64)) = value;
    }

    /// Second by second.
    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// The sum over the seconds from `from` to `to`; parts of seconds at the ends count as whole ones.
    pub fn span(&self, from: Duration, to: Duration) -> Second {
        let end = (to.as_secs_f64().ceil() as usize).min(self.seconds.len());
        let start = (from.as_secs() as usize).min(end);
        let mut sum = Second::default();
        self.seconds[start..end].iter().for_each(|second| sum.add(second));
        sum
    }

    /// The sum over all of it.
    pub fn total(&self) -> Second {
        self.span(Duration::ZERO, Duration::from_secs(self.seconds.len() as u64))
    }

    /// Adds another course, second by second.
    pub fn add(&mut self, other: &Course) {
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize_with(other.seconds.len(), Second::default);
        }
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(sum, second)| sum.add(second));
    }

    fn at(&mut self, at: Duration) -> &mut Second {
        let index = at.as_secs() as usize;
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, Second::default);
        }
        &mut self.seconds[index]
    }
}

impl Second {
    /// Requests answered.
    pub fn admitted(&self) -> u64 {
        self.responses.count()
    }

    /// The numbers of a report.
    pub fn row(&self) -> Row {
        Row {
            offered: self.offered,
            admitted: self.admitted(),
            refused: self.refused,
            failed: self.failed,
            good: self.good,
            p50: self.responses.quantile(0.50),
            p95: self.responses.quantile(0.95),
        }
    }

    fn add(&mut self, other: &Second) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.failed += other.failed;
        self.good += other.good;
        self.responses.merge(&other.responses);
    }
}
