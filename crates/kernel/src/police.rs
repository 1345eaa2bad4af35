//! A policer, wherever it is: in this process, or in its helper.

use crate::helper::{Helper, PoliceError, Remote};
use crate::policer::{InstallError, SynPolicer};
use crate::rules::{Counts, Plan};

/// Token buckets for new connections, as [`SynPolicer`], in this process or in a [`Helper`]. Dropped, it removes its
/// rules.
#[derive(Debug)]
pub struct Police(Place);

#[derive(Debug)]
enum Place {
    Here(Box<SynPolicer>),
    There(Box<Remote>),
}

impl Police {
    /// Installs the rules, with the helper if there is one; they match nothing until there is a rate.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub fn install(plan: Plan, helper: Option<&Helper>) -> Result<Police, InstallError> {
        Ok(Police(match helper {
            Some(helper) => Place::There(Box::new(Remote::install(plan, helper)?)),
            None => Place::Here(Box::new(SynPolicer::install(plan)?)),
        }))
    }

    /// Polices again where another has policed meanwhile, if that one is gone. Rates and counts begin anew.
    ///
    /// # Errors
    /// That it is not, or what else is wrong.
    pub fn reclaim(&mut self) -> Result<(), PoliceError> {
        match &mut self.0 {
            Place::Here(_) => Ok(()),
            Place::There(remote) => remote.reclaim(),
        }
    }

    /// As [`SynPolicer::set_rate`].
    ///
    /// # Errors
    /// Why not; the last lease runs out then.
    pub fn set_rate(&mut self, rate: Option<f64>) -> Result<bool, PoliceError> {
        match &mut self.0 {
            Place::Here(policer) => Ok(policer.set_rate(rate)?),
            Place::There(remote) => remote.set_rate(rate),
        }
    }

    /// As [`SynPolicer::renew`].
    ///
    /// # Errors
    /// Why not.
    pub fn renew(&mut self) -> Result<(), PoliceError> {
        match &mut self.0 {
            Place::Here(policer) => Ok(policer.renew()?),
            Place::There(remote) => remote.renew(),
        }
    }

    /// Connections by class, since the rules were installed.
    ///
    /// # Errors
    /// Why they are not known.
    pub fn counts(&mut self) -> Result<Vec<Counts>, PoliceError> {
        match &mut self.0 {
            Place::Here(policer) => Ok(policer.counts()?),
            Place::There(remote) => remote.counts(),
        }
    }

    /// How often the rules were changed, as of the last count.
    pub fn changes(&self) -> u64 {
        match &self.0 {
            Place::Here(policer) => policer.changes(),
            Place::There(remote) => remote.changes(),
        }
    }
}
