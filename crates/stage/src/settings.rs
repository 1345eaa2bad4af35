//! Settings of a stage: its target, its bounds, its controller's parameters.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_engine::seda::Parameters;
use tidegate_engine::{Seconds, SetupError};

/// Settings of one stage, or of one tower layer (which has no queue, workers or batches and ignores those keys).
///
/// Every key has a default; a file may hold them (`serde`, unknown keys are errors). `tidegate_config::parse` reads
/// such a file with all its mistakes at once; this crate does without it, to depend on little.
///
/// ```
/// use std::time::Duration;
/// use tidegate_stage::Settings;
///
/// let search = Settings::target(Duration::from_secs(1)).queue(500).workers(2, 8);
/// assert_eq!(search.targets[0].0, 1.0);
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Bound on the percentile of response time, seconds, for each class from the most important one on. The last one
    /// is for all classes that follow. Response time counts from the entry into the service.
    pub targets: Vec<Seconds>,
    /// How many classes there are, 1 to 255. An event of a class beyond them counts as one of the last.
    pub classes: usize,
    /// The response-time controller's settings.
    pub parameters: Parameters,
    /// Whether the controller refuses from the start. A handler may switch it (`Context::set_policing`).
    pub policing: bool,
    /// How many events may wait in the queue, 1 to 16,777,216.
    pub queue: usize,
    /// How many workers there may be.
    pub workers: Workers,
    /// How many events a worker takes at once.
    pub batch: BatchBounds,
}

/// Bounds on the workers of a stage, and when their number follows the queue.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workers {
    /// Least number, 1 or more.
    pub min: usize,
    /// Largest number, at most 10,000.
    pub max: usize,
    /// Workers are added when at least so many events waited all the time since the last look and no worker was idle.
    pub grow_at: usize,
    /// A worker above `min` leaves when it was idle for so long.
    pub idle_for: Seconds,
}

/// Bounds on the batches that workers take.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchBounds {
    /// Least batch size limit, 1 or more.
    pub min: usize,
    /// Largest batch size limit, at most 65,536. Between the two the limit follows throughput.
    pub max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            targets: vec![Seconds(1.0)],
            classes: 1,
            parameters: Parameters::default(),
            policing: true,
            queue: 1024,
            workers: Workers::default(),
            batch: BatchBounds::default(),
        }
    }
}

impl Default for Workers {
    fn default() -> Self {
        Workers { min: 1, max: 32, grow_at: 1, idle_for: Seconds(2.0) }
    }
}

impl Default for BatchBounds {
    fn default() -> Self {
        BatchBounds { min: 1, max: 64 }
    }
}

