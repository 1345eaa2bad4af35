//! The provisioner: reports and news in, actions and events out.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::fleet::{Fleet, Place, ServerNews};
use super::forecast::{Forecaster, Seasonal};
use super::posts::Crew;
use super::sentries::{Sentries, repartition};
use super::watch::{ApplicationReport, ApplicationSetup, Measured, Watched};
use super::{ProvisionAction, ProvisionError, ProvisionEvent, ProvisionPolicy, Site, View, Wish};
use tidegate_engine::Timestamp;

/// Decides for one site. See the [module](super) for its grammar.
#[derive(Debug)]
pub struct Provisioner {
    pub(super) applications: Vec<Watched>,
    pub(super) policy: Box<dyn ProvisionPolicy>,
    pub(super) fleet: Fleet,
    pub(super) wishes: Vec<Wish>,
    pub(super) sentries: Vec<Sentries>,
    pub(super) crew: Crew,
    pub(super) parts: Vec<Vec<Vec<usize>>>,
    pub(super) actions: VecDeque<ProvisionAction>,
    events: VecDeque<(Timestamp, ProvisionEvent)>,
}

/// Habits are learned from the busiest rate of every five minutes.
const SLOT: Duration = Duration::from_secs(300);
/// Time-outs of servers are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

impl Provisioner {
    /// A provisioner for `site`, with a forecaster of its own for each application.
    ///
    /// # Errors
    /// When the site makes no sense.
    pub fn new(site: Site) -> Result<Provisioner, ProvisionError> {
        let policy = site.policy.build();
        let (horizon, interval) = (policy.horizon(), policy.interval());
        Provisioner::with_forecasters(site, |_| Box::new(Seasonal::new(SLOT, horizon).with_interval(interval)))
    }

    /// The same with other forecasters: by the place of the application.
    ///
    /// # Errors
    /// When the site makes no sense.
    pub fn with_forecasters(
        site: Site,
        mut forecaster: impl FnMut(usize) -> Box<dyn Forecaster>,
    ) -> Result<Provisioner, ProvisionError> {
        site.check()?;
        let initial: Vec<u32> = site.applications.iter().map(|setup| setup.servers).collect();
        let wish = |setup: &ApplicationSetup| Wish {
            servers: setup.servers,
            ceiling: setup.sla.target(0.0),
            reason: String::new(),
        };
        let mut provisioner = Provisioner {
            policy: site.policy.build(),
            fleet: Fleet::new(site.pool, site.servers, &initial),
            wishes: site.applications.iter().map(wish).collect(),
            sentries: site.applications.iter().map(|a| Sentries::new(&site.sentries, a.max_sentries)).collect(),
            crew: Crew::new(site.posts, initial.len()),
            parts: alloc::vec![Vec::new(); initial.len()],
            applications: (0..).zip(site.applications).map(|(at, setup)| Watched::new(setup, forecaster(at))).collect(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        };
        for at in 0..initial.len() {
            let ceiling = provisioner.wishes[at].ceiling;
            provisioner.actions.push_back(ProvisionAction::SetCeiling { application: at, ceiling });
            provisioner.partition(at);
        }
        Ok(provisioner)
    }

    /// What the sentries of an application saw since its last report. Unknown applications are ignored.
    pub fn handle_report(&mut self, now: Timestamp, application: usize, report: &ApplicationReport) {
        if let Some(watched) = self.applications.get_mut(application) {
            watched.hear(now, report);
        }
    }

    /// Nothing is known of what was offered since the last report: whoever reports was cut off, or this was not
    /// running.
    pub fn handle_gap(&mut self, now: Timestamp, application: usize) {
        if let Some(watched) = self.applications.get_mut(application) {
            watched.skip(now);
        }
    }

    /// A sentry was so busy between `since` and `now`: share of its CPU, 0 to 1.
    pub fn handle_sentry(&mut self, now: Timestamp, application: usize, sentry: usize, since: Timestamp, cpu: f64) {
        let Some(sentries) = self.sentries.get_mut(application) else { return };
        // One that is coming takes its share when it is there.
        if self.crew.is_coming(application) {
            return;
        }
        let from = sentries.count();
        if let Some((to, cpu)) = sentries.hear(now, sentry, since, cpu) {
            self.events.push_back((now, ProvisionEvent::SentriesWanted { application, from, to, cpu }));
            self.partition(application);
        }
    }

    /// A provider's news of a server. What fits nothing that was asked for is ignored.
    pub fn handle_server(&mut self, now: Timestamp, server: usize, news: ServerNews) {
        let Some(application) = self.fleet.hear(now, server, news, &mut self.actions) else { return };
        match news {
            ServerNews::Up => self.events.push_back((now, ProvisionEvent::ServerUp { server, application })),
            ServerNews::Failed => self.events.push_back((now, ProvisionEvent::ServerFailed { server })),
            ServerNews::Drained => {}
        }
        self.partition(application);
    }

    /// A provider's news of the sentry at a post. What fits nothing that was asked for is ignored.
    pub fn handle_post(&mut self, now: Timestamp, post: usize, news: ServerNews) {
        self.crew.hear(now, post, news);
    }

    /// So many of an application's sentries stand at no post: somebody else has started them.
    pub fn handle_others(&mut self, application: usize, count: u32) {
        self.crew.hear_others(application, count);
    }

    /// No sentry is started or sent away before `until`: those that are there have yet to speak.
    pub fn pause_posts(&mut self, until: Timestamp) {
        self.crew.pause(until);
    }

    /// The time that [`Provisioner::poll_timeout`] named has come (calling earlier does no harm).
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let lost = self.fleet.expire(now, &mut self.actions);
        if !lost.is_empty() {
            self.events.extend(lost.into_iter().map(|server| (now, ProvisionEvent::ServerFailed { server })));
            (0..self.applications.len()).for_each(|at| self.partition(at));
        }
        if now >= self.policy.next_timeout() {
            self.decide(now);
        }
        // Also without a new decision: what was short may be free by now.
        self.settle(now);
        self.crew.settle(now, self.sentries.iter().map(Sentries::count));
    }

