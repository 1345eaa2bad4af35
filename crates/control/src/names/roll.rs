//! Selects the sentries whose addresses a DNS answer contains.
//!
//! *Intuition.* Those that speak with the control plane. One that is cut off leaves: nobody knows whether it serves.
//!
//! *Awkward cases.* When most are cut off at once, it is more likely that it is the control plane that is cut off, and
//! clients that are all sent to the few others would overload them: then those that are cut off stay, until they are
//! forgotten. The same holds after a restart, before they have come back. With nobody left, the last answer stays.
//!
//! *Source.* Netflix Eureka's self-preservation: a registry that loses too many at once expels nobody.

use std::net::IpAddr;

use super::Roll;

/// A sentry that is known and not forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether it speaks.
    pub(crate) is_connected: bool,
    /// Its addresses, as it said last; none where nobody knows any.
    pub(crate) addresses: Vec<IpAddr>,
}

/// The sentries in an application's answer. `last` are those that were in it before.
pub(crate) fn roll(candidates: &[Candidate<'_>], last: &Roll) -> Roll {
    let mut all: Vec<&Candidate<'_>> = candidates.iter().filter(|one| !one.addresses.is_empty()).collect();
    let connected = all.iter().filter(|one| one.is_connected).count();
    if connected * 2 >= all.len() {
        all.retain(|one| one.is_connected);
    }
    match all.is_empty() {
        true => last.clone(),
        false => all.into_iter().map(|one| (one.name.to_owned(), one.addresses.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Vec<IpAddr> {
        vec![IpAddr::from([192, 0, 2, last])]
    }

    fn sentry(number: u8, is_connected: bool) -> Candidate<'static> {
        let name = ["zero", "one", "two", "three"][usize::from(number)];
        Candidate { name, is_connected, addresses: address(number) }
    }

    fn names(roll: &Roll) -> Vec<&str> {
        roll.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn one_that_is_cut_off_leaves_and_most_of_them_do_not() {
        let roll_of = |up: [bool; 3]| {
            let candidates: Vec<_> = (1..=3).zip(up).map(|(number, up)| sentry(number, up)).collect();
            roll(&candidates, &Roll::new())
        };
        assert_eq!(names(&roll_of([true, true, true])), ["one", "two", "three"]);
        assert_eq!(names(&roll_of([true, false, true])), ["one", "three"]);
        assert_eq!(names(&roll_of([false, false, true])), ["one", "two", "three"]);
        assert_eq!(names(&roll_of([false, false, false])), ["one", "two", "three"]);
        assert_eq!(names(&roll(&[sentry(1, false), sentry(2, true)], &Roll::new())), ["two"]);
    }

    #[test]
    fn with_nobody_left_the_last_answer_stays() {
        let last = vec![(String::from("one"), address(1))];
        assert_eq!(roll(&[], &last), last);
        assert_eq!(roll(&[], &Roll::new()), Roll::new());
    }

    #[test]
    fn one_without_an_address_does_not_count() {
        let nowhere = Candidate { addresses: Vec::new(), ..sentry(1, false) };
        assert_eq!(names(&roll(&[nowhere.clone(), sentry(2, true)], &Roll::new())), ["two"]);
        let last = vec![(String::from("one"), address(7))];
        assert_eq!(roll(&[Candidate { is_connected: true, ..nowhere }], &last), last);
    }
}
