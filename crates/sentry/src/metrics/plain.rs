//! The text format from before OpenMetrics, for whoever does not ask for that: older scrapers, `promtool`, curl.
//!
//! It is made from the OpenMetrics text. It has no units, exemplars or end mark, names a counter's family with its
//! `_total`, and knows neither infos nor unknowns.

use std::fmt::Write;

/// The media type of [`plain`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// OpenMetrics text in the older format.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        // Writing to a string does not fail.
        let _ = if let Some(said) = line.strip_prefix("# HELP ") {
            // The name depends on the type, which comes next.
            help = said.split_once(' ');
            Ok(())
        } else if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            let help = help.take().filter(|(name, _)| *name == family).map_or("", |(_, help)| help);
            write!(out, "# HELP {family}{suffix} {help}\n# TYPE {family}{suffix} {kind}\n")
        } else if line.starts_with('#') {
            Ok(())
        } else {
            writeln!(out, "{}", without_exemplar(line))
        };
    }
    out
}

/// A sample's line to its value: in a label's value a number sign means nothing.
fn without_exemplar(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'#' if !quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_open_metrics_has_is_left_out() {
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"\\\"} # {\"} 3\n# HELP b Build.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Times.\n# TYPE c histogram\nc_bucket{le=\"1\"} 2 # {id=\"#\"} 0.5 9\n# EOF\n";
        let wanted = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"\\\"} # {\"} 3\n\
                      # HELP b_info Build.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
                      # HELP c Times.\n# TYPE c histogram\nc_bucket{le=\"1\"} 2\n";
        assert_eq!(plain(text), wanted);
    }
}
