//! The control plane from outside: its store, its election, its names and its providers.

mod chaos;
mod crash;
mod disk_full;
mod keys;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "kubernetes")]
mod kubernetes_sentries;
#[cfg(feature = "kubernetes")]
mod lease;
#[cfg(feature = "kubernetes")]
mod lease_killed;
#[cfg(feature = "kubernetes")]
mod lease_pair;
#[cfg(feature = "kubernetes")]
mod measurements;
mod names;
mod support;
mod upgrade;
