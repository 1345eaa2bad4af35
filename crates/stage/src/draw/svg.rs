//! The drawing: a box for each stage, with a bar that fills with its queue.

use std::fmt::Write;

use super::layout::{self, Place};
use super::lines;
use crate::snapshot::{GraphSnapshot, StageSnapshot};

const WIDTH: usize = 270;
const GAP_X: usize = 70;
const GAP_Y: usize = 40;
const MARGIN: usize = 24;
const LINE: usize = 17;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1c2733}.name{font-weight:600;font-size:15px}\
.box{fill:#fff;stroke:#7a8794}.entry{stroke:#1c2733;stroke-width:2.5}.bar{fill:#e6eaee}\
.calm{fill:#4c9f70}.busy{fill:#e0a030}.full{fill:#c8453b}.late{fill:#c8453b}\
.link{fill:none;stroke:#55626f;stroke-width:1.5}.refuses{stroke-dasharray:6 4}";

/// The graph as an SVG document that needs nothing else.
pub(super) fn draw(graph: &GraphSnapshot) -> String {
    let links = layout::links(graph);
    let places = layout::place(&links);
    let height = MARGIN + LINE * graph.stages.iter().map(|stage| lines(stage).len()).max().unwrap_or(1);
    let corner = |place: Place| {
        let top = MARGIN * 2 + place.row * (height + GAP_Y);
        (MARGIN + place.column * (WIDTH + GAP_X), top)
    };
    let columns = 1 + places.iter().map(|place| place.column).max().unwrap_or(0);
    let rows = 1 + places.iter().map(|place| place.row).max().unwrap_or(0);
    let (all_x, all_y) = (MARGIN + columns * (WIDTH + GAP_X), MARGIN * 3 + rows * (height + GAP_Y));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all_x}\" height=\"{all_y}\" \
         viewBox=\"0 0 {all_x} {all_y}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#55626f\"/></marker>\n\
         <text class=\"name\" x=\"{MARGIN}\" y=\"{MARGIN}\">{} ({})</text>\n",
        escaped(&graph.name),
        escaped(&graph.name),
        graph.phase
    );
    for (from, stage) in graph.stages.iter().enumerate() {
        for (link, &to) in stage.sends_to.iter().zip(&links[from]) {
            let path = curve(corner(places[from]), corner(places[to]), height);
            let class = if link.waits { "link" } else { "link refuses" };
            let _ = writeln!(text, "<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#arrow)\"/>");
        }
    }
    for (stage, place) in graph.stages.iter().zip(&places) {
        draw_box(&mut text, stage, corner(*place), height);
    }
    text.push_str("</svg>\n");
    text
}

/// From the right side of one box to the left side of the other; backwards it runs below both.
fn curve((from_x, from_y): (usize, usize), (to_x, to_y): (usize, usize), height: usize) -> String {
    let (start_x, start_y) = (from_x + WIDTH, from_y + height / 2);
    let end_y = to_y + height / 2;
    if to_x >= start_x {
        let middle = (start_x + to_x) / 2;
        return format!("M{start_x} {start_y}C{middle} {start_y} {middle} {end_y} {to_x} {end_y}");
    }
    let below = from_y.max(to_y) + height + GAP_Y / 2;
    let (right, left) = (start_x + GAP_X / 3, to_x.saturating_sub(GAP_X / 3));
    format!(
        "M{start_x} {start_y}C{right} {start_y} {right} {below} {from_x} {below}L{} {below}\
         C{left} {below} {left} {end_y} {to_x} {end_y}",
        to_x + WIDTH / 2
    )
}

fn draw_box(text: &mut String, stage: &StageSnapshot, (x, y): (usize, usize), height: usize) {
    let class = if stage.is_entry { "box entry" } else { "box" };
    let _ =
        writeln!(text, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>");
    let share = stage.waiting as f64 / stage.queue.max(1) as f64;
    let fill = match share {
        share if share < 0.5 => "calm",
        share if share < 0.9 => "busy",
        _ => "full",
    };
    let (bar_y, full) = (y + height - 10, WIDTH - 20);
    let filled = share.min(1.0) * full as f64;
    let _ = writeln!(text, "<rect class=\"bar\" x=\"{}\" y=\"{bar_y}\" width=\"{full}\" height=\"5\"/>", x + 10);
    let _ =
        writeln!(text, "<rect class=\"{fill}\" x=\"{}\" y=\"{bar_y}\" width=\"{filled:.1}\" height=\"5\"/>", x + 10);
    let is_late = |line: &str| {
        stage
            .classes
            .iter()
            .any(|class| line.starts_with(&format!("class {}:", class.class)) && class.percentile > Some(class.target))
    };
    for (at, line) in lines(stage).iter().enumerate() {
        let class = match (at, is_late(line)) {
            (0, _) => " class=\"name\"",
            (_, true) => " class=\"late\"",
            _ => "",
        };
        let line_y = y + 20 + at * LINE;
        let _ = writeln!(text, "<text{class} x=\"{}\" y=\"{line_y}\">{}</text>", x + 10, escaped(line));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use crate::draw::tests::sample_graph;

    #[test]
    fn every_stage_and_link_is_drawn_and_names_are_escaped() {
        let svg = sample_graph().to_svg();
        assert_eq!(svg.matches("<rect class=\"box").count(), 3);
        assert_eq!(svg.matches("<path class=\"link\"").count(), 1);
        assert_eq!(svg.matches("<path class=\"link refuses\"").count(), 1);
        assert!(svg.contains("&lt;log&gt;") && !svg.contains("<log>"), "{svg}");
        // Three of ten events wait.
        assert!(svg.contains("width=\"75.0\""), "{svg}");
    }
}
