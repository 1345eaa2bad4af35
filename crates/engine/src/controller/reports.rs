//! What was measured on servers of single requests, and who learns from it.

use super::core_state::Core;
use crate::estimate::Costs;
use crate::fleet::Status;
use crate::report::MeasuredCost;
use crate::request::{Request, ServerId};
use crate::time::Timestamp;

impl Core {
    pub(super) fn take_cost(&mut self, now: Timestamp, server: ServerId, request: &Request, cost: &MeasuredCost) {
        let (in_all, processors) = (self.in_flight() as f64, self.fleet.sums.processors);
        let server = self.fleet.servers.get_mut(server.index());
        let Some(state) = server.filter(|server| server.status != Status::Removed) else { return };
        let (classes, types) = (self.estimates.classes.len(), self.estimates.costs.types());
        let known = classes > request.class.index() && types > request.request_type.index();
        let is_sound = |seconds: f64| seconds >= 0.0 && seconds.is_finite();
        if !(known && is_sound(cost.cpu) && is_sound(cost.io)) {
            return;
        }
        state.reported.note_cost(now);
        let is_calm = f64::from(state.in_flight) <= state.capacity.processors() && in_all <= processors;
        if let Some(service_time) = cost.service_time.filter(|_| is_calm) {
            self.estimates.alpha.record(service_time, cost.cpu, cost.io);
        }
        let inherent = self.estimates.alpha.inherent(cost.cpu, cost.io);
        self.learn_cost(|costs| costs.record_measured(request, inherent));
    }

