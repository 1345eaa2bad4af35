//! From the requests of a trace to what the simulator is offered: class, work, and by what the engine knows it.

use tidegate_sim::Offer;
use tidegate_workload::trace::{Flaw, Playback, TraceError, Traced};
use tidegate_workload::{Rng, ServiceTime, rng, uniform};

/// How much work a request is.
#[derive(Debug, Clone)]
pub enum Work {
    /// Drawn from a distribution.
    Drawn(ServiceTime),
    /// So many seconds for a unit of each size, and so many besides.
    BySize {
        /// Seconds per unit, by column.
        per_unit: Vec<f64>,
        /// Seconds besides.
        base: f64,
    },
}

impl Work {
    /// What it is on average, seconds, of this request.
    pub fn expected(&self, traced: &Traced) -> f64 {
        match self {
            Work::Drawn(service) => service.mean(),
            Work::BySize { per_unit, base } => {
                base + traced.sizes.as_slice().iter().zip(per_unit).map(|(size, cost)| size * cost).sum::<f64>()
            }
        }
    }

    fn of(&self, traced: &Traced, rng: &mut Rng) -> f64 {
        match self {
            Work::Drawn(service) => service.sample(rng),
            Work::BySize { .. } => self.expected(traced),
        }
    }
}

/// Which class a request is of.
#[derive(Debug, Clone)]
pub enum Classes {
    /// Drawn: cumulated shares.
    Drawn(Vec<f64>),
    /// What the class column says.
    Named(Vec<String>),
    /// By the begin of the path; the first that fits, else the last class. One entry for each class.
    ByPath(Vec<Option<String>>),
}

impl Classes {
    fn of(&self, traced: &Traced, rng: &mut Rng) -> Result<u8, Flaw> {
        let label = traced.label.as_deref().unwrap_or_default();
        Ok(match self {
            Classes::Drawn(shares) if shares.len() == 1 => 0,
            Classes::Drawn(shares) => {
                let drawn = uniform(rng);
                shares.iter().position(|reached| drawn < *reached).unwrap_or(shares.len() - 1)
            }
            Classes::Named(names) => {
                names.iter().position(|name| name == label).ok_or_else(|| Flaw::Class(label.to_owned()))?
            }
            Classes::ByPath(paths) => {
                let fits = |path: &Option<String>| path.as_deref().is_some_and(|path| label.starts_with(path));
                paths.iter().position(fits).unwrap_or(paths.len() - 1)
            }
        } as u8)
    }
}

/// The offers of a run, in order of time.
pub struct Offers<'p> {
    playback: Playback,
    file: String,
    work: &'p Work,
    classes: &'p Classes,
    /// The size by whose magnitude requests can be told apart.
    tell_by: Option<usize>,
    rng: Rng,
}

impl<'p> Offers<'p> {
    /// What `playback` gives, as offers; `seed` decides what the trace does not tell.
    pub fn new(
        playback: Playback,
        file: String,
        work: &'p Work,
        classes: &'p Classes,
        tell_by: Option<usize>,
        seed: u64,
    ) -> Self {
        Offers { playback, file, work, classes, tell_by, rng: rng(seed, u64::MAX - 1) }
    }
}

impl Iterator for Offers<'_> {
    type Item = Result<Offer, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let timed = match self.playback.next()? {
            Ok(timed) => timed,
            Err(error) => return Some(Err(error)),
        };
        let class = match self.classes.of(&timed.traced, &mut self.rng) {
            Ok(class) => class,
            Err(flaw) => return Some(Err(TraceError { file: self.file.clone(), line: timed.line, flaw })),
        };
        let work = self.work.of(&timed.traced, &mut self.rng);
        let url = match self.tell_by.and_then(|at| timed.traced.sizes.as_slice().get(at)) {
            Some(size) => magnitude(*size),
            // An access log names paths, and the engine would see them.
            None if matches!(self.classes, Classes::Named(_)) => 0,
            None => timed.traced.label.as_deref().map_or(0, hash),
        };
        // One class's URLs are not another's.
        Some(Ok(Offer { at: timed.at, class, request_type: 0, url: url ^ (u64::from(class) << 56), work }))
    }
}

/// 0 for less than 1, else one more than the power of two.
fn magnitude(size: f64) -> u64 {
    if size < 1.0 { 0 } else { size.log2() as u64 + 1 }
}

/// FNV-1a: the same number on every machine and in every run.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
