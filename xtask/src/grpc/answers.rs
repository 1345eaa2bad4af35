//! What a load came to: every answer with its time and what it was.

use std::collections::BTreeMap;

/// One answer, or what came instead of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// When it was over, seconds since the load's first answer or request.
    pub ended: f64,
    /// Seconds.
    pub took: f64,
    /// The generator's word for it.
    pub status: String,
}

/// Every answer of a load.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// In no order.
    pub rows: Vec<Row>,
    /// How many requests the load should have had.
    pub due: f64,
    /// The status of a good answer.
    pub good: &'static str,
}

impl Answers {
    /// How many had each status.
    pub fn statuses(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.status.as_str()).or_default() += 1);
        counts
    }

    /// The part of what was due that was sent and answered.
    pub fn kept(&self) -> f64 {
        self.rows.len() as f64 / self.due.max(1.0)
    }

    /// Good answers within so many seconds, a second, of those that were over between two instants.
    pub fn good_rate(&self, target: f64, (from, until): (f64, f64)) -> f64 {
        let counts = |row: &&Row| row.took <= target && (from..until).contains(&row.ended);
        self.good_rows().filter(counts).count() as f64 / (until - from)
    }

    /// The part of all answers from an instant on that are good and came within so many seconds.
    pub fn good_share(&self, target: f64, from: f64) -> f64 {
        let all = self.rows.iter().filter(|row| row.ended >= from).count();
        let good = self.good_rows().filter(|row| row.ended >= from && row.took <= target).count();
        good as f64 / all.max(1) as f64
    }

    /// The 95th percentile of the good ones' times, seconds: the nearest rank; none without any.
    pub fn p95(&self) -> Option<f64> {
        let mut took: Vec<f64> = self.good_rows().map(|row| row.took).collect();
        took.sort_by(f64::total_cmp);
        took.get(((0.95 * took.len() as f64).ceil() as usize).saturating_sub(1)).copied()
    }

    fn good_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.status == self.good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_good_and_in_time_counts() {
        let row = |ended, took, status: &str| Row { ended, took, status: status.to_owned() };
        let rows = vec![row(0.5, 0.1, "OK"), row(1.5, 0.2, "OK"), row(1.6, 0.7, "OK"), row(1.7, 0.0, "Unavailable")];
        let answers = Answers { rows, due: 5.0, good: "OK" };
        assert_eq!(answers.statuses(), BTreeMap::from([("OK", 3), ("Unavailable", 1)]));
        assert_eq!(answers.good_rate(0.5, (1.0, 3.0)), 0.5);
        assert_eq!(answers.good_share(0.5, 1.0), 1.0 / 3.0);
        assert_eq!((answers.p95(), answers.kept()), (Some(0.7), 0.8));
        assert_eq!(Answers::default().p95(), None);
    }
}
