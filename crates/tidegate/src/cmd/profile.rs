//! `tidegate profile`: what a running service holds, and what follows from a profile for stealing from the data tier.

mod commander;
mod file;
mod measure;
mod model;
mod staircase;
mod tags;

use std::process::ExitCode;

use anyhow::Result;

/// Measure what a running service holds, or print what a profile lets it absorb
///
/// Steps the load up, by clients that wait and by rates, until the service breaks its target, then stops and looks for
/// the last load that it held. Nothing is sent but to the addresses given; what will be sent is said first. The results
/// go to a profile file and a plot. With --data also what data servers can lend (docs/softscale.md); with --model
/// nothing is sent: for each load, the largest load to which it may jump while application servers are being started.
/// With --tags a running sentry is asked which request types strain which resource (docs/resource.md).
/// Exit status: 0, 1 when something could not be measured, or 2 when what was asked for makes no sense.
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
