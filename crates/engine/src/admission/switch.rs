//! A limit on requests in flight: what the servers hold within the target, and for the most important class what they
//! hold at their breaking point.
//!
//! *Intuition.* A Web switch counts what its servers have in hand. It knows how much one server can hold and still be
//! punctual, so it knows it for all of them. Beyond that it turns away guests of the lower classes, and members only
//! when the house would collapse.
//!
//! *Applied.* Requests in flight are counted by kind (`max_conn` of the application: static and dynamic, say) over
//! the servers that the class may use. With a partition policy these are its own servers, otherwise all. The limit of
//! the least important class is the sum of `weight * within_target` over these servers, that of the most important
//! class the sum of `weight * most`; the classes between have evenly spaced limits. A request whose type has no kind
//! is admitted.
//!
//! *Awkward cases.* The paper's switch sums reports that its servers send, and starts and stops refusing by them, a
//! period late (`paper` does so); the sentry knows what it sent, so each request is counted at once and the limits are
//! exact. Requests of other sentries count as far as nuclei report them, averaged. A server that goes down takes its
//! weight with it: the limits fall. Each kind is tested separately: many static requests do not cause the refusal of a
//! dynamic one, though they slow it down. The limits were measured with a certain mix, and hold for that.
//!
//! *Source.* M. Andreolini et al. (2004), section 5.2, SwitchAdm; with partitions, sections 5.3 and 5.4.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Admission, AdmissionPolicy, Arrival, Context, PolicyState, require};
use crate::decision::Reason;
use crate::demands::Demands;
use crate::request::{ClassId, RequestTypeId};
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings; what servers hold is the application's `max_conn`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// As the paper's switch, to be compared with: it looks at what is in flight only once a `period`, and until the
    /// next look refuses all of a class and kind that was over its limit, and none of one that was not.
    pub paper: bool,
    /// From look to look; only with `paper`.
    pub period: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { paper: false, period: Seconds(1.0) }
    }
}

impl Config {
    pub(super) fn demands(&self) -> Demands {
        Demands { kinds: true, weights: true, ..Demands::default() }
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        require((0.1..=60.0).contains(&self.period.0), "switch", "period", "must lie between 100ms and 60s")
    }

    pub(super) fn build(&self, setup: &Setup) -> Switch {
        let types = setup.request_types.len();
        let refuses = alloc::vec![false; types * setup.classes.len()];
        Switch { config: self.clone(), next: Timestamp::ZERO, types, refuses }
    }
}

/// State of the policy `switch`.
#[derive(Debug)]
pub struct Switch {
    config: Config,
    /// Of the paper's: when it looks again, and whom it refuses until then, by class and request type.
    next: Timestamp,
    types: usize,
    refuses: Vec<bool>,
}

