//! Rates and averages that forget.

/// An event rate per second, smoothed exponentially over counts of equal or unequal intervals.
///
/// An interval of length `dt` moves the estimate by `1 - e^(-dt/tau)`, so the result does not depend on how often it
/// is updated. The first interval sets it outright.
#[derive(Clone, Debug)]
pub struct Rate {
    tau: f64,
    value: Option<f64>,
}

impl Rate {
    /// A rate that forgets with time constant `tau` seconds.
    pub fn new(tau: f64) -> Self {
        Rate { tau, value: None }
    }

    /// Takes `count` events seen in the last `dt` seconds. Intervals of no length are ignored.
    pub fn update(&mut self, count: f64, dt: f64) {
        if dt <= 0.0 {
            return;
        }
        let seen = count / dt;
        let gain = 1.0 - libm::exp(-dt / self.tau);
        self.value = Some(self.value.map_or(seen, |value| value + gain * (seen - value)));
    }

    /// The estimate as it was elsewhere.
    pub(crate) fn recall(&mut self, value: Option<f64>) {
        self.value = value.filter(|value| *value >= 0.0);
    }

    /// Events per second, once an interval was seen.
    pub(crate) fn known(&self) -> Option<f64> {
        self.value
    }

    /// Events per second; 0 before the first interval.
    pub fn get(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

/// A mean that forgets: exact over the first `memory` samples, then exponentially decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Average {
    value: f64,
    weight: f64,
}

impl Average {
    /// Takes a sample of weight `weight` (1 for an ordinary one); `memory` is the number of samples it remembers.
    pub fn update(&mut self, sample: f64, weight: f64, memory: f64) {
        self.weight = (self.weight + weight).min(memory);
        if self.weight > 0.0 {
            self.value += (sample - self.value) * weight / self.weight;
        }
    }

    /// The mean, once there is a sample.
    pub fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.value)
    }

    /// Forgets in part: keeps the mean, but stands on `factor` (below 1) of the samples.
    pub fn fade(&mut self, factor: f64) {
        self.weight *= factor;
    }

    /// How many samples it stands on, at most the memory.
    pub fn weight(&self) -> f64 {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_does_not_depend_on_how_often_it_is_updated() {
        let (mut often, mut seldom) = (Rate::new(1.0), Rate::new(1.0));
        often.update(0.0, 1.0);
        seldom.update(0.0, 1.0);
        (0..10).for_each(|_| often.update(10.0, 0.1));
        seldom.update(100.0, 1.0);
        assert!((often.get() - seldom.get()).abs() < 1e-9);
        assert!((often.get() - 63.2).abs() < 0.1, "{}", often.get());
        often.update(5.0, 0.0);
        assert!((often.get() - seldom.get()).abs() < 1e-9, "an interval of no length must change nothing");
    }

    #[test]
    fn an_average_is_exact_first_and_then_follows() {
        let mut average = Average::default();
        assert_eq!(average.get(), None);
        (1..=4).for_each(|x| average.update(f64::from(x), 1.0, 8.0));
        assert_eq!(average.get(), Some(2.5));
        (0..100).for_each(|_| average.update(10.0, 1.0, 8.0));
        assert!((average.get().unwrap() - 10.0).abs() < 1e-3);
    }
}
