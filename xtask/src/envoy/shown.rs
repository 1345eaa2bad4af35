//! The configurations that docs/envoy.md shows, with other addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::service::{Service, free_address};
use crate::command;
use crate::real::sentry::Sentry;

use super::PROXY_CORE;

/// What decides in Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Nothing.
    None,
    /// Its own adaptive concurrency, as its documentation shows it, with a shorter interval.
    Adaptive,
    /// It asks tidegate.
    Tidegate,
}

const ADAPTIVE: &str = "
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { interval: 60s, request_count: 50 }";

/// A sentry that Envoy asks.
///
/// # Errors
/// When the document shows none, or it does not start.
pub fn sentry(dir: &Path) -> Result<Sentry> {
    let listen = free_address()?;
    let text = shown("toml")?.replace("127.0.0.1:8080", &listen.to_string());
    Sentry::with_file(&format!("[sentry]\nworkers = 1\n\n{text}"), listen, PROXY_CORE, dir)
}

/// An Envoy before a service.
///
/// # Errors
/// When the document shows none, or it does not start.
pub fn envoy(program: &Path, filter: Filter, service: SocketAddr, asks: SocketAddr, dir: &Path) -> Result<Service> {
    let listen = free_address()?;
    let mut text = shown("yaml")?;
    for (port, address) in [(10000, listen), (9001, service), (8080, asks)] {
        text = text.replace(&format!("port_value: {port} "), &format!("port_value: {} ", address.port()));
    }
    if filter != Filter::Tidegate {
        let own = if filter == Filter::Adaptive { ADAPTIVE } else { "" };
        let begin = text.find("\n          - name: tidegate\n").context("docs/envoy.md has no filter `tidegate`")?;
        let end = text.find("\n          - name: envoy.filters.http.router").context("docs/envoy.md has no router")?;
        text.replace_range(begin..end, own);
    }
    let file: PathBuf = dir.join("envoy.yaml");
    fs::write(&file, text)?;
    let mut envoy = Command::new(program);
    envoy.arg("-c").arg(&file).args(["--concurrency", "1", "-l", "warning", "--use-dynamic-base-id"]);
    Service::start("envoy", envoy, PROXY_CORE, listen, dir)
}

/// The block of a language in the document.
fn shown(language: &str) -> Result<String> {
    let page = fs::read_to_string(command::root().join("docs/envoy.md"))?;
    let block = page.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    Ok(block.with_context(|| format!("docs/envoy.md shows no {language}"))?.to_owned())
}
