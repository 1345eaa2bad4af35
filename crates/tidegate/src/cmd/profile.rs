//! `tidegate profile`: what a running service holds, and what follows from a profile for stealing from the data tier.

mod commander;
mod file;
mod measure;
mod model;
mod staircase;
mod tags;

use std::process::ExitCode;

use anyhow::Result;

/// Measure the capacity of a running service, or print what load jumps a profile lets it absorb
///
/// Raises the load step by step, with waiting clients and with rates, until the service misses its target. Then it
/// stops and searches for the largest load that the service sustained. It sends only to the given addresses and first
/// announces what it will send. The results go to a profile file and a plot. With --data it also measures what data
/// servers can lend (docs/softscale.md). With --model it sends nothing and prints, for each load, the largest load to
/// which it may jump while application servers are being started. With --tags it asks a running sentry which request
/// types use which resource (docs/resource.md). Exit status: 0, 1 when something could not be measured, 2 when an
/// option is invalid.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["model", "to", "tags"])))]
pub struct Args {
    #[command(flatten)]
    model: model::Args,
    #[command(flatten)]
    measure: measure::Args,
    #[command(flatten)]
    tags: tags::Args,
}

const EXAMPLES: &str = "Examples:
  tidegate profile --to http://10.0.0.1:9000/page --target 500ms
  tidegate profile --to page=http://10.0.0.1:9000/page --to search=http://10.0.0.1:9000/search --target 1s --out shop.profile.toml
  tidegate profile --to http://10.0.0.1:9000/page --target 500ms --data http://10.0.1.1:9000/page \\
    --load-to http://10.0.0.2:9000/page --peak 750/s --cores 4 --nucleus 10.0.0.9:9901 --server 10.0.1.1:9000 --key-file key
  tidegate profile --model shop.profile.toml --application-servers 20 --data-servers 5
  tidegate profile --tags 127.0.0.1:9900";

/// Runs the command.
///
/// # Errors
/// When something could not be measured, or written.
pub fn run(args: &Args) -> Result<ExitCode> {
    match () {
        () if args.tags.is_given() => tags::run(&args.tags),
        () if args.model.is_given() => model::run(&args.model),
        () => measure::run(&args.measure, args.model.cores),
    }
}
