//! A sentry between the load generator and emulated servers, over HTTP/2 and in gRPC, on both of its sides.

use std::net::SocketAddr;

use tidegate_loadgen::{LoadRun, Plan, Protocol, Stream, grpc};
use tidegate_sentry::Process;
use tidegate_sentry::config::Config;
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster};
use tidegate_workload::ArrivalProcess;

use crate::support::load::{SECOND, assert_conserved, constant, run};
use crate::support::{PATIENCE, until};

/// Longer than any test, seconds.
const LONG: f64 = 3000.0;
/// So fast that it does not matter.
const FAST: f64 = 1e9;

/// A sentry that lets in what `admission` says, and speaks with a server as `scheme` says.
pub struct Site {
    process: Process,
    pub server: ThreadedCluster,
}

impl Site {
    pub fn start(spec: ServerSpec, scheme: &str, admission: &str) -> Site {
        let server = EmulatedCluster::start_on_thread(1, spec).expect("a server");
        let text = format!(
            "[sentry]\nworkers = 1\n[[application]]\nname = \"shop\"\nlisten = \"127.0.0.1:0\"\ntarget = \"1s\"\n\
             servers = \"{scheme}{}\"\nadmission = {admission}\n\
             [[application.class]]\nname = \"checkout\"\nmatch = {{ path_prefix = \"/shop.Checkout/\" }}\n\
             [[application.class]]\nname = \"rest\"\n\
             [[application.request_type]]\nname = \"call\"\nkind = \"work\"\nmatch = {{ path_prefix = \"/shop.\" }}\n",
            server.servers()[0].address()
        );
        let config = Config::parse(&text, "spoken.toml".as_ref()).expect("valid").config;
        Site { process: Process::start(config, None).expect("a sentry"), server }
    }

    fn address(&self) -> SocketAddr {
        self.process.sentry().addresses("shop")[0]
    }

    /// Calls of a method in a steady stream.
    pub fn stream(&self, class: &str, method: &str, rate: &str) -> Stream {
        let stream = Stream::new(class, rate.parse().expect("a profile")).timeout(PATIENCE);
        stream.url(&format!("http://{}{method}", self.address()), 1.0).expect("a URL")
    }
}

fn plan(protocol: Protocol, streams: Vec<Stream>) -> Plan {
    let mut plan = Plan { protocol, ..Plan::new(streams, SECOND) };
    for stream in &mut plan.streams {
        stream.arrivals = ArrivalProcess::Constant;
        if protocol == Protocol::Grpc {
            stream.body = grpc::message(1000);
        }
    }
    plan
}

#[test]
fn what_is_let_in_is_answered_whatever_is_spoken_on_either_side() {
    for (protocol, scheme) in
        [(Protocol::H2, ""), (Protocol::H1, "h2c://"), (Protocol::H2, "h2c://"), (Protocol::Grpc, "h2c://")]
    {
        let site = Site::start(ServerSpec::new(constant(0.001), 3000), scheme, "\"none\"");
        let report = run(plan(protocol, vec![site.stream("checkout", "/shop.Checkout/Pay", "50/s")]));
        assert_conserved(&report);
        let bytes = if protocol == Protocol::Grpc { 3005 } else { 3000 };
        let total = &report.total;
        assert_eq!((total.offered, total.admitted, total.bytes), (50, 50, 50 * bytes), "{protocol} {scheme} {report}");
        assert_eq!(site.server.stats().completed, 50, "{protocol} {scheme}");
    }
}

#[test]
fn what_is_not_let_in_is_refused_by_the_sentry_in_the_words_of_what_is_spoken() {
    for protocol in [Protocol::H2, Protocol::Grpc] {
        let policy = "{ policy = \"concurrency\", limit = 3, queue = 0 }";
        let site = Site::start(ServerSpec::new(constant(LONG), 10), "h2c://", policy);
        let plan = plan(protocol, vec![site.stream("checkout", "/shop.Checkout/Pay", "20/s")]);
        let load = LoadRun::start(plan).expect("a load");
        let progress = load.progress();
        until("all but three are refused", || {
            progress.borrow().classes.first().is_some_and(|class| (class.refused, class.in_flight) == (17, 3))
        });
        assert_eq!(site.server.stats().requests, 3, "the others never came to the server");
        site.server.set_speed(FAST);
        let report = load.join().expect("a report");
        assert_conserved(&report);
        let total = &report.total;
        assert_eq!((total.admitted, total.refused, total.refused_by_sentry), (3, 17, 17), "{report}");
        if protocol == Protocol::Grpc {
            assert_eq!(total.grpc_status, [(0, 3), (14, 17)].into(), "{report}");
        } else {
            assert_eq!(total.status, [(200, 3), (503, 17)].into(), "{report}");
        }
    }
}
