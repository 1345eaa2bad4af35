//! How services and those that call them keep overload out together, in other systems than this one.
//!
//! Such a system has a part at the caller and a part at the service that is called, and what one tells the other goes
//! with calls and answers. A [`Cooperation`] plays both parts, at all services of a world: it is asked about every
//! request and call before that is sent, and hears how each ended that it let in. What a part knows it must have
//! measured itself or been told in an answer: that is for each to keep to.

mod breakwater;
mod dagor;
mod rajomon;
#[cfg(test)]
mod testing;
mod topfull;

use serde::{Deserialize, Serialize};
use tidegate_engine::Timestamp;

use crate::park::Ending;
use crate::world::World;

/// Which system the services of a world follow, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// An admission level for each service, which its callers hear of and heed.
    Dagor,
    /// Credits that services give to their callers, and queues at these.
    Breakwater,
    /// Prices that services ask, and tokens that requests pay them with.
    Rajomon,
    /// Limits on rates at the entry, by what is seen of all services.
    #[serde(rename = "topfull")]
    TopFull,
}

/// A system at work.
pub(crate) trait Cooperation {
    /// Something is about to be sent over a hop: what its caller, and then the service it goes to, make of it.
    fn asks(&mut self, now: Timestamp, hop: Hop, asked: &Asked) -> Verdict;

    /// What was let in has had the processors of its service for the first time: what the service measured by then.
    fn processed(&mut self, _now: Timestamp, _hop: Hop, _asked: &Asked, _turn: &Turn) {}

    /// What was let in has its answer, which is back at the caller.
    fn ended(&mut self, now: Timestamp, hop: Hop, asked: &Asked, stay: &Stay);

    /// The next of those that wait at their caller that may go, or must not any more.
    fn next_released(&mut self, _now: Timestamp) -> Option<Released> {
        None
    }

    /// When it wants to be called, whatever happens.
    fn next_timeout(&self) -> Timestamp;

    /// That time has come.
    fn time_out(&mut self, now: Timestamp);
}

/// From whom to whom something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hop {
    /// A service that calls; `None`: clients.
    pub(crate) from: Option<usize>,
    /// Of the services: 0 is the first, others are the tiers from 1 on.
    pub(crate) to: usize,
}

/// A request or a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Its number, unique while it is there.
    pub(crate) number: u32,
    /// The class and type of the request it is made for. The type is what is called an API elsewhere.
    pub(crate) class: u8,
    pub(crate) api: u16,
    /// A number in `[0, 1)` of the request it is made for, the same in all its calls: whose it is, as a hash.
    pub(crate) lot: f64,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is let in.
    In,
    /// It waits at its caller until it is [released](Cooperation::next_released).
    Wait,
    /// It is refused.
    Out,
}

/// One of those that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub(crate) number: u32,
    /// Whether it goes, or is refused.
    pub(crate) goes: bool,
}

/// The turn of a request or a call at the processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// How long it waited at the service: for a place and for a processor, seconds.
    pub(crate) waited: f64,
    /// How long it had a processor, seconds.
    pub(crate) work: f64,
}

/// The stay of a request or a call at a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    /// From being let in to the answer, what it called included, seconds.
    pub(crate) response: f64,
    pub(crate) ending: Ending,
}

impl Protocol {
    /// The system, for a world's services.
    pub(crate) fn build(self, world: &World) -> Box<dyn Cooperation> {
        match self {
            Protocol::Dagor => Box::new(dagor::Dagor::new(world)),
            Protocol::Breakwater => Box::new(breakwater::Breakwater::new(world)),
            Protocol::Rajomon => Box::new(rajomon::Rajomon::new(world)),
            Protocol::TopFull => Box::new(topfull::TopFull::new(world)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Protocol;

    #[test]
    fn they_are_named_as_their_sources_name_them() {
        let all = [Protocol::Dagor, Protocol::Breakwater, Protocol::Rajomon, Protocol::TopFull];
        let names = serde_json::to_string(&all).expect("names");
        assert_eq!(names, r#"["dagor","breakwater","rajomon","topfull"]"#);
        assert_eq!(serde_json::from_str::<[Protocol; 4]>(&names).expect("the same names"), all);
    }
}
