//! Tags for request types, proposed by what a running sentry saw them use.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::top::get;

/// How long the sentry may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Options of proposals.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Propose tags for request types by what the sentry with this admin address saw them use: processors and bytes
    #[arg(long, value_name = "ADDR")]
    tags: Option<String>,
    /// With --tags: the file with the admin token
    #[arg(long, value_name = "FILE", requires = "tags")]
    token_file: Option<PathBuf>,
}

impl Args {
    pub(super) fn is_given(&self) -> bool {
        self.tags.is_some()
    }
}

/// Runs the command. Nothing is sent but one question to the sentry.
///
/// # Errors
/// When the sentry does not answer as one.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let address = args.tags.as_deref().unwrap_or_default().trim_start_matches("http://").trim_end_matches('/');
    let token = match &args.token_file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            Some(text.with_context(|| format!("--token-file {}: cannot be read", file.display()))?.trim().to_owned())
        }
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async { tokio::time::timeout(PATIENCE, get(address, "/api/state", token.as_deref())).await };
    let Ok(body) = runtime.block_on(asked) else { bail!("{address} did not answer within {PATIENCE:?}") };
    let state: Value =
        serde_json::from_slice(&body?).with_context(|| format!("{address} does not answer as a sentry does"))?;
    write!(stdout(), "{}", proposals(&state))?;
    Ok(ExitCode::SUCCESS)
}

/// What is proposed for each application.
fn proposals(state: &Value) -> String {
    let applications = state["applications"].as_array().map_or(&[][..], Vec::as_slice);
    applications.iter().map(of_application).collect()
}

fn of_application(application: &Value) -> String {
    let mut text = format!("application {}\n", application["application"].as_str().unwrap_or("?"));
    let uses = application["policy"]["uses"].as_array().map_or(&[][..], Vec::as_slice);
    if uses.is_empty() {
        return text
            + "  nothing is known of its request types: give it admission = \"resource\" (with shadow = true nobody is \
               refused), and let it serve some requests\n";
    }
    text += &format!(
        "  {:<24} {:>10} {:>12} {:>12}  {:<20} proposed\n",
        "request type", "requests", "processors", "answer", "tags"
    );
    for kind in uses {
        let (has, proposed) = (names(&kind["tags"]), names(&kind["proposed"]));
        let show = |tags: &[&str]| if tags.is_empty() { "-".to_owned() } else { tags.join(", ") };
        text += &format!(
            "  {:<24} {:>10} {:>12} {:>12}  {:<20} {}\n",
            kind["request_type"].as_str().unwrap_or("?"),
            kind["requests"].as_u64().unwrap_or(0),
            kind["cpu_seconds"].as_f64().map_or("-".to_owned(), |seconds| format!("{:.2} ms", seconds * 1e3)),
            kind["bytes"].as_f64().map_or("-".to_owned(), |bytes| format!("{:.1} KB", bytes / 1e3)),
            show(&has),
            show(&proposed)
        );
    }
    text + &changes(uses)
}

/// The lines of a configuration that would change.
fn changes(uses: &[Value]) -> String {
    let mut text = String::new();
    for kind in uses {
        let (has, proposed) = (names(&kind["tags"]), names(&kind["proposed"]));
        if proposed.iter().any(|tag| !has.contains(tag)) {
            let mut all = has.clone();
            all.extend(proposed.iter().filter(|tag| !has.contains(tag)));
            let tags: Vec<String> = all.iter().map(|tag| format!("\"{tag}\"")).collect();
            let name = kind["request_type"].as_str().unwrap_or("?");
            text += &format!("\n  [[application.request_type]]\n  name = \"{name}\"\n  tags = [{}]\n", tags.join(", "));
        }
        let unseen: Vec<&str> = has.iter().filter(|tag| !proposed.contains(tag)).copied().collect();
        if !unseen.is_empty() {
            let name = kind["request_type"].as_str().unwrap_or("?");
            text += &format!("\n  {name} has the tags {}, which its use does not show\n", unseen.join(", "));
        }
    }
    if text.is_empty() { "  the tags are as its use shows\n".to_owned() } else { text }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn proposals_are_lines_of_a_configuration() {
        let kind = |name: &str, cpu: f64, bytes: f64, tags: &[&str], proposed: &[&str]| {
            json!({
                "request_type": name, "requests": 100, "cpu_seconds": cpu, "bytes": bytes, "tags": tags,
                "proposed": proposed,
            })
        };
        let uses = [
            kind("pages", 0.001, 8e3, &[], &[]),
            kind("scripts", 0.0068, 2e3, &[], &["cpu"]),
            kind("downloads", 0.001, 145e3, &["cpu"], &["nic_queue"]),
        ];
        let state = json!({ "applications": [
            { "application": "shop", "policy": { "uses": uses } },
            { "application": "calm", "policy": { "uses": [kind("all", 0.001, 1e3, &[], &[])] } },
            { "application": "other", "policy": { "policy": "sentry" } },
        ] });
        let text = proposals(&state);
        for part in [
            "scripts                         100      6.80 ms       2.0 KB  -                    cpu\n",
            "[[application.request_type]]\n  name = \"scripts\"\n  tags = [\"cpu\"]\n",
            "name = \"downloads\"\n  tags = [\"cpu\", \"nic_queue\"]\n",
            "downloads has the tags cpu, which its use does not show",
            "application calm\n",
            "the tags are as its use shows",
            "application other\n  nothing is known",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("name = \"pages\""), "{text}");
    }
}
