//! The committed figures, and what is said of new ones.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use super::{Count, unsteady};
use crate::command::output;

/// Where the figures are, from the root.
pub const FILE: &str = "benches/instructions.toml";

/// By how much a figure may grow, and how much less is worth a record, as a share.
const TOLERANCE: f64 = 0.05;

const HEAD: &str = "\
# How many instructions in user space one unit of each row of `cargo xtask bench instructions` takes. That command fails
# when a row grows by more than 5 %, and `--record` writes this file: commit it with the reason.
";

/// What a program was built with. Figures of different ones are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The compiler's own words.
    pub rustc: String,
    /// The profile, and variables of the environment that change it.
    pub profile: String,
    /// The triple.
    pub target: String,
}

/// Figures and what they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    pub built: Built,
    /// Names and instructions for one unit.
    pub rows: Vec<(String, u64)>,
}

/// What is to be said of a row; of most, nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// More instructions than it may take.
    Grown { row: String, before: u64, now: u64 },
    /// So few that a later growth would pass unseen.
    Shrunk { row: String, before: u64, now: u64 },
    /// It has no figure in the baseline.
    New { row: String },
    /// Only the baseline has it.
    Gone { row: String },
    /// Its counts do not agree with one another.
    Unsteady { row: String, count: Count },
}