    /// When to call [`Provisioner::handle_timeout`] next, and what for.
    pub fn poll_timeout(&self, now: Timestamp) -> (Timestamp, &'static str) {
        let (decide, look) = (self.policy.next_timeout(), now + LOOK);
        if decide <= look { (decide, "decision") } else { (look, "servers") }
    }

    /// What to do. Poll after every `handle_*`, and at the beginning, until there is nothing more.
    pub fn poll_action(&mut self) -> Option<ProvisionAction> {
        self.actions.pop_front()
    }

    /// What to do at posts, whose numbers stand in the places of servers' numbers.
    pub fn poll_post_action(&mut self) -> Option<ProvisionAction> {
        self.crew.poll_action()
    }

    /// What was decided or happened.
    pub fn poll_event(&mut self) -> Option<(Timestamp, ProvisionEvent)> {
        self.events.pop_front()
    }

    /// Gives an application's forecaster its past: the mean rate between each two instants, in order of time.
    pub fn teach(&mut self, application: usize, past: impl IntoIterator<Item = (Timestamp, f64)>) {
        let Some(watched) = self.applications.get_mut(application) else { return };
        past.into_iter().for_each(|(at, rate)| watched.learn(at, rate));
    }

    /// Where every server of the pool is.
    pub fn places(&self) -> &[Place] {
        self.fleet.places()
    }

    /// Who stands at every post.
    pub fn posts(&self) -> &[Place] {
        self.crew.places()
    }

    /// What is known of an application: the inputs of decisions about it.
    pub fn measured(&self, now: Timestamp, application: usize) -> Measured {
        self.applications[application].measured(now)
    }

    /// Servers that an application is to have.
    pub fn wanted(&self, application: usize) -> u32 {
        self.wishes[application].servers
    }

    /// Servers that serve an application now.
    pub fn serving(&self, application: usize) -> u32 {
        self.fleet.serving(application)
    }

    /// Servers that were asked for and are not there yet.
    pub fn coming(&self, application: usize) -> u32 {
        self.fleet.coming(application)
    }

    /// The most that an application's target may relax to.
    pub fn ceiling(&self, application: usize) -> Duration {
        self.wishes[application].ceiling
    }

    /// Sentries that an application is to have.
    pub fn sentries(&self, application: usize) -> u32 {
        self.sentries[application].count()
    }

    /// The gap that admission has to bridge: when more capacity will serve, in full servers' worth.
    pub fn arriving(&self, now: Timestamp, application: usize) -> Vec<(Timestamp, f64)> {
        self.fleet.arriving(now, application)
    }

