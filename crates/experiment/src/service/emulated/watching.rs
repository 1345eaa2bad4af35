//! What is looked at while a live run goes on: second by second, how servers are divided and what is in flight.

use tidegate_loadgen::{LoadError, LoadRun, Progress, Report};
use tidegate_sentry::{SentryHandle, reports::NucleusState};

use super::Servers;
use crate::scenario::{Metric, Scenario};

/// What was seen.
pub(super) struct Seen {
    /// Streams in the order of the outcome.
    labels: Vec<String>,
    has_partitions: bool,
    has_in_flight: bool,
    has_at_work: bool,
    seconds: usize,
    /// Servers by partition, second by second; empty where they are not divided.
    pub(super) partitions: Vec<Vec<usize>>,
    /// Requests in flight by stream, second by second; empty where nothing is expected of them.
    pub(super) in_flight: Vec<Vec<u32>>,
    /// The most at work at one server at once, second by second; empty where nothing is expected of it.
    pub(super) at_work: Vec<u32>,
    /// Reasons not to trust the figures.
    pub(super) warnings: Vec<String>,
    /// What there is to say of nuclei.
    pub(super) notes: Vec<(f64, String)>,
}

impl Seen {
    /// Nothing yet.
    pub(super) fn new(scenario: &Scenario, sentry: &SentryHandle) -> Seen {
        let partitions = sentry.apps().first().map_or(0, |app| app.snapshot().partitions.len());
        Seen {
            labels: super::labels(scenario).into_iter().map(|(label, _)| label).collect(),
            has_partitions: partitions > 1,
            has_in_flight: scenario.expects.iter().any(|expect| expect.metric == Metric::InFlight),
            has_at_work: scenario.expects.iter().any(|expect| expect.metric == Metric::AtWorkMost),
            seconds: scenario.duration.as_secs() as usize,
            partitions: Vec::new(),
            in_flight: Vec::new(),
            at_work: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Looks until the load is over.
    ///
    /// # Errors
    /// When the load could not be sent.
    pub(super) async fn until_done(
        mut self,
        load: LoadRun,
        sentry: &SentryHandle,
        servers: &Servers,
    ) -> Result<(Report, Seen), LoadError> {
        let mut progress = load.progress();
        let mut done = std::pin::pin!(load.wait());
        let mut looks = 0;
        loop {
            tokio::select! {
                biased;
                report = &mut done => {
                    // The last second has no look after it.
                    self.look_at_servers(self.seconds, servers);
                    return Ok((report?, self));
                }
                Ok(()) = progress.changed() => {
                    let now = progress.borrow_and_update().clone();
                    let second = now.elapsed.as_secs() as usize;
                    while looks <= second && looks < self.seconds {
                        self.look(&now, sentry);
                        self.look_at_servers(looks, servers);
                        looks += 1;
                        if looks == self.seconds {
                            self.look_at_nuclei(now.elapsed.as_secs_f64(), sentry);
                        }
                    }
                }
            }
        }
    }

    fn look(&mut self, now: &Progress, sentry: &SentryHandle) {
        if self.has_partitions {
            let snapshot = sentry.apps().first().map(|app| app.snapshot());
            let sizes = |snapshot: tidegate_engine::Snapshot| snapshot.partitions.iter().map(|of| of.servers).collect();
            self.partitions.extend(snapshot.map(sizes));
        }
        if self.has_in_flight {
            let of = |label: &String| now.classes.iter().find(|class| class.class == *label);
            let counts = self.labels.iter().map(|label| of(label).map_or(0, |class| class.in_flight as u32));
            self.in_flight.push(counts.collect());
        }
    }

    /// At the beginning of a second: what the seconds before it had.
    fn look_at_servers(&mut self, second: usize, servers: &Servers) {
        if let Some(most) = servers.take_most().filter(|_| self.has_at_work) {
            self.at_work.resize(second.max(self.at_work.len()), most as u32);
        }
    }

    /// In the last second: whether every nucleus was heard to the end.
    fn look_at_nuclei(&mut self, at: f64, sentry: &SentryHandle) {
        let Some(view) = sentry.reports() else { return };
        let servers = sentry.apps().iter().flat_map(|app| app.snapshot().servers).map(|server| server.name);
        let names: Vec<String> = servers.collect();
        let silent = names.iter().filter(|name| view.state(name) != Some(NucleusState::Speaks)).count();
        let counts = view.counts();
        self.notes.push((at, format!("{} nuclei: {} reports taken", names.len() - silent, counts.taken())));
        if silent > 0 {
            self.warnings
                .push(format!("the nuclei of {silent} servers are not heard: the sentry leaves these servers out"));
        }
    }
}
