//! The program as most people build it, without optional features: it says what it would have to be built with. The
//! tests are built with all of them, so no test sees that.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command::tidegate;

const CONTROL: &str = "key_file = \"key\"\n[provider]\nkind = \"static\"\naddresses = [\"a:1\"]\n[[application]]\n\
                       name = \"shop\"\ntarget = \"1s\"\n";

/// What asks for a feature: the words before the file, the file's text, and the feature.
fn cases() -> [(&'static [&'static str], String, &'static str); 4] {
    let sentry =
        "[[application]]\nlisten = \"127.0.0.1:1\"\nservers = \"127.0.0.1:2\"\n[traces]\nendpoint = \"http://a:1\"\n";
    let pods = "[[application]]\nlisten = \"127.0.0.1:1\"\nservers = \"kubernetes:shop:http\"\n";
    [
        (&["control", "-c"], format!("{CONTROL}[kubernetes]\n"), "kubernetes"),
        (&["check"], pods.to_owned(), "kubernetes"),
        (&["operator", "--kubeconfig"], String::new(), "kubernetes"),
        (&["check"], sentry.to_owned(), "otel"),
    ]
}

/// Gives the release build a configuration that needs each of the features; it must refuse, and name the feature.
///
/// # Errors
/// When it does not, or cannot be started.
pub fn check(folder: &Path) -> Result<()> {
    fs::write(folder.join("key"), "the secret of a test").context("cannot write a key")?;
    for (words, text, feature) in cases() {
        let file = folder.join(format!("{feature}.toml"));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut program = Command::new(tidegate());
        let output = program.args(words).arg(&file).stdin(Stdio::null()).output().context("cannot start tidegate")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "without {feature} it takes {}", file.display());
        ensure!(said.contains(&format!("--features {feature}")), "it does not name the feature {feature}: {said}");
    }
    Ok(())
}