    fn decide(&mut self, now: Timestamp) {
        let pool = self.fleet.pool;
        let view = View {
            now,
            applications: &self.applications,
            serving: (0..self.applications.len()).map(|at| self.fleet.serving(at)).collect(),
            free: self.fleet.free(),
            usable: self.fleet.usable(),
            lead: pool.setup_time + if pool.warm_up_speed < 1.0 { pool.warm_up } else { Duration::ZERO },
        };
        let before = self.wishes.clone();
        self.policy.decide(&view, &mut self.wishes);
        for (application, from) in before.into_iter().enumerate() {
            self.tell(now, application, &from);
        }
    }

    /// Events, and what follows for the target.
    fn tell(&mut self, now: Timestamp, application: usize, from: &Wish) {
        let Wish { servers, ceiling, reason } = self.wishes[application].clone();
        if servers != from.servers {
            let has = self.fleet.has(application);
            let short = servers.saturating_sub(has).saturating_sub(self.fleet.free());
            let event = ProvisionEvent::ServersWanted {
                application,
                from: from.servers,
                to: servers,
                short,
                reason: reason.clone(),
            };
            self.events.push_back((now, event));
        }
        if ceiling != from.ceiling {
            let event = ProvisionEvent::CeilingSet { application, from: from.ceiling, to: ceiling, reason };
            self.events.push_back((now, event));
            self.actions.push_back(ProvisionAction::SetCeiling { application, ceiling });
        }
    }

    /// Those who give first, so that what is free at once can be had at once.
    fn settle(&mut self, now: Timestamp) {
        let count = self.applications.len();
        let has: Vec<u32> = (0..count).map(|at| self.fleet.has(at)).collect();
        let gives = |at: &usize| has[*at] > self.wishes[*at].servers;
        let order: Vec<usize> = (0..count).filter(gives).chain((0..count).filter(|at| !gives(at))).collect();
        for at in order {
            if self.fleet.settle(now, at, self.wishes[at].servers, &mut self.actions) {
                self.partition(at);
            }
        }
    }

    /// Splits an application's servers among its sentries, and tells when that is another split.
    fn partition(&mut self, application: usize) {
        let members: Vec<usize> = self.fleet.members(application).collect();
        let servers = repartition(&self.parts[application], &members, self.sentries[application].count());
        if servers != self.parts[application] {
            self.parts[application].clone_from(&servers);
            self.actions.push_back(ProvisionAction::Partition { application, servers });
        }
    }
}

impl Site {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first thing that makes no sense, by name.
    pub fn check(&self) -> Result<(), ProvisionError> {
        if !(1..=1000).contains(&self.applications.len()) {
            return Err(ProvisionError::Applications { given: self.applications.len() });
        }
        if let Some(given) = [self.servers, self.posts.count].into_iter().find(|count| *count > 65_535) {
            return Err(ProvisionError::Servers { given });
        }
        for setup in &self.applications {
            if let Some(what) = setup.problem() {
                return Err(ProvisionError::Application { name: setup.name.clone(), what });
            }
        }
        let sum = |of: fn(&ApplicationSetup) -> u32| self.applications.iter().map(|a| u64::from(of(a))).sum::<u64>();
        for (what, needed) in [("begin with", sum(|a| a.servers)), ("need at least", sum(|a| a.min_servers))] {
            if needed > u64::from(self.servers) {
                return Err(ProvisionError::Pool { what, needed, total: self.servers });
            }
        }
        let warm = self.pool.warm_up_speed;
        let rule = &self.sentries;
        let sentries =
            super::share_problem("sentries.high", rule.high)
                .or(super::share_problem("sentries.low", rule.low))
                .or((rule.low >= rule.high)
                    .then_some(("sentries.low", "must be below `high`: sentries would come and go")));
        let pool = (!(warm.is_finite() && warm > 0.0)).then_some(("warm_up_speed", "must be more than 0"));
        match self.policy.problem().or(sentries).or(pool) {
            Some((key, what)) => Err(ProvisionError::Setting { key, what }),
            None => Ok(()),
        }
    }
}

impl ApplicationSetup {
    fn problem(&self) -> Option<&'static str> {
        if self.min_servers > self.max_servers {
            return Some("its minimum of servers is above its maximum");
        }
        if !(self.min_servers..=self.max_servers).contains(&self.servers) {
            return Some("it begins with fewer servers than its minimum, or more than its maximum");
        }
        if self.revenues.is_empty() || !self.revenues.iter().all(|revenue| revenue.is_finite() && *revenue >= 0.0) {
            return Some("every class needs a revenue that is a finite number, not below 0");
        }
        None
    }
}

#[cfg(test)]
mod tests;
