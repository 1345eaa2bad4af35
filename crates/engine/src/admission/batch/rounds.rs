//! Rounds: what waits in a class is let in as far as it fits, and the rest refused. Who is due goes first, then tenants
//! within their share, then the others; of each the first tries before retries.

use super::buckets::bucket_middle;
use super::{Batch, Dues, Margin, Order};
use crate::admission::Context;
use crate::decision::Reason;
use crate::flight::Turn;
use crate::request::ClassId;

impl Batch {
    /// Looks at everything that waits in a class. `false` when not all of it passed.
    pub(super) fn round(&mut self, cx: &mut Context<'_>, class: ClassId) -> bool {
        let margin = self.margin(cx, class);
        if cx.over_share(class) > 0 {
            self.start_first(cx, class, &margin, |cx, dues, bucket| {
                dues.due(class, bucket).min(cx.waiting_at(class, bucket, Turn::First))
            });
            self.start_first(cx, class, &margin, |cx, _, bucket| cx.waiting_at(class, bucket, Turn::First));
            if !Self::waits(cx, class, Turn::First) {
                self.start_first(cx, class, &margin, |cx, _, bucket| cx.waiting_at(class, bucket, Turn::Again));
            }
        }
        self.start_first(cx, class, &margin, |cx, dues, bucket| {
            dues.due(class, bucket).min(first_tries_ahead(cx, class, bucket))
        });
        // Who is left after that is of tenants above their share, or does not fit.
        let more = if cx.over_share(class) > 0 { cx.load.press(1.0) } else { 0 };
        let all_passed = self.rest(cx, class, &margin);
        cx.load.in_flight -= more;
        all_passed
    }

    /// Looks at all that is left: at retries only where everybody passed who goes before them.
    fn rest(&mut self, cx: &mut Context<'_>, class: ClassId, margin: &Margin) -> bool {
        let (before, after): (&[Turn], &[Turn]) = match Self::waits(cx, class, Turn::First) {
            true => (&Turn::FIRST_TRIES, &Turn::RETRIES),
            false => (&[Turn::Again, Turn::FirstAbove], &[Turn::AgainAbove]),
        };
        if !self.turns(cx, class, before, margin) {
            cx.refuse_class(class, Reason::FirstTriesFirst);
            return false;
        }
        cx.waiting(class) == 0 || {
            let margin = self.margin(cx, class);
            self.turns(cx, class, after, &margin)
        }
    }

    /// Whether anybody of a class waits for this turn.
    fn waits(cx: &Context<'_>, class: ClassId, turn: Turn) -> bool {
        cx.used(class).any(|bucket| cx.waiting_at(class, bucket, turn) > 0)
    }

    /// Before a round: lets in those that go first, as far as they pass; `first` counts them in a bucket.
    fn start_first(
        &mut self,
        cx: &mut Context<'_>,
        class: ClassId,
        margin: &Margin,
        first: impl Fn(&Context<'_>, &Dues, usize) -> usize,
    ) {
        for bucket in cx.used(class) {
            let batch = first(cx, &self.dues, bucket);
            if batch > 0 {
                let cost = self.cost_of(cx, class, bucket);
                let terms = self.dues.terms(cx.now, class, bucket, cost);
                let admitted = self.part(self.most(cx, cost.min(terms.most), &margin.and(terms)), batch);
                self.record(cx, class, (bucket, cost), admitted, 0);
                cx.start(class, bucket, admitted);
            }
        }
    }

    /// Looks at what waits for these turns. `false` when not all of it passed.
    fn turns(&mut self, cx: &mut Context<'_>, class: ClassId, turns: &[Turn], margin: &Margin) -> bool {
        let mut all_passed = true;
        for bucket in cx.used(class) {
            all_passed &= self.turns_of(cx, class, bucket, turns, margin);
        }
        all_passed
    }

    /// The same in a bucket.
    fn turns_of(
        &mut self,
        cx: &mut Context<'_>,
        class: ClassId,
        bucket: usize,
        turns: &[Turn],
        margin: &Margin,
    ) -> bool {
        let batch = turns.iter().map(|turn| cx.waiting_at(class, bucket, *turn)).sum::<usize>();
        if batch == 0 {
            return true;
        }
        let cost = self.cost_of(cx, class, bucket);
        let terms = self.dues.terms(cx.now, class, bucket, cost);
        let admitted = self.part(self.most(cx, cost.min(terms.most), &margin.and(terms)), batch);
        self.record(cx, class, (bucket, cost), batch, batch - admitted);
        cx.start_at(class, bucket, turns, admitted);
        if admitted < batch {
            let predicted = self.predicted(cx, cost, 1) + margin.delay;
            let reason = cx.load.refusal(Reason::SlaTarget);
            cx.refuse_at(class, bucket, turns, batch - admitted, (reason, Some(predicted)));
        }
        admitted == batch
    }

    /// The cost that stands for those of a bucket, seconds.
    pub(super) fn cost_of(&self, cx: &Context<'_>, class: ClassId, bucket: usize) -> f64 {
        match self.config.order {
            Order::Fair => self.dues.cost(class, bucket),
            Order::SmallestFirst => bucket_middle(bucket),
            Order::Fifo => cx.costs.class_mean(class.index()),
        }
    }

    /// How many of a batch are let in, of which at most so many could be.
    fn part(&self, most: usize, batch: usize) -> usize {
        if self.config.partial || most >= batch { most.min(batch) } else { 0 }
    }
}

/// First tries of a bucket that no retry goes before.
fn first_tries_ahead(cx: &Context<'_>, class: ClassId, bucket: usize) -> usize {
    match cx.waiting_at(class, bucket, Turn::Again) {
        0 => cx.first_tries_in(class, bucket),
        _ => cx.waiting_at(class, bucket, Turn::First),
    }
}
