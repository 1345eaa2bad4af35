//! The space of jumps that hold the target, as the SOFTScale paper's figures 8, 14 and 16 draw it, with what it must
//! show.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use tidegate_engine::{DispatchConfig, StealingProfile};
use tidegate_experiment::report::ExperimentReport;
use tidegate_experiment::scenario::{Point, Scenario, Space};
use tidegate_workload::Rate;

/// Collects a sweep's runs into the figure.
pub(super) struct Figure {
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

impl Figure {
    /// An empty figure.
    ///
    /// # Errors
    /// When the outer arm does not steal.
    pub(super) fn new(space: &Space, points: &[Point]) -> Result<Figure> {
        let scenario = &points.first().context("a sweep has a point")?.scenario;
        let arm = scenario.arms.iter().find(|arm| arm.name == space.outer);
        let arm = arm.ok_or_else(|| anyhow!("{}: [space] needs the arm \"{}\"", scenario.id, space.outer))?;
        let DispatchConfig::Softscale(profile) = tidegate_experiment::configure::setup(scenario, arm)?.dispatch else {
            return Err(anyhow!("{}: [space]: arm \"{}\" has no dispatch = softscale", scenario.id, arm.name));
        };
        let lending = scenario.tiers.iter().filter(|tier| tier.lends.is_some()).map(|tier| tier.count).sum::<usize>();
        Ok(Figure {
            space: space.clone(),
            id: scenario.id.clone(),
            title: title(scenario),
            profile,
            servers: (scenario.servers.count as u32, lending as u32),
            rows: BTreeMap::new(),
        })
    }

    /// Takes a point's runs.
    ///
    /// # Errors
    /// When its settings are not those of a space.
    pub(super) fn add(&mut self, settings: &[(String, String)], report: &ExperimentReport) -> Result<()> {
        let setting = |key: &str| {
            let found = settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
            found.ok_or_else(|| anyhow!("the sweep has no \"{key}\""))
        };
        let before = setting(&self.space.before)?;
        let before: f64 = before.parse().with_context(|| format!("\"{before}\" is not a number of percent"))?;
        let added = setting(&self.space.added)?;
        let added: Rate = added.parse().map_err(|error| anyhow!("\"{added}\": {error}"))?;
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

    /// Prints the largest jumps, writes figures and numbers, and says whether they show what they must.
    ///
    /// # Errors
    /// When nothing can be written.
    pub(super) fn conclude(&self, folder: &Path) -> Result<bool> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut pass = true;
        for (at, span) in self.space.over.iter().enumerate() {
            let reaches = self.reaches(at);
            let mut out = stdout();
            writeln!(out, "{}: {}, p95 over {span}; largest load after the jump, % of the peak", self.id, self.title)?;
            writeln!(out, "  {:>6} {:>10} {:>10} {:>10}", "before", self.space.inner, self.space.outer, "equation 1")?;
            for reach in &reaches {
                let [before, inner, outer, model] =
                    [reach.before, reach.inner, reach.outer, reach.model].map(|share| share * 100.0);
                writeln!(out, "  {before:>6.0} {inner:>10.0} {outer:>10.0} {model:>10.0}")?;
            }
            for (what, holds) in [
                (format!("the space of {} contains that of {}", self.space.outer, self.space.inner), self.contains(at)),
                ("the largest jumps follow equation 1".to_owned(), self.follows(&reaches)),
            ] {
                writeln!(out, "  {} {what}", if holds { "ok    " } else { "MISSED" })?;
                pass &= holds;
            }
            let name = format!("{}.space-{}", self.id, at + 1);
            for (end, text) in [("svg", self.svg(at, &reaches)), ("csv", self.csv(at))] {
                let file = folder.join(format!("{name}.{end}"));
                std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
                writeln!(out, "  written: {}", file.display())?;
            }
        }
        Ok(pass)
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

    fn csv(&self, span: usize) -> String {
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
    fn svg(&self, span: usize, reaches: &[Reach]) -> String {
        const SIZE: f64 = 400.0;
        let (x, y) = (|share: f64| 50.0 + share * SIZE, |share: f64| 20.0 + (1.0 - share) * SIZE);
        let mut svg = String::from(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 470" font-family="sans-serif" font-size="12">
<rect width="480" height="470" fill="white"/>
"#,
        );
        let width = reaches.windows(2).map(|pair| pair[1].before - pair[0].before).fold(0.1, f64::min) * SIZE;
        for cells in self.rows.values() {
            let mut below = cells.first().map_or(0.0, |cell| cell.before);
            for cell in cells {
                let fill = match cell.over_target[span] {
                    [inner, outer] if inner <= 1.0 && outer <= 1.0 => Some("#222"),
                    [_, outer] if outer <= 1.0 => Some("#aaa"),
                    [inner, _] if inner <= 1.0 => Some("#c33"),
                    _ => None,
                };
                if let Some(fill) = fill {
                    let (left, top, height) =
                        (x(cell.before) - width / 2.0, y(cell.after), (cell.after - below) * SIZE);
                    let _ = writeln!(
                        svg,
                        r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
                    );
                }
                below = cell.after;
            }
        }
        let line: Vec<String> =
            reaches.iter().map(|reach| format!("{:.1},{:.1}", x(reach.before), y(reach.model.min(1.0)))).collect();
        let _ = writeln!(
            svg,
            r##"<polyline points="{}" fill="none" stroke="#06c" stroke-width="2" stroke-dasharray="6 4"/>"##,
            line.join(" ")
        );
        for percent in (0..=100).step_by(20) {
            let share = f64::from(percent) / 100.0;
            let _ = writeln!(
                svg,
                r#"<text x="{:.0}" y="436" text-anchor="middle">{percent}</text><text x="44" y="{:.0}" text-anchor="end">{percent}</text>"#,
                x(share),
                y(share) + 4.0
            );
        }
        let (inner, outer, target) = (&self.space.inner, &self.space.outer, self.space.over[span]);
        let _ = writeln!(
            svg,
            r#"<rect x="50" y="20" width="400" height="400" fill="none" stroke="black"/>
<text x="250" y="452" text-anchor="middle">load before the jump, % of the peak</text>
<text x="14" y="220" text-anchor="middle" transform="rotate(-90 14 220)">load after it, %</text>
<text x="60" y="14">{id}: black: {inner} holds the target over {target}; grey: {outer}; dashed: equation 1</text>
</svg>"#,
            id = self.id,
        );
        svg
    }
}

/// The title without the settings of the point that it is taken from.
fn title(scenario: &Scenario) -> String {
    scenario.title.split(" (").next().unwrap_or_default().to_owned()
}