    /// Lets the costs learn. When they find their unit, what capacities know in the old one goes.
    pub(super) fn learn_cost<T>(&mut self, learn: impl FnOnce(&mut Costs) -> T) -> T {
        let costs = &mut self.estimates.costs;
        let had_unit = costs.has_unit();
        let learned = learn(costs);
        if !had_unit && costs.has_unit() {
            self.fleet.servers.iter_mut().for_each(|server| server.capacity.forget_sharing());
        }
        learned
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::String;
    use core::time::Duration;

    use crate::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn controller(policy: &str, cores: Option<f64>) -> Controller {
        let sla = Sla::constant(Statistic::P95, SECOND).expect("more than zero");
        let server = |name: &str| ServerSetup { cores, ..ServerSetup::new(name) };
        let mut setup = Setup::simple("reports", sla, [server("a"), server("b")]);
        setup.admission = AdmissionConfig::from_name(policy).expect("a name of the table");
        setup.default_cost = Some(Duration::from_millis(100));
        Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense")
    }

    fn report(controller: &mut Controller, server: u16, load: ServerLoad) {
        controller.handle_report(Timestamp::ZERO, LoadReport::Server { server: ServerId(server), load });
    }

    /// How many requests are let in before one is refused.
    fn room(controller: &mut Controller) -> usize {
        let admits = |controller: &mut Controller| {
            matches!(controller.handle_arrival(Timestamp::ZERO, Request::default()), Decision::Admit { .. })
        };
        (0..1000).take_while(|_| admits(controller)).count()
    }

    #[test]
    fn a_queue_at_the_servers_leaves_room_for_fewer() {
        let with = |delays: [Option<f64>; 2]| {
            let mut controller = controller("batch", Some(1.0));
            for (server, queueing_delay) in (0..).zip(delays) {
                report(&mut controller, server, ServerLoad { queueing_delay, ..ServerLoad::default() });
            }
            room(&mut controller)
        };
        let none = with([None, None]);
        assert_eq!(with([Some(0.0), Some(0.0)]), none);
        let (one, both) = (with([Some(0.4), None]), with([Some(0.4), Some(0.4)]));
        assert!(both < one && one < none, "{none}, {one}, {both}");
    }

    #[test]
    fn requests_that_others_sent_take_places() {
        let with = |in_service: f64, cores: Option<f64>| {
            let mut controller = controller("batch", cores);
            let load = ServerLoad { in_service: Some(in_service), ..ServerLoad::default() };
            report(&mut controller, 0, load);
            report(&mut controller, 1, load);
            room(&mut controller)
        };
        let free = with(0.0, Some(2.0));
        assert_eq!(with(3.0, Some(2.0)) + 6, free);
        assert_eq!(with(3.0, None), with(0.0, None), "a learned number of processors has them in it already");
    }

    /// Two sentries share the servers: what the other sent fills them too.
    #[test]
    fn requests_of_other_sentries_count_by_kind() {
        let with = |others: f64| {
            let sla = Sla::constant(Statistic::P95, SECOND).expect("more than zero");
            let mut setup = Setup::simple("kinds", sla, ["a", "b"].map(ServerSetup::new));
            setup.admission = AdmissionConfig::from_name("switch").expect("a name of the table");
            let (name, request_types) = (String::from("default"), alloc::vec![String::from("default")]);
            setup.max_conn = alloc::vec![MaxConn { name, request_types, within_target: 8.0, most: 10.0 }];
            let mut controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
            for server in [0, 1] {
                let (server, request_type) = (ServerId(server), RequestTypeId(0));
                controller.handle_report(Timestamp::ZERO, LoadReport::Active { server, request_type, count: others });
                report(&mut controller, server.0, ServerLoad::default());
            }
            let room = room(&mut controller);
            let held = controller.snapshot(Timestamp::ZERO).partitions[0].held[0].clone();
            assert_eq!((f64::from(held.in_flight), held.elsewhere), (room as f64, 2.0 * others));
            controller.handle_report(Timestamp::ZERO, LoadReport::Silent(ServerId(0)));
            assert_eq!(controller.snapshot(Timestamp::ZERO).partitions[0].held[0].elsewhere, others);
            room
        };
        assert_eq!((with(0.0), with(3.0), with(50.0)), (20, 14, 0));
    }

    #[test]
    fn what_waits_at_a_server_counts_once() {
        let mut controller = controller("none", Some(1.0));
        for _ in 0..8 {
            controller.handle_arrival(Timestamp::ZERO, Request::default());
        }
        let load = ServerLoad { queueing_delay: Some(0.3), waiting: Some(3.0), ..ServerLoad::default() };
        report(&mut controller, 0, load);
        let server = &controller.snapshot(Timestamp::ZERO).servers[0];
        assert_eq!((server.queueing_delay, server.elsewhere), (Some(0.3), Some(-3.0)));
    }

    #[test]
    fn a_silent_server_is_judged_as_one_without_a_nucleus() {
        let mut with = controller("batch", None);
        let load = ServerLoad { queueing_delay: Some(0.4), processors: Some(4.0), ..ServerLoad::default() };
        report(&mut with, 0, load);
        assert_eq!(with.snapshot(Timestamp::ZERO).processors, 5.0);
        with.handle_report(Timestamp::ZERO, LoadReport::Silent(ServerId(0)));
        let server = &with.snapshot(Timestamp::ZERO).servers[0];
        assert!(server.queueing_delay.is_none() && server.elsewhere.is_none() && server.learned);
    }

    #[test]
    fn processors_of_the_setup_go_before_those_of_a_nucleus() {
        let mut controller = controller("batch", Some(2.0));
        report(&mut controller, 0, ServerLoad { processors: Some(16.0), ..ServerLoad::default() });
        assert_eq!(controller.snapshot(Timestamp::ZERO).processors, 4.0);
    }

    #[test]
    fn unknown_servers_and_nonsense_do_no_harm() {
        let mut controller = controller("batch", Some(2.0));
        let load = ServerLoad {
            queueing_delay: Some(f64::NAN),
            in_service: Some(-7.0),
            waiting: Some(f64::INFINITY),
            processors: Some(0.0),
        };
        report(&mut controller, 0, load);
        report(&mut controller, 9, load);
        controller.handle_report(Timestamp::ZERO, LoadReport::Silent(ServerId(900)));
        let cost = MeasuredCost { cpu: f64::NAN, ..MeasuredCost::default() };
        controller.handle_cost(Timestamp::ZERO, ServerId(0), &Request::default(), cost);
        let odd = Request { class: ClassId(77), request_type: RequestTypeId(99), ..Request::default() };
        controller.handle_cost(Timestamp::ZERO, ServerId(0), &odd, MeasuredCost::default());
        assert!(room(&mut controller) > 0);
    }

    /// Both URLs take equally long as seen from here, because something else slows one of them; measured, they differ.
    #[test]
    fn measured_costs_go_before_response_times() {
        let mut controller = controller("none", Some(2.0));
        let url = |key: u64| Request { url: UrlKey(key << 32 | key), ..Request::default() };
        let mut now = Timestamp::ZERO;
        for i in 0..2000u64 {
            let request = url(1 + i % 2);
            let Decision::Admit { ticket, server, .. } = controller.handle_arrival(now, request) else {
                panic!("nothing is refused")
            };
            now = now + Duration::from_millis(20);
            let cpu = if i % 2 == 0 { 0.004 } else { 0.016 };
            let cost = MeasuredCost { cpu, io: 0.0, service_time: Some(0.020) };
            controller.handle_cost(now, server, &request, cost);
            controller.handle_completion(now, ticket, Outcome::answered());
            controller.handle_timeout(now);
        }
        let costs = &controller.core.estimates.costs;
        let ratio = costs.estimate(&url(2)) / costs.estimate(&url(1));
        assert!((ratio / 4.0 - 1.0).abs() < 0.05, "{ratio}");
        let mean = costs.mean().expect("known");
        assert!((0.015..0.025).contains(&mean), "in seconds of response time: {mean}");
    }

    #[test]
    fn after_measured_costs_stop_response_times_count_again() {
        let mut controller = controller("none", Some(2.0));
        let now = Timestamp::ZERO;
        let cost = MeasuredCost { cpu: 0.01, ..MeasuredCost::default() };
        controller.handle_cost(now, ServerId(0), &Request::default(), cost);
        assert!(controller.snapshot(now + SECOND).servers[0].measures_costs);
        assert!(!controller.snapshot(now + 5 * SECOND).servers[0].measures_costs);
    }
}
