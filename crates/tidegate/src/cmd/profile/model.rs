//! Absorbable load jumps that follow from a profile, with stealing from the data tier.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tidegate_engine::StealingProfile;

use super::file::File;

/// Options of the model.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Print what follows from this profile: a TOML file with the table softscale
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// With --model: application servers that hold the peak
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    application_servers: u32,
    /// With --model: data servers
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    data_servers: u32,
    /// Cores of a data server: with --model to hold the profile against, with --data those that are divided
    #[arg(long, value_name = "N")]
    pub(super) cores: Option<u32>,
}

impl Args {
    pub(super) fn is_given(&self) -> bool {
        self.model.is_some()
    }
}

/// Runs the command.
///
/// # Errors
/// When nothing can be printed.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let Some(file) = &args.model else { return Err(anyhow!("no profile was given")) };
    match read(file, args.cores) {
        Ok(profile) => {
            write!(stdout(), "{}", table(&profile, args.application_servers, args.data_servers))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(super::super::bad_configuration(format!("{error:#}"))),
    }
}

fn read(file: &Path, cores: Option<u32>) -> Result<StealingProfile> {
    let name = file.display().to_string();
    parse(&tidegate_config::load(file)?, &name, cores)
}

fn parse(text: &str, name: &str, cores: Option<u32>) -> Result<StealingProfile> {
    let file = tidegate_config::parse::<File>(text, name)?;
    let missing = || anyhow!("{name}: has no table softscale; measure it with --data, or write it");
    let profile = file.softscale.ok_or_else(missing)?;
    let wrong = |(place, problem)| anyhow!("{name}: [softscale]: {place} {problem}");
    profile.check_for(cores).map_err(wrong)?;
    Ok(profile)
}

fn table(profile: &StealingProfile, application_servers: u32, data_servers: u32) -> String {
    let mut text = format!(
        "peak {}/s, {application_servers} application servers with {} in flight each, {data_servers} data servers\n\n\
         {:>6} {:>8} {:>8} {:>12} {:>12}\n",
        profile.peak, profile.n_app, "load", "servers", "n_data", "absorbable", "up to"
    );
    for percent in (5..=100).step_by(5) {
        let load = f64::from(percent) / 100.0;
        let reach = profile.reach(load, application_servers, data_servers);
        let on = (f64::from(application_servers) * load).ceil();
        let (extra, rate) = ((reach / load - 1.0) * 100.0, reach * profile.peak);
        text += &format!("{percent:>5}% {on:>8} {:>8} {extra:>+11.0}% {rate:>10.0}/s\n", profile.n_data(load));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "[softscale]\nn_app = 13\npeak = \"750/s\"\n\
        steps = [{ below = 0.33, n_data = 9, cores = 3 }, { below = 0.8, n_data = 6, cores = 2 }]\n";

    fn read_text(text: &str, cores: Option<u32>) -> Result<StealingProfile> {
        parse(text, "shop.profile.toml", cores)
    }

    #[test]
    fn the_table_is_equation_1() {
        let table = table(&read_text(PROFILE, Some(4)).unwrap(), 20, 5);
        let line = |load: &str| -> Vec<String> {
            let line = table.lines().find(|line| line.trim_start().starts_with(load)).expect("a line for each load");
            line.split_whitespace().map(str::to_owned).collect()
        };
        // 5 x 9 / (20 x 0.1 x 13) = 173 %, and 5 x 6 / (20 x 0.5 x 13) = 23 %.
        assert_eq!(line("10%"), ["10%", "2", "9", "+173%", "205/s"]);
        assert_eq!(line("50%"), ["50%", "10", "6", "+23%", "462/s"]);
        assert_eq!(line("80%"), ["80%", "16", "0", "+0%", "600/s"]);
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_place() {
        for (from, to, cores, expected) in [
            ("n_data = 6", "n_data = 10", None, "steps[1].n_data rises"),
            ("cores = 2", "cores = 1", None, "the step with 2 is missing"),
            ("cores = 3", "cores = 3", Some(3), "steps[0].cores gives away 3 cores"),
            (
                "n_app",
                "n_apps",
                None,
                "shop.profile.toml:2: softscale.n_apps: unknown key \"n_apps\"; did you mean \"n_app\"?",
            ),
            (PROFILE, "", None, "has no table softscale"),
        ] {
            let error = format!("{:#}", read_text(&PROFILE.replace(from, to), cores).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let two = PROFILE.replace("n_app =", "n_ap =").replace("\"750/s\"", "\"750\"");
        let error = format!("{:#}", read_text(&two, None).unwrap_err());
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains(":2: softscale.n_ap:"), "{error}");
        assert!(lines[1].contains(":3: softscale.peak: \"750\" is not a rate"), "{error}");
    }
}
