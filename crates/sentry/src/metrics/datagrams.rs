//! What became of datagrams.

use std::fmt;

use tidegate_wire::{Counts, Rejected};

use super::family::{Families, Labels};

/// Two families, each with its name and help: datagrams taken, and ignored by reason; without values where nobody
/// listens.
pub(super) fn write(
    out: &mut Families<'_>,
    counts: Option<&Counts>,
    taken: (&str, &str),
    ignored: (&str, &str),
) -> fmt::Result {
    let all = counts.iter().map(|counts| (Labels::default(), counts.taken()));
    out.counter(taken.0, taken.1, all)?;
    let by_reason = counts.iter().flat_map(|counts| {
        Rejected::ALL.into_iter().map(|why| (Labels::new("reason", why.name()), counts.rejected(why)))
    });
    out.counter(ignored.0, ignored.1, by_reason)
}
