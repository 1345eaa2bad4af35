//! A data server that lends cores.

use super::*;
use crate::reports::Division;

/// An application server and a data server that lends a core while the load is low.
fn lender() -> Bench {
    let text = "[[application]]\nname = \"shop\"\nlisten = \"127.0.0.1:0\"\nadmission = \"none\"\n\
        servers = [\"127.0.0.1:1\", { address = \"127.0.0.1:2\", role = \"data\", cores = 2 }]\n\
        dispatch = { policy = \"softscale\", n_app = 2, peak = \"100/s\", steps = [{ below = 0.5, n_data = 3, cores = 1 }] }\n";
    let config = Config::parse(text, std::path::Path::new("lender.toml")).expect("valid").config.applications.remove(0);
    let app = Arc::new(App::new(config, 1, 1, Arc::new(NoRecords)).expect("it makes sense"));
    Bench::new(vec![app], WhenSilent::Exclude)
}

impl Bench {
    /// Lets the controllers look at the clock, as their timers do.
    fn tick(&mut self) {
        for app in &self.apps {
            app.engine(|core, now| {
                if let Some((at, _)) = core.controller.poll_timeout() {
                    core.controller.handle_timeout(at.max(now));
                }
            });
        }
    }

    /// The command that the listener would send, with its destination.
    fn command(&mut self) -> Option<(u16, SocketAddr)> {
        self.nuclei.advance(self.now);
        self.nuclei.finish();
        let (datagram, to) = self.nuclei.poll_command()?;
        let command = Message::read(&keys(), datagram).expect("sound").command.expect("a command");
        Some((command.cores, to))
    }

    fn division(&self) -> Division {
        self.nuclei.divisions().remove(0).1
    }

    fn lends(&self) -> bool {
        self.apps[0].snapshot().servers[1].can_lend
    }
}

#[test]
fn a_data_servers_nucleus_is_told_how_to_divide_its_cores_until_it_has() {
    let mut bench = lender();
    let mut nucleus = Nucleus::new("127.0.0.1:2", 7);
    nucleus.gauges.set(Gauge::IsolationFailures, 0.0);
    nucleus.enter(&mut bench);
    bench.tick();
    assert_eq!(bench.command(), Some((1, FROM)), "at once");
    assert_eq!(bench.command(), None);
    nucleus.report(&mut bench);
    assert_eq!(bench.command(), Some((1, FROM)), "the first was lost");
    nucleus.gauges.set(Gauge::IsolatedCores, 1.0);
    nucleus.report(&mut bench);
    assert_eq!(bench.command(), None);
    let division = bench.division();
    assert_eq!((division.wanted, division.in_force, division.problem), (1, Some(1), None));
    bench.pass(100);
    assert!(bench.division().age.is_some_and(|age| (0.09..0.2).contains(&age)));
    assert_eq!(bench.nuclei.to_json()[1]["isolation"]["in_force"], 1);
}

#[test]
fn a_data_server_whose_nucleus_cannot_divide_is_not_stolen_from() {
    let mut bench = lender();
    let mut nucleus = Nucleus::new("127.0.0.1:2", 7);
    nucleus.gauges.set(Gauge::IsolationFailures, 1.0);
    nucleus.gauges.set(Gauge::IsolationProblem, f64::from(tidegate_wire::IsolationProblem::NoPermission.code()));
    nucleus.enter(&mut bench);
    bench.tick();
    assert_eq!(bench.command(), Some((1, FROM)));
    bench.pass(20);
    assert!(!bench.lends());
    assert_eq!((bench.division().problem, bench.division().problems), (Some("no-permission"), 1));
    assert_eq!(bench.status(1), Status::Up, "it is not down: nothing is stolen there, that is all");
    nucleus.gauges.set(Gauge::IsolationProblem, 0.0);
    nucleus.gauges.set(Gauge::IsolatedCores, 1.0);
    nucleus.report(&mut bench);
    bench.pass(20);
    assert!(bench.lends());
}

#[test]
fn under_another_policy_nobody_is_told_to_divide() {
    let mut bench = lender();
    let mut nucleus = Nucleus::new("127.0.0.1:2", 7);
    nucleus.gauges.set(Gauge::IsolationFailures, 0.0);
    nucleus.enter(&mut bench);
    bench.tick();
    assert_eq!(bench.command(), Some((1, FROM)));
    let mut config = bench.apps[0].live().config.clone();
    config.setup.dispatch = tidegate_engine::DispatchConfig::default();
    bench.apps[0].reconfigure(config).expect("it makes sense");
    nucleus.report(&mut bench);
    assert_eq!((bench.command(), bench.nuclei.divisions().len()), (None, 0));
}

#[test]
fn a_command_to_the_sentry_makes_no_sense() {
    let mut bench = lender();
    let mut nucleus = Nucleus::new("127.0.0.1:2", 7);
    nucleus.enter(&mut bench);
    let mut buffer = [0; MAX_DATAGRAM];
    let command = tidegate_wire::Command { cores: 9 };
    let length = Message::write_command(
        &keys().first(),
        &nucleus.sender.next(Kind::Command),
        "127.0.0.1:2",
        command,
        &mut buffer,
    );
    assert_eq!(bench.hand(&buffer[..length]), None);
    assert_eq!(bench.counts.rejected(Rejected::Malformed), 1);
}
