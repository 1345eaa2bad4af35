//! Programs that are not ours.

/// Whether `program` is there. With `CI=true`, or where the tests' programs were installed, it must be.
pub fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let present = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let installed = format!("TIDEGATE_HAVE_{}", program.to_uppercase().replace('-', "_"));
    let wanted = std::env::var("CI").is_ok_and(|ci| ci == "true") || std::env::var(installed).is_ok();
    assert!(present || !wanted, "{program} is not in PATH; cargo xtask programs installs it");
    present
}
