//! The scenarios that the program brings along, so that it needs no other file: the folder `scenarios/`.

use std::path::Path;

use include_dir::{Dir, include_dir};
use tidegate_config::ConfigErrors;

use crate::scenario::Scenario;

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios");

/// Why there is no such scenario.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// It is neither built in nor a file.
    #[error("there is no scenario \"{name}\": built in are {}; else give a TOML file", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What is built in.
        known: Vec<String>,
    },
    /// It makes no sense.
    #[error(transparent)]
    Scenario(#[from] ConfigErrors),
}

/// Every one, in the order of their names: letters, then numbers.
///
/// # Errors
/// When one makes no sense: a bug, which a test finds.
pub fn all() -> Result<Vec<Scenario>, ConfigErrors> {
    let mut files: Vec<(&str, &str)> = FOLDER.files().filter_map(name_and_text).collect();
    files.sort_by_cached_key(|(name, _)| order(name));
    files.into_iter().map(|(name, text)| Scenario::parse(text, name)).collect()
}

/// A built-in scenario by its id, whatever the case, or a file.
///
/// # Errors
/// When there is none, or it makes no sense.
pub fn find(name: &str) -> Result<Scenario, FindError> {
    let all = all()?;
    let path = Path::new(name);
    if let Some(found) = all.iter().find(|scenario| scenario.id.eq_ignore_ascii_case(name)) {
        return Ok(found.clone());
    }
    if path.extension().is_none() && !path.exists() {
        let known = all.into_iter().map(|scenario| scenario.id).collect();
        return Err(FindError::Unknown { name: name.to_owned(), known });
    }
    Ok(Scenario::load(path)?)
}

fn name_and_text(file: &'static include_dir::File<'static>) -> Option<(&'static str, &'static str)> {
    let name = file.path().file_name()?.to_str()?;
    Some((name, file.contents_utf8()?)).filter(|_| name.ends_with(".toml"))
}

/// `s2` before `s10`, and `s8` before `s8b`.
fn order(name: &str) -> (&str, u32, &str) {
    let stem = name.strip_suffix(".toml").unwrap_or(name);
    let digits = stem.find(|c: char| c.is_ascii_digit()).unwrap_or(stem.len());
    let (letters, rest) = stem.split_at(digits);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (letters, rest[..end].parse().unwrap_or(0), &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_folder_are_there_in_order() {
        let ids: Vec<String> = all().unwrap().into_iter().map(|scenario| scenario.id).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        assert_eq!(ids.len(), std::fs::read_dir(folder).unwrap().count());
        let place = |id: &str| ids.iter().position(|other| other == id).unwrap();
        assert!(place("S2") < place("S10") && place("S8") < place("S8B") && place("A5") < place("C1"), "{ids:?}");
    }

    #[test]
    fn names_have_no_case_and_strangers_are_told_what_is_known() {
        assert_eq!(find("c1").unwrap().id, "C1");
        let error = find("C99").unwrap_err().to_string();
        assert!(error.contains("\"C99\"") && error.contains("W1, W2"), "{error}");
    }
}
