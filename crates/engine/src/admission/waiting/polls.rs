//! How many requests of a type turn out to be polls, which give their places back at once: those are no work, so they
//! keep nobody waiting.

use alloc::vec::Vec;

use crate::request::{Request, RequestTypeId};

/// So many of a type are remembered.
const MEMORY: f64 = 50.0;
/// A poll keeps others waiting for this part of what it would cost if it were work.
const LEAST: f64 = 0.01;

/// The share of polls, by request type.
#[derive(Debug, Default)]
pub(super) struct Polls {
    shares: Vec<f64>,
}

impl Polls {
    /// A request of a type ended, or turned out to be a poll.
    pub(super) fn record(&mut self, request: &Request, is_poll: bool) {
        let at = request.request_type.index();
        if self.shares.len() <= at {
            if !is_poll {
                return;
            }
            self.shares.resize(at + 1, 0.0);
        }
        self.shares[at] += (f64::from(u8::from(is_poll)) - self.shares[at]) / MEMORY;
    }

    /// The part of its cost that a request of a type takes, as is to be expected.
    pub(super) fn work(&self, request_type: RequestTypeId) -> f64 {
        1.0 - (1.0 - LEAST) * self.shares.get(request_type.index()).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_no_work_and_others_of_the_type_are() {
        let (mut polls, request) = (Polls::default(), Request::default());
        assert_eq!(polls.work(request.request_type), 1.0);
        (0..500).for_each(|_| polls.record(&request, true));
        assert!(polls.work(request.request_type) < 0.02);
        (0..500).for_each(|at| polls.record(&request, at % 2 == 0));
        assert!((0.4..0.6).contains(&polls.work(request.request_type)));
    }
}
