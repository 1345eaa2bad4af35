//! `tidegate key`: the own key of a nucleus or a sentry, from the secret.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tidegate_wire::{MAX_NAME, Owner, own_key};

/// Make the own key of a nucleus or a sentry: with it one can speak in that name and in no other.
///
/// It follows from a secret that sentries (for nuclei) or control planes (for sentries) have in their key file, and
/// from the name, so nobody needs a list of keys. Put it into the key file of the nucleus or sentry, and nowhere else.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whose it is: a nucleus speaks for a server, a sentry for itself to the control plane
    #[arg(value_enum)]
    owner: Who,
    /// Its name: the nucleus's `server`, or the sentry's `name` in `[control]`
    #[arg(value_name = "NAME")]
    name: String,
    /// The file with the secret, and no other in it
    #[arg(long, value_name = "FILE")]
    of: PathBuf,
    /// Put it into this file, for its owner alone to read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Who {
    Nucleus,
    Sentry,
}

const EXAMPLES: &str = "Examples:
  tidegate key nucleus 10.0.0.1:80 --of key --out nucleus.key
  tidegate key sentry sentry-1 --of control.key --out sentry-1.key";

/// Makes the key.
///
/// # Errors
/// When there is no secret, or the file cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Args { owner, name, of, out } = args;
    let name = name.trim();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
        bail!("\"{}\" is no name: it has 1 to {MAX_NAME} bytes and is of one line", name.escape_debug());
    }
    let owner = match owner {
        Who::Nucleus => Owner::Nucleus,
        Who::Sentry => Owner::Sentry,
    };
    let line = own_key(of, owner, name)?;
    match out {
        Some(out) if fs::canonicalize(out).ok() == fs::canonicalize(of).ok() => {
            bail!("{} has the secret, which would be lost; choose another file for the key", out.display())
        }
        Some(out) => write(out, &line).with_context(|| format!("cannot write {}", out.display()))?,
        None => println!("{line}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts the line in the place of the file at once: whoever watches it sees the old key or the new one. The new file has
/// the old one's owner and mode, but nothing for others.
fn write(path: &Path, line: &str) -> std::io::Result<()> {
    let before = match fs::metadata(path) {
        Ok(before) if !before.is_file() => return Err(std::io::Error::other("it is no file")),
        Ok(before) => Some(before),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    // One that was left behind may be readable by others.
    match fs::remove_file(&name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name)?;
    if let Some(before) = before {
        std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o660))?;
    }
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&name, path)
}
