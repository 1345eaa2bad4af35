//! What is said of a policy, and when that is news. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::figures::Figures;
use crate::policy::Status;

/// The longest message of a condition that the API server takes.
const LONGEST: usize = 32_768;

/// What became of a policy in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is not in force, and why: a word, and a sentence.
    Refused(&'static str, String),
    /// It makes sense, and what stands for it could not be written.
    Stuck(String),
    /// It is in force: so many of so many sentries are ready.
    Applied { ready: i32, wanted: i32 },
}

/// Something that happened to a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
}

/// The status of a policy of this generation after a round, and what happened since the status before.
pub(crate) fn status(
    generation: Option<i64>,
    before: &Status,
    outcome: &Outcome,
    figures: &Figures,
    now: Timestamp,
) -> (Status, Vec<News>) {
    let mut news = Vec::new();
    let conditions = conditions(outcome).into_iter().map(|(kind, is, reason, message)| {
        let old = before.conditions.iter().find(|one| one.type_ == kind);
        let has_changed = old.is_none_or(|old| (old.status == "True") != is || old.reason != reason);
        // Why that is so is said of the other condition.
        if has_changed && reason != NOT_ACCEPTED {
            let note = message.clone();
            news.push(News { is_warning: !is && reason != PENDING, reason: reason.to_owned(), note });
        }
        let is_flipped = old.is_none_or(|old| (old.status == "True") != is);
        let since = old.filter(|_| !is_flipped).map_or(Time(now), |old| old.last_transition_time.clone());
        Condition {
            type_: kind.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: shortened(message, LONGEST),
            observed_generation: generation,
            last_transition_time: since,
        }
    });
    let status = Status {
        conditions: conditions.collect(),
        observed_generation: generation,
        sentries: figures.sentries,
        load: figures.load,
        classes: figures.classes.clone(),
        servers_needed: figures.servers_needed,
    };
    (status, news)
}

/// The policy itself is wrong.
const NOT_ACCEPTED: &str = "NotAccepted";
/// Sentries are on their way.
const PENDING: &str = "Pending";

fn conditions(outcome: &Outcome) -> [(&'static str, bool, &'static str, String); 2] {
    let accepted = |is, reason, message: &str| ("Accepted", is, reason, message.to_owned());
    let programmed = |is, reason, message| ("Programmed", is, reason, message);
    let yes = accepted(true, "Accepted", "the policy makes sense, and its service is there");
    match outcome {
        Outcome::Refused(reason, why) => {
            let message = String::from("what was in force before stays so");
            [accepted(false, reason, why), programmed(false, NOT_ACCEPTED, message)]
        }
        Outcome::Stuck(why) => [yes, programmed(false, "NotWritten", why.clone())],
        Outcome::Applied { ready, wanted } if ready >= wanted && *ready > 0 => {
            [yes, programmed(true, "Programmed", String::from("sentries stand before the service"))]
        }
        Outcome::Applied { ready, wanted } => {
            [yes, programmed(*ready > 0, PENDING, format!("{ready} of {wanted} sentries are ready"))]
        }
    }
}

/// At most so many bytes of it.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_condition_is_as_old_as_its_answer_and_news_only_once() {
        let mut last = Status::default();
        let round = |last: &mut Status, outcome: &Outcome, second: i64| {
            let (status, news) = status(Some(3), last, outcome, &Figures::default(), at(second));
            *last = status;
            let since: Vec<i64> = last.conditions.iter().map(|one| one.last_transition_time.0.as_second()).collect();
            (since, news.into_iter().map(|one| (one.reason, one.is_warning)).collect::<Vec<_>>())
        };
        let named = |reasons: &[(&str, bool)]| -> Vec<(String, bool)> {
            reasons.iter().map(|(reason, is)| ((*reason).to_owned(), *is)).collect()
        };
        let coming = Outcome::Applied { ready: 0, wanted: 2 };
        assert_eq!(round(&mut last, &coming, 1), (vec![1, 1], named(&[("Accepted", false), ("Pending", false)])));
        let some = Outcome::Applied { ready: 1, wanted: 2 };
        assert_eq!(round(&mut last, &some, 2), (vec![1, 2], named(&[("Pending", false)])));
        let all = Outcome::Applied { ready: 2, wanted: 2 };
        assert_eq!(round(&mut last, &all, 3), (vec![1, 2], named(&[("Programmed", false)])));
        assert_eq!(round(&mut last, &all, 4), (vec![1, 2], vec![]));
        let wrong = Outcome::Refused("Invalid", String::from("no"));
        assert_eq!(round(&mut last, &wrong, 5), (vec![5, 5], named(&[("Invalid", true)])));
        assert_eq!((last.observed_generation, last.conditions[0].message.as_str()), (Some(3), "no"));
    }

    #[test]
    fn a_text_is_cut_between_its_letters() {
        assert_eq!(shortened("aé".repeat(5), 10), "aéaéa...");
        assert_eq!(shortened(String::from("short"), 10), "short");
    }
}