impl Built {
    /// What is built here now.
    ///
    /// # Errors
    /// When there is no compiler.
    pub fn here() -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let said = output(Command::new(rustc).arg("-vV")).context("which compiler this is")?;
        Self::read(&said, std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))))
    }

    fn read(said: &str, variables: impl Iterator<Item = (String, impl Into<std::ffi::OsString>)>) -> Result<Self> {
        let rustc = said.lines().next().context("the compiler does not name itself")?.to_owned();
        let target = said.lines().find_map(|line| line.strip_prefix("host: "));
        let target = target.context("the compiler does not say for which target it builds")?.to_owned();
        let changes = |name: &str| name.starts_with("CARGO_PROFILE_RELEASE_") || name.ends_with("RUSTFLAGS");
        let mut changed: Vec<_> = variables
            .map(|(name, value)| (name, value.into()))
            .filter(|(name, value)| changes(name) && !value.is_empty())
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .collect();
        changed.sort();
        let profile = if changed.is_empty() { PLAIN.to_owned() } else { format!("{PLAIN}, {}", changed.join(", ")) };
        Ok(Self { rustc, profile, target })
    }

    /// # Errors
    /// When the environment changes what is built: that is true on one machine only.
    pub fn ensure_plain(&self) -> Result<()> {
        ensure!(self.profile == PLAIN, "a baseline is of the profile as Cargo.toml has it, not of: {}", self.profile);
        Ok(())
    }

    /// Why figures of `now` are not to be judged by figures of this.
    pub fn differs(&self, now: &Self) -> Option<String> {
        let pairs = [(&self.rustc, &now.rustc), (&self.profile, &now.profile), (&self.target, &now.target)];
        let differences = pairs.iter().filter(|(before, now)| before != now);
        let told: Vec<_> =
            differences.map(|(before, now)| format!("the baseline is of {before}, this is {now}")).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// The profile as Cargo.toml has it.
const PLAIN: &str = "release";

impl Baseline {
    /// Reads what [`Display`](fmt::Display) wrote.
    ///
    /// # Errors
    /// When something is missing or is of another kind.
    pub fn read(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let word = |name: &str| {
            let value = table.get(name).and_then(Value::as_str);
            value.map(str::to_owned).with_context(|| format!("`{name}` is missing"))
        };
        let built = Built { rustc: word("rustc")?, profile: word("profile")?, target: word("target")? };
        let rows = table.get("rows").and_then(Value::as_table).context("the table `rows` is missing")?;
        let figure = |(name, value): (&String, &Value)| match value.as_integer().map(u64::try_from) {
            Some(Ok(figure)) if figure > 0 => Ok((name.clone(), figure)),
            _ => bail!("`{name}` is no number of instructions"),
        };
        Ok(Self { built, rows: rows.iter().map(figure).collect::<Result<_>>()? })
    }

    /// The figure of a row.
    pub fn figure(&self, row: &str) -> Option<u64> {
        self.rows.iter().find(|(name, _)| name == row).map(|(_, figure)| *figure)
    }

    /// What there is to say of what was counted. `is_whole`: all rows were.
    pub fn judge(&self, counted: &[(&str, Count)], is_whole: bool) -> Vec<Finding> {
        let mut findings: Vec<_> = counted.iter().filter_map(|(row, count)| self.judge_row(row, *count)).collect();
        let is_counted = |row: &str| counted.iter().any(|(name, _)| *name == row);
        if is_whole {
            let gone = self.rows.iter().filter(|(row, _)| !is_counted(row));
            findings.extend(gone.map(|(row, _)| Finding::Gone { row: row.clone() }));
        }
        findings
    }

    fn judge_row(&self, row: &str, count: Count) -> Option<Finding> {
        let row = row.to_owned();
        if !count.is_steady() {
            return Some(Finding::Unsteady { row, count });
        }
        let Some(before) = self.figure(&row) else { return Some(Finding::New { row }) };
        let now = count.figure;
        let ratio = now as f64 / before as f64;
        if ratio > 1.0 + TOLERANCE {
            Some(Finding::Grown { row, before, now })
        } else if ratio < 1.0 - TOLERANCE {
            Some(Finding::Shrunk { row, before, now })
        } else {
            None
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Built { rustc, profile, target } = &self.built;
        let word = |text: &str| Value::from(text);
        writeln!(f, "{HEAD}")?;
        writeln!(f, "rustc = {}\nprofile = {}\ntarget = {}\n", word(rustc), word(profile), word(target))?;
        writeln!(f, "[rows]")?;
        self.rows.iter().try_for_each(|(row, figure)| writeln!(f, "{row} = {figure}"))
    }
}

impl Finding {
    /// Whether it makes the command fail.
    pub fn is_failure(&self) -> bool {
        !self.is_shrunk()
    }

    /// Whether it is good news.
    pub fn is_shrunk(&self) -> bool {
        matches!(self, Self::Shrunk { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = TOLERANCE * 100.0;
        let change = |before: &u64, now: &u64| {
            let ratio = *now as f64 / *before as f64;
            format!("{before} instructions before, {now} now, {ratio:.3} times as many")
        };
        match self {
            Self::Grown { row, before, now } => {
                write!(f, "FAILED {row}: {}, {percent:.0} % more at most", change(before, now))
            }
            Self::Shrunk { row, before, now } => write!(f, "fewer: {row}: {}", change(before, now)),
            Self::New { row } => write!(f, "FAILED {row}: it has no figure in {FILE}; --record it"),
            Self::Gone { row } => write!(f, "FAILED {row}: only {FILE} has it; count it, or --record without it"),
            Self::Unsteady { row, count } => {
                write!(f, "FAILED {row}: {}; more units, or fewer differences between them", unsteady(*count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        let built = built("rustc 1.95.0 (59807616e 2026-04-14)");
        Baseline { built, rows: vec![("pass-1k".to_owned(), 10_000), ("sim-batch".to_owned(), 4_000)] }
    }

    fn built(rustc: &str) -> Built {
        Built { rustc: rustc.to_owned(), profile: PLAIN.to_owned(), target: "x86_64-unknown-linux-gnu".to_owned() }
    }

    /// What is said of one count of `pass-1k`.
    fn said(now: u64) -> Vec<Finding> {
        baseline().judge(&[("pass-1k", Count { figure: now, spread: 0.001 })], false)
    }

    #[test]
    fn a_row_that_grows_by_six_percent_fails_and_by_four_holds() {
        let [finding] = &said(10_600)[..] else { panic!("nothing is said") };
        assert!(finding.is_failure());
        let text = finding.to_string();
        for part in ["FAILED pass-1k", "10000 instructions before", "10600 now", "1.060 times"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(said(10_400), []);
        assert_eq!(said(9_600), []);
    }

    #[test]
    fn a_row_that_shrinks_is_told_and_no_failure() {
        let [finding] = &said(9_300)[..] else { panic!("nothing is said") };
        assert!(finding.is_shrunk() && !finding.is_failure(), "{finding}");
        assert!(finding.to_string().contains("pass-1k: 10000 instructions before, 9300 now"), "{finding}");
    }

    #[test]
    fn rows_on_one_side_only_fail() {
        let count = Count { figure: 10_000, spread: 0.0 };
        let counted = [("pass-1k", count), ("refuse", count)];
        let findings = baseline().judge(&counted, true);
        let [Finding::New { row: new }, Finding::Gone { row: gone }] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((new.as_str(), gone.as_str()), ("refuse", "sim-batch"));
        assert!(findings.iter().all(Finding::is_failure));
        assert_eq!(baseline().judge(&counted[..1], false), [], "what is left out on purpose is not missed");
    }

    #[test]
    fn counts_that_do_not_agree_fail_whatever_their_median() {
        let findings = baseline().judge(&[("pass-1k", Count { figure: 10_000, spread: 0.03 })], false);
        assert!(
            matches!(&findings[..], [unsteady @ Finding::Unsteady { .. }] if unsteady.is_failure()),
            "{findings:?}"
        );
    }

    #[test]
    fn another_compiler_or_profile_is_no_measure() {
        let before = built("rustc 1.95.0 (59807616e 2026-04-14)");
        assert_eq!(before.differs(&before.clone()), None);
        let why = before.differs(&built("rustc 1.96.0 (0123abcde 2026-05-28)")).unwrap();
        assert!(why.contains("of rustc 1.95.0") && why.contains("is rustc 1.96.0"), "{why}");
        let said = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        let with = |name: &str, value: &str| Built::read(said, [(name.to_owned(), value)].into_iter()).unwrap();
        assert_eq!(with("HOME", "x"), before);
        assert_eq!(with("RUSTFLAGS", ""), before);
        before.ensure_plain().unwrap();
        for name in ["RUSTFLAGS", "CARGO_PROFILE_RELEASE_LTO"] {
            let now = with(name, "fat");
            assert!(before.differs(&now).unwrap().contains(&format!("release, {name}=fat")), "{now:?}");
            assert!(now.ensure_plain().is_err());
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = baseline().to_string();
        assert_eq!(Baseline::read(&text).unwrap(), baseline());
        assert!(text.starts_with("# ") && text.ends_with("sim-batch = 4000\n"), "{text}");
        assert!(Baseline::read("").unwrap_err().to_string().contains("`rustc` is missing"));
        let error = Baseline::read(&text.replace("4000", "0")).unwrap_err().to_string();
        assert!(error.contains("`sim-batch`"), "{error}");
    }
}
