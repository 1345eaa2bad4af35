//! A rate per request type and class that follows the response times of the admitted requests.
//!
//! *Intuition.* What makes an application slow is seldom all of its requests. Give each request type its own
//! controller, and only the types that are late are refused.
//!
//! *Applied.* One response-time controller ([`crate::seda`]) per request type, with the application's classes, guards
//! the sentry as SEDA's guard their stages. The response time is that from the arrival at the sentry to the end of
//! the answer. The target is the type's own in `targets`, or the class's own in `class_targets`, or the SLA's at the
//! current arrival rate. With `single` one
//! controller stands for all types. With `controller.quality` answers get cheaper before any request is refused:
//! drivers pass the quality on to the servers.
//!
//! *Awkward cases.* A request that a time-out ended counts with the time it took: it took at least that long. A failure
//! says nothing about load: a broken server answers quickly. A bucket forgets nothing when the rate moves: a token that
//! was 20 s off at the least rate is there at once when the rate is up again. No request waits: one that finds no
//! token is refused, and its `Retry-After` says when there will be one.
//!
//! *Source.* M. Welsh and D. Culler, "Adaptive overload control for busy Internet servers" (2003), sections 3.2 to 3.4;
//! the single controller is that of section 4.5.

mod kept;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::{End, Reason};
use crate::effect::Effect;
use crate::facts::Facts;
use crate::learned::Kept;
use crate::request::{ClassId, Request, RequestTypeId};
use crate::seda::{Controller, Parameters};
use crate::setup::{Setup, SetupError, SetupPlace};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings of the policy `aimd`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// One controller for everything, instead of one for each request type.
    pub single: bool,
    /// Whether each class has its own bucket and estimate. If not, all classes share one.
    pub by_class: bool,
    /// Targets of request types, by name; the SLA's for those not named. A target bounds the controller's percentile.
    pub targets: BTreeMap<String, Seconds>,
    /// Targets of classes, by name; the SLA's for those not named. A target of the request type goes before it.
    pub class_targets: BTreeMap<String, Seconds>,
    /// Settings of every controller.
    pub controller: Parameters,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            single: false,
            by_class: true,
            targets: BTreeMap::new(),
            class_targets: BTreeMap::new(),
            controller: Parameters::default(),
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let positive = |target: &Seconds| target.0.is_finite() && target.0 > 0.0;
        require(self.targets.values().all(positive), "aimd", "targets", "must be more than zero")?;
        require(self.class_targets.values().all(positive), "aimd", "class_targets", "must be more than zero")?;
        let fits = self.by_class || self.class_targets.is_empty();
        require(fits, "aimd", "class_targets", "need classes that are told apart; leave out by_class = false")?;
        let fits = !self.single || self.targets.is_empty();
        require(fits, "aimd", "targets", "cannot be told apart by a single controller; leave out one of them")?;
        self.controller.check()
    }

    /// Checks what depends on the application.
    pub(super) fn fits(&self, setup: &Setup) -> Result<(), SetupError> {
        let wrong = |problem: core::fmt::Arguments<'_>| Err(SetupError::wrong(SetupPlace::Admission("aimd"), problem));
        if let Some(name) = self.targets.keys().find(|name| !setup.request_types.contains(name)) {
            return wrong(format_args!("targets: there is no request type \"{name}\""));
        }
        let is_class = |name: &String| setup.classes.iter().any(|class| class.name == *name);
        match self.class_targets.keys().find(|name| !is_class(name)) {
            Some(name) => wrong(format_args!("class_targets: there is no class \"{name}\"")),
            None => Ok(()),
        }
    }

    pub(super) fn build(&self, setup: &Setup) -> Aimd {
        let classes = match self.by_class {
            true => setup.classes.iter().map(|class| class.name.clone()).collect(),
            false => alloc::vec![String::from("all")],
        };
        let mut policy = Aimd { config: self.clone(), classes, types: Vec::new(), next: Timestamp::MAX };
        policy.set_types(setup);
        policy
    }
}

/// State of the policy `aimd`.
#[derive(Debug)]
pub struct Aimd {
    config: Config,
    /// The names of the classes that are told apart.
    classes: Vec<String>,
    /// One per request type, or one.
    types: Vec<Type>,
    /// When the first controller wants to run.
    next: Timestamp,
}

#[derive(Debug)]
struct Type {
    /// `None`: every type.
    name: Option<String>,
    has_own_target: bool,
    controller: Controller,
}

