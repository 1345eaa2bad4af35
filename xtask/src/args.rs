//! The command line: positional words, `--name value` options and `--name` switches, taken one by one.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};

/// What was typed and not yet taken.
#[derive(Debug)]
pub struct Args {
    rest: Vec<String>,
}

impl Args {
    /// These words.
    pub fn new(words: Vec<String>) -> Self {
        Self { rest: words }
    }

    /// The words after the program's name; `--help` anywhere becomes the command `help`.
    pub fn from_env() -> Self {
        let mut rest: Vec<String> = std::env::args().skip(1).collect();
        if rest.iter().any(|word| word == "--help" || word == "-h") {
            rest = vec!["help".to_owned()];
        }
        Self { rest }
    }

    /// Takes the next word, if it is not an option.
    pub fn positional(&mut self) -> Option<String> {
        let next = self.rest.first()?;
        (!next.starts_with("--")).then(|| self.rest.remove(0))
    }

    /// Takes the switch `name` (as in `--short`); false when it was not given.
    pub fn switch(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|word| word != name);
        self.rest.len() != before
    }

    /// Takes the option `name` and its value (`--rounds 5` or `--rounds=5`), if given.
    ///
    /// # Errors
    /// When the value is missing or cannot be read as a `T`.
    pub fn option<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let joined = format!("{name}=");
        let at = self.rest.iter().position(|word| word == name || word.starts_with(&joined));
        let Some(at) = at else { return Ok(None) };
        let word = self.rest.remove(at);
        let value = match word.strip_prefix(&joined) {
            Some(value) => value.to_owned(),
            None if at < self.rest.len() => self.rest.remove(at),
            None => bail!("{name} needs a value"),
        };
        let parsed = value.parse();
        parsed.map(Some).map_err(|_| anyhow!("{name}: cannot read `{value}`"))
    }

    /// Takes the option `name` and its values, between commas, if given.
    ///
    /// # Errors
    /// When they are missing.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let list: Option<String> = self.option(name)?;
        Ok(list.map(|list| list.split(',').map(str::to_owned).collect()))
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// When a word is left that nobody asked for.
    pub fn finish(self) -> Result<()> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => bail!("unknown argument `{word}`; see `cargo xtask --help`"),
        }
    }
}

/// # Errors
/// When one of the names that were asked for is not known.
pub fn all_known(kind: &str, asked: Option<&[String]>, known: &[&str]) -> Result<()> {
    match asked.unwrap_or_default().iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => bail!("there is no {kind} `{name}`; there are: {}", known.join(", ")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn takes_each_kind_in_any_order() {
        let mut args = args("proxy --rounds 3 --short --seconds=2");
        assert_eq!(args.positional().as_deref(), Some("proxy"));
        assert!(args.switch("--short"));
        assert!(!args.switch("--short"));
        assert_eq!(args.option::<u32>("--seconds").unwrap(), Some(2));
        assert_eq!(args.option::<u32>("--rounds").unwrap(), Some(3));
        assert_eq!(args.option::<u32>("--other").unwrap(), None);
        args.finish().unwrap();
    }

    #[test]
    fn names_in_a_list_are_known() {
        let asked = |line: &str| {
            let only = args(line).list("--only").unwrap();
            all_known("fish", only.as_deref(), &["cod", "eel"]).map_err(|error| error.to_string())
        };
        assert_eq!((asked(""), asked("--only eel,cod")), (Ok(()), Ok(())));
        assert_eq!(asked("--only cod,ell"), Err("there is no fish `ell`; there are: cod, eel".to_owned()));
        assert!(args("--only").list("--only").is_err());
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        assert!(args("--rounds").option::<u32>("--rounds").is_err());
        assert!(args("--rounds many").option::<u32>("--rounds").is_err());
        assert!(args("--unknown").finish().unwrap_err().to_string().contains("--unknown"));
    }
}
