//! What came of a run, in one shape for the simulator and for real HTTP.

use serde::Serialize;
use tidegate_sim::Provision;
use tidegate_workload::Course;

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
    /// The most requests that one server had at work at once, second by second; empty where no expectation asks.
    pub at_work: Vec<u32>,
    /// Reasons not to trust the figures, in words. Always empty for a simulation.
    pub warnings: Vec<String>,
    /// What the policy reported of itself, by time: seconds and a line of text.
    pub notes: Vec<(f64, String)>,
    /// Per application, how its servers and sentries came and went; empty where they stay.
    pub provisioned: Vec<Provisioned>,
    /// What became of new connections, second by second; empty where nothing real polices them.
    pub connections: Vec<Connections>,
    /// Processor time that turning a connection away costs, in multiples of what a refusal costs; `None` where it was
    /// not measured.
    pub refusal_cost: Option<f64>,
    /// Energy of all servers while requests arrived, joules; `None` where none has a power model.
    pub joules: Option<f64>,
}

/// New connections as the sentry polices them, at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Connections {
    /// When, seconds.
    pub second: u64,
    /// How many were turned away so far.
    pub turned_away: f64,
    /// What the last change of the kernel's rate took, seconds; `None` before the first.
    pub change: Option<f64>,
}

/// An application's servers and sentries, second by second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Provisioned {
    /// Its name.
    pub name: String,
    /// What was so in each second.
    pub seconds: Vec<Provision>,
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
