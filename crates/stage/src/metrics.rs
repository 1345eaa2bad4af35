//! Metrics as OpenMetrics text, from snapshots.

use std::fmt::Write;

use crate::admission::AdmissionSnapshot;
use crate::snapshot::{ClassSnapshot, GraphSnapshot, StageSnapshot};

/// The `Content-Type` of [`render_metrics`].
pub const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of graphs and layers as OpenMetrics text, for `/metrics`. docs/stages.md lists the families.
///
/// Labels come from names in the program only, so clients cannot make new series.
pub fn render_metrics(graphs: &[GraphSnapshot], layers: &[AdmissionSnapshot]) -> String {
    let mut text = String::new();
    let stages: Vec<(String, &StageSnapshot)> = graphs
        .iter()
        .flat_map(|graph| graph.stages.iter().map(|stage| (labels(&graph.name, &stage.name), stage)))
        .collect();
    for family in STAGE_FAMILIES {
        head(&mut text, family.name, family.kind, family.help);
        for (labels, stage) in &stages {
            sample(&mut text, family.name, family.kind, labels, (family.value)(stage));
        }
    }
    let of_stages =
        stages.iter().flat_map(|(labels, stage)| stage.classes.iter().map(move |class| (labels.clone(), class)));
    let of_layers = layers.iter().flat_map(|layer| layer.classes.iter().map(|class| (labels("", &layer.name), class)));
    let classes: Vec<(String, &ClassSnapshot)> = of_stages
        .chain(of_layers)
        .map(|(labels, class)| (format!("{labels},class=\"{}\"", class.class), class))
        .collect();
    for family in CLASS_FAMILIES {
        head(&mut text, family.name, family.kind, family.help);
        for (labels, class) in &classes {
            sample(&mut text, family.name, family.kind, labels, (family.value)(class));
        }
    }
    let name = "tidegate_stage_refused";
    head(&mut text, name, "counter", "Events refused, by reason.");
    for (labels, class) in &classes {
        for (reason, count) in &class.refused {
            sample(&mut text, name, "counter", &format!("{labels},reason=\"{reason}\""), Some(*count as f64));
        }
    }
    text.push_str("# EOF\n");
    text
}

struct Family<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
}

const fn family<T>(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
) -> Family<T> {
    Family { name, kind, help, value }
}

const STAGE_FAMILIES: &[Family<StageSnapshot>] = &[
    family("tidegate_stage_waiting", "gauge", "Events in the queue.", |s| Some(s.waiting as f64)),
    family("tidegate_stage_queue_bound", "gauge", "Events that may wait.", |s| Some(s.queue as f64)),
    family("tidegate_stage_workers", "gauge", "Workers.", |s| Some(s.workers as f64)),
    family("tidegate_stage_workers_busy", "gauge", "Workers with a batch in hand.", |s| Some(s.busy as f64)),
    family("tidegate_stage_batch_limit", "gauge", "Events a worker may take at once.", |s| Some(s.batch as f64)),
    family("tidegate_stage_per_second", "gauge", "Events processed per second, smoothed.", |s| Some(s.per_second)),
    family("tidegate_stage_worker_throughput", "gauge", "Events per second of a busy worker.", |s| s.throughput),
    family("tidegate_stage_policing", "gauge", "1 while admission control is on.", |s| Some(s.policing.into())),
    family("tidegate_stage_quality", "gauge", "How good answers should be, 0 to 1.", |s| Some(s.quality)),
    family("tidegate_stage_panics", "counter", "Panics of the handler.", |s| Some(s.panics as f64)),
];

const CLASS_FAMILIES: &[Family<ClassSnapshot>] = &[
    family("tidegate_stage_offered", "counter", "Events that came.", |c| Some(c.offered as f64)),
    family("tidegate_stage_admitted", "counter", "Events taken.", |c| Some(c.admitted as f64)),
    family("tidegate_stage_refused_late", "counter", "Refused after other stages had worked on them.", |c| {
        Some(c.refused_late as f64)
    }),
    family("tidegate_stage_refused_early", "counter", "Refused at an entry on behalf of the stage.", |c| {
        Some(c.refused_early as f64)
    }),
    family("tidegate_stage_completed", "counter", "Events processed.", |c| Some(c.completed as f64)),
    family("tidegate_stage_goodput", "counter", "Events processed within the target.", |c| {
        Some(c.within_target as f64)
    }),
    family("tidegate_stage_lost", "counter", "Events lost in a panic or a stop.", |c| Some(c.lost as f64)),
    family("tidegate_stage_response_seconds", "counter", "Sum of response times.", |c| Some(c.response_seconds)),
    family("tidegate_stage_target_seconds", "gauge", "Target of the percentile.", |c| Some(c.target)),
    family("tidegate_stage_percentile_seconds", "gauge", "Smoothed percentile of response time.", |c| c.percentile),
    family("tidegate_stage_rate", "gauge", "Events admitted per second at most.", |c| Some(c.rate)),
];

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn sample(text: &mut String, name: &str, kind: &str, labels: &str, value: Option<f64>) {
    let total = if kind == "counter" { "_total" } else { "" };
    if let Some(value) = value {
        let _ = writeln!(text, "{name}{total}{{{labels}}} {value}");
    }
}

fn labels(graph: &str, stage: &str) -> String {
    format!("graph=\"{}\",stage=\"{}\"", escaped(graph), escaped(stage))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::tests::sample_graph;
    use crate::{Admission, ClassId, Settings};

    #[test]
    fn families_stand_once_and_are_documented() {
        let layer = Admission::new("la\"yer", &Settings::default()).unwrap();
        layer.admit(ClassId(0)).unwrap().finish();
        let text = render_metrics(&[sample_graph()], &[layer.snapshot()]);
        let documented = include_str!("../../../docs/stages.md");
        let families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        for (at, family) in families.iter().enumerate() {
            assert!(!families[..at].contains(family), "{family} twice");
            assert!(documented.contains(&format!("`{family}`")), "{family} is not in docs/stages.md");
        }
        assert!(
            text.contains("tidegate_stage_admitted_total{graph=\"\",stage=\"la\\\"yer\",class=\"1\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("tidegate_stage_waiting{graph=\"shop\",stage=\"parse\"} 3\n"), "{text}");
        assert!(text.contains("class=\"1\",reason=\"rate-limit\"} 7\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
