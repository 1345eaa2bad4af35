//! Who waits before whom: lines within a class, by cost.
//!
//! *Intuition.* At a till where those with few things go first, who has a full trolley waits for everybody who is there
//! with less, and for those that will come with less meanwhile.
//!
//! *Applied.* Requests of similar cost, relative to the mean, stand in one line, four lines to a factor of two.
//! Smallest first: a request waits for the lines up to its own, and for what arrives in smaller ones. First come, first
//! served: there is one line. Fair: smallest first, but who is due ([`Dues`]) goes before; so a line gets a quarter of
//! its part of the work at least, and nobody in it waits longer than that takes.
//!
//! *Awkward cases.* Costs are learned, and move: the lines are of costs over the mean, because at the start all move
//! together. What a line's requests cost is averaged over those that came.

use alloc::format;
use alloc::vec::Vec;

use super::super::batch::{BUCKETS, Dues, KEPT, Known, Order, Possible, bucket_of};
use super::super::{Arrival, Context};
use crate::estimate::Average;
use crate::flight::Turn;
use crate::learned::Kept;
use crate::request::ClassId;

/// The cost of the mean request among the bounds of the lines, seconds.
const MEAN: f64 = 0.05;
/// So many requests make the mean.
const MEAN_MEMORY: f64 = 1000.0;
/// A line's cost is that of its last so many requests.
const COST_MEMORY: f64 = 50.0;
/// What arrives is averaged over this time, seconds.
const TAU: f64 = 1.0;
/// What rises is seen over this one.
const QUICK: f64 = 0.2;

/// The lines of all classes.
#[derive(Debug)]
pub(super) struct Lines {
    order: Order,
    mean: Average,
    classes: Vec<Class>,
    dues: Dues,
}

#[derive(Clone, Debug)]
struct Class {
    lines: [Line; BUCKETS],
    /// Relative cost of a request of the class, on average.
    cost: Average,
    /// Work that arrives per second, in all lines; and of late.
    rate: f64,
    recent: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    cost: Average,
    all: Arriving,
    /// Of these, of tenants within their share.
    within: Arriving,
}

/// Work that arrived since the last look, and per second; in a line and in smaller ones.
#[derive(Clone, Copy, Debug, Default)]
struct Arriving {
    arrived: f64,
    rate: f64,
    up_to: f64,
}

/// Where a request would stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) line: usize,
    /// Relative cost.
    pub(super) cost: f64,
    /// Whether it goes after those of tenants within their share.
    pub(super) is_above: bool,
}

impl Lines {
    pub(super) fn new(order: Order, classes: usize) -> Lines {
        let class = Class { lines: [Line::default(); BUCKETS], cost: Average::default(), rate: 0.0, recent: 0.0 };
        let dues = Dues::new(if order == Order::Fair { classes } else { 0 });
        Lines { order, mean: Average::default(), classes: alloc::vec![class; classes], dues }
    }

    /// What requests of each cost are due.
    pub(super) fn dues(&self) -> &Dues {
        &self.dues
    }

    /// The same, to be told what was due elsewhere.
    pub(super) fn dues_mut(&mut self) -> &mut Dues {
        &mut self.dues
    }

    /// What arrives, and what it costs.
    pub(super) fn put_away(&self, kept: &mut Kept) {
        put_mean(kept, "mean", &self.mean);
        for (index, class) in self.classes.iter().enumerate() {
            let kept = kept.of_class_mut(index);
            put_mean(kept, "cost", &class.cost);
            for (at, line) in class.lines.iter().enumerate().filter(|(_, line)| line.all.rate > 0.0) {
                kept.put(&format!("line_{at}_rate"), line.all.rate);
                kept.put(&format!("line_{at}_within"), line.within.rate);
                put_mean(kept, &format!("line_{at}"), &line.cost);
            }
        }
    }

    /// The same elsewhere.
    pub(super) fn take_up(&mut self, kept: &Kept) {
        self.mean = mean_of(kept, "mean", MEAN_MEMORY);
        for (index, class) in self.classes.iter_mut().enumerate() {
            let kept = kept.of_class(index);
            class.cost = mean_of(kept, "cost", COST_MEMORY);
            let (mut sum, mut within) = (0.0, 0.0);
            for (at, line) in class.lines.iter_mut().enumerate() {
                line.all.rate = kept.between(&format!("line_{at}_rate"), (0.0, 1e12), 0.0);
                line.within.rate = kept.between(&format!("line_{at}_within"), (0.0, 1e12), 0.0);
                line.cost = mean_of(kept, &format!("line_{at}"), COST_MEMORY);
                line.all.settle(0.0, 0.0, &mut sum);
                line.within.settle(0.0, 0.0, &mut within);
            }
            class.rate = sum;
        }
    }

    pub(super) fn count(&self) -> usize {
        if self.order == Order::Fifo { 1 } else { BUCKETS }
    }

    /// A request of this relative cost arrives. Its line is by that alone: by seconds, one that costs as much as all
    /// others would stand behind these as soon as its server is a little slower than it was at the last look.
    pub(super) fn arrive(&mut self, cx: &Context<'_>, arrival: &Arrival, cost: f64, is_above: bool) -> Place {
        self.mean.update(cost, 1.0, MEAN_MEMORY);
        let line = match (self.order, self.mean.get().filter(|mean| *mean > 0.0)) {
            (Order::Fair, _) => self.dues.offer_relative(cx.now, arrival.request.class, cost),
            (Order::SmallestFirst, Some(mean)) => bucket_of(cost / mean * MEAN),
            _ => 0,
        };
        let class = &mut self.classes[arrival.request.class.index()];
        class.cost.update(cost, 1.0, COST_MEMORY);
        class.lines[line].cost.update(cost, 1.0, COST_MEMORY);
        class.lines[line].all.arrived += cost;
        if !is_above {
            class.lines[line].within.arrived += cost;
        }
        Place { line, cost, is_above }
    }

