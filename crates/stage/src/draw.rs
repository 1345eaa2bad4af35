//! A running graph as a picture: SVG of our own, Graphviz and Mermaid.

mod layout;
mod svg;

use std::fmt::Write;

use crate::snapshot::{GraphSnapshot, StageSnapshot};

impl GraphSnapshot {
    /// The snapshot as JSON.
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: nothing that JSON cannot hold. A float that is not finite becomes null.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// A drawing of the graph with what its stages do now: queues, workers, rates, percentiles, refusals.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }

    /// The graph in Graphviz's language. Dashed: the sender never waits.
    pub fn to_dot(&self) -> String {
        let mut text =
            format!("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, style=rounded];\n", quoted(&self.name));
        for stage in &self.stages {
            let lines: Vec<String> = lines(stage).iter().map(|line| quoted(line)).collect();
            let border = if stage.is_entry { ", penwidth=2" } else { "" };
            let _ = writeln!(text, "  \"{}\" [label=\"{}\"{border}];", quoted(&stage.name), lines.join("\\n"));
        }
        for (from, link) in self.links() {
            let style = if link.waits { "" } else { " [style=dashed]" };
            let _ = writeln!(text, "  \"{}\" -> \"{}\"{style};", quoted(&from.name), quoted(&link.to));
        }
        text.push_str("}\n");
        text
    }

    /// The graph in Mermaid's language, which many wikis draw. Dashed: the sender never waits.
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        let number = |name: &str| self.stages.iter().position(|stage| stage.name == name).unwrap_or(0);
        for (at, stage) in self.stages.iter().enumerate() {
            let lines: Vec<String> = lines(stage).iter().map(|line| line.replace('"', "#quot;")).collect();
            let _ = writeln!(text, "  s{at}[\"{}\"]", lines.join("<br/>"));
        }
        for (from, link) in self.links() {
            let arrow = if link.waits { "-->" } else { "-.->" };
            let _ = writeln!(text, "  s{} {arrow} s{}", number(&from.name), number(&link.to));
        }
        text
    }

    fn links(&self) -> impl Iterator<Item = (&StageSnapshot, &crate::snapshot::LinkSnapshot)> {
        self.stages.iter().flat_map(|stage| stage.sends_to.iter().map(move |link| (stage, link)))
    }
}

/// What a box says, from the name down.
fn lines(stage: &StageSnapshot) -> Vec<String> {
    let offered = stage.total(|class| class.offered);
    let refused = stage.total(|class| class.refused_in_all() + class.refused_early);
    let mut lines = vec![
        stage.name.clone(),
        format!("queue {} of {}, batch {}", stage.waiting, stage.queue, stage.batch),
        format!("workers {} ({} busy), {:.0}/s", stage.workers, stage.busy, stage.per_second),
    ];
    for class in &stage.classes {
        let percentile = class.percentile.map_or("-".to_owned(), seconds);
        let rate = if stage.policing { format!("{:.1}/s", class.rate) } else { "all".to_owned() };
        lines.push(format!("class {}: {percentile} of {}, lets in {rate}", class.class, seconds(class.target)));
    }
    lines.push(format!("refused {refused} of {}", offered + stage.total(|class| class.refused_early)));
    if stage.quality < 1.0 {
        lines.push(format!("quality {:.2}", stage.quality));
    }
    if stage.panics > 0 {
        lines.push(format!("panics {}", stage.panics));
    }
    lines
}

fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.3} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::snapshot::{ClassSnapshot, LinkSnapshot};

    /// `parse` -> `search` (waits), `search` -> `parse` (refuses), and `<log>` alone.
    pub(crate) fn sample_graph() -> GraphSnapshot {
        let link = |to: &str, waits| LinkSnapshot { to: to.into(), waits };
        let stages = vec![
            stage("parse", true, vec![link("search", true)]),
            stage("search", false, vec![link("parse", false)]),
            stage("<log>", false, Vec::new()),
        ];
        GraphSnapshot { name: "shop".into(), phase: "running", refuses_early: true, stages }
    }

    fn stage(name: &str, is_entry: bool, sends_to: Vec<LinkSnapshot>) -> StageSnapshot {
        StageSnapshot {
            name: name.into(),
            is_entry,
            sends_to,
            waiting: 3,
            queue: 10,
            workers: 2,
            busy: 1,
            workers_min: 1,
            workers_max: 4,
            batch: 8,
            throughput: Some(100.0),
            per_second: 50.0,
            policing: true,
            quality: 1.0,
            panics: 0,
            classes: vec![class()],
        }
    }

    fn class() -> ClassSnapshot {
        ClassSnapshot {
            class: 1,
            target: 1.0,
            percentile: Some(0.25),
            rate: 12.5,
            last_step: Some("raised"),
            offered: 100,
            admitted: 93,
            refused: BTreeMap::from([("rate-limit", 7)]),
            refused_late: 7,
            refused_early: 0,
            completed: 90,
            within_target: 90,
            lost: 0,
            response_seconds: 9.0,
        }
    }

    #[test]
    fn dot_and_mermaid_have_every_stage_and_link() {
        let dot = sample_graph().to_dot();
        assert!(
            dot.contains("\"parse\" -> \"search\";") && dot.contains("\"search\" -> \"parse\" [style=dashed];"),
            "{dot}"
        );
        assert!(dot.contains("class 1: 250.000 ms of 1.00 s, lets in 12.5/s\\nrefused 7 of 100"), "{dot}");
        let mermaid = sample_graph().to_mermaid();
        assert!(mermaid.contains("s0 --> s1\n  s1 -.-> s0\n"), "{mermaid}");
    }

    #[test]
    fn json_reads_back() {
        let json: serde_json::Value = serde_json::from_str(&sample_graph().to_json()).unwrap();
        assert_eq!(json["stages"][1]["classes"][0]["refused"]["rate-limit"], 7);
        assert_eq!(json["stages"][0]["sends_to"][0]["to"], "search");
    }
}
