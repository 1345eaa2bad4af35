//! `tidegate operator`: sentries before the services that have an OverloadPolicy.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tidegate_workload::parse_duration;

/// Look after the OverloadPolicies of a namespace of Kubernetes: make sentries before their services
///
/// docs/kubernetes.md describes the policies. Any number of operators may look after the same namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The image of sentries' containers: this program, built with the feature `kubernetes`
    #[arg(long, value_name = "IMAGE", default_value = "tidegate:latest")]
    image: String,
    /// The namespace; by default the one of the credentials
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// How the API server is reached; by default as kubectl does it, or as a pod does
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How often sentries are asked who comes and who is refused
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    every: Duration,
}

const EXAMPLES: &str = "Examples:
  tidegate operator --namespace shop --image registry.example/tidegate:1.0
  kubectl apply -f deploy/kubernetes/overloadpolicy.yaml -f deploy/kubernetes/operator.yaml";

/// Runs the command until a signal ends it. Exit status 2 when the API server's address or the credentials are not
/// known, or this program cannot do it.
///
/// # Errors
/// When it fails while running.
pub fn run(args: Args) -> Result<ExitCode> {
    let Args { image, namespace, kubeconfig, every } = args;
    serve(image, namespace, kubeconfig, every)
}

#[cfg(feature = "kubernetes")]
fn serve(image: String, namespace: Option<String>, kubeconfig: Option<PathBuf>, every: Duration) -> Result<ExitCode> {
    use anyhow::Context;
    use tidegate_operator::{Operator, Settings};
    use tokio::signal::unix::{SignalKind, signal};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
        let operator = match Operator::find(Settings { kubeconfig, namespace, image, every }).await {
            Ok(operator) => operator,
            Err(why) => {
                return Ok(super::bad_configuration(format_args!("how to reach the API server is not known: {why}")));
            }
        };
        crate::log::announce(format_args!(
            "tidegate operator {}\n  namespace {}",
            env!("CARGO_PKG_VERSION"),
            operator.namespace()
        ));
        tokio::select! {
            () = operator.run() => anyhow::bail!("the operator broke off"),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!(target: "tidegate", "the operator stops; sentries go on as they are");
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(not(feature = "kubernetes"))]
fn serve(
    _image: String,
    _namespace: Option<String>,
    _kubeconfig: Option<PathBuf>,
    _every: Duration,
) -> Result<ExitCode> {
    let message = "this tidegate was built without Kubernetes; build it with --features kubernetes";
    Ok(super::bad_configuration(message))
}
