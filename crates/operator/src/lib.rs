//! Sentries before the services that have an `OverloadPolicy`, and what they say of them.
//!
//! | file | question |
//! |---|---|
//! | `policy.rs` | what an `OverloadPolicy` is |
//! | `translate.rs` | which configuration of a sentry it means: pure |
//! | `parts.rs` | which objects stand for it: pure |
//! | `status.rs` | what is said of it, and when that is news: pure |
//! | `figures.rs` | what its sentries say: who comes, and who is refused |
//! | `reconcile.rs` | one policy: from what is wanted to what there is |
//! | `operator.rs` | all of them, again and again |
//!
//! *Intuition.* Everything that is written is written whole and as it is to be (server-side apply), so that it can be
//! written again at any time, by this operator or by another one beside it: there is no state, and no leader.
//!
//! *Awkward cases.* A policy with a mistake changes nothing: the sentries go on by what was right last, and the mistake
//! is in its status. How many sentries there are is left to whoever scales them, if the policy does not say. What
//! belongs to a policy that is deleted is deleted by the cluster's own garbage collection.
//!
//! *Source.* Policy attachment is as in the Gateway API (GEP-713, GEP-2648).

#![forbid(unsafe_code)]

mod figures;
mod operator;
mod parts;
mod policy;
mod reconcile;
mod status;
mod translate;

pub use operator::{Operator, Settings};
pub use policy::OverloadPolicy;
pub use translate::configuration;
