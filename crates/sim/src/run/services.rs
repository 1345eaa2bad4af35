//! Services that are called and have a sentry of their own: a call is decided on as a request is.
//!
//! A call is of the class and type of the request that it is made for, and has its deadline. What a service refuses
//! fails the request above, and the sentry before that hears why, unless the world's
//! [`tells_refusals`](crate::World::tells_refusals) is off.

use slab::Slab;
use tidegate_engine::{Action, Decision, Event, Outcome, Request, ServerId, SetupError, Snapshot, Ticket, Timestamp};

use super::menu::spread;
use super::sentry::Sentry;
use super::{Happening, Run};
use crate::agenda::Agenda;
use crate::model::Tier;
use crate::park::{Answered, Asking, Ending};
use crate::world::World;

/// All services with sentries, and the calls that are there.
pub(super) struct Services {
    /// By tier; empty where no tier has one.
    all: Vec<Option<Sentry>>,
    calls: Slab<Call>,
    /// What callers hear of a refusal.
    tells_refusals: bool,
    /// Services whose controllers may have something to say.
    touched: Vec<u16>,
}

/// A call at a service, waiting or let in.
#[derive(Clone, Copy)]
struct Call {
    asking: Asking,
    ticket: Ticket,
}

impl Services {
    pub(super) fn new(world: &World, seed: u64, plans: &mut Agenda<Happening>) -> Result<Services, SetupError> {
        let service = |(at, tier): (usize, &Tier)| {
            let own = seed.wrapping_add((at as u64 + 1) << 48);
            let of = |setup| Sentry::of(setup, own, plans.slot(Happening::ServiceTimeout { tier: at as u16 }));
            tier.sentry.clone().map(of).transpose()
        };
        let mut all = world.tiers.iter().enumerate().map(service).collect::<Result<Vec<_>, _>>()?;
        let touched: Vec<u16> = (0..all.len() as u16).filter(|at| all[usize::from(*at)].is_some()).collect();
        if touched.is_empty() {
            all.clear();
        }
        // With a protocol the sentry lets everything in: what it learned of refusals would help the protocol.
        let tells_refusals = world.tells_refusals && world.protocol.is_none();
        Ok(Services { all, calls: Slab::new(), tells_refusals, touched })
    }

    /// What a sentry hears of a request that was refused further down.
    pub(super) fn refusal(&self) -> Outcome {
        if self.tells_refusals { Outcome::refused_below() } else { Outcome::failed() }
    }

    /// What the controllers show, by tier.
    pub(super) fn snapshots(&self, now: Timestamp) -> Vec<Option<Snapshot>> {
        let snapshot = |service: &Sentry| service.controller.snapshot(now);
        self.all.iter().map(|service| service.as_ref().map(snapshot)).collect()
    }

    /// The events of all, by the time they were told.
    pub(super) fn events(&self) -> impl Iterator<Item = (Vec<(Timestamp, Event)>, u64)> {
        self.all.iter().flatten().map(|service| service.log.take())
    }

    fn of(&mut self, tier: u16) -> &mut Sentry {
        if self.touched.last() != Some(&tier) {
            self.touched.push(tier);
        }
        self.all[usize::from(tier)].as_mut().expect("a call is asked about where there is a sentry")
    }
}

impl Run<'_> {
    /// The time has come that a service's controller named.
    pub(super) fn time_out_service(&mut self, now: Timestamp, tier: u16) {
        self.services.of(tier).time_out(now);
    }

    /// What is to be said to services, and what they say, until there is nothing more.
    pub(super) fn follow_services(&mut self, now: Timestamp) {
        if self.services.all.is_empty() && self.agreed.is_none() {
            return;
        }
        loop {
            self.follow_protocol(now);
            // Actions first: a new call may get the slot of one that is to be refused.
            if let Some(&tier) = self.services.touched.last() {
                self.follow_service(now, tier);
            } else if let Some(answered) = self.park.next_answered() {
                self.service_answered(now, answered);
            } else if let Some(asking) = self.park.next_asking() {
                self.ask_service(now, asking);
            } else {
                break;
            }
        }
        self.collect(now);
    }

    fn ask_service(&mut self, now: Timestamp, asking: Asking) {
        let Some((request, kind)) = self.park.made_for(asking) else {
            return self.park.turn_away(now, asking, Ending::Failed, &mut self.plans);
        };
        if self.agreed.is_some() {
            let from = self.park.service_of(asking);
            return self.ask_about_call(now, asking, from, request);
        }
        let above = self.asked(&self.requests[request as usize]);
        let call = Request {
            class: above.class,
            request_type: above.request_type,
            url: spread(kind),
            deadline: above.deadline,
            tenant: above.tenant,
            ..Request::default()
        };
        match self.services.of(asking.tier).controller.handle_arrival(now, call) {
            Decision::Admit { ticket, server, .. } => {
                let call = self.keep_call(asking, ticket);
                self.let_in(now, call, server);
            }
            Decision::Enqueue { ticket } => {
                self.keep_call(asking, ticket);
            }
            Decision::Reject(_) => self.park.turn_away(now, asking, Ending::Refused, &mut self.plans),
        }
    }

    fn keep_call(&mut self, asking: Asking, ticket: Ticket) -> u32 {
        let call = self.services.calls.insert(Call { asking, ticket }) as u32;
        self.services.of(asking.tier).keep(ticket, call);
        call
    }

    /// A call goes to a server of its service. One that is off or full fails it.
    fn let_in(&mut self, now: Timestamp, call: u32, server: ServerId) {
        let Call { asking, ticket } = self.services.calls[call as usize];
        if !self.park.let_in(now, asking, server.index(), call, &mut self.plans) {
            self.services.calls.remove(call as usize);
            self.services.of(asking.tier).controller.handle_completion(now, ticket, Outcome::failed());
            self.park.turn_away(now, asking, Ending::Failed, &mut self.plans);
        }
    }

    fn service_answered(&mut self, now: Timestamp, answered: Answered) {
        if self.agreed.is_some() {
            return self.end_agreed(now, answered.call, answered.ending);
        }
        let Call { asking, ticket } = self.services.calls.remove(answered.call as usize);
        let outcome = match answered.ending {
            Ending::Served => Outcome::answered(),
            Ending::Failed => Outcome::failed(),
            Ending::Refused => self.services.refusal(),
        };
        self.services.of(asking.tier).controller.handle_completion(now, ticket, outcome);
    }

    fn follow_service(&mut self, now: Timestamp, tier: u16) {
        while let Some(action) = self.services.of(tier).controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    let call = self.call_of(tier, ticket);
                    self.let_in(now, call, server);
                }
                Action::Refuse { ticket, .. } => {
                    let call = self.call_of(tier, ticket);
                    let Call { asking, .. } = self.services.calls.remove(call as usize);
                    self.park.turn_away(now, asking, Ending::Refused, &mut self.plans);
                }
                other => unreachable!("an action that is nothing to a service: {other:?}"),
            }
        }
        self.services.of(tier).plan_timeout(now, &mut self.plans);
        self.services.touched.retain(|touched| *touched != tier);
    }

    fn call_of(&mut self, tier: u16, ticket: Ticket) -> u32 {
        self.services.of(tier).number_of(ticket)
    }
}