    /// Ten times a second; `bound`: until when who is let in must be answered, seconds, and what a request takes over
    /// what it is expected to.
    pub(super) fn refresh(&mut self, cx: &Context<'_>, elapsed: f64, bound: f64, stretch: f64) {
        let gain_over = |tau: f64| if elapsed > 0.0 { 1.0 - libm::exp(-elapsed / tau) } else { 0.0 };
        let (gain, quick) = (gain_over(TAU), gain_over(QUICK));
        for class in &mut self.classes {
            let (mut sum, mut within) = (0.0, 0.0);
            let arrived = class.lines.iter().map(|line| line.all.arrived).sum::<f64>();
            class.recent += quick * (arrived / elapsed.max(f64::MIN_POSITIVE) - class.recent);
            for line in &mut class.lines {
                line.all.settle(elapsed, gain, &mut sum);
                line.within.settle(elapsed, gain, &mut within);
            }
            class.rate = sum;
        }
        self.dues.settle(cx.now, elapsed, Known::of(cx.costs), |_| Possible::of(&cx.load, bound / stretch, bound));
    }

    /// Work per second that arrives in more important classes.
    pub(super) fn more_important(&self, class: ClassId) -> f64 {
        self.classes[..class.index()].iter().map(|class| class.rate).sum()
    }

    /// Work per second that arrives in a class.
    pub(super) fn offered(&self, class: ClassId) -> f64 {
        self.classes[class.index()].rate
    }

    /// The same, which is not late where it rises.
    pub(super) fn rising(&self, class: ClassId) -> f64 {
        let class = &self.classes[class.index()];
        class.rate.max(class.recent)
    }

    /// Work per second that arrives in smaller lines of the class and goes before a request at this place.
    fn smaller(&self, class: ClassId, place: Place) -> f64 {
        let line = &self.classes[class.index()].lines[place.line];
        let arriving = if place.is_above { &line.all } else { &line.within };
        arriving.up_to - arriving.rate
    }

    /// Seconds until whatever goes before a request is gone, when so much work per second is done for its class and
    /// more important ones; and whether that is because of the part that is kept for its line, however much comes for
    /// others.
    pub(super) fn wait_of(&self, cx: &Context<'_>, class: ClassId, place: Place, rate: f64) -> (f64, bool) {
        let own = &self.classes[class.index()];
        let above = cx.class_ids().zip(&self.classes).take(class.index());
        let above: f64 = above.map(|(id, class)| cx.waiting(id) as f64 * class.cost.get().unwrap_or(0.0)).sum();
        let turns = if place.is_above { &Turn::ALL[..] } else { &Turn::WITHIN };
        let waiting = |line: usize| turns.iter().map(|turn| cx.waiting_at(class, line, *turn)).sum::<usize>() as f64;
        let in_line = |line: usize| waiting(line) * own.lines[line].cost.get().unwrap_or(0.0);
        let rate = rate - self.more_important(class);
        let over = |work: f64, rate: f64| if rate > 0.0 { work / rate } else { f64::INFINITY };
        let before: f64 = cx.used(class).take_while(|line| *line <= place.line).map(in_line).sum();
        let wait = over(above + before + place.cost, rate - self.smaller(class, place));
        if self.order != Order::Fair {
            return (wait, false);
        }
        let part = KEPT * own.lines[place.line].all.rate / own.rate.max(f64::MIN_POSITIVE);
        let kept = over(in_line(place.line) + place.cost, part * rate);
        if kept < wait { (kept, true) } else { (wait, false) }
    }

    /// The line whose turn it is in a class: tenants within their share first, and first tries before retries.
    pub(super) fn next(&self, cx: &Context<'_>, class: ClassId) -> Option<usize> {
        let due = |line: &usize| self.dues.due(class, *line) > 0;
        if self.order == Order::Fair
            && let Some(line) = cx.used(class).filter(due).last()
        {
            return Some(line);
        }
        Turn::ALL.iter().find_map(|turn| cx.used(class).find(|line| cx.waiting_at(class, *line, *turn) > 0))
    }

    /// One of a line is let in.
    pub(super) fn let_in(&mut self, cx: &Context<'_>, class: ClassId, line: usize) {
        self.dues.admit(cx, class, line, 1);
    }
}

impl Arriving {
    /// `elapsed` seconds went by since the last look; `sum`: what arrives per second in smaller lines, then up to here.
    fn settle(&mut self, elapsed: f64, gain: f64, sum: &mut f64) {
        if elapsed > 0.0 {
            self.rate += gain * (core::mem::take(&mut self.arrived) / elapsed - self.rate);
        }
        *sum += self.rate;
        self.up_to = *sum;
    }
}

fn put_mean(kept: &mut Kept, name: &str, mean: &Average) {
    if let Some(value) = mean.get() {
        kept.put(&format!("{name}_mean"), value);
        kept.put(&format!("{name}_weight"), mean.weight());
    }
}

fn mean_of(kept: &Kept, name: &str, memory: f64) -> Average {
    let mut mean = Average::default();
    if let Some(value) = kept.get(&format!("{name}_mean")).filter(|value| *value >= 0.0) {
        mean.update(value, kept.between(&format!("{name}_weight"), (0.0, memory), 0.0), memory);
    }
    mean
}
