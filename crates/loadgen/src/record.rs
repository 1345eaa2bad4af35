//! Counting while the run goes on, and the sum at its end.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::answer::{Status, Verdict};
use crate::progress::{ClassProgress, Window, p95};
use crate::report::{ClassReport, ErrorKind, NotSent, Quantiles, Second, add, histogram};

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A complete answer, or one that is open and has begun. `waited` of its time was for news, no response time; a
    /// refusal says when to come back, or never to (`None`).
    Answered { status: Status, by_sentry: bool, bytes: u64, waited: Duration, retry_after: Option<Duration> },
    /// No complete answer.
    Failed(ErrorKind),
    /// Held back: too many outstanding.
    OutstandingLimit,
    /// Held back: no connection in time.
    ConnectionLimit,
}

/// The counters of one class.
#[derive(Debug)]
pub(crate) struct ClassRecord {
    counts: ClassReport,
    in_flight: u64,
    latency: Histogram<u64>,
    refusal_latency: Histogram<u64>,
    waiting: Histogram<u64>,
    /// Response times of admitted requests by scheduled second, seconds: four bytes per request until the end.
    by_second: Vec<Vec<f32>>,
    /// Admitted requests by the second in which their answers came: how many, and their response times together.
    answered: Vec<(u64, f64)>,
    window: Window,
    target: Option<Duration>,
}

impl ClassRecord {
    pub(crate) fn new(class: String, target: Option<Duration>) -> ClassRecord {
        ClassRecord {
            counts: ClassReport { class, ..ClassReport::default() },
            in_flight: 0,
            latency: histogram(),
            refusal_latency: histogram(),
            waiting: histogram(),
            by_second: Vec::new(),
            answered: Vec::new(),
            window: Window::default(),
            target,
        }
    }

    /// A request was scheduled, `at` after the start.
    pub(crate) fn offered(&mut self, at: Duration) {
        self.counts.offered += 1;
        self.window.now.offered += 1;
        self.in_flight += 1;
        self.second(at).offered += 1;
    }

    /// The head of a request was given to a connection.
    pub(crate) fn sent(&mut self) {
        self.counts.sent += 1;
    }

    /// The request scheduled `at` after the start came to its end after `took`.
    pub(crate) fn ended(&mut self, at: Duration, took: Duration, outcome: Outcome) {
        self.in_flight -= 1;
        match outcome {
            Outcome::Answered { status, by_sentry, bytes, waited, .. } => {
                let took = took.saturating_sub(waited);
                match status {
                    Status::Http(status) => *self.counts.status.entry(status).or_default() += 1,
                    Status::Grpc(status) => *self.counts.grpc_status.entry(status).or_default() += 1,
                }
                self.counts.bytes += bytes;
                match status.verdict(by_sentry) {
                    Verdict::Refused => return self.refused(at, took, by_sentry),
                    Verdict::Admitted => return self.admitted(at, took),
                    Verdict::Other => self.counts.other += 1,
                }
                add(&mut self.waiting, took);
            }
            Outcome::Failed(kind) => {
                *self.counts.errors.entry(kind).or_default() += 1;
                add(&mut self.waiting, took);
            }
            Outcome::OutstandingLimit => self.counts.not_sent.outstanding_limit += 1,
            Outcome::ConnectionLimit => self.counts.not_sent.connection_limit += 1,
        }
        self.window.now.failed += 1;
        self.second(at).failed += 1;
    }

    /// The state for the live display; closes the slice of the window, which took `length`.
    pub(crate) fn progress(&mut self, length: Duration) -> ClassProgress {
        let c = &self.counts;
        ClassProgress {
            class: c.class.clone(),
            offered: c.offered,
            admitted: c.admitted,
            refused: c.refused,
            failed: c.other + c.errors_total() + c.not_sent.total(),
            good: c.good,
            in_flight: self.in_flight,
            recent: self.window.tick(length),
        }
    }