impl AdmissionPolicy for Aimd {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let (class, request_type) = (self.class(&arrival.request), arrival.request.request_type);
        match self.controller(request_type).admit(cx.now, class) {
            true => Admission::Admit,
            false => Admission::refuse(cx.load.refusal(Reason::RateLimit)),
        }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        let (class, request_type) = (self.class(&ended.request), ended.request.request_type);
        if ended.end == End::Failed {
            return;
        }
        let response_time = ended.response_time;
        if self.controller(request_type).completed(cx.now, class, response_time) {
            self.ran(cx);
        }
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let target = cx.target;
        let own = &self.config.class_targets;
        for of_type in self.types.iter_mut().filter(|of_type| !of_type.has_own_target) {
            for (class, _) in self.classes.iter().enumerate().filter(|(_, name)| !own.contains_key(*name)) {
                of_type.controller.set_target(ClassId(class as u8), target);
            }
        }
        // After a reload the published part is a new one.
        self.ran(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.types.iter_mut().for_each(|of_type| of_type.controller.on_timeout(cx.now));
        self.ran(cx);
    }

    fn on_setup(&mut self, setup: &Setup) {
        self.set_types(setup);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        Some(self.next)
    }

    fn retry_after(&self, now: Timestamp, request: &Request) -> Option<Duration> {
        Some(self.types[self.position(request.request_type)].controller.retry_after(now, self.class(request)))
    }

    fn describe(&self, state: &mut PolicyState) {
        let controllers: Vec<Facts> = self.types.iter().map(|of_type| of_type.describe(&self.classes)).collect();
        state.own = Facts::new("aimd").with("controllers", controllers);
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        self.put_away(now, kept);
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.take_up(now, kept);
    }
}

impl Aimd {
    /// Makes the controllers for the setup's request types. Those that were there before go on.
    fn set_types(&mut self, setup: &Setup) {
        let target = setup.sla.target(0.0).as_secs_f64();
        let mut before = core::mem::take(&mut self.types);
        let names = setup.request_types.iter().map(|name| Some(name.clone()));
        let names: Vec<Option<String>> = if self.config.single { alloc::vec![None] } else { names.collect() };
        for name in names {
            let known = before.iter().position(|of_type| of_type.name == name);
            let of_type = match known {
                Some(at) => before.swap_remove(at),
                None => self.fresh(name, target),
            };
            self.types.push(of_type);
        }
        self.find_next();
    }

    fn fresh(&self, name: Option<String>, sla_target: f64) -> Type {
        let own = name.as_ref().and_then(|name| self.config.targets.get(name));
        let of_class = |name: &String| self.config.class_targets.get(name);
        let target = |class: &String| own.or_else(|| of_class(class)).map_or(sla_target, |own| own.0);
        let targets: Vec<f64> = self.classes.iter().map(target).collect();
        let controller = Controller::new(self.config.controller.clone(), &targets, self.classes.len());
        let controller = controller.expect("settings, targets and classes were checked with the setup");
        Type { name, has_own_target: own.is_some(), controller }
    }

    /// A controller ran: its quality and its next time may have changed.
    fn ran(&mut self, cx: &mut Context<'_>) {
        for (at, of_type) in self.types.iter().enumerate() {
            let request_type = of_type.name.as_ref().map(|_| RequestTypeId(at as u16));
            cx.act(Effect::Quality { request_type, quality: of_type.controller.quality() });
        }
        self.find_next();
    }

    fn find_next(&mut self) {
        let timeouts = self.types.iter().map(|of_type| of_type.controller.next_timeout());
        self.next = timeouts.min().unwrap_or(Timestamp::MAX);
    }

    fn controller(&mut self, request_type: RequestTypeId) -> &mut Controller {
        let at = self.position(request_type);
        &mut self.types[at].controller
    }

    fn class(&self, request: &Request) -> ClassId {
        if self.config.by_class { request.class } else { ClassId(0) }
    }

    fn position(&self, request_type: RequestTypeId) -> usize {
        if self.config.single { 0 } else { request_type.index() }
    }
}

