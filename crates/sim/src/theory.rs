//! The simulator held against queueing theory: models whose answers are known in closed form.
//!
//! Each row plays a world under policy `none`, cuts the run into batches, leaves out the first, and asks whether the
//! theory's value lies in the 99 % confidence interval that the batches' means give (Student's t; batch means after Law
//! and Kelton). Batches are long against the time in which these queues forget, so their means are nearly independent.
//! By chance one row in a hundred misses its interval: with a fixed seed the table is the same on every run.

use std::time::Duration;

use tidegate_engine::{AdmissionConfig, ServerSetup, Setup, SetupError, Sla, Statistic};
use tidegate_workload::{ArrivalProcess, Course, Discipline, Profile, Rate, Second, ServiceTime};

use crate::model::ServerModel;
use crate::world::{Stream, Url, Users, World};

/// One model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name, with its parameters.
    pub model: String,
    /// What is compared.
    pub what: &'static str,
    /// The theory's value.
    pub theory: f64,
    /// The mean of the batches.
    pub simulated: f64,
    /// Half the width of its 99 % confidence interval.
    pub half_width: f64,
}

impl Row {
    /// Whether the theory's value lies in the interval.
    pub fn agrees(&self) -> bool {
        (self.simulated - self.theory).abs() <= self.half_width
    }

    /// How wide the interval is, relative to the theory's value: half of it.
    pub fn precision(&self) -> f64 {
        self.half_width / self.theory
    }
}

/// Batches that count, and Student's t for 99 % with one degree of freedom less.
const BATCHES: usize = 30;
const T_99: f64 = 2.756;

/// Mean service time, seconds.
const MEAN: f64 = 0.01;

/// Every model, each in a run of about `requests` requests.
///
/// # Errors
/// Never, unless the engine refuses the simplest setup there is.
pub fn table(seed: u64, requests: u32) -> Result<Vec<Row>, SetupError> {
    // Each row has arrivals of its own: a seed that is unlucky for one must not be for all.
    let seeds = std::cell::Cell::new(seed.wrapping_mul(1000));
    let row = |model: &str, world: World, figure: Figure, theory: f64| {
        seeds.set(seeds.get().wrapping_add(1));
        row(model, world, figure, theory, seeds.get())
    };
    let open = |model: &str, world: World, theory: f64| row(model, world, Figure::Response, theory);
    let loss = |model: &str, world: World, theory: f64| row(model, world, Figure::Loss, theory);
    let exponential = of(ServiceTime::exponential(MEAN));
    let constant = of(ServiceTime::constant(MEAN));
    let uneven = of(ServiceTime::lognormal(MEAN, 2.0));
    let bimodal = of(ServiceTime::bimodal(MEAN / 2.0, MEAN * 5.5, 0.1));
    let ps = |time| single(requests, 0.7, 1, Discipline::ProcessorSharing, time);
    let fifo = |load, cores, time| single(requests, load, cores, Discipline::Fifo, time);
    let mut full = fifo(1.2, 1, exponential);
    (full.servers[0].limit, full.servers[0].backlog) = (Some(5), Some(0));
    let mut trunks = fifo(1.0, 8, exponential);
    (trunks.servers[0].limit, trunks.servers[0].backlog) = (Some(8), Some(0));
    Ok(vec![
        open("M/M/1, load 0.7", fifo(0.7, 1, exponential), pollaczek_khinchine(0.7, 1.0))?,
        open("M/M/8, load 0.9", fifo(0.9, 8, exponential), erlang_c_response(8, 0.9))?,
        open("M/D/1, load 0.8", fifo(0.8, 1, constant), pollaczek_khinchine(0.8, 0.0))?,
        open("M/G/1 FIFO, lognormal, cv 2, load 0.6", fifo(0.6, 1, uneven), pollaczek_khinchine(0.6, 4.0))?,
        open("M/M/1-PS, load 0.7", ps(exponential), MEAN / 0.3)?,
        open("M/D/1-PS, load 0.7: the same", ps(constant), MEAN / 0.3)?,
        open("M/G/1-PS, lognormal, cv 2, load 0.7: the same", ps(uneven), MEAN / 0.3)?,
        open("M/G/1-PS, bimodal 1:11, load 0.7: the same", ps(bimodal), MEAN / 0.3)?,
        loss("M/M/1/5, load 1.2", full, blocking(5, 1.2))?,
        loss("Erlang B: M/M/8/8, load 1.0", trunks, erlang_b(8, 8.0))?,
        open("closed: 20 users, think 0.2 s, one server", closed(requests, 20, 0.2), mean_value_analysis(20, 0.2))?,
    ])
}

/// The table in Markdown, for documents.
pub fn markdown(rows: &[Row]) -> String {
    let mut text =
        String::from("| model | what | theory | simulated | 99 % interval | agrees |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let Row { model, what, theory, simulated, half_width } = row;
        let agrees = if row.agrees() { "yes" } else { "no" };
        text.push_str(&format!(
            "| {model} | {what} | {theory:.5} | {simulated:.5} | +- {half_width:.5} | {agrees} |\n"
        ));
    }
    text
}

/// What is measured in each batch.
#[derive(Clone, Copy)]
enum Figure {
    Response,
    Loss,
}

