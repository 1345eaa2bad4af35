//! The space of jumps that hold the target, as the SOFTScale paper's figures 8, 14 and 16 draw it, with what it must
//! show.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plotters::prelude::*;
use tidegate_engine::{DispatchConfig, StealingProfile};
use tidegate_workload::Rate;

use super::plot::FONT;
use super::{ExperimentReport, WriteError};
use crate::configure::{self, ArmError};
use crate::scenario::{Point, Scenario, Space};

/// Why there is no figure of a space.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// There is nothing to draw.
    #[error("the sweep has no combination")]
    Empty,
    /// The outer arm is missing, or does not steal.
    #[error("{scenario}: [space] needs an arm \"{arm}\" with dispatch = softscale")]
    Outer {
        /// The scenario.
        scenario: String,
        /// The arm.
        arm: String,
    },
    /// The engine does not take the outer arm.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// A combination's settings are not those of a space.
    #[error("[space]: \"{key}\" of the sweep: {problem}")]
    Setting {
        /// The sweep's key.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

/// A sweep's runs as the space of jumps that hold the target.
#[derive(Debug)]
pub struct SpaceReport {
    space: Space,
    id: String,
    title: String,
    profile: StealingProfile,
    /// All application servers and all data servers.
    servers: (u32, u32),
    /// By load before the jump, thousandths of the peak: per jump what was measured.
    rows: BTreeMap<u64, Vec<Cell>>,
}

/// One jump: shares of the peak, and per span the 95th percentiles of the inner and the outer arm over the target.
#[derive(Debug)]
struct Cell {
    before: f64,
    after: f64,
    over_target: Vec<[f64; 2]>,
}

/// One load before the jump: the largest loads after it that hold the target, shares of the peak.
struct Reach {
    before: f64,
    inner: f64,
    outer: f64,
    model: f64,
}

impl SpaceReport {
    /// An empty figure.
    ///
    /// # Errors
    /// When the outer arm does not steal.
    pub fn new(space: &Space, points: &[Point]) -> Result<SpaceReport, SpaceError> {
        let scenario = &points.first().ok_or(SpaceError::Empty)?.scenario;
        let outer = || SpaceError::Outer { scenario: scenario.id.clone(), arm: space.outer.clone() };
        let arm = scenario.arms.iter().find(|arm| arm.name == space.outer).ok_or_else(outer)?;
        let DispatchConfig::Softscale(profile) = configure::setup(scenario, arm)?.dispatch else {
            return Err(outer());
        };
        let lending = scenario.tiers.iter().filter(|tier| tier.lends.is_some()).map(|tier| tier.count).sum::<usize>();
        Ok(SpaceReport {
            space: space.clone(),
            id: scenario.id.clone(),
            title: title(scenario),
            profile,
            servers: (scenario.servers.count as u32, lending as u32),
            rows: BTreeMap::new(),
        })
    }

    /// Takes a combination's runs.
    ///
    /// # Errors
    /// When its settings are not those of a space.
    pub fn add(&mut self, settings: &[(String, String)], report: &ExperimentReport) -> Result<(), SpaceError> {
        let wrong = |key: &str, problem: String| SpaceError::Setting { key: key.to_owned(), problem };
        let setting = |key: &str| {
            let found = settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
            found.ok_or_else(|| wrong(key, "is missing".to_owned()))
        };
        let before = setting(&self.space.before)?;
        let before: f64 = before
            .parse()
            .map_err(|_| wrong(&self.space.before, format!("\"{before}\" is not a number of percent")))?;
        let added = setting(&self.space.added)?;
        let added: Rate = added.parse().map_err(|error| wrong(&self.space.added, format!("\"{added}\": {error}")))?;
        let before = before / 100.0;
        let target = report.scenario.target(0.0).as_secs_f64();
        let p95 = |name: &str, at: usize| -> f64 {
            let span = self.space.over[at];
            let runs = report.arms.iter().find(|arm| arm.name == name).map(|arm| &arm.runs);
            let all = runs
                .into_iter()
                .flatten()
                .filter_map(|run| run.outcome.class(None).span(span.from, span.to).responses.quantile(0.95));
            // Of several seeds the worst.
            all.fold(0.0, f64::max) / target
        };
        let over_target = (0..self.space.over.len()).map(|at| [p95(&self.space.inner, at), p95(&self.space.outer, at)]);
        let after = before + added.per_second() / self.space.peak.per_second();
        let cell = Cell { before, after, over_target: over_target.collect() };
        self.rows.entry((before * 1000.0).round() as u64).or_default().push(cell);
        Ok(())
    }

    /// How many figures it makes: one for each span.
    pub fn figures(&self) -> usize {
        self.space.over.len()
    }

    /// The name of a figure's files, without their ends.
    pub fn name(&self, figure: usize) -> String {
        format!("{}.space-{}", self.id, figure + 1)
    }

    /// Whether the spaces show what they must.
    pub fn pass(&self) -> bool {
        self.holds().iter().all(|holds| *holds)
    }

    /// What the spaces must show, figure by figure, and whether they do.
    pub(crate) fn holds(&self) -> Vec<bool> {
        (0..self.figures()).flat_map(|figure| self.checks(figure).map(|(_, holds)| holds)).collect()
    }

    /// The largest jumps, and what they show.
    pub fn text(&self, figure: usize) -> String {
        let span = self.space.over[figure];
        let mut out =
            format!("{}: {}, p95 over {span}; largest load after the jump, % of the peak\n", self.id, self.title);
        let (inner, outer) = (&self.space.inner, &self.space.outer);
        let _ = writeln!(out, "  {:>6} {inner:>10} {outer:>10} {:>10}", "before", "equation 1");
        for reach in &self.reaches(figure) {
            let [before, inner, outer, model] =
                [reach.before, reach.inner, reach.outer, reach.model].map(|share| share * 100.0);
            let _ = writeln!(out, "  {before:>6.0} {inner:>10.0} {outer:>10.0} {model:>10.0}");
        }
        for (what, holds) in self.checks(figure) {
            let _ = writeln!(out, "  {} {what}", if holds { "ok    " } else { "MISSED" });
        }
        out
    }

    fn checks(&self, figure: usize) -> [(String, bool); 2] {
        let contains = format!("the space of {} contains that of {}", self.space.outer, self.space.inner);
        let follows = self.follows(&self.reaches(figure));
        [(contains, self.contains(figure)), ("the largest jumps follow equation 1".to_owned(), follows)]
    }

    /// Per load before the jump, what each arm reaches without a smaller jump that fails.
    fn reaches(&self, span: usize) -> Vec<Reach> {
        let reach = |cells: &Vec<Cell>| {
            let before = cells.first().map_or(0.0, |cell| cell.before);
            let largest = |arm: usize| {
                let held = cells.iter().take_while(|cell| cell.over_target[span][arm] <= 1.0);
                held.last().map_or(before, |cell| cell.after)
            };
            // Beyond the peak the data tier itself holds nothing more.
            let model = self.profile.reach(before, self.servers.0, self.servers.1).min(1.0);
            Reach { before, inner: largest(0), outer: largest(1), model }
        };
        self.rows.values().map(reach).collect()
    }

    fn contains(&self, span: usize) -> bool {
        let cells = || self.rows.values().flatten().map(|cell| cell.over_target[span]);
        cells().any(|[inner, outer]| inner > 1.0 && outer <= 1.0)
            && cells().all(|[inner, outer]| inner > 1.0 || outer <= 1.0)
    }

    /// Not below the model, and not above it by more than the elasticity that is there without stealing too. Nor can it
    /// be seen beyond the largest jump that was tried.
    fn follows(&self, reaches: &[Reach]) -> bool {
        let largest = |before: f64| {
            let cells = self.rows.values().flatten().filter(|cell| cell.before == before);
            cells.map(|cell| cell.after).fold(before, f64::max)
        };
        reaches.iter().all(|reach| {
            let least = reach.model.min(largest(reach.before)) - self.space.tolerance;
            let most = reach.model + (reach.inner - reach.before) + self.space.tolerance;
            (least..=most).contains(&reach.outer)
        })
    }

    /// What was measured of every jump.
    pub fn csv(&self, span: usize) -> String {
        let mut text =
            format!("before,after,{0}_p95_over_target,{1}_p95_over_target\n", self.space.inner, self.space.outer);
        for cell in self.rows.values().flatten() {
            let [inner, outer] = cell.over_target[span];
            let _ = writeln!(text, "{:.4},{:.4},{inner:.4},{outer:.4}", cell.before, cell.after);
        }
        text
    }

    /// Load before the jump to the right, after it upwards: grey where the outer arm holds the target, black where the
    /// inner one does too, and the model as a line.
    ///
    /// # Errors
    /// When the drawing library cannot.
    pub fn svg(&self, span: usize) -> Result<String, WriteError> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (560, 560)).into_drawing_area();
            self.draw(&area, span)
                .map_err(|error| WriteError::Figure { arm: self.space.outer.clone(), problem: error.to_string() })?;
        }
        Ok(svg)
    }

    fn draw(&self, area: &super::plot::Area<'_>, span: usize) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let (inner, outer, over) = (&self.space.inner, &self.space.outer, self.space.over[span]);
        let caption =
            format!("{}: black: {inner} holds the target over {over}; grey: {outer}; dashed: equation 1", self.id);
        let mut chart = ChartBuilder::on(area)
            .caption(caption, (FONT, 14))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(54)
            .build_cartesian_2d(0.0..100.0, 0.0..100.0)?;
        chart
            .configure_mesh()
            .x_desc("load before the jump, % of the peak")
            .y_desc("load after it, %")
            .axis_desc_style((FONT, 14))
            .label_style((FONT, 12))
            .light_line_style(TRANSPARENT)
            .bold_line_style(TRANSPARENT)
            .draw()?;
        let reaches = self.reaches(span);
        let width = reaches.windows(2).map(|pair| pair[1].before - pair[0].before).fold(0.1, f64::min) * 100.0;
        for cells in self.rows.values() {
            let mut below = cells.first().map_or(0.0, |cell| cell.before) * 100.0;
            for cell in cells {
                let (before, after) = (cell.before * 100.0, cell.after * 100.0);
                if let Some(colour) = colour(cell.over_target[span]) {
                    let corners = [(before - width / 2.0, below), (before + width / 2.0, after)];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                }
                below = after;
            }
        }
        let model = reaches.iter().map(|reach| (reach.before * 100.0, reach.model.min(1.0) * 100.0));
        let style = RGBColor(0, 102, 204).stroke_width(2);
        chart.draw_series(DashedLineSeries::new(model, 6, 4, style))?;
        area.present()?;
        Ok(())
    }
}

/// Of a jump by what the inner and the outer arm make of it: 95th percentiles over the target. A jump that only the
/// inner arm holds is red: it must not be there.
fn colour(over_target: [f64; 2]) -> Option<RGBColor> {
    match over_target.map(|ratio| ratio <= 1.0) {
        [true, true] => Some(RGBColor(34, 34, 34)),
        [false, true] => Some(RGBColor(170, 170, 170)),
        [true, false] => Some(RGBColor(204, 51, 51)),
        [false, false] => None,
    }
}

/// The title without the settings of the point that it is taken from.
fn title(scenario: &Scenario) -> String {
    scenario.title.split(" (").next().unwrap_or_default().to_owned()
}
