//! The command line of tidegate.
//!
//! Exit status: 0 when it did what was asked, 1 when it failed while running, 2 when what was asked for makes no sense.

#![deny(unsafe_code)]

mod cmd;
#[cfg(test)]
mod documents;
mod log;

use std::process::ExitCode;

use clap::Parser;

/// Connections come and go with their buffers: this one gives memory back, and costs less processor time per request
/// than the system's (measured: `benches/results`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps an Internet service useful when more requests arrive than it can serve: admits what can be answered in time,
/// the most valuable first, and refuses the rest early and cheaply.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
    #[command(flatten)]
    log: log::LogArgs,
}

fn main() -> ExitCode {
    // Ten thousand idle connections are ten thousand small things: in huge pages they would hold twice the memory.
    // Where the system knows no such setting, nothing is lost.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let Cli { command, log } = Cli::parse();
    log.start(command.log_level());
    match command.run() {
        Ok(status) => status,
        Err(error) => {
            log::complain(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
