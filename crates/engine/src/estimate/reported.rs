//! Report of a server's nucleus, in the form that the admission test needs.
//!
//! The test asks for `eta`, the requests in service per server, and `Q`, how long one waits at the server before
//! service begins. Without a nucleus `eta` is what the sentry has in flight there, waiting or not, and `Q` is 0. With
//! one:
//!
//! * requests that wait at the server are in `Q`, so they leave `eta`;
//! * requests that others sent belong to `eta`. They count only where the number of processors is given: a learned
//!   number says what the server does for this sentry, so others' requests are in it already.
//!
//! Where a server tells what is in service by type, the same is kept by kind ([`MaxConn`](crate::MaxConn)), for
//! policies that count kinds: what others sent fills a server as well. Whether processors are given plays no part
//! there, as the marks are those of the whole server.
//!
//! Reports come some times a second, requests much more often. So what is kept is the *difference* between the report
//! and what the sentry had in flight at that moment; `eta` then moves at once with every start and end, as the paper
//! demands ("raise eta at once, do not wait for the next report").

use crate::max_conn::MOST_KINDS;
use crate::report::ServerLoad;
use crate::time::Timestamp;

/// Differences are averaged over this time, seconds: the two numbers are not taken at the same instant.
const TAU: f64 = 0.3;
/// The same by kind. Servers tell it once a second, say, of some requests that come and go meanwhile: only what stays
/// is others'.
const KIND_TAU: f64 = 3.0;
/// Costs measured on a server are awaited for so long after the last one, nanoseconds: meanwhile costs are not learned
/// from response times, which say less.
const MEASURED_FOR: u64 = 3_000_000_000;

/// One server's last report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported {
    at: Option<Timestamp>,
    queueing_delay: Option<f64>,
    elsewhere: f64,
    waiting_ours: f64,
    measured_until: Timestamp,
    /// What was told of the report that is being taken, by kind.
    told: [Option<f64>; MOST_KINDS],
    /// What is in service and was not sent from here, by kind, averaged; may be below 0.
    elsewhere_by_kind: [f64; MOST_KINDS],
}

impl Reported {
    /// Takes a report that came while the sentry had `in_flight` requests at the server.
    pub fn take(&mut self, now: Timestamp, load: &ServerLoad, in_flight: u32) {
        let ours = f64::from(in_flight);
        let usable = |value: Option<f64>| value.filter(|value| value.is_finite() && *value >= 0.0);
        let waiting = usable(load.waiting).unwrap_or(0.0).min(ours);
        let elsewhere = usable(load.in_service).map_or(0.0, |served| (served - ours).max(0.0));
        let gain = self.at.map_or(1.0, |at| 1.0 - libm::exp(-now.seconds_since(at) / TAU));
        self.elsewhere += gain * (elsewhere - self.elsewhere);
        self.waiting_ours += gain * (waiting - self.waiting_ours);
        self.queueing_delay = usable(load.queueing_delay);
        self.at = Some(now);
    }

    /// A part of a report that [`Reported::take_kinds`] closes: so many more of a kind are in service.
    pub fn tell(&mut self, kind: usize, count: f64) {
        if count.is_finite() && count >= 0.0 {
            *self.told[kind].get_or_insert(0.0) += count;
        }
    }

    /// The report is complete; the sentry has `by_kind` requests at the server. Call before [`Reported::take`].
    pub fn take_kinds(&mut self, now: Timestamp, by_kind: &[u32; MOST_KINDS]) {
        let gain = self.at.map_or(1.0, |at| 1.0 - libm::exp(-now.seconds_since(at) / KIND_TAU));
        for (kind, ours) in by_kind.iter().enumerate() {
            // Of a kind that is told no more nothing is known.
            let Some(told) = self.told[kind].take() else {
                self.elsewhere_by_kind[kind] = 0.0;
                continue;
            };
            self.elsewhere_by_kind[kind] += gain * (told - f64::from(*ours) - self.elsewhere_by_kind[kind]);
        }
    }

    /// Requests of a kind at the server that others sent.
    pub fn others(&self, kind: usize) -> f64 {
        self.elsewhere_by_kind[kind].max(0.0)
    }