fn row(model: &str, world: World, figure: Figure, theory: f64, seed: u64) -> Result<Row, SetupError> {
    let report = world.run(seed)?;
    let means = batch_means(&report.courses[0], world.duration, |batch| match figure {
        Figure::Response => batch.responses.mean().unwrap_or(0.0),
        Figure::Loss => batch.failed as f64 / batch.offered.max(1) as f64,
    });
    let n = means.len() as f64;
    let simulated = means.iter().sum::<f64>() / n;
    let variance = means.iter().map(|mean| (mean - simulated).powi(2)).sum::<f64>() / (n - 1.0);
    let what = match figure {
        Figure::Response => "mean response time, s",
        Figure::Loss => "share lost",
    };
    Ok(Row { model: model.to_owned(), what, theory, simulated, half_width: T_99 * (variance / n).sqrt() })
}

fn batch_means(course: &Course, duration: Duration, figure: impl Fn(&Second) -> f64) -> Vec<f64> {
    let length = duration.as_secs() / (BATCHES as u64 + 1);
    let batch = |number: u64| {
        let from = Duration::from_secs(number * length);
        course.span(from, from + Duration::from_secs(length))
    };
    (1..=BATCHES as u64).map(|number| figure(&batch(number))).collect()
}

/// One server at a share of its capacity, for whole seconds in each batch.
fn single(requests: u32, load: f64, cores: u32, discipline: Discipline, time: ServiceTime) -> World {
    let rate = load * f64::from(cores) / MEAN;
    let mut world = empty(f64::from(requests) / rate, cores, discipline);
    let profile = Profile::constant(of(Rate::new(rate).ok_or(())));
    let process = ArrivalProcess::Poisson;
    world.streams =
        vec![Stream { class: 0, profile, process, urls: vec![Url::new(1, time)], retry: None, deadline: None }];
    world
}

/// Users who think and ask.
fn closed(requests: u32, count: u32, think: f64) -> World {
    let exponential = |mean| of(ServiceTime::exponential(mean));
    let rate = 1.0 / MEAN;
    let mut world = empty(f64::from(requests) / rate, 1, Discipline::Fifo);
    world.users = vec![Users {
        from: Duration::ZERO,
        until: Duration::MAX,
        class: 0,
        count,
        think: exponential(think),
        states: vec![vec![Url::new(1, exponential(MEAN))]],
        start: vec![1.0],
        next: vec![vec![1.0]],
        pause: exponential(think),
        retry: None,
    }];
    world
}

fn empty(seconds: f64, cores: u32, discipline: Discipline) -> World {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(3600));
    let mut setup = Setup::simple("theory", of(sla), [ServerSetup::new("server")]);
    setup.admission = AdmissionConfig::None(Default::default());
    let batches = BATCHES as f64 + 1.0;
    let seconds = (seconds / batches).ceil().max(1.0) * batches;
    let server = ServerModel::new(f64::from(cores), discipline);
    World::new(setup, vec![server], Duration::from_secs_f64(seconds))
}

/// Mean response time of M/G/1, seconds, by the squared coefficient of variation of the service time.
fn pollaczek_khinchine(load: f64, cv2: f64) -> f64 {
    MEAN * (1.0 + load / (1.0 - load) * (1.0 + cv2) / 2.0)
}

/// Mean response time of M/M/c, seconds.
fn erlang_c_response(servers: u32, load: f64) -> f64 {
    let offered = f64::from(servers) * load;
    let lost = erlang_b(servers, offered);
    let waits = lost / (1.0 - load * (1.0 - lost));
    MEAN * (1.0 + waits / (f64::from(servers) * (1.0 - load)))
}

/// Share lost by M/M/c/c at `offered` erlangs.
fn erlang_b(servers: u32, offered: f64) -> f64 {
    (1..=servers).fold(1.0, |lost, n| offered * lost / (f64::from(n) + offered * lost))
}

/// Share lost by M/M/1/K.
fn blocking(places: u32, load: f64) -> f64 {
    let weights: Vec<f64> = (0..=places).map(|n| (0..n).fold(1.0, |weight, _| weight * load)).collect();
    weights[places as usize] / weights.iter().sum::<f64>()
}

/// Mean response time, seconds, with `users` who think for `think` seconds: exact mean value analysis.
fn mean_value_analysis(users: u32, think: f64) -> f64 {
    let (mut queue, mut response) = (0.0, MEAN);
    for n in 1..=users {
        response = MEAN * (1.0 + queue);
        queue = f64::from(n) / (response + think) * response;
    }
    response
}

/// Values in this file are right by sight.
fn of<T, E: std::fmt::Debug>(value: Result<T, E>) -> T {
    value.expect("a constant of this file makes sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from tables, so that the formulas above are not held against themselves alone.
    #[test]
    fn formulas_give_the_values_of_tables() {
        assert!((erlang_b(10, 5.0) - 0.018_385).abs() < 1e-6);
        assert!((erlang_b(1, 1.0) - 0.5).abs() < 1e-12);
        assert!((erlang_c_response(1, 0.5) - pollaczek_khinchine(0.5, 1.0)).abs() < 1e-12);
        assert!((blocking(1, 1.0) - 0.5).abs() < 1e-12);
        assert!((mean_value_analysis(1, 5.0) - MEAN).abs() < 1e-12);
        // So many users that the server is never idle: response = n S - Z.
        assert!((mean_value_analysis(1000, 1.0) - (1000.0 * MEAN - 1.0)).abs() < 1e-6);
    }
}
