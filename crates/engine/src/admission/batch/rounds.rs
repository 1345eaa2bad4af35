//! Rounds: what waits in a class is let in as far as it fits, and the rest refused; first tries before retries.

use super::buckets::bucket_middle;
use super::{Batch, Order};
use crate::admission::{AdmissionPolicy, Context};
use crate::decision::Reason;
use crate::request::ClassId;

/// Whose round it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tries {
    First,
    Again,
}

impl Batch {
    /// Looks at everything that waits in a class. `false` when not all of it passed.
    pub(super) fn round(&mut self, cx: &mut Context<'_>, class: ClassId) -> bool {
        if !self.round_of(cx, class, Tries::First) {
            cx.refuse_class(class, Reason::FirstTriesFirst);
            return false;
        }
        cx.waiting(class) == 0 || self.round_of(cx, class, Tries::Again)
    }

    /// The same for first tries, or for the retries that are left after them.
    fn round_of(&mut self, cx: &mut Context<'_>, class: ClassId, tries: Tries) -> bool {
        let margin = self.margin(cx, class);
        let mut all_passed = true;
        for bucket in 0..self.buckets() {
            let batch = match tries {
                Tries::First => cx.first_tries_in(class, bucket),
                Tries::Again => cx.waiting_in(class, bucket),
            };
            if batch == 0 {
                continue;
            }
            let cost = match self.config.order {
                Order::SmallestFirst => bucket_middle(bucket),
                Order::Fifo => cx.costs.class_mean(class.index()),
            };
            let most = self.most(cx, cost, &margin);
            let admitted = if self.config.partial || most >= batch { most.min(batch) } else { 0 };
            self.record(cx, class, cost, batch, batch - admitted);
            cx.start(class, bucket, admitted);
            if admitted < batch {
                all_passed = false;
                let predicted = self.predicted(cx, cost, 1) + margin.delay;
                let reason = cx.load.refusal(Reason::SlaTarget);
                match tries {
                    Tries::First => {
                        cx.refuse_first_tries(class, bucket, batch - admitted, reason, Some(predicted));
                    }
                    Tries::Again => cx.refuse(class, bucket, batch - admitted, reason, Some(predicted)),
                }
            }
        }
        all_passed
    }
}
