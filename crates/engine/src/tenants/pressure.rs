//! How hard the excess of heavy tenants is held back: just so hard that those within their share are hardly refused.
//!
//! Before a large server a queue that looks half as long again, or twice as long, leaves room enough to the light
//! tenants. Before a small one with six places that is two or three, and chance fills them. So the pressure grows while
//! tenants within their share are refused more than [`WANTED`] of what they ask for, and falls when they are not.

/// How much longer the queue looks to what is due to a tenant above its share. It does not grow: all that is due fills
/// the servers, and some of it is refused whatever is done.
pub(super) const DUE: f64 = 0.5;
/// The same of its excess, at the least: twice as long.
const EXCESS: f64 = 1.0;

/// The part of the requests of tenants within their share that may be refused.
const WANTED: f64 = 0.01;
/// What was asked for and refused fades with this time constant, seconds: some hundred requests of a small server.
const TAU: f64 = 5.0;
/// The factor grows by this part in a second at the most, and falls by a quarter of it.
const GROWTH: f64 = 0.5;
/// The share of refusals, beyond what is wanted, at which it grows so fast.
const FAST: f64 = 0.1;
/// With this factor nothing is left to a heavy tenant but an empty server.
const MOST: f64 = 32.0;

/// One class.
#[derive(Clone, Debug)]
pub(super) struct Pressure {
    asked: f64,
    refused: f64,
    factor: f64,
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure { asked: 0.0, refused: 0.0, factor: 1.0 }
    }
}

impl Pressure {
    /// A tenant within its share asks, while others are above theirs.
    pub(super) fn ask(&mut self, is_refused: bool) {
        self.asked += 1.0;
        self.refused += f64::from(u8::from(is_refused));
    }

    /// Ten times a second. `elapsed`: seconds since the last time.
    pub(super) fn settle(&mut self, elapsed: f64) {
        let beyond = if self.asked > 0.0 { self.refused / self.asked - WANTED } else { -WANTED };
        let speed = (beyond / FAST).clamp(-0.25, 1.0) * GROWTH;
        self.factor = (self.factor * (1.0 + speed * elapsed)).clamp(1.0, MOST);
        let keep = libm::exp(-elapsed / TAU);
        (self.asked, self.refused) = (self.asked * keep, self.refused * keep);
    }

    /// By which part the queue looks longer to the excess of a tenant above its share.
    pub(super) fn excess(&self) -> f64 {
        EXCESS * self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_the_light_are_refused_and_falls_when_they_are_not() {
        let mut pressure = Pressure::default();
        let mut play = |seconds: u32, refuses: fn(u32) -> bool| {
            for tick in 0..seconds * 10 {
                (0..10).for_each(|i| pressure.ask(refuses(tick * 10 + i)));
                pressure.settle(0.1);
            }
            pressure.excess()
        };
        assert_eq!(play(5, |_| false), 1.0);
        // By a twentieth in each of fifty steps at the most: what was let in before counts at first.
        let after = play(5, |i| i % 5 == 0);
        assert!((4.0..1.05f64.powi(50)).contains(&after), "{after}");
        assert_eq!(play(100, |i| i % 5 == 0), MOST);
        assert!(play(60, |_| false) < 8.0);
        assert_eq!(play(100, |_| false), 1.0);
    }
}
