//! What deciding costs, without connections, store and servers: a plane that is told what a daemon would tell it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_control::plane::{Input, Plane, What};
use tidegate_engine::Timestamp;
use tidegate_provision::{ApplicationReport, Place, ServerNews, Site};

/// Inputs that are told together, as the daemon does.
const LOT: usize = 500;
/// Calls of each kind.
const CALLS: u64 = 200;
/// Servers that are free when the load rises, for each application.
const SPARE: u32 = 1;

/// Brings all servers up, then takes the time of single inputs, and of the periods around one in which the load rises.
pub fn costs(mut site: Site, sentries: usize) -> Result<Value, String> {
    let applications = site.applications.len();
    site.servers += SPARE * applications as u32;
    for application in &mut site.applications {
        application.max_servers += SPARE;
    }
    let mut timed = Timed { plane: Plane::new(site).map_err(|error| error.to_string())?, now: Timestamp::ZERO };
    for application in 0..applications {
        let names = (application..sentries).step_by(applications).map(|number| format!("sentry-{number:04}")).collect();
        timed.handle(&Input::Sentries { now: timed.now, application, names });
    }
    timed.handle(&Input::Began { now: timed.now });
    let starting = timed.all_up();
    let servers = timed.plane.places().iter().filter(|place| matches!(place, Place::Serving { .. })).count();
    let note = || Input::Note { now: Timestamp::ZERO, kind: String::from("note"), reason: String::from("nothing") };
    let notes: Duration = (0..CALLS).map(|_| timed.handle(&note())).sum();
    let quiet = (0..CALLS).map(|_| timed.period(8)).max().unwrap_or_default();
    // The trigger is the first period that decides after the load rose; what it decides on is pending when it returns.
    let mut reaction = None;
    for _ in 0..CALLS {
        let took = timed.period(40);
        if timed.plane.pending().any(|step| matches!(step.what, What::Start { .. })) {
            reaction = Some(took);
            break;
        }
    }
    let reaction = reaction.ok_or("no server was asked for although the load rose")?;
    Ok(json!({
        "servers_up": servers,
        "all_up_s": starting.as_secs_f64(),
        "note_us": notes.as_secs_f64() * 1e6 / CALLS as f64,
        "longest_period_ms": quiet.as_secs_f64() * 1e3,
        "reaction_ms": reaction.as_secs_f64() * 1e3,
    }))
}

struct Timed {
    plane: Plane,
    now: Timestamp,
}

impl Timed {
    /// How long it took.
    fn handle(&mut self, input: &Input) -> Duration {
        let began = Instant::now();
        self.plane.handle(input);
        let took = began.elapsed();
        drop(self.plane.take_records());
        took
    }

    /// A second later: every server of an application was offered so much.
    fn period(&mut self, each: u64) -> Duration {
        self.now = self.now + Duration::from_secs(1);
        let report = |numbers: tidegate_control::plane::Numbers| {
            let offered = vec![u64::from(numbers.serving) * each];
            Some(ApplicationReport { offered, busy: 0.4, ..ApplicationReport::default() })
        };
        let reports = self.plane.numbers().into_iter().map(report).collect();
        self.handle(&Input::Period { now: self.now, reports, sentries: Vec::new() })
    }

    /// Every step is done at once, and every server up.
    fn all_up(&mut self) -> Duration {
        let steps: Vec<u64> = self.plane.pending().map(|step| step.number).collect();
        let done = steps.into_iter().map(|step| Input::Done { now: self.now, step, process: None }).collect();
        let coming = |(server, place): (usize, &Place)| matches!(place, Place::Coming { .. }).then_some(server);
        let coming: Vec<usize> = self.plane.places().iter().enumerate().filter_map(coming).collect();
        let up = |server| Input::Server { now: self.now, server, news: ServerNews::Up, reason: String::from("up") };
        let up = coming.into_iter().map(up).collect();
        self.told(done) + self.told(up)
    }

    fn told(&mut self, inputs: Vec<Input>) -> Duration {
        let lots = inputs.chunks(LOT).map(|lot| Input::Several { now: self.now, inputs: lot.to_vec() });
        let lots: Vec<Input> = lots.collect();
        lots.iter().map(|lot| self.handle(lot)).sum()
    }
}