    fn admitted(&mut self, at: Duration, took: Duration) {
        let good = self.target.is_none_or(|target| took <= target);
        let seconds = took.as_secs_f32();
        add(&mut self.latency, took);
        add(&mut self.waiting, took);
        self.counts.admitted += 1;
        self.counts.good += u64::from(good);
        self.window.now.admitted += 1;
        self.window.now.latencies.push(seconds);
        let index = at.as_secs() as usize;
        let second = self.second(at);
        second.admitted += 1;
        second.good += u64::from(good);
        if self.by_second.len() <= index {
            self.by_second.resize(index + 1, Vec::new());
        }
        self.by_second[index].push(seconds);
        let answered = (at + took).as_secs() as usize;
        if self.answered.len() <= answered {
            self.answered.resize(answered + 1, (0, 0.0));
        }
        self.answered[answered].0 += 1;
        self.answered[answered].1 += took.as_secs_f64();
    }

    fn refused(&mut self, at: Duration, took: Duration, by_sentry: bool) {
        add(&mut self.refusal_latency, took);
        self.counts.refused += 1;
        self.counts.refused_by_sentry += u64::from(by_sentry);
        self.window.now.refused += 1;
        self.second(at).refused += 1;
    }

    fn second(&mut self, at: Duration) -> &mut Second {
        let index = at.as_secs() as usize;
        let seconds = &mut self.counts.seconds;
        if seconds.len() <= index {
            seconds.resize(index + 1, Second::default());
        }
        &mut seconds[index]
    }
}

/// Sums up: a report per class, and one for all together.
pub(crate) fn summarise(records: &[ClassRecord], sent_for: f64) -> (Vec<ClassReport>, ClassReport) {
    let target = records.first().and_then(|r| r.target);
    let mut total = ClassRecord::new("total".to_owned(), target);
    records.iter().for_each(|record| merge(&mut total, record));
    let classes = records.iter().map(|record| finish(record, sent_for)).collect();
    (classes, finish(&total, sent_for))
}

fn merge(total: &mut ClassRecord, part: &ClassRecord) {
    let (sum, c) = (&mut total.counts, &part.counts);
    sum.offered += c.offered;
    sum.sent += c.sent;
    sum.admitted += c.admitted;
    sum.refused += c.refused;
    sum.refused_by_sentry += c.refused_by_sentry;
    sum.other += c.other;
    sum.good += c.good;
    sum.bytes += c.bytes;
    sum.not_sent = NotSent {
        outstanding_limit: sum.not_sent.outstanding_limit + c.not_sent.outstanding_limit,
        connection_limit: sum.not_sent.connection_limit + c.not_sent.connection_limit,
    };
    c.status.iter().for_each(|(status, n)| *sum.status.entry(*status).or_default() += n);
    c.grpc_status.iter().for_each(|(status, n)| *sum.grpc_status.entry(*status).or_default() += n);
    c.errors.iter().for_each(|(kind, n)| *sum.errors.entry(*kind).or_default() += n);
    if sum.seconds.len() < c.seconds.len() {
        sum.seconds.resize(c.seconds.len(), Second::default());
    }
    for (s, p) in sum.seconds.iter_mut().zip(&c.seconds) {
        s.offered += p.offered;
        s.admitted += p.admitted;
        s.refused += p.refused;
        s.failed += p.failed;
        s.good += p.good;
    }
    if total.by_second.len() < part.by_second.len() {
        total.by_second.resize(part.by_second.len(), Vec::new());
    }
    total.by_second.iter_mut().zip(&part.by_second).for_each(|(sum, values)| sum.extend(values));
    if total.answered.len() < part.answered.len() {
        total.answered.resize(part.answered.len(), (0, 0.0));
    }
    for (sum, values) in total.answered.iter_mut().zip(&part.answered) {
        *sum = (sum.0 + values.0, sum.1 + values.1);
    }
    total.in_flight += part.in_flight;
    total.latency.add(&part.latency).expect("histograms of equal bounds can be added");
    total.refusal_latency.add(&part.refusal_latency).expect("histograms of equal bounds can be added");
    total.waiting.add(&part.waiting).expect("histograms of equal bounds can be added");
}

