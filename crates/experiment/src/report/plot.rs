//! The figure of a run, in the style of the papers: what was offered, what was admitted, which share of it, and how
//! fast it was answered, each over time; and what else moved, such as servers, sentries and the rates of controllers.

use std::time::Duration;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use tidegate_sim::Provision;
use tidegate_workload::{Course, Second};

use super::Mode;
use crate::outcome::{Control, Outcome, Provisioned};
use crate::scenario::Scenario;

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito), the darkest first.
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
pub(super) const TARGET: RGBColor = RGBColor(213, 94, 0);

const SIZE: (u32, u32) = (1240, 900);
pub(super) const FONT: &str = "sans-serif";
/// Points along the time axis: more would be noise.
const POINTS: f64 = 130.0;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Line = Vec<(f64, f64)>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The figure as SVG.
pub(super) fn render(scenario: &Scenario, arm: &str, mode: Mode, outcome: &Outcome) -> Result<String, String> {
    let mut svg = String::new();
    {
        let figure = Figure::new(scenario, outcome);
        let size = (SIZE.0, SIZE.1 * figure.panels.len() as u32 / 4);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        figure.draw(&area, &format!("{} ({arm}, {}): {}", scenario.id, mode.name(), scenario.title)).map_err(text)?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

#[allow(clippy::needless_pass_by_value, reason = "it is a function for map_err")]
fn text(error: Box<dyn std::error::Error>) -> String {
    error.to_string()
}

/// One panel.
struct Panel {
    title: &'static str,
    unit: &'static str,
    lines: Vec<(String, RGBColor, Line)>,
    /// The response-time target, where the panel has one.
    target: Option<Line>,
    top: f64,
}

struct Figure {
    seconds: f64,
    panels: Vec<Panel>,
}

impl Figure {
    fn new(scenario: &Scenario, outcome: &Outcome) -> Figure {
        let groups = outcome.groups();
        let seconds = scenario.duration.as_secs_f64();
        let bins = Bins::new(seconds);
        let lines = |value: &dyn Fn(&Second) -> Option<f64>| {
            let line = |(at, (name, course)): (usize, &(String, Course))| {
                (name.clone(), COLOURS[at % COLOURS.len()], bins.line(course, value))
            };
            groups.iter().enumerate().map(line).collect::<Vec<_>>()
        };
        let width = bins.width;
        let all = outcome.class(None);
        let p95 = bins.line(&all, &|sum| sum.responses.quantile(0.95));
        let target: Line = bins.starts().map(|at| (at, target(scenario, at))).collect();
        let panels = vec![
            Panel::new("(a) offered", "requests/s", lines(&|sum| Some(sum.offered as f64 / width))),
            Panel::new("(b) admitted", "requests/s", lines(&|sum| Some(sum.admitted() as f64 / width))),
            Panel::new("(c) share admitted", "share of offered", lines(&|sum| share(sum.admitted(), sum.offered))),
            Panel::new(
                "(d) 95th percentile of response time",
                "seconds",
                vec![("all admitted".to_owned(), COLOURS[0], p95)],
            ),
        ];
        let mut figure = Figure { seconds, panels };
        // What was offered and what was admitted of it are read off against each other.
        figure.panels[1].top = figure.panels[0].top;
        figure.panels[2].top = 1.05;
        figure.panels[3].show_target(target);
        if !outcome.controls.is_empty() {
            figure.panels.push(Panel::new("(e) admission rate", "requests/s", control_lines(outcome, |at| at.rate)));
            figure.panels.push(quality_or_percentile(outcome));
        }
        if !outcome.partitions.is_empty() {
            figure.panels.push(Panel::new("servers of each class", "servers", partition_lines(outcome)));
            figure.panels.push(Panel::new(
                "share refused",
                "share of offered",
                lines(&|sum| share(sum.refused, sum.offered)),
            ));
        }
        figure.panels.extend(provisioned(outcome));
        figure
    }

    fn draw(&self, area: &Area<'_>, title: &str) -> Drawn {
        area.fill(&WHITE)?;
        let area = area.titled(title, (FONT, 24))?;
        for (panel, part) in self.panels.iter().zip(area.split_evenly((self.panels.len() / 2, 2))) {
            panel.draw(&part, self.seconds)?;
        }
        Ok(())
    }
}

/// A line for each partition: its class, second by second, as stairs.
fn partition_lines(outcome: &Outcome) -> Vec<(String, RGBColor, Line)> {
    let line = |(at, name): (usize, &str)| {
        let count = |(second, sizes): (usize, &Vec<usize>)| sizes.get(at).map(|&count| (second as f64, count as f64));
        let points: Line = outcome.partitions.iter().enumerate().filter_map(count).collect();
        let stairs = points.iter().flat_map(|&(second, count)| [(second, count), (second + 1.0, count)]);
        (name.to_owned(), COLOURS[at % COLOURS.len()], stairs.collect())
    };
    outcome.classes().into_iter().enumerate().map(line).collect()
}

/// A line for each application: what it had, second by second.
fn provisioned_lines(outcome: &Outcome, value: fn(&Provision) -> f64) -> Vec<(String, RGBColor, Line)> {
    let applications = outcome.provisioned.iter().enumerate();
    let line = |(at, application): (usize, &Provisioned)| {
        let points = application.seconds.iter().enumerate().map(|(second, had)| (second as f64, value(had)));
        (application.name.clone(), COLOURS[at % COLOURS.len()], points.collect())
    };
    applications.map(line).collect()
}

/// Two panels for the servers and two for the sentries, where they came or went.
fn provisioned(outcome: &Outcome) -> Vec<Panel> {
    let panel = |title, unit, value| Panel::new(title, unit, provisioned_lines(outcome, value));
    let servers = [
        panel("servers", "servers", |at| at.servers),
        panel("most that the target relaxes to", "seconds", |at| at.ceiling),
    ];
    let sentries = [
        panel("sentries", "sentries", |at| at.sentries),
        panel("processor of the first sentry", "share", |at| at.sentry_cpu),
    ];
    // How busy a sentry is moves always.
    let (servers_move, sentries_move) = (servers.iter().any(Panel::moves), sentries[0].moves());
    let shown = [(servers, servers_move), (sentries, sentries_move)];
    shown.into_iter().filter(|(_, moves)| *moves).flat_map(|(pair, _)| pair).collect()
}

/// A line for each response-time controller and class of which there is something to see.
fn control_lines(outcome: &Outcome, value: fn(&Control) -> Option<f64>) -> Vec<(String, RGBColor, Line)> {
    let classes = outcome.classes().len();
    let mut lines: Vec<(String, RGBColor, Line)> = Vec::new();
    for control in &outcome.controls {
        let Some(value) = value(control) else { continue };
        let name = match classes {
            1 => control.request.clone(),
            _ => format!("{}, {}", control.request, control.class),
        };
        let point = (control.second as f64, value);
        match lines.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.2.push(point),
            None => lines.push((name, COLOURS[lines.len() % COLOURS.len()], vec![point])),
        }
    }
    lines.retain(|line| line.2.iter().any(|point| point.1 != line.2[0].1));
    lines
}

/// The quality where it moved, else the percentile as the controllers saw it.
fn quality_or_percentile(outcome: &Outcome) -> Panel {
    let quality = control_lines(outcome, |control| Some(control.quality));
    match quality.is_empty() {
        true => {
            Panel::new("(f) percentile seen by the controllers", "seconds", control_lines(outcome, |at| at.percentile))
        }
        false => Panel::new("(f) quality", "share", quality),
    }
}

impl Panel {
    fn new(title: &'static str, unit: &'static str, lines: Vec<(String, RGBColor, Line)>) -> Panel {
        let top = highest(lines.iter().map(|line| &line.2)) * 1.12;
        Panel { title, unit, lines, target: None, top: if top > 0.0 { top } else { 1.0 } }
    }

    /// Whether any line is more than one value.
    fn moves(&self) -> bool {
        self.lines.iter().any(|(_, _, line)| line.iter().any(|point| point.1 != line[0].1))
    }

    fn show_target(&mut self, target: Line) {
        self.top = self.top.max(highest([&target].into_iter()) * 1.25);
        self.target = Some(target);
    }

    fn draw(&self, area: &Area<'_>, seconds: f64) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, 19))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..seconds, 0.0..self.top)?;
        chart
            .configure_mesh()
            .x_desc("time (s)")
            .y_desc(self.unit)
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .y_label_formatter(&number)
            .x_label_formatter(&number)
            .draw()?;
        self.draw_lines(&mut chart)?;
        chart
            .configure_series_labels()
            .position(self.emptiest_corner(seconds))
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(180, 180, 180))
            .label_font((FONT, 15))
            .draw()?;
        Ok(())
    }

    /// Where the legend hides least.
    fn emptiest_corner(&self, seconds: f64) -> SeriesLabelPosition {
        use SeriesLabelPosition::{LowerLeft, LowerRight, UpperLeft, UpperRight};
        let points = || self.lines.iter().map(|line| &line.2).chain(&self.target).flatten();
        // A legend takes about a quarter of the width and of the height.
        let hidden = |left: bool, low: bool| {
            let beside = |x: f64| if left { x < 0.25 } else { x > 0.75 };
            let behind = |y: f64| if low { y < 0.28 } else { y > 0.72 };
            points().filter(|(x, y)| beside(x / seconds) && behind(y / self.top)).count()
        };
        let corners =
            [(UpperRight, false, false), (UpperLeft, true, false), (LowerLeft, true, true), (LowerRight, false, true)];
        let emptiest = corners.into_iter().min_by_key(|&(_, left, low)| hidden(left, low));
        emptiest.map_or(UpperRight, |(corner, ..)| corner)
    }

    fn draw_lines(&self, chart: &mut Chart<'_, '_>) -> Drawn {
        for (name, colour, line) in &self.lines {
            let style = colour.stroke_width(2);
            let series = chart.draw_series(LineSeries::new(line.iter().copied(), style))?;
            series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        let Some(target) = &self.target else { return Ok(()) };
        let style = TARGET.stroke_width(2);
        let series = chart.draw_series(DashedLineSeries::new(target.iter().copied(), 8, 5, style))?;
        series.label("target").legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        Ok(())
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Time cut into equal parts of whole seconds.
struct Bins {
    count: usize,
    width: f64,
}

impl Bins {
    fn new(seconds: f64) -> Bins {
        let width = (seconds / POINTS).ceil().max(1.0);
        Bins { count: (seconds / width).ceil() as usize, width }
    }

    fn starts(&self) -> impl Iterator<Item = f64> {
        let width = self.width;
        (0..self.count).map(move |at| at as f64 * width)
    }

    /// A value per bin, at the bin's middle.
    fn line(&self, course: &Course, value: &dyn Fn(&Second) -> Option<f64>) -> Line {
        let at = |start: f64| {
            let sum = course.span(Duration::from_secs_f64(start), Duration::from_secs_f64(start + self.width));
            value(&sum).map(|value| (start + self.width / 2.0, value))
        };
        self.starts().filter_map(at).collect()
    }
}

fn target(scenario: &Scenario, at: f64) -> f64 {
    scenario.target(scenario.offered_at(Duration::from_secs_f64(at))).as_secs_f64()
}

fn highest<'l>(lines: impl Iterator<Item = &'l Line>) -> f64 {
    lines.flatten().map(|point| point.1).fold(0.0, f64::max)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A number on an axis: no more digits than it needs.
pub(super) fn number(value: &f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