    /// From now on there are no reports.
    pub fn forget(&mut self) {
        *self = Reported::default();
    }

    /// A request's cost was measured on this server.
    pub fn note_cost(&mut self, now: Timestamp) {
        self.measured_until = Timestamp::from_nanos(now.as_nanos().saturating_add(MEASURED_FOR));
    }

    /// Whether costs are measured on this server.
    pub fn measures_costs(&self, now: Timestamp) -> bool {
        now < self.measured_until
    }

    /// Whether there is a report at all.
    pub fn is_present(&self) -> bool {
        self.at.is_some()
    }

    /// Q, seconds; `None` when no report says.
    pub fn queueing_delay(&self) -> Option<f64> {
        self.queueing_delay
    }

    /// What to add to the sentry's own number in flight to have the number in service; may be below 0.
    pub fn difference(&self, processors_given: bool) -> f64 {
        // Without Q, who waits stays in eta: somewhere it must count.
        let waiting = if self.queueing_delay.is_some() { self.waiting_ours } else { 0.0 };
        let elsewhere = if processors_given { self.elsewhere } else { 0.0 };
        elsewhere - waiting
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn others_count_where_processors_are_given_and_who_waits_moves_to_q() {
        let mut reported = Reported::default();
        assert_eq!((reported.difference(true), reported.queueing_delay()), (0.0, None));
        let load = ServerLoad { in_service: Some(12.0), waiting: Some(3.0), ..ServerLoad::default() };
        reported.take(Timestamp::ZERO, &load, 8);
        assert_eq!(reported.difference(true), 4.0, "without Q who waits stays");
        assert_eq!(reported.difference(false), 0.0);
        let load = ServerLoad { queueing_delay: Some(0.2), ..load };
        reported.take(Timestamp::ZERO, &load, 8);
        assert_eq!((reported.difference(true), reported.difference(false)), (1.0, -3.0));
        assert_eq!(reported.queueing_delay(), Some(0.2));
        reported.forget();
        assert!(!reported.is_present() && reported.difference(true) == 0.0);
    }

    #[test]
    fn one_odd_report_moves_it_in_part_only() {
        let mut reported = Reported::default();
        let load = |served| ServerLoad { in_service: Some(served), ..ServerLoad::default() };
        let mut now = Timestamp::ZERO;
        for _ in 0..50 {
            now = now + Duration::from_millis(100);
            reported.take(now, &load(5.0), 5);
        }
        reported.take(now + Duration::from_millis(100), &load(15.0), 5);
        let moved = reported.difference(true);
        assert!((2.0..4.0).contains(&moved), "{moved}");
    }

    #[test]
    fn what_others_sent_is_what_stays_when_the_looks_do_not_agree() {
        let mut reported = Reported::default();
        let mut now = Timestamp::ZERO;
        for round in 0..200 {
            now = now + Duration::from_millis(100);
            // A second old, and this sentry's own load goes up and down meanwhile.
            let ours = if round % 20 < 10 { 4 } else { 8 };
            let told = if round % 20 < 10 { 8.0 } else { 4.0 };
            reported.tell(1, told);
            reported.tell(2, f64::from(ours));
            reported.tell(2, 5.0);
            reported.take_kinds(now, &[9, ours, ours, 0, 0, 0, 0, 0]);
            reported.take(now, &ServerLoad::default(), 0);
        }
        assert_eq!(reported.others(0), 0.0, "nothing was told of it");
        assert!(reported.others(1) < 1.0, "{}", reported.others(1));
        assert!((reported.others(2) - 5.0).abs() < 1e-6, "{}", reported.others(2));
        reported.tell(2, f64::NAN);
        reported.take_kinds(now, &[0; MOST_KINDS]);
        assert_eq!(reported.others(2), 0.0, "told no more");
    }

    #[test]
    fn nonsense_counts_as_not_measured() {
        let mut reported = Reported::default();
        let load = ServerLoad {
            queueing_delay: Some(f64::NAN),
            in_service: Some(f64::INFINITY),
            waiting: Some(-1.0),
            processors: None,
        };
        reported.take(Timestamp::ZERO, &load, 8);
        assert_eq!((reported.difference(true), reported.queueing_delay()), (0.0, None));
    }
}
