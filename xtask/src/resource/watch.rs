//! What a sentry's controllers do while a load runs, once a second.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::Bench;
use super::load::{Course, Steps};
use super::space::Space;

/// One look at a sentry.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Since the load began.
    pub second: f64,
    /// Connections per second that are let in; `None`: all.
    pub connections: Option<f64>,
    /// Connections turned away so far.
    pub turned_away: f64,
    /// What the last change of the kernel's rate took, seconds.
    pub change: Option<f64>,
    /// Of each resource, and of connections as `syn`: what was measured, the rate, and why.
    pub resources: Vec<(String, Option<f64>, Option<f64>, String)>,
}

impl Look {
    /// The rate of a resource's requests; `None`: all are let in.
    pub fn rate(&self, resource: &str) -> Option<f64> {
        self.resources.iter().find(|(name, ..)| name == resource)?.2
    }

    fn new(second: f64, state: &Value) -> Look {
        let classes = state["connections"]["classes"].as_array().map_or(&[][..], Vec::as_slice);
        let resource = |state: &Value| {
            let text = |key: &str| state[key].as_str().unwrap_or_default().to_owned();
            (text("resource"), state["input"].as_f64(), state["rate"].as_f64(), text("why"))
        };
        Look {
            second,
            connections: state["connections"]["rate"].as_f64(),
            turned_away: classes.iter().filter_map(|class| class["refused"].as_f64()).sum(),
            change: state["connections"]["last_change_seconds"].as_f64(),
            resources: state["policy"]["resources"].as_array().into_iter().flatten().map(resource).collect(),
        }
    }

    fn print(&self) {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.0}"));
        let resource = |(name, input, rate, why): &(String, Option<f64>, Option<f64>, String)| {
            format!("{name} {} -> {}/s ({why})", number(*input), number(*rate))
        };
        let resources: Vec<String> = self.resources.iter().map(resource).collect();
        println!("   {:>3.0} s: {}; {:.0} turned away", self.second, resources.join(", "), self.turned_away);
    }
}

impl Bench<'_> {
    /// Puts a load on the sentry and looks at it once a second.
    ///
    /// # Errors
    /// When the load cannot be put on it, or the sentry's admin API does not answer.
    pub fn watch(&self, from: Space, port: u16, steps: Steps) -> Result<(Course, Vec<Look>)> {
        let mut looks = Vec::new();
        let course = thread::scope(|scope| {
            let load = scope.spawn(|| self.load(from, port, steps));
            let begin = Instant::now();
            let mut due = begin;
            while !load.is_finished() {
                let look = Look::new(begin.elapsed().as_secs_f64(), &self.state()?);
                if self.options.verbose {
                    look.print();
                }
                looks.push(look);
                due += Duration::from_secs(1);
                while !load.is_finished() && Instant::now() < due {
                    thread::sleep(Duration::from_millis(20));
                }
            }
            load.join().unwrap_or_else(|_| bail!("the load panicked"))
        })?;
        Ok((course, looks))
    }
}
