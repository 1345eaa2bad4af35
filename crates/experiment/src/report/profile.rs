//! The figure of a profile: how fast a service answers at which rate, and how much it answers with how many in flight.

use plotters::prelude::*;

/// What was measured of one kind of request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Clients that wait, in the order of their number: answered per second, and 95th percentile in seconds. Beyond its
    /// capacity a service answers no more, later and later.
    pub closed: Vec<(f64, f64)>,
    /// Rates, rising: the same.
    pub open: Vec<(f64, f64)>,
    /// Requests in flight, rising, and answered per second.
    pub clients: Vec<(f64, f64)>,
    /// What the 95th percentile had to hold, seconds.
    pub target: f64,
    /// Where throughput over response time is highest, per second.
    pub knee: f64,
    /// The most that was answered per second.
    pub capacity: f64,
}

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
const OPEN: RGBColor = RGBColor(0, 114, 178);
const CLOSED: RGBColor = RGBColor(230, 159, 0);
const TARGET: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Of the row of one kind.
const SIZE: (u32, u32) = (1240, 520);
const FONT: &str = "sans-serif";
/// Response times so many times beyond the target are cut off: what matters is below.
const SHOWN: f64 = 2.0;

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The figure as SVG, with a row for each kind: what they hold may differ by orders of magnitude.
///
/// # Errors
/// What could not be drawn.
pub fn curves(all: &[Curve]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let rows = all.len().max(1);
        let area = SVGBackend::with_string(&mut svg, (SIZE.0, SIZE.1 * rows as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        for (row, curve) in area.split_evenly((rows, 1)).iter().zip(all) {
            draw(row, curve).map_err(|error| error.to_string())?;
        }
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

fn draw(area: &Area<'_>, curve: &Curve) -> Drawn {
    let (left, right) = area.titled(&curve.name, (FONT, 22))?.split_horizontally(SIZE.0 / 2);
    latency(&left, curve)?;
    throughput(&right, curve)
}

fn latency(area: &Area<'_>, curve: &Curve) -> Drawn {
    let (widest, top) = ((curve.capacity * 1.15).max(1.0), (curve.target * SHOWN).max(1e-3));
    let mut chart = ChartBuilder::on(area)
        .caption("95th percentile at each rate", (FONT, 19))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..widest, 0.0..top)?;
    chart.configure_mesh().x_desc("answered per second").y_desc("seconds").light_line_style(TRANSPARENT).draw()?;
    for (points, name, colour, width) in
        [(&curve.open, "by rate (open loop)", OPEN, 2), (&curve.closed, "by clients (closed loop)", CLOSED, 1)]
    {
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y.min(top))).collect();
        if points.is_empty() {
            continue;
        }
        let style = colour.stroke_width(width);
        let line = chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        line.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 2 + width as i32, colour.filled())))?;
    }
    let knee = [(curve.knee, 0.0), (curve.knee, top)];
    let line = chart.draw_series(DashedLineSeries::new(knee, 3, 4, GREY.stroke_width(1)))?;
    line.label("knee").legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], GREY));
    let style = TARGET.stroke_width(2);
    let line = chart.draw_series(DashedLineSeries::new([(0.0, curve.target), (widest, curve.target)], 8, 5, style))?;
    line.label("target").legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    let position = SeriesLabelPosition::UpperLeft;
    chart.configure_series_labels().position(position).background_style(WHITE.mix(0.85)).border_style(GREY).draw()?;
    Ok(())
}

fn throughput(area: &Area<'_>, curve: &Curve) -> Drawn {
    let most = |value: fn(&(f64, f64)) -> f64| curve.clients.iter().map(value).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("answers with so many in flight", (FONT, 19))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..most(|point| point.0) * 1.05, 0.0..most(|point| point.1) * 1.15)?;
    chart.configure_mesh().x_desc("in flight").y_desc("answered per second").light_line_style(TRANSPARENT).draw()?;
    chart.draw_series(LineSeries::new(curve.clients.iter().copied(), CLOSED.stroke_width(2)))?;
    chart.draw_series(curve.clients.iter().map(|point| Circle::new(*point, 3, CLOSED.filled())))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_every_part_also_of_nothing() {
        let curve = Curve {
            name: "page".into(),
            closed: vec![(10.0, 0.1), (38.0, 0.2), (40.0, 3.0)],
            open: vec![(30.0, 0.2)],
            clients: vec![(1.0, 10.0), (4.0, 38.0)],
            target: 0.5,
            knee: 38.0,
            capacity: 40.0,
        };
        let svg = curves(&[curve, Curve::default()]).expect("drawn");
        for part in ["page", "open loop", "closed loop", "knee", "target", "in flight"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.contains("height=\"1040\""), "a row for each");
        assert!(curves(&[]).is_ok());
    }
}