impl AdmissionPolicy for Switch {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let (class, request_type) = (arrival.request.class, arrival.request.request_type);
        let is_over = match self.config.paper {
            true => self.refuses.get(class.index() * self.types + request_type.index()).is_some_and(|refuses| *refuses),
            false => cx.held(class, request_type).is_some_and(|held| held.in_flight >= held.threshold),
        };
        match is_over {
            true => Admission::refuse(cx.load.refusal(Reason::ConcurrencyLimit)),
            false => Admission::Admit,
        }
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        if !self.config.paper || cx.now < self.next {
            return;
        }
        self.next = cx.now + self.config.period.duration();
        for (at, refuses) in self.refuses.iter_mut().enumerate() {
            let (class, request_type) = (ClassId((at / self.types) as u8), RequestTypeId((at % self.types) as u16));
            *refuses = cx.held(class, request_type).is_some_and(|held| held.in_flight > held.threshold);
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "switch";
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::time::Duration;

    use crate::{
        AdmissionConfig, ClassId, ClassSetup, Controller, Decision, MaxConn, NoEvents, Outcome, Reason, Request,
        RequestTypeId, ServerId, ServerSetup, Setup, Sla, Statistic, Status, Ticket, Timestamp,
    };

    /// Two servers; three classes; static 8 of 10 and dynamic 2 of 4 a server.
    fn controller(change: impl FnOnce(&mut Setup)) -> Controller {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("switch", sla, ["a", "b"].map(ServerSetup::new));
        setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
        setup.request_types = ["default", "page", "cart", "search"].map(String::from).to_vec();
        let limit = |name: &str, types: &[&str], within_target, most| MaxConn {
            name: name.into(),
            request_types: types.iter().map(|name| String::from(*name)).collect(),
            within_target,
            most,
        };
        setup.max_conn = alloc::vec![limit("page", &[], 8.0, 10.0), limit("dynamic", &["cart", "search"], 2.0, 4.0)];
        setup.admission = AdmissionConfig::from_name("switch").expect("a name of the table");
        change(&mut setup);
        Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense")
    }

    #[test]
    fn the_papers_switch_refuses_by_its_last_look() {
        let policy = r#"{ "policy": "switch", "paper": true, "period": "1s" }"#;
        let mut controller = controller(|setup| setup.admission = serde_json::from_str(policy).expect("it is right"));
        let pass = |controller: &mut Controller, seconds: u64| {
            let now = Timestamp::ZERO + Duration::from_secs(seconds);
            while let Some((at, _)) = controller.poll_timeout()
                && at <= now
            {
                controller.handle_timeout(at);
            }
            now
        };
        let now = pass(&mut controller, 2);
        let request = Request { class: ClassId(2), request_type: RequestTypeId(3), ..Request::default() };
        let admit = |controller: &mut Controller, now| match controller.handle_arrival(now, request) {
            Decision::Admit { ticket, .. } => Some(ticket),
            _ => None,
        };
        let tickets: Vec<Ticket> = (0..30).filter_map(|_| admit(&mut controller, now)).collect();
        assert_eq!(tickets.len(), 30, "nobody looks before the next period");
        let now = pass(&mut controller, 4);
        assert_eq!(admit(&mut controller, now), None, "it was over the limit");
        for ticket in tickets {
            controller.handle_completion(now, ticket, Outcome::answered());
        }
        assert_eq!(admit(&mut controller, now), None, "and is refused until the next look, though all is idle");
        let now = pass(&mut controller, 6);
        assert!(admit(&mut controller, now).is_some());
    }

    /// Requests of a class and type until one is refused: their tickets.
    fn fill(controller: &mut Controller, class: u8, request_type: u16) -> Vec<Ticket> {
        let request =
            Request { class: ClassId(class), request_type: RequestTypeId(request_type), ..Request::default() };
        let mut tickets = Vec::new();
        while tickets.len() < 1000 {
            match controller.handle_arrival(Timestamp::ZERO, request) {
                Decision::Admit { ticket, .. } => tickets.push(ticket),
                Decision::Reject(rejection) => {
                    assert_eq!(rejection.reason, Reason::ConcurrencyLimit);
                    break;
                }
                other => panic!("nobody waits: {other:?}"),
            }
        }
        tickets
    }

    #[test]
    fn lower_classes_stop_at_the_target_the_highest_at_the_breaking_point() {
        let mut controller = controller(|_| {});
        assert_eq!(fill(&mut controller, 2, 2).len(), 4, "bronze: 2 servers of 2");
        assert_eq!(fill(&mut controller, 1, 3).len(), 2, "silver: 2 of 3, with what is there");
        assert_eq!(fill(&mut controller, 0, 2).len(), 2, "gold: 2 of 4");
        assert_eq!(fill(&mut controller, 2, 1).len(), 16, "pages have marks of their own");
        assert_eq!(fill(&mut controller, 2, 0).len(), 1000, "what no kind counts is let in");
    }

    #[test]
    fn a_completed_request_makes_room_and_a_dead_server_takes_its_own_along() {
        let mut controller = controller(|_| {});
        let tickets = fill(&mut controller, 2, 2);
        controller.handle_completion(Timestamp::ZERO, tickets[0], Outcome::answered());
        controller.handle_cancel(Timestamp::ZERO, tickets[1]);
        assert_eq!(fill(&mut controller, 2, 3).len(), 2);
        controller.handle_server(Timestamp::ZERO, ServerId(0), Status::Down);
        assert_eq!(fill(&mut controller, 2, 3).len(), 0);
        assert_eq!(fill(&mut controller, 0, 3).len(), 2, "of server b: 4, and 2 are there");
    }

    #[test]
    fn a_server_of_twice_the_weight_holds_twice_as_much() {
        let mut controller = controller(|setup| setup.servers[1].weight = 2.0);
        assert_eq!(fill(&mut controller, 2, 2).len(), 6);
    }

    #[test]
    fn with_partitions_each_class_has_the_marks_of_its_own_servers() {
        let mut controller = controller(|setup| {
            setup.classes.truncate(2);
            setup.partition = serde_json::from_str(r#"{ "policy": "static" }"#).expect("a policy of the table");
        });
        assert_eq!(fill(&mut controller, 1, 2).len(), 2, "one server");
        assert_eq!(fill(&mut controller, 0, 2).len(), 4, "the other, up to its breaking point");
        let state = controller.snapshot(Timestamp::ZERO);
        let held: Vec<u32> = state.partitions.iter().map(|partition| partition.held[1].in_flight).collect();
        assert_eq!(held, [4, 2]);
    }
}
