//! Alpha: how many seconds of a request's time a second of its I/O is (Cataclysm, section 3.5).
//!
//! Inherent time = `R_cpu + alpha * R_io`. I/O overlaps with computing and with other I/O, so it counts less than one
//! for one, or more where the measured part stands for more that is not measured. Alpha is fitted by least squares
//! through the origin, of what is left of the service time without the CPU time, on the I/O time; only over requests
//! that found their server lightly loaded, where nothing but the request itself took that time. Old samples fade.

/// Samples remembered.
const MEMORY: f64 = 256.0;
/// Before there are samples alpha is 1, as strongly as this share of the sum of squares of so many.
const PRIOR_SAMPLES: f64 = 4.0;
/// Bounds.
const MOST: f64 = 20.0;

/// Least-squares fit of alpha.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Alpha {
    io_io: f64,
    io_rest: f64,
    samples: f64,
}

impl Alpha {
    /// Takes a request on a lightly loaded server: its service time, CPU time and I/O time, seconds. A request without
    /// I/O says nothing about alpha.
    pub fn record(&mut self, service_time: f64, cpu: f64, io: f64) {
        let says_something = io > 0.0 && service_time.is_finite() && cpu.is_finite();
        if !says_something {
            return;
        }
        let keep = if self.samples >= MEMORY { 1.0 - 1.0 / MEMORY } else { 1.0 };
        self.io_io = self.io_io * keep + io * io;
        self.io_rest = self.io_rest * keep + io * (service_time - cpu).max(0.0);
        self.samples = self.samples * keep + 1.0;
    }

    /// The present estimate of alpha.
    pub fn get(&self) -> f64 {
        if self.samples <= 0.0 {
            return 1.0;
        }
        let prior = self.io_io / self.samples * PRIOR_SAMPLES;
        ((self.io_rest + prior) / (self.io_io + prior)).clamp(0.0, MOST)
    }

    /// The inherent time of a request, seconds.
    pub fn inherent(&self, cpu: f64, io: f64) -> f64 {
        cpu + self.get() * io
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn it_is_one_until_samples_say_otherwise() {
        let mut alpha = Alpha::default();
        assert_eq!(alpha.get(), 1.0);
        alpha.record(0.5, 0.1, 0.0);
        assert_eq!(alpha.get(), 1.0, "a request without I/O says nothing");
        alpha.record(0.5, 0.1, 0.1);
        assert!((1.0..2.0).contains(&alpha.get()), "one sample says little: {}", alpha.get());
    }

    #[test]
    fn it_is_found_in_noise_and_follows() {
        let mut alpha = Alpha::default();
        let mut rng = Rng::new(3);
        for truth in [0.6, 2.5] {
            for _ in 0..2000 {
                let (cpu, io) = (0.02 * rng.next_f64(), 0.05 * rng.next_f64());
                alpha.record(cpu + truth * io + 0.004 * (rng.next_f64() - 0.5), cpu, io);
            }
            assert!((alpha.get() / truth - 1.0).abs() < 0.05, "{truth}: {}", alpha.get());
        }
        assert!((alpha.inherent(1.0, 2.0) - (1.0 + 2.0 * alpha.get())).abs() < 1e-12);
    }

    #[test]
    fn nonsense_moves_nothing() {
        let mut alpha = Alpha::default();
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            alpha.record(1.0, 0.0, -bad.abs());
            alpha.record(bad, f64::NAN, 1.0);
        }
        assert_eq!(alpha.get(), 1.0);
    }
}