/// Why settings were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A response-time target that no response can meet.
    #[error("the target of class {class} is {target} s; give a time of more than zero, such as \"1s\"")]
    Target {
        /// Rank of the class, 1 is the most important.
        class: usize,
        /// What was given, seconds.
        target: f64,
    },
    /// A number out of range.
    #[error("`{key}` is {given}; {problem}")]
    Number {
        /// Name of the setting.
        key: &'static str,
        /// The value that is out of range.
        given: f64,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// A parameter of the controller is out of range.
    #[error(transparent)]
    Parameters(#[from] SetupError),
}

impl Settings {
    /// The defaults with one target for all classes.
    pub fn target(target: Duration) -> Self {
        Settings { targets: vec![Seconds::from(target)], ..Settings::default() }
    }

    /// Classes with targets of their own, most important first.
    pub fn class_targets(mut self, targets: &[Duration]) -> Self {
        self.classes = targets.len();
        self.targets = targets.iter().map(|&target| Seconds::from(target)).collect();
        self
    }

    /// So many classes, with the targets there are; the last target is for all that follow.
    pub fn classes(mut self, classes: usize) -> Self {
        self.classes = classes;
        self
    }

    /// Other parameters for the controller.
    pub fn parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// Whether the controller refuses from the start.
    pub fn policing(mut self, on: bool) -> Self {
        self.policing = on;
        self
    }

    /// How many events may wait.
    pub fn queue(mut self, bound: usize) -> Self {
        self.queue = bound;
        self
    }

    /// Between `min` and `max` workers.
    pub fn workers(mut self, min: usize, max: usize) -> Self {
        self.workers = Workers { min, max, ..self.workers };
        self
    }

    /// Batches whose size limit lies between `min` and `max`.
    pub fn batch(mut self, min: usize, max: usize) -> Self {
        self.batch = BatchBounds { min, max };
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`SettingsError`] with the first key that is out of range.
    pub fn check(&self) -> Result<(), SettingsError> {
        in_range("classes", self.classes, 1, 255, "give 1 to 255 classes")?;
        in_range("targets", self.targets.len(), 1, self.classes, "give one target, or one for each class")?;
        for (index, &Seconds(target)) in self.targets.iter().enumerate() {
            if !(target.is_finite() && target > 0.0) {
                return Err(SettingsError::Target { class: index + 1, target });
            }
        }
        in_range("queue", self.queue, 1, 1 << 24, "let 1 to 16777216 events wait")?;
        let Workers { min, max, grow_at, idle_for } = self.workers;
        in_range("workers.min", min, 1, 10_000, "have 1 to 10000 workers")?;
        in_range("workers.max", max, min, 10_000, "must lie between `workers.min` and 10000")?;
        in_range("workers.grow_at", grow_at, 1, usize::MAX, "must be 1 or more")?;
        if !(idle_for.0.is_finite() && idle_for.0 >= 0.0) {
            let problem = "give a time, such as \"2s\"";
            return Err(SettingsError::Number { key: "workers.idle_for", given: idle_for.0, problem });
        }
        in_range("batch.min", self.batch.min, 1, 65_536, "take 1 to 65536 events at once")?;
        in_range("batch.max", self.batch.max, self.batch.min, 65_536, "must lie between `batch.min` and 65536")?;
        Ok(self.parameters.check()?)
    }

    /// The target of each class, seconds.
    pub(crate) fn target_of_each_class(&self) -> Vec<f64> {
        let last = self.targets.len() - 1;
        (0..self.classes).map(|class| self.targets[class.min(last)].0).collect()
    }
}

fn in_range(
    key: &'static str,
    given: usize,
    least: usize,
    most: usize,
    problem: &'static str,
) -> Result<(), SettingsError> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(SettingsError::Number { key, given: given as f64, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn targets_are_more_than_zero() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let settings = Settings { targets: vec![Seconds(bad)], ..Settings::default() };
            assert!(matches!(settings.check(), Err(SettingsError::Target { class: 1, .. })), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let key = |settings: Settings| match settings.check() {
            Err(SettingsError::Number { key, .. }) => key,
            other => panic!("{other:?}"),
        };
        let good = Settings::default;
        assert_eq!(key(good().queue(0)), "queue");
        assert_eq!(key(good().workers(0, 4)), "workers.min");
        assert_eq!(key(good().workers(4, 3)), "workers.max");
        assert_eq!(key(good().batch(0, 3)), "batch.min");
        assert_eq!(key(good().batch(4, 3)), "batch.max");
        assert_eq!(key(good().classes(0)), "classes");
        assert_eq!(key(good().class_targets(&[])), "classes");
        assert_eq!(key(good().class_targets(&[Duration::from_secs(1); 2]).classes(1)), "targets");
        let parameters = Parameters { percentile: 2.0, ..Parameters::default() };
        assert!(matches!(good().parameters(parameters).check(), Err(SettingsError::Parameters(_))));
    }

    #[test]
    fn the_last_target_is_for_all_that_follow() {
        let seconds = [Duration::from_secs(1), Duration::from_secs(2)];
        let settings = Settings::default().class_targets(&seconds).classes(4);
        assert_eq!(settings.target_of_each_class(), [1.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn files_may_hold_settings_but_no_unknown_keys() {
        let text = r#"{ "targets": ["500ms"], "queue": 10, "batch": { "max": 16 } }"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings, Settings::target(Duration::from_millis(500)).queue(10).batch(1, 16));
        assert!(serde_json::from_str::<Settings>(r#"{ "quue": 10 }"#).unwrap_err().to_string().contains("quue"));
    }
}
