//! Whether the API server takes the manifests, and passes the control plane's own tests.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::home::{Cluster, MISSPELT, Manifest, manifests};
use crate::checks::Check;
use crate::command::{cargo, output, run};

/// The tests that run against any API server.
const TESTS: [&str; 8] = ["test", "--locked", "-p", "tidegate-control", "--features", "kubernetes", "--test", "it"];

/// Every object of a kind that is there is taken as it is, and one with a field that is none is not.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let (api, namespace) = (&cluster.machinery.api, "manifests");
    api.make("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } }))?;
    let (known, foreign): (Vec<_>, Vec<_>) = manifests()?.into_iter().partition(Manifest::is_built_in);
    let mut refused = Vec::new();
    for manifest in &known {
        let answer = manifest.apply(api, namespace, true)?;
        if answer.status >= 300 {
            refused.push(format!("{manifest}: {}", answer.why()));
        }
    }
    let found = match refused.is_empty() {
        true => format!("{} objects", known.len()),
        false => refused.join("; "),
    };
    let taken = ("manifests: the API server takes those of built-in kinds".to_owned(), found, refused.is_empty());
    let mut misspelt = 0;
    for manifest in &known {
        let answer = manifest.misspelt().apply(api, namespace, true)?;
        misspelt += usize::from(answer.status >= 400 && answer.why().contains(MISSPELT));
    }
    let what = "manifests: it takes none with a field that is unknown".to_owned();
    let refuses = (what, format!("{misspelt} of {} refused", known.len()), misspelt == known.len());
    let left_out: Vec<_> = foreign.iter().map(Manifest::to_string).collect();
    println!("left out, of kinds that are not built in: {}", left_out.join(", "));
    Ok(vec![taken, refuses])
}

/// Builds what [`check_tests`] runs.
///
/// # Errors
/// When it does not build.
pub fn build_tests() -> Result<()> {
    run(cargo(TESTS).arg("--no-run"))
}

/// The tests that otherwise have an API server of their own.
pub fn check_tests(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let mut tests: Command = cargo(TESTS);
    tests.args(["--offline", "--", "kubernetes"]).env("TIDEGATE_TEST_KUBECONFIG", cluster.machinery.admin());
    let what = "the control plane's own tests pass".to_owned();
    Ok(vec![match output(&mut tests) {
        Ok(said) => {
            let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. "));
            let passed = passed.and_then(|rest| rest.split(" passed").next()).unwrap_or_default();
            ensure!(passed.parse::<u32>().is_ok_and(|passed| passed > 0), "no test ran: {said}");
            (what, format!("{passed} passed"), true)
        }
        Err(error) => (what, format!("{error:#}").replace('\n', " "), false),
    }])
}