impl Type {
    /// What its controller shows of itself, class by class.
    fn describe(&self, classes: &[String]) -> Facts {
        let controller = &self.controller;
        let class = |(at, name): (usize, &String)| {
            let class = ClassId(at as u8);
            Facts::new("class-control")
                .with("class", name.clone())
                // Requests per second that it lets in.
                .with("rate", controller.rate(class))
                // The smoothed percentile of the response time, seconds, once known, and its bound.
                .with("percentile", controller.percentile(class))
                .with("target", controller.target(class))
                // What the last run did.
                .with("step", controller.last_run(class).map(|run| run.step.name()))
        };
        Facts::new("controller-state")
            .with("request_type", self.name.clone())
            .with("quality", controller.quality())
            .with("policing", controller.policing())
            .with("classes", classes.iter().enumerate().map(class).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassSetup, Controller as Engine, Decision, NoEvents, Outcome, ServerSetup, Sla, Statistic, Ticket};
    use alloc::boxed::Box;

    struct Bench {
        engine: Engine,
        now: Timestamp,
    }

    impl Bench {
        fn new(policy: &str) -> Bench {
            let engine = Engine::new(setup(policy), 1, 1, Box::new(NoEvents)).expect("it makes sense");
            Bench { engine, now: Timestamp::ZERO }
        }

        fn arrive(&mut self, class: u8, request_type: u16) -> Result<Ticket, crate::Rejection> {
            let (class, request_type) = (ClassId(class), RequestTypeId(request_type));
            let request = Request { class, request_type, ..Request::default() };
            match self.engine.handle_arrival(self.now, request) {
                Decision::Admit { ticket, .. } => Ok(ticket),
                Decision::Reject(rejection) => Err(rejection),
                other => panic!("nobody waits: {other:?}"),
            }
        }

        fn pass(&mut self, millis: u64) {
            let to = self.now + Duration::from_millis(millis);
            while let Some((at, _)) = self.engine.poll_timeout().filter(|(at, _)| *at <= to) {
                self.now = at;
                self.engine.handle_timeout(at);
            }
            self.now = to;
        }

        /// A request that takes so long.
        fn serve(&mut self, class: u8, request_type: u16, millis: u64) {
            let ticket = self.arrive(class, request_type).expect("there is a token");
            self.pass(millis);
            self.engine.handle_completion(self.now, ticket, Outcome::answered());
        }

        fn control(&self, request_type: usize, class: usize) -> Facts {
            let own = self.engine.snapshot(self.now).policy.own;
            let controller = own.list("controllers").nth(request_type).expect("every type has one");
            controller.list("classes").nth(class).expect("every class has one").clone()
        }
    }

    fn setup(policy: &str) -> Setup {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("bench", sla, [ServerSetup::new("one")]);
        setup.classes = ["gold", "bronze"].map(ClassSetup::new).to_vec();
        setup.request_types = ["default", "search"].map(String::from).to_vec();
        setup.admission = serde_json::from_str(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
        setup
    }

    const ONE_SAMPLE: &str = r#"{ "policy": "aimd", "targets": { "search": "3s" },
        "controller": { "samples": 1, "smoothing": 0.0, "initial_rate": 10 } }"#;

    #[test]
    fn only_the_type_that_is_late_is_refused_more() {
        let mut bench = Bench::new(ONE_SAMPLE);
        bench.serve(1, 0, 2000);
        let (page, search) = (bench.control(0, 1), bench.control(1, 1));
        let numbers = |of: &Facts| ["target", "percentile", "rate"].map(|key| of.number(key));
        let [target, percentile, rate] = numbers(&page);
        assert_eq!((target, percentile, page.text("step")), (Some(1.0), Some(2.0), Some("lowered")));
        assert_eq!(numbers(&search), [Some(3.0), None, Some(10.0)]);
        assert!(rate.is_some_and(|rate| (rate - 10.0 / 1.2).abs() < 1e-9));
        // Two seconds are within the search's own target: in the dead band.
        bench.serve(1, 1, 2000);
        assert_eq!(bench.control(1, 1).text("step"), Some("kept"));
    }

    /// The admin API's JSON: other programs read it.
    #[test]
    fn its_state_has_these_keys_in_this_order() {
        let bench = Bench::new(r#"{ "policy": "aimd", "single": true, "by_class": false }"#);
        let state = serde_json::to_string(&bench.engine.snapshot(bench.now).policy).expect("JSON");
        let expected = r#"{"policy":"aimd","active":"aimd","limit":null,"threshold":null,"delays":[],"full":null,"#;
        let own = r#""controllers":[{"request_type":null,"quality":1.0,"policing":true,"classes":[{"class":"all","#;
        let class = r#""rate":100.0,"percentile":null,"target":1.0,"step":null}]}],"more":[]}"#;
        assert_eq!(state, [expected, own, class].concat());
    }

    #[test]
    fn a_refusal_says_when_the_bucket_has_a_token_again() {
        let mut bench = Bench::new(
            r#"{ "policy": "aimd", "controller": { "initial_rate": "0.2/s", "max_rate": "1/s", "min_rate": "0.1/s" } }"#,
        );
        assert!(bench.arrive(0, 0).is_ok());
        let rejection = bench.arrive(0, 0).expect_err("the bucket is empty");
        assert_eq!((rejection.reason, rejection.retry_after), (Reason::RateLimit, Duration::from_secs(5)));
        assert!(bench.arrive(1, 0).is_ok() && bench.arrive(0, 1).is_ok(), "each has a bucket of its own");
        bench.pass(4500);
        assert_eq!(bench.arrive(0, 0).unwrap_err().retry_after, Duration::from_secs(1), "never less than a second");
        bench.pass(500);
        assert!(bench.arrive(0, 0).is_ok());
    }

    #[test]
    fn a_single_controller_makes_all_pay_for_one() {
        let mut bench = Bench::new(
            r#"{ "policy": "aimd", "single": true,
                 "controller": { "samples": 1, "smoothing": 0, "initial_rate": "1/s", "min_rate": "0.1/s" } }"#,
        );
        bench.serve(0, 1, 2000);
        assert_eq!(bench.engine.snapshot(bench.now).policy.own.list("controllers").count(), 1);
        assert!(bench.arrive(0, 0).is_ok());
        assert!(bench.arrive(0, 1).is_err(), "one bucket");
    }

    #[test]
    fn classes_share_a_bucket_where_they_are_not_told_apart() {
        let policy = r#"{ "policy": "aimd", "by_class": false, "controller": { "initial_rate": "1/s" } }"#;
        let mut bench = Bench::new(policy);
        assert!(bench.arrive(1, 0).is_ok());
        assert!(bench.arrive(0, 0).is_err());
        assert_eq!(bench.control(0, 0).text("class"), Some("all"));
    }

    #[test]
    fn failures_teach_nothing_and_time_outs_do() {
        let mut bench = Bench::new(ONE_SAMPLE);
        for outcome in [Outcome::failed(), Outcome::timed_out()] {
            let ticket = bench.arrive(1, 0).expect("there is a token");
            bench.pass(2000);
            assert_eq!(bench.control(0, 1).number("percentile"), None);
            bench.engine.handle_completion(bench.now, ticket, outcome);
        }
        assert_eq!(bench.control(0, 1).number("percentile"), Some(2.0));
    }

    #[test]
    fn quality_is_published_per_type_and_survives_a_reload() {
        let policy = r#"{ "policy": "aimd", "controller": { "samples": 1, "quality": { "lower_by": 2.0 } } }"#;
        let mut bench = Bench::new(policy);
        bench.serve(0, 1, 2000);
        let quality = |bench: &Bench| [0, 1].map(|at| bench.engine.policer().quality(RequestTypeId(at)));
        assert_eq!(quality(&bench), [1.0, 0.5]);
        let mut other = setup(policy);
        other.request_types = ["search", "new", "default"].map(String::from).to_vec();
        bench.engine.reconfigure(bench.now, other).expect("it makes sense");
        assert_eq!(quality(&bench), [0.5, 1.0], "by name");
    }

    #[test]
    fn classes_have_targets_of_their_own_and_a_types_goes_before_them() {
        let policy = r#"{ "policy": "aimd", "targets": { "search": "3s" }, "class_targets": { "bronze": "4s" },
            "controller": { "samples": 1, "smoothing": 0.0, "initial_rate": 10 } }"#;
        let mut bench = Bench::new(policy);
        // The SLA's target is given again with every tick: it must not take theirs away.
        bench.pass(5000);
        let target = |of_type, class| bench.control(of_type, class).number("target");
        assert_eq!([target(0, 0), target(0, 1), target(1, 0), target(1, 1)], [1.0, 4.0, 3.0, 3.0].map(Some));
        bench.serve(1, 0, 2000);
        assert_eq!(bench.control(0, 1).text("step"), Some("kept"), "within four seconds");
    }

    #[test]
    fn what_targets_cannot_be_about_is_named() {
        for (settings, part) in [
            (r#""targets": { "serach": "1s" }"#, "no request type \"serach\""),
            (r#""class_targets": { "glod": "1s" }"#, "no class \"glod\""),
            (r#""class_targets": { "gold": "0s" }"#, "class_targets must be more than zero"),
            (r#""by_class": false, "class_targets": { "gold": "1s" }"#, "by_class"),
        ] {
            let setup = setup(&[r#"{ "policy": "aimd", "#, settings, "}"].concat());
            let error = alloc::string::ToString::to_string(&setup.check().unwrap_err());
            assert!(error.contains(part), "{settings}: {error}");
        }
    }
}