fn finish(record: &ClassRecord, sent_for: f64) -> ClassReport {
    let per_second = |n: u64| if sent_for > 0.0 { n as f64 / sent_for } else { 0.0 };
    let mut c = record.counts.clone();
    for (second, values) in c.seconds.iter_mut().zip(&record.by_second) {
        second.p95 = p95(&mut values.clone());
    }
    for (second, (count, sum)) in c.seconds.iter_mut().zip(&record.answered) {
        second.answered = *count;
        second.answered_mean = (*count > 0).then(|| sum / *count as f64);
    }
    ClassReport {
        unfinished: record.in_flight,
        responses: record.by_second.clone(),
        offered_per_s: per_second(c.offered),
        admitted_per_s: per_second(c.admitted),
        goodput_per_s: per_second(c.good),
        latency: Quantiles::of(&record.latency),
        refusal_latency: Quantiles::of(&record.refusal_latency),
        waiting: Quantiles::of(&record.waiting),
        ..c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answered(status: u16) -> Outcome {
        let (status, by_sentry) = (Status::Http(status), status == 503);
        Outcome::Answered { status, by_sentry, bytes: 10, waited: Duration::ZERO, retry_after: None }
    }

    #[test]
    fn every_request_is_in_exactly_one_place() {
        let outcomes = [
            Some(answered(200)),
            Some(answered(304)),
            Some(answered(404)),
            Some(answered(503)),
            Some(Outcome::Failed(ErrorKind::Timeout)),
            Some(Outcome::OutstandingLimit),
            Some(Outcome::ConnectionLimit),
            None,
        ];
        let mut record = ClassRecord::new("a".into(), Some(60 * MS));
        for (i, outcome) in (0u32..).zip(outcomes) {
            record.offered(400 * i * MS);
            if let Some(outcome) = outcome {
                record.ended(400 * i * MS, 50 * (i + 1) * MS, outcome);
            }
        }
        let (classes, total) = summarise(&[record], 2.0);
        let c = &classes[0];
        assert_eq!((c.offered, c.admitted, c.refused, c.refused_by_sentry, c.other), (8, 2, 1, 1, 1));
        assert_eq!((c.errors_total(), c.not_sent.total(), c.unfinished, c.good), (1, 2, 1, 1));
        assert_eq!((c.offered_per_s, c.goodput_per_s, c.bytes), (4.0, 0.5, 40));
        assert_eq!((c.latency.count, c.refusal_latency.count, c.waiting.count), (2, 1, 4));
        assert_eq!(ClassReport { class: "total".into(), ..c.clone() }, total);
        assert_eq!(c.seconds.iter().map(|s| s.offered).sum::<u64>(), 8);
        assert_eq!((c.seconds[0].admitted, c.seconds[0].good, c.seconds[1].failed), (2, 1, 1));
        assert!((c.seconds[0].p95.unwrap() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn what_was_waited_for_news_is_no_response_time() {
        let mut record = ClassRecord::new("a".into(), Some(60 * MS));
        let Outcome::Answered { status, by_sentry, bytes, retry_after, .. } = answered(200) else { unreachable!() };
        record.offered(MS);
        let waited = 10_000 * MS;
        record.ended(MS, 10_050 * MS, Outcome::Answered { status, by_sentry, bytes, waited, retry_after });
        let (classes, _) = summarise(&[record], 1.0);
        assert_eq!((classes[0].admitted, classes[0].good), (1, 1));
        assert!(classes[0].latency.p50 < 0.06, "{}", classes[0].latency.p50);
    }

    #[test]
    fn answers_count_in_the_second_in_which_they_come() {
        let mut record = ClassRecord::new("a".into(), None);
        for (at, took) in [(0, 100), (900, 400), (950, 5000), (1500, 100)] {
            record.offered(at * MS);
            record.ended(at * MS, took * MS, answered(200));
        }
        let (classes, total) = summarise(&[record], 2.0);
        let seconds = &classes[0].seconds;
        assert_eq!(seconds.iter().map(|s| s.answered).collect::<Vec<_>>(), [1, 2], "one came after the end");
        assert!((seconds[1].answered_mean.expect("two came") - 0.25).abs() < 1e-9);
        assert_eq!(&total.seconds, seconds);
    }

    #[test]
    fn the_total_keeps_the_longest_course() {
        let mut short = ClassRecord::new("a".into(), None);
        let mut long = ClassRecord::new("b".into(), None);
        short.offered(MS);
        short.ended(MS, MS, answered(200));
        long.offered(5000 * MS);
        long.ended(5000 * MS, MS, answered(200));
        let (_, total) = summarise(&[short, long], 6.0);
        assert_eq!(total.seconds.len(), 6);
        assert_eq!((total.seconds[0].admitted, total.seconds[5].admitted, total.latency.count), (1, 1, 2));
    }
}
