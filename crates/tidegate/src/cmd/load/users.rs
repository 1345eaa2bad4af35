//! `tidegate load --users`: a closed loop of users, as a file describes them.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tidegate_loadgen::{LoadRun, UsersFile, UsersPlan};

use super::{Args, HOUR, bad_usage, finish, open};

/// Runs the users of `file`. Exit status as that of the open loop.
pub(super) fn run(args: &Args, file: &Path) -> Result<ExitCode> {
    let plan = match plan(args, file) {
        Ok(plan) => plan,
        Err(error) => return Ok(bad_usage(&error)),
    };
    let json = match args.json.as_ref().map(open).transpose() {
        Ok(json) => json,
        Err(error) => return Ok(bad_usage(&error)),
    };
    eprint!("{}", announcement(&plan));
    finish(LoadRun::start_users(plan), json)
}

fn plan(args: &Args, file: &Path) -> Result<UsersPlan> {
    let [to] = &args.to[..] else { bail!("--users: give one --to, the service that the users use") };
    let to = if to.contains("://") { to.clone() } else { format!("http://{to}") };
    let duration = args.duration.unwrap_or(Duration::from_secs(30));
    ensure!(
        args.long || duration <= HOUR,
        "the duration is {duration:?}, more than an hour: if that is meant, add --long"
    );
    let mut plan = UsersPlan::new(UsersFile::read(file)?, &to, duration)?;
    plan.seed = args.seed();
    plan.target = args.target.or(plan.target);
    plan.keep_alive = !args.close;
    args.speak.say_users(&mut plan);
    Ok(plan)
}

/// Who will be there, before anybody is.
fn announcement(plan: &UsersPlan) -> String {
    let mut text = format!("users for {:?}, seed {}:\n", plan.duration, plan.seed);
    for group in &plan.file().users {
        text += &format!("  {}: {} at most, class {}\n", group.label(), plan.file().most(group), group.class);
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Cli::try_parse_from([&["load", "--users", "x.toml"], line].concat()).unwrap().args
    }

    #[test]
    fn the_mail_services_users_are_a_plan() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/mail/users.toml"));
        let args = args(&["--to", "127.0.0.1:1", "--seed", "3", "--target", "2s", "--close"]);
        let plan = plan(&args, file).unwrap();
        assert_eq!((plan.seed, plan.target, plan.keep_alive), (3, Some(Duration::from_secs(2)), false));
        assert!(announcement(&plan).contains("users: 32 at most, class 2"));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let none = plan(&args(&["--to", "127.0.0.1:1"]), Path::new("no-such-file.toml")).unwrap_err();
        assert!(none.to_string().contains("no-such-file.toml"), "{none}");
        let two = plan(&args(&["--to", "a", "--to", "b"]), Path::new("x")).unwrap_err();
        assert!(two.to_string().contains("one --to"), "{two}");
    }

    #[test]
    fn rates_and_users_exclude_each_other() {
        let line = ["load", "--users", "x.toml", "--to", "a", "--rate", "3/s"];
        assert!(Cli::try_parse_from(line).is_err());
    }
}
