//! What an error of the API server means, and when to ask again.

use std::time::Duration;

use kube::Error;

/// Between two tries: at first, and at most.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(10);

/// What became of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was done, to whom, why it failed, and what to do about it.
    pub text: String,
    /// Whether to try again, and how.
    pub kind: Kind,
}

/// What can be done about a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may go well another time.
    Passing,
    /// Another writer was faster.
    Conflict,
    /// The version is not kept any more.
    Gone,
    /// The credentials are not accepted.
    Stranger,
    /// It will not go well until somebody changes something.
    Lasting,
}

impl Trouble {
    /// One that may be over soon.
    pub fn passing(text: String) -> Trouble {
        Trouble { text, kind: Kind::Passing }
    }

    /// What the API server, or the way to it, made of a call: `what` was done to `whom`.
    pub fn from_error(what: &str, whom: &str, error: &Error) -> Trouble {
        let Error::Api(status) = error else { return Trouble::passing(format!("{what} {whom}: {}", causes(error))) };
        let (kind, hint) = match status.code {
            401 => (Kind::Stranger, "; are its credentials right?"),
            403 => (Kind::Lasting, "; give its role this permission (deploy/kubernetes)"),
            404 => (Kind::Lasting, "; check its name and its namespace"),
            409 => (Kind::Conflict, ""),
            410 => (Kind::Gone, ""),
            408 | 429 | 500.. => (Kind::Passing, ""),
            _ => (Kind::Lasting, ""),
        };
        let text = format!("{what} {whom}: {} {}: {}{hint}", status.code, status.reason, status.message.trim());
        Trouble { text, kind }
    }
}

/// An error with what is behind it: the outermost says least.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        inner = cause.source();
    }
    text
}

/// Ever longer pauses, each a little off, so that many askers do not come at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause(u32);

impl Pause {
    /// Whether there was none yet.
    pub fn is_fresh(self) -> bool {
        self.0 == 0
    }

    /// The next one, of 10 s at most.
    pub fn longer(&mut self) -> Duration {
        self.0 += 1;
        let whole = AGAIN.saturating_mul(1 << self.0.min(10)).min(AGAIN_MOST);
        whole / 2 + whole.mul_f64(chance() / 2.0)
    }

    /// A short one, which makes the next ones no longer.
    pub fn short(self) -> Duration {
        AGAIN.mul_f64(chance())
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    tidegate_wire::random_u64() as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_it_says_is_passing_or_not() {
        let kind = |code: u16| {
            let status = Status::failure("no", "Reason").with_code(code).boxed();
            Trouble::from_error("listing", "shop", &Error::Api(status))
        };
        for code in [408, 429, 500, 503, 504] {
            assert_eq!(kind(code).kind, Kind::Passing, "{code}");
        }
        assert_eq!((kind(401).kind, kind(409).kind, kind(410).kind), (Kind::Stranger, Kind::Conflict, Kind::Gone));
        let forbidden = kind(403);
        assert_eq!(forbidden.kind, Kind::Lasting);
        assert_eq!(forbidden.text, "listing shop: 403 Reason: no; give its role this permission (deploy/kubernetes)");
    }

    #[test]
    fn pauses_grow_to_their_bound_and_short_ones_do_not() {
        let mut pause = Pause::default();
        assert!(pause.is_fresh() && pause.short() <= AGAIN);
        let all: Vec<Duration> = (0..12).map(|_| pause.longer()).collect();
        assert!((AGAIN..=2 * AGAIN).contains(&all[0]), "{all:?}");
        assert!(all.iter().all(|pause| *pause <= AGAIN_MOST) && all[11] >= AGAIN_MOST / 2, "{all:?}");
        assert!(!pause.is_fresh());
    }
}
