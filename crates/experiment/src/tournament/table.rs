//! Results as tables in Markdown.

use std::fmt::Write;

use super::{Entry, Results};

/// Summary, goodput with p95, and the rest.
pub(super) fn text(results: &Results) -> String {
    let mut text = String::from(
        "| policy | median goodput | least | mean regret | largest | median p95 / target | target missed |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    let arenas = results.arenas.len();
    for row in &results.summary {
        let _ = writeln!(
            text,
            "| `{}` | {:.3} | {:.3} | {:.3} | {:.3} | {:.2} | {} of {arenas} |",
            row.policy, row.median, row.least, row.mean_regret, row.largest_regret, row.p95, row.missed
        );
    }
    text.push_str("\nGoodput over the ideal, and p95 over the target:\n\n");
    by_arena(&mut text, results, |entry| format!("{:.3}, {:.2}", entry.score.goodput, entry.score.p95));
    text.push_str("\nWork in answers in time over the ideal, and refused needlessly:\n\n");
    by_arena(&mut text, results, |entry| format!("{:.3}, {:.3}", entry.score.work, entry.score.needless));
    text.push_str("\nSeconds until recovered, and the most important class in time:\n\n");
    let some = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    by_arena(&mut text, results, |entry| {
        format!("{}, {}", some(entry.score.recovery, 1), some(entry.score.important, 3))
    });
    text.push_str("\nThe knobs that were best in training:\n\n");
    by_arena(&mut text, results, |entry| if entry.knob.is_empty() { "-".into() } else { entry.knob.clone() });
    text
}

fn by_arena(text: &mut String, results: &Results, cell: impl Fn(&Entry) -> String) {
    let names: Vec<String> = results.summary.iter().map(|row| format!("`{}`", row.policy)).collect();
    let _ = writeln!(text, "| arena | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()));
    for arena in &results.arenas {
        let cells: Vec<String> = arena.entries.iter().map(&cell).collect();
        let _ = writeln!(text, "| {} | {} |", arena.arena, cells.join(" | "));
    }
}
