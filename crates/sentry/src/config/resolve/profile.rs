//! The profile of application and data servers, in a file of its own: what `tidegate profile` reads too.

use std::path::Path;

use tidegate_engine::StealingProfile;

use super::World;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    softscale: StealingProfile,
    /// What it follows from, for people.
    #[serde(default, rename = "measured")]
    _measured: toml::Table,
}

/// Reads a profile; whether it fits the servers is for the engine to say.
///
/// # Errors
/// What is wrong, in a sentence.
pub(super) fn read(world: &dyn World, path: &Path) -> Result<StealingProfile, String> {
    let bytes = world.read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        format!("line {line}: {}", error.message())
    })?;
    file.softscale.check_for(None).map_err(|(place, problem)| format!("[softscale]: {place} {problem}"))?;
    Ok(file.softscale)
}
