//! What is believed of one name, and when it is looked up again. Pure.
//!
//! *Intuition.* The last good answer is in force until a better one comes. A good answer is kept for as long as it
//! says, within bounds, and then asked for again, a little later than it says: by then whoever keeps answers in
//! between has forgotten it, too, and the sentries of a fleet do not all ask at once.
//!
//! *Awkward cases.* While DNS is away, or answers with errors, nothing is known to have changed: the last good answer
//! stays in force, however old. A "there is no such name", or an answer without an address, contradicts a good one.
//! Zones are sometimes loaded half, and all servers at once are rarely meant to go, so it is believed only when it
//! has been the answer for [`HOLD`], and where the addresses are those of other sentries never: who is gone is not
//! heard. Where one of two kinds of addresses could not be had, those of its kind stay.

use std::net::SocketAddr;
use std::time::Duration;

/// An answer is kept for so long at least, and at most, whatever it says.
pub(crate) const SHORTEST: Duration = Duration::from_secs(1);
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// How long a "there is none" must last to be believed over a good answer.
pub(crate) const HOLD: Duration = Duration::from_secs(30);

/// Between two tries without a good answer: at first, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// A name is looked up later than it must be by up to this share of the time.
const JITTER: f64 = 0.1;

/// So many addresses of a name are used at most, as servers.
pub(crate) const MOST: usize = 64;

/// One address of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    /// What of the servers' work it is to get, in proportion to the others: 1 on the average.
    pub(crate) weight: f64,
}

/// What a look-up brought.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Addresses.
    Found(Good),
    /// There is no such name, or it has no address.
    Nothing(String),
    /// Nothing was learned of it.
    Failed(String),
}

/// A good answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Good {
    pub(crate) members: Vec<Member>,
    /// How long it is good for.
    pub(crate) ttl: Duration,
    /// Which addresses could not be had, for want of an answer: those that are known stay.
    pub(crate) missing: Option<Missing>,
    /// Addresses that this machine cannot reach, or that were too many.
    pub(crate) left_out: usize,
}

/// Which addresses could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    V4,
    V6,
    /// Nobody knows which.
    Some,
}

/// How it stands with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There was no good answer yet.
    Unknown,
    /// The last answer is in force.
    Fresh,
    /// An older answer is in force: the last one was none, or contradicts it.
    Stale,
}

/// How much of an answer is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    /// So many addresses are used at most.
    pub(crate) most: usize,
    /// How long a "there is none" must last to be believed over a good answer.
    pub(crate) hold: Duration,
}

impl Default for Belief {
    /// That of servers.
    fn default() -> Self {
        Belief { most: MOST, hold: HOLD }
    }
}

impl Belief {
    /// What serves two that use the same name.
    pub(crate) fn and(self, other: Belief) -> Belief {
        Belief { most: self.most.max(other.most), hold: self.hold.max(other.hold) }
    }
}

/// One name's course.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) belief: Belief,
    /// What is in force, in the order of addresses.
    pub(crate) members: Vec<Member>,
    pub(crate) standing: Standing,
    /// Why the last answer is not in force.
    pub(crate) problem: Option<String>,
    /// Of the last good answer.
    pub(crate) left_out: usize,
    /// When the last good answer came.
    pub(crate) good_at: Option<Duration>,
    pub(crate) counts: Counts,
    due: Duration,
    /// Since when the answer has been that there is none.
    none_since: Option<Duration>,
    failed_in_a_row: u32,
}

/// What became of look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) good: u64,
    pub(crate) nothing: u64,
    pub(crate) failed: u64,
    /// How often another set of addresses came into force.
    pub(crate) changes: u64,
}

impl Course {
    /// A name that is to be looked up at `now`.
    pub(crate) fn new(now: Duration) -> Self {
        Course {
            belief: Belief::default(),
            members: Vec::new(),
            standing: Standing::Unknown,
            problem: None,
            left_out: 0,
            good_at: None,
            counts: Counts::default(),
            due: now,
            none_since: None,
            failed_in_a_row: 0,
        }
    }

