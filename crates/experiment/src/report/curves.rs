//! The figure over the load: every arm at each of the rates that the scenario goes through, a panel for each metric;
//! and the same as CSV. Of each arm's first run, as all figures are.

use plotters::prelude::*;

use super::plot::{self, COLOURS, FONT, TARGET};
use super::{ArmReport, ExperimentReport};
use crate::measure::Measure;
use crate::scenario::{Curves, Expect, Metric, Panel, Span};

/// One panel, measured.
struct Measured<'r> {
    panel: &'r Panel,
    /// Of each arm, what was offered (requests per second) and what was measured, point by point.
    lines: Vec<(&'r str, Vec<(f64, f64)>)>,
}

/// The points as CSV.
pub(super) fn csv(report: &ExperimentReport, curves: &Curves) -> String {
    let mut text = "panel,arm,offered,value\n".to_owned();
    for Measured { panel, lines } in measure(report, curves) {
        for (arm, points) in lines {
            for (offered, value) in points {
                text += &format!("\"{}\",{arm},{offered:.1},{value:.4}\n", panel.title.replace('"', "\"\""));
            }
        }
    }
    text
}

/// The figure as SVG.
pub(super) fn svg(report: &ExperimentReport, curves: &Curves) -> Result<String, String> {
    let measured = measure(report, curves);
    let mut svg = String::new();
    {
        let rows = measured.len().div_ceil(2);
        let area = SVGBackend::with_string(&mut svg, (1240, 60 + 420 * rows as u32)).into_drawing_area();
        let title = format!("{} ({}): {}", report.scenario.id, report.mode.name(), report.scenario.title);
        let drawn = (|| -> Result<(), Box<dyn std::error::Error>> {
            area.fill(&WHITE)?;
            let area = area.titled(&title, (FONT, 24))?;
            let parts = area.split_evenly((rows, if measured.len() > 1 { 2 } else { 1 }));
            measured.iter().zip(parts).try_for_each(|(panel, part)| panel.draw(&part))
        })();
        drawn.map_err(|error| error.to_string())?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

fn measure<'r>(report: &'r ExperimentReport, curves: &'r Curves) -> Vec<Measured<'r>> {
    let of = |panel: &'r Panel| Measured {
        panel,
        lines: report.arms.iter().map(|arm| (arm.name.as_str(), points(report, arm, panel, &curves.over))).collect(),
    };
    curves.panels.iter().map(of).collect()
}

fn points(report: &ExperimentReport, arm: &ArmReport, panel: &Panel, spans: &[Span]) -> Vec<(f64, f64)> {
    let Some(run) = arm.runs.first() else { return Vec::new() };
    let measure = Measure::new(&report.scenario, &run.outcome);
    let point = |&over: &Span| {
        let all = Expect { metric: Metric::OfferedRate, class: None, load: None, ..panel.at(over) };
        Some((measure.check(&all).measured?, measure.check(&panel.at(over)).measured?))
    };
    spans.iter().filter_map(point).collect()
}

impl Measured<'_> {
    fn draw(&self, area: &plot::Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let highest = all().map(|point| point.1).chain(self.panel.bound).fold(0.0, f64::max);
        let top = self.panel.top.unwrap_or(if highest > 0.0 { highest * 1.12 } else { 1.0 });
        let left = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let right = all().map(|point| point.0).fold(0.0, f64::max);
        let (left, right) = if left < right { (left, right) } else { (0.0, right.max(1.0)) };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.panel.title, (FONT, 19))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(66)
            .build_cartesian_2d(left..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("offered (requests/s)")
            .y_desc(unit(self.panel.metric))
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .y_label_formatter(&plot::number)
            .x_label_formatter(&plot::number)
            .draw()?;
        for ((arm, points), colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            // What leaves the panel ends at its edge.
            let points: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x, y.min(top))).collect();
            let style = colour.stroke_width(2);
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
            let series = chart.draw_series(LineSeries::new(points, style))?;
            series.label(*arm).legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        if let Some(bound) = self.panel.bound {
            let style = TARGET.stroke_width(2);
            let series = chart.draw_series(DashedLineSeries::new([(left, bound), (right, bound)], 8, 5, style))?;
            series.label("target").legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(180, 180, 180))
            .label_font((FONT, 15))
            .draw()?;
        Ok(())
    }
}

fn unit(metric: Metric) -> &'static str {
    match metric {
        metric if metric.is_time() => "seconds",
        metric if metric.is_rate() => "requests/s",
        metric if metric.is_share() => "share",
        Metric::InFlight => "requests",
        _ => "servers",
    }
}
