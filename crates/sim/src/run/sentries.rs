//! The sentries before the servers, one or several: which of them a request comes to, and what they tell each other.

use std::time::Duration;

use tidegate_engine::{Circle, Event, LoadReport, ServerId, SetupError, Status, Timestamp};
use tidegate_workload::{Rng, rng};

use super::Happening;
use super::menu::{draw, sums};
use super::sentry::Sentry;
use super::services::Services;
use crate::agenda::Agenda;
use crate::model::SentryFleet;
use crate::report::Report;
use crate::world::World;

/// Random numbers for who comes to which sentry; see `clients.rs` for the others.
const SPLIT: u64 = u64::MAX - 2;

/// All sentries.
pub(super) struct Sentries<'w> {
    all: Vec<Sentry>,
    /// What each heard of the others.
    circles: Vec<Circle>,
    fleet: Option<&'w SentryFleet>,
    /// Per course, who takes how much, summed up; where nothing is said, all the same.
    split: Vec<Vec<f64>>,
    even: Vec<f64>,
    rng: Rng,
    /// Those that may have something to say.
    touched: Vec<u16>,
}

impl<'w> Sentries<'w> {
    pub(super) fn new(world: &'w World, seed: u64, plans: &mut Agenda<Happening>) -> Result<Sentries<'w>, SetupError> {
        let count = world.fleet.as_ref().map_or(1, |fleet| fleet.sentries.max(1));
        let all = (0..count).map(|number| Sentry::new(world, seed, number, plans)).collect::<Result<_, _>>()?;
        let others = usize::from(count - 1);
        let even = vec![1.0; usize::from(count)];
        let mut sentries = Sentries {
            all,
            circles: (0..count).map(|own| Circle::new(own.into(), Timestamp::ZERO, others)).collect(),
            fleet: world.fleet.as_ref(),
            split: Vec::new(),
            even: sums(even.iter().copied()),
            rng: rng(seed, SPLIT),
            touched: (0..count).collect(),
        };
        sentries.split_anew(Duration::ZERO);
        Ok(sentries)
    }

    /// One of them, to whom something happens.
    pub(super) fn of(&mut self, sentry: u16) -> &mut Sentry {
        if self.touched.last() != Some(&sentry) {
            self.touched.push(sentry);
        }
        &mut self.all[usize::from(sentry)]
    }

    /// All of them, to look at.
    pub(super) fn all(&self) -> &[Sentry] {
        &self.all
    }

    /// The first one, which stands for all where they are looked at.
    pub(super) fn first(&self) -> &Sentry {
        &self.all[0]
    }

    pub(super) fn first_mut(&mut self) -> &mut Sentry {
        self.of(0)
    }

    /// One that may have something to say, until it is [`Sentries::settled`].
    pub(super) fn next_touched(&self) -> Option<u16> {
        self.touched.last().copied()
    }

    pub(super) fn settled(&mut self, sentry: u16) {
        self.touched.retain(|touched| *touched != sentry);
    }

    /// To one of them, or to all.
    pub(super) fn report(&mut self, now: Timestamp, to: Option<u16>, report: LoadReport) {
        match to {
            Some(sentry) => self.of(sentry).controller.handle_report(now, report),
            None => self.each(|sentry| sentry.controller.handle_report(now, report)),
        }
    }

    pub(super) fn handle_server(&mut self, now: Timestamp, server: ServerId, status: Status) {
        self.each(|sentry| sentry.controller.handle_server(now, server, status));
    }

    /// Which one the next request of a course comes to.
    pub(super) fn draw(&mut self, course: usize) -> u16 {
        if self.all.len() == 1 {
            return 0;
        }
        draw(self.split.get(course).unwrap_or(&self.even), &mut self.rng) as u16
    }

    /// The events of all, in order of time, and how many were not kept.
    pub(super) fn take_log(&self, services: &Services) -> (Vec<(Timestamp, Event)>, u64) {
        let (mut events, mut left_out) = (Vec::new(), 0);
        for (kept, not_kept) in self.all.iter().map(|sentry| sentry.log.take()).chain(services.events()) {
            events.extend(kept);
            left_out += not_kept;
        }
        events.sort_by_key(|(at, _)| *at);
        left_out += events.len().saturating_sub(Report::EVENTS) as u64;
        events.truncate(Report::EVENTS);
        (events, left_out)
    }

    /// They begin to tell each other, one after the other.
    pub(super) fn begin(&mut self, plans: &mut Agenda<Happening>) {
        let every = Circle::default().every();
        if self.fleet.is_some() {
            for sentry in 0..self.all.len() as u16 {
                let first = every.mul_f64(f64::from(sentry + 1) / self.all.len() as f64);
                plans.once(Timestamp::ZERO + first, Happening::Exchange { sentry });
            }
        }
    }

    /// One tells the others, and makes something of what it heard of them.
    pub(super) fn exchange(&mut self, now: Timestamp, sentry: u16, plans: &mut Agenda<Happening>) {
        let at = now.since(Timestamp::ZERO);
        if sentry == 0 {
            self.split_anew(at);
        }
        let Some(fleet) = self.fleet.filter(|fleet| fleet.exchange) else {
            plans.once(now + Circle::default().every(), Happening::Exchange { sentry });
            return;
        };
        if !fleet.away.iter().any(|away| away.is_of(sentry, at)) {
            let summary = self.of(sentry).controller.summary(now);
            let side = |sentry| fleet.parted.iter().position(|parted| parted.is_of(sentry, at));
            for other in (0..self.all.len() as u16).filter(|other| *other != sentry && side(*other) == side(sentry)) {
                self.circles[usize::from(other)].hear(now, sentry.into(), summary.clone());
            }
            let peers = self.circles[usize::from(sentry)].peers(now);
            self.of(sentry).controller.handle_peers(now, peers);
        }
        plans.once(now + self.circles[usize::from(sentry)].every(), Happening::Exchange { sentry });
    }

    /// Nothing comes to those that are away.
    fn split_anew(&mut self, at: Duration) {
        let Some(fleet) = self.fleet else { return };
        let is_here = |sentry: usize| !fleet.away.iter().any(|away| away.is_of(sentry as u16, at));
        let shares = |weights: &dyn Fn(usize) -> f64| {
            sums((0..self.all.len()).map(|sentry| if is_here(sentry) { weights(sentry) } else { 0.0 }))
        };
        let even = shares(&|_| 1.0);
        self.split = fleet
            .split
            .iter()
            .map(|weights| match weights.iter().sum::<f64>() > 0.0 {
                true => shares(&|sentry| weights.get(sentry).copied().unwrap_or(0.0)),
                false => even.clone(),
            })
            .collect();
        self.even = even;
    }

    fn each(&mut self, mut what: impl FnMut(&mut Sentry)) {
        (0..self.all.len() as u16).for_each(|sentry| what(self.of(sentry)));
    }
}
