//! Line charts as SVG, side by side.

use std::fmt::Write as _;

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below it, with the unit.
    pub x: String,
    /// Beside it, with the unit.
    pub y: String,
    /// Whether the vertical axis is logarithmic.
    pub is_logarithmic: bool,
    /// What is drawn, with its name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

const COLOURS: [&str; 4] = ["#b3261e", "#1f5fa8", "#6b6b6b", "#2e7d32"];
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
/// Room for titles and numbers: left, right, above, below.
const ROOM: [f64; 4] = [70.0, 20.0, 50.0, 55.0];

/// Draws charts side by side.
pub fn draw(charts: &[Chart]) -> String {
    let width = WIDTH * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        // Writing into a string cannot fail.
        let _ = writeln!(svg, "<g transform=\"translate({},0)\">", WIDTH * at as f64);
        chart.draw(&mut svg);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let xs = Axis::linear(points().map(|point| point.0), false);
        let ys = match self.is_logarithmic {
            true => Axis::logarithmic(points().map(|point| point.1)),
            false => Axis::linear(points().map(|point| point.1), true),
        };
        let [left, right, above, below] = ROOM;
        let (to_right, to_bottom) = (WIDTH - right, HEIGHT - below);
        let x = |value: f64| left + xs.share(value) * (to_right - left);
        let y = |value: f64| to_bottom - ys.share(value) * (to_bottom - above);
        let mut put = |line: String| {
            let _ = writeln!(svg, "{line}");
        };
        put(format!("<text x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>", self.title));
        for tick in &ys.ticks {
            let at = y(*tick);
            put(format!("<path d=\"M{left} {at:.1}H{to_right}\" stroke=\"#e0e0e0\"/>"));
            put(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>", left - 6.0, at + 4.0));
        }
        for tick in &xs.ticks {
            let at = x(*tick);
            put(format!("<path d=\"M{at:.1} {to_bottom}v4\" stroke=\"#333333\"/>"));
            put(format!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", to_bottom + 18.0));
        }
        put(format!("<path d=\"M{left} {above}V{to_bottom}H{to_right}\" fill=\"none\" stroke=\"#333333\"/>"));
        let middle = f64::midpoint(left, to_right);
        put(format!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 12.0, self.x));
        let turned = f64::midpoint(above, to_bottom);
        let turn = format!("transform=\"translate(16,{turned}) rotate(-90)\"");
        put(format!("<text {turn} text-anchor=\"middle\">{}</text>", self.y));
        for (at, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let path: Vec<String> = points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            put(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            ));
            let key = left + 10.0 + 160.0 * at as f64;
            put(format!("<path d=\"M{key} 36h18\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
            put(format!("<text x=\"{}\" y=\"40\">{name}</text>", key + 24.0));
        }
    }
}

/// From values to the share of an axis.
struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn linear(values: impl Iterator<Item = f64>, from_zero: bool) -> Axis {
        let (least, most) = span(values);
        let least = if from_zero { 0.0 } else { least };
        let step = step((most - least).max(1e-9));
        let (from, to) = ((least / step).floor() * step, (most / step).ceil() * step);
        let count = ((to - from) / step).round() as usize;
        Axis { from, to, is_logarithmic: false, ticks: (0..=count).map(|at| from + step * at as f64).collect() }
    }

    fn logarithmic(values: impl Iterator<Item = f64>) -> Axis {
        let (least, most) = span(values.filter(|value| *value > 0.0));
        let (first, last) = (least.max(1e-6).log10().floor() as i32, most.max(1e-6).log10().ceil() as i32);
        let last = last.max(first + 1);
        let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
        Axis { from: f64::from(first), to: f64::from(last), is_logarithmic: true, ticks }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic { value.max(1e-9).log10() } else { value };
        ((value - self.from) / (self.to - self.from).max(1e-12)).clamp(0.0, 1.0)
    }
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    if least.is_finite() { (least, most) } else { (0.0, 1.0) }
}

/// A round step with which an axis has four to ten ticks.
fn step(length: f64) -> f64 {
    let power = 10f64.powf(length.log10().floor());
    let round = [0.1, 0.2, 0.5, 1.0, 2.0].map(|part| part * power);
    round.into_iter().find(|step| length / step <= 8.0).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_within_its_frame() {
        let points = vec![(300.0, 10.0), (1125.0, 562.0)];
        let chart = Chart { title: "V1".into(), lines: vec![("with".into(), points.clone())], ..Chart::default() };
        let logarithmic = Chart { is_logarithmic: true, lines: vec![("with".into(), points)], ..Chart::default() };
        let svg = draw(&[chart, logarithmic]);
        assert!(
            svg.contains("viewBox=\"0 0 1040 360\"") && svg.contains(">600</text>") && svg.contains(">1000</text>")
        );
        let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
        assert_eq!(lines.len(), 2);
        for pair in lines.iter().flat_map(|line| line.split('"').nth(1).unwrap().split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((70.0..=500.0).contains(&x) && (50.0..=305.0).contains(&y), "{pair}");
        }
        assert!(draw(&[Chart::default()]).ends_with("</svg>\n"), "nothing to draw is no failure");
    }
}
