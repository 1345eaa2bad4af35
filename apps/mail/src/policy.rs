//! Which admission control the service has, and the stages that follow from it.

use std::str::FromStr;
use std::time::Duration;

use tidegate_stage::{
    ClassId, Entry, Graph, GraphBuilder, GraphError, Parameters, QualityParameters, Reply, Settings, each,
};

use crate::request::{Kind, Request, Trouble};
use crate::work::{Served, Work};

/// How overload is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Each request type's stage has an admission controller of its own.
    Aimd,
    /// One controller for the whole service.
    Single,
    /// Everything is let in, and waits.
    None,
    /// Everything is let in, from so many connections; further clients wait to be connected.
    Limit(usize),
}

/// What a stage that can answer more cheaply does when it is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degrade {
    /// Nothing: only admission control.
    Off,
    /// Its quality falls, and nobody is refused.
    Alone,
    /// Its quality falls; at the lowest, admission control begins.
    ThenRefuse,
}

/// How the service is to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How overload is met.
    pub policy: Policy,
    /// Bound on the 90th percentile of response time, for each stage.
    pub target: Duration,
    /// A request that takes longer gets an error page.
    pub timeout: Duration,
    /// Number of classes.
    pub classes: u8,
    /// Connections to the database at most, and so the workers of each stage.
    pub connections: usize,
    /// Requests that may wait at each stage.
    pub queue: usize,
    /// What the drawing stage does when it is late.
    pub degrade: Degrade,
    /// Settings of the controllers.
    pub parameters: Parameters,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: Policy::Aimd,
            target: Duration::from_secs(1),
            timeout: Duration::from_secs(30),
            classes: 2,
            connections: 8,
            queue: 100_000,
            degrade: Degrade::Off,
            // The paper's depth of 1 refuses the second of two requests within 10 ms, such as a page's pictures.
            parameters: Parameters { depth: 10.0, ..Parameters::default() },
        }
    }
}

/// The running stages.
pub(crate) struct Stages {
    pub(crate) graph: Graph,
    /// By [`Kind`], in the order of [`Kind::ALL`].
    entries: Vec<Entry<Job>>,
}

/// A request on its way, and where its answer is awaited.
pub(crate) struct Job {
    request: Request,
    reply: Reply<Result<Served, Trouble>>,
}

impl Stages {
    /// Builds and starts the stages. Inside a runtime.
    pub(crate) fn start(options: &Options, work: &Work) -> Result<Stages, GraphError> {
        let mut builder = GraphBuilder::new("mail");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let entries = if options.policy == Policy::Single {
            let entry = stage(&mut builder, "all-requests", options.settings(options.connections + cores), work);
            vec![entry; Kind::ALL.len()]
        } else {
            let one = |kind: &Kind| {
                let workers = if kind.needs_database() { options.connections } else { cores };
                let mut settings = options.settings(workers);
                if *kind == Kind::Render {
                    settings = options.degrading(settings);
                }
                stage(&mut builder, kind.name(), settings, work)
            };
            Kind::ALL.iter().map(one).collect()
        };
        Ok(Stages { graph: builder.start()?, entries })
    }

    /// Where requests of this type enter, and what makes an event of one.
    pub(crate) fn entry(&self, kind: Kind) -> &Entry<Job> {
        &self.entries[kind as usize]
    }
}

impl Job {
    /// Made by the entry, with the reply it gives.
    pub(crate) fn new(request: Request, reply: Reply<Result<Served, Trouble>>) -> Job {
        Job { request, reply }
    }

    /// The class as stages count it.
    pub(crate) fn class(request: &Request) -> ClassId {
        ClassId(request.class.saturating_sub(1))
    }
}

/// One stage: it works on one event at a time for each worker, as a slow one would hold up a batch.
fn stage(builder: &mut GraphBuilder, name: &str, settings: Settings, work: &Work) -> Entry<Job> {
    let key = builder.stage::<Job>(name, settings.batch(1, 1));
    let work = work.clone();
    builder.handle(
        &key,
        each(move |event: tidegate_stage::Event<Job>, context| {
            let (work, quality) = (work.clone(), context.quality());
            let Job { request, reply } = event.into_body();
            async move {
                // Nobody waits for it any more: the time is better spent on those who do.
                if reply.is_awaited() {
                    let answer = work.answer(request, quality).await;
                    reply.send(answer);
                }
            }
        }),
    );
    builder.entry(&key)
}

impl Options {
    fn settings(&self, workers: usize) -> Settings {
        Settings::target(self.target)
            .classes(usize::from(self.classes))
            .parameters(self.parameters.clone())
            .policing(matches!(self.policy, Policy::Aimd | Policy::Single))
            .queue(self.queue)
            .workers(1, workers.max(1))
    }

    fn degrading(&self, settings: Settings) -> Settings {
        if self.degrade == Degrade::Off {
            return settings;
        }
        let then_police = self.degrade == Degrade::ThenRefuse;
        let quality = self.parameters.quality.clone().unwrap_or_default();
        let quality = Some(QualityParameters { then_police, ..quality });
        settings.parameters(Parameters { quality, ..self.parameters.clone() }).policing(false)
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "aimd" => Ok(Policy::Aimd),
            "single" => Ok(Policy::Single),
            "none" => Ok(Policy::None),
            _ => match text.strip_prefix("limit=").map(str::parse) {
                Some(Ok(limit)) if limit > 0 => Ok(Policy::Limit(limit)),
                _ => Err("must be aimd, single, none or a number of connections such as limit=128".to_owned()),
            },
        }
    }
}

impl FromStr for Degrade {
    type Err = String;

    fn from_str(text: &str) -> Result<Degrade, String> {
        match text {
            "off" => Ok(Degrade::Off),
            "alone" => Ok(Degrade::Alone),
            "then-refuse" => Ok(Degrade::ThenRefuse),
            _ => Err("must be off, alone or then-refuse".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_name() {
        assert_eq!("limit=128".parse(), Ok(Policy::Limit(128)));
        assert_eq!("aimd".parse(), Ok(Policy::Aimd));
        for bad in ["", "limit", "limit=0", "limit=x", "batch"] {
            assert!(bad.parse::<Policy>().unwrap_err().contains("limit=128"));
        }
    }

    #[test]
    fn types_stand_at_their_number() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }
}