    /// When it is to be looked up again.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Takes the answer that came at `now`; `chance` is random, 0 to 1. Whether other addresses are in force now.
    pub(crate) fn handle_answer(&mut self, now: Duration, answer: Answer, chance: f64) -> bool {
        let before = self.members.clone();
        let wait = match answer {
            Answer::Found(good) => self.take(now, good),
            Answer::Nothing(why) => {
                self.counts.nothing += 1;
                let since = *self.none_since.get_or_insert(now);
                if now.saturating_sub(since) >= self.belief.hold {
                    self.members.clear();
                }
                self.doubt(why)
            }
            Answer::Failed(why) => {
                self.counts.failed += 1;
                self.doubt(why)
            }
        };
        self.due = now + wait.mul_f64(1.0 + JITTER * chance);
        let changed = self.members != before;
        self.counts.changes += u64::from(changed);
        changed
    }

    fn take(&mut self, now: Duration, good: Good) -> Duration {
        let kept = |member: &&Member| match good.missing {
            None => false,
            Some(Missing::V4) => member.address.is_ipv4(),
            Some(Missing::V6) => member.address.is_ipv6(),
            Some(Missing::Some) => true,
        };
        let mut members = good.members;
        members.extend(self.members.iter().filter(kept));
        let (members, beyond) = bounded(members, &self.members, self.belief.most);
        self.members = members;
        self.standing = Standing::Fresh;
        self.left_out = good.left_out + beyond;
        self.problem = None;
        self.good_at = Some(now);
        self.counts.good += 1;
        (self.none_since, self.failed_in_a_row) = (None, 0);
        good.ttl.clamp(SHORTEST, LONGEST)
    }

    fn doubt(&mut self, why: String) -> Duration {
        self.standing = if self.members.is_empty() { Standing::Unknown } else { Standing::Stale };
        self.problem = Some(why);
        let doubled = AGAIN.saturating_mul(1 << self.failed_in_a_row.min(10));
        self.failed_in_a_row += 1;
        doubled.min(AGAIN_MOST)
    }
}

/// At most so many of them, each once, in order; those first that are in force. And how many are beyond that.
fn bounded(mut members: Vec<Member>, in_force: &[Member], most: usize) -> (Vec<Member>, usize) {
    members.sort_by_key(|member| member.address);
    members.dedup_by_key(|member| member.address);
    let beyond = members.len().saturating_sub(most);
    if beyond > 0 {
        let is_new = |member: &Member| !in_force.iter().any(|other| other.address == member.address);
        members.sort_by_key(|member| (is_new(member), member.address));
        members.truncate(most);
        members.sort_by_key(|member| member.address);
    }
    (members, beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn member(last: u8) -> Member {
        Member { address: ([10, 0, 0, last], 80).into(), weight: 1.0 }
    }

    fn found(members: &[Member], ttl: Duration) -> Answer {
        Answer::Found(Good { members: members.to_vec(), ttl, ..Good::default() })
    }

    fn failed() -> Answer {
        Answer::Failed("timed out".to_owned())
    }

    fn nothing() -> Answer {
        Answer::Nothing("no such name".to_owned())
    }

    #[test]
    fn an_answer_is_kept_as_long_as_it_says_within_bounds() {
        let mut course = Course::new(S);
        assert_eq!(course.due(), S);
        assert!(course.handle_answer(S, found(&[member(2), member(1)], 20 * S), 0.0));
        assert_eq!((course.members.clone(), course.due()), (vec![member(1), member(2)], 21 * S));
        assert!(!course.handle_answer(21 * S, found(&[member(1), member(2)], Duration::ZERO), 0.0), "only the order");
        assert_eq!(course.due(), 22 * S);
        course.handle_answer(22 * S, found(&[member(1)], 86_400 * S), 1.0);
        assert_eq!(course.due(), 22 * S + LONGEST.mul_f64(1.1), "and a little later, by chance");
        assert_eq!(course.counts, Counts { good: 3, changes: 2, ..Counts::default() });
    }

    #[test]
    fn while_dns_is_away_the_last_answer_stays() {
        let mut course = Course::new(Duration::ZERO);
        course.handle_answer(Duration::ZERO, found(&[member(1)], 5 * S), 0.0);
        let mut now = course.due();
        let mut waits = Vec::new();
        for _ in 0..7 {
            assert!(!course.handle_answer(now, failed(), 0.0));
            waits.push((course.due() - now).as_secs());
            now = course.due();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30], "it is asked ever less often");
        assert_eq!((course.standing, &course.members[..]), (Standing::Stale, &[member(1)][..]));
        assert_eq!(course.problem.as_deref(), Some("timed out"));
        assert!(course.handle_answer(now, found(&[member(3)], 5 * S), 0.0), "a new one is believed at once");
        assert_eq!((course.standing, course.problem.is_none()), (Standing::Fresh, true));
    }

    #[test]
    fn that_there_is_none_is_believed_only_when_it_lasts() {
        let mut course = Course::new(Duration::ZERO);
        course.handle_answer(Duration::ZERO, found(&[member(1)], 5 * S), 0.0);
        assert!(!course.handle_answer(5 * S, nothing(), 0.0));
        assert_eq!(course.standing, Standing::Stale);
        assert!(!course.handle_answer(5 * S + HOLD - S, failed(), 0.0), "a failure is no news");
        course.handle_answer(6 * S + HOLD, found(&[member(1)], 5 * S), 0.0);
        assert!(!course.handle_answer(7 * S + HOLD, nothing(), 0.0), "the time runs anew");
        assert!(course.handle_answer(7 * S + 2 * HOLD, nothing(), 0.0));
        assert_eq!((course.standing, course.members.len()), (Standing::Unknown, 0));
    }

    #[test]
    fn a_kind_of_addresses_without_an_answer_stays() {
        let six = Member { address: "[::1]:80".parse().expect("an address"), weight: 1.0 };
        let mut course = Course::new(Duration::ZERO);
        course.handle_answer(Duration::ZERO, found(&[member(1), six], S), 0.0);
        let good = Good { members: vec![member(2)], ttl: S, missing: Some(Missing::V6), left_out: 0 };
        course.handle_answer(S, Answer::Found(good), 0.0);
        assert_eq!(course.members, [member(2), six]);
        course.handle_answer(2 * S, found(&[member(2)], S), 0.0);
        assert_eq!(course.members, [member(2)]);
    }

    #[test]
    fn of_too_many_addresses_those_in_force_are_kept() {
        let many: Vec<_> = (0..=255).map(member).collect();
        let mut course = Course::new(Duration::ZERO);
        course.handle_answer(Duration::ZERO, found(&many[200..], S), 0.0);
        assert_eq!((course.members.len(), course.left_out), (56, 0));
        course.handle_answer(S, found(&many, S), 0.0);
        assert_eq!((course.members.len(), course.left_out), (MOST, 256 - MOST));
        assert_eq!((course.members[7], course.members[8]), (member(7), member(200)));
    }

    #[test]
    fn who_believes_otherwise_uses_more_and_never_that_there_is_none() {
        let mut course = Course::new(Duration::ZERO);
        course.belief = Belief { most: 1000, hold: Duration::MAX }.and(Belief::default());
        let many: Vec<_> = (0..=255).map(member).collect();
        course.handle_answer(Duration::ZERO, found(&many, S), 0.0);
        assert_eq!((course.members.len(), course.left_out), (256, 0));
        course.handle_answer(S, nothing(), 0.0);
        assert!(!course.handle_answer(S + 100 * HOLD, nothing(), 0.0));
        assert_eq!((course.standing, course.members.len()), (Standing::Stale, 256));
    }
}
