//! Rules about manifests: which of our crates may import which, shared lints, and a lock file.

use toml::{Table, Value};

use super::tree::{File, Finding, Tree};

/// What a crate may import of ours.
struct Allowed {
    /// The package.
    package: &'static str,
    /// In `[dependencies]` and `[build-dependencies]`.
    always: &'static [&'static str],
    /// Beyond that, in `[dev-dependencies]`.
    in_tests: &'static [&'static str],
}

/// The direction of imports: a crate imports what its row names, no more and no less.
const ALLOWED: &[Allowed] = &[
    Allowed { package: "tidegate-engine", always: &[], in_tests: &[] },
    Allowed { package: "tidegate-workload", always: &[], in_tests: &[] },
    Allowed { package: "tidegate-kernel", always: &[], in_tests: &[] },
    Allowed { package: "tidegate-visitors", always: &[], in_tests: &[] },
    Allowed { package: "tidegate-kubernetes", always: &["wire"], in_tests: &[] },
    Allowed { package: "tidegate-config", always: &["engine"], in_tests: &["workload"] },
    Allowed { package: "tidegate-classify", always: &["engine"], in_tests: &["classify"] },
    Allowed { package: "tidegate-provision", always: &["engine"], in_tests: &[] },
    Allowed { package: "tidegate-wire", always: &[], in_tests: &[] },
    Allowed { package: "tidegate-sim", always: &["engine", "provision", "workload"], in_tests: &[] },
    Allowed { package: "tidegate-stage", always: &["engine"], in_tests: &[] },
    Allowed { package: "tidegate-ffi", always: &["config", "engine"], in_tests: &[] },
    Allowed { package: "tidegate-nucleus", always: &["config", "wire"], in_tests: &[] },
    Allowed {
        package: "tidegate-sentry",
        always: &["classify", "config", "engine", "kernel", "kubernetes", "nucleus", "provision", "visitors", "wire"],
        in_tests: &[],
    },
    Allowed {
        package: "tidegate-control",
        always: &["config", "engine", "kubernetes", "provision", "visitors", "wire"],
        in_tests: &[],
    },
    Allowed { package: "tidegate-operator", always: &["kubernetes", "sentry", "wire"], in_tests: &[] },
    Allowed { package: "tidegate-loadgen", always: &["config", "workload"], in_tests: &[] },
    Allowed {
        package: "tidegate-testbed",
        always: &["loadgen", "nucleus", "wire", "workload"],
        in_tests: &["engine", "sentry", "sim"],
    },
    Allowed {
        package: "tidegate-experiment",
        always: &[
            "classify",
            "config",
            "engine",
            "loadgen",
            "provision",
            "sentry",
            "sim",
            "testbed",
            "wire",
            "workload",
        ],
        in_tests: &[],
    },
    Allowed {
        package: "tidegate",
        always: &[
            "config",
            "control",
            "engine",
            "experiment",
            "loadgen",
            "nucleus",
            "operator",
            "provision",
            "sentry",
            "sim",
            "testbed",
            "wire",
            "workload",
        ],
        in_tests: &[],
    },
    Allowed {
        package: "tidegate-mail",
        always: &["config", "stage"],
        in_tests: &["experiment", "loadgen", "testbed", "workload"],
    },
    Allowed { package: "tidegate-fuzz", always: &["classify", "engine", "sentry", "wire"], in_tests: &[] },
    Allowed { package: "xtask", always: &[], in_tests: &[] },
];

/// The imports among our crates are those of [`ALLOWED`].
pub fn check(tree: &Tree) -> Vec<Finding> {
    manifests(tree).flat_map(|(file, manifest)| check_manifest(file, &manifest)).collect()
}

/// Canaries of [`check`].
pub const CANARIES: &[&[(&str, &str)]] = &[
    &[(
        "crates/engine/Cargo.toml",
        "package.name = \"tidegate-engine\"\ndependencies.tidegate-workload.path = \"../w\"\n",
    )],
    &[("crates/sim/Cargo.toml", "package.name = \"tidegate-sim\"\n[dependencies]\ntidegate-sentry.workspace = true\n")],
    &[(
        "crates/sentry/Cargo.toml",
        "package.name = \"tidegate-sentry\"\n[dependencies.tidegate-testbed]\nworkspace = true\n",
    )],
    &[(
        "crates/workload/Cargo.toml",
        "package.name = \"tidegate-workload\"\n[target.'cfg(unix)'.dependencies]\n\
         e = { package = \"tidegate-engine\", path = \"../engine\" }\n",
    )],
    &[("crates/stage/Cargo.toml", "package.name = \"tidegate-stage\"\n")],
    &[("crates/new/Cargo.toml", "package.name = \"tidegate-new\"\n")],
    &[("crates/bad/Cargo.toml", "package = {\n")],
];

/// Every member takes the workspace's lints.
pub fn check_lints(tree: &Tree) -> Vec<Finding> {
    let with_lints = |manifest: &Table| {
        let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        lints.and_then(Value::as_bool) == Some(true)
    };
    let without = manifests(tree).filter(|(_, manifest)| matches!(manifest, Ok(table) if !with_lints(table)));
    let what = "does not take the workspace's lints; add `[lints]` with `workspace = true`";
    without.map(|(file, _)| Finding::at(&file.path, 1, what)).collect()
}

/// Canaries of [`check_lints`].
pub const LINT_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/engine/Cargo.toml", "package.name = \"tidegate-engine\"\n")],
    &[("xtask/Cargo.toml", "package.name = \"xtask\"\nlints.workspace = false\n")],
];

/// Cargo.lock is committed, so that everyone builds the same.
pub fn check_lock(tree: &Tree) -> Vec<Finding> {
    let missing = tree.get("Cargo.lock").is_none();
    let what = "missing or ignored by git; commit it";
    missing.then(|| Finding::at("Cargo.lock", 1, what)).into_iter().collect()
}

/// Canary of [`check_lock`].
pub const LOCK_CANARIES: &[&[(&str, &str)]] = &[&[]];

/// The members' manifests.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&File, Result<Table, toml::de::Error>)> {
    let member = |path: &str| path.ends_with("/Cargo.toml");
    tree.files.iter().filter(move |file| member(&file.path)).map(|file| (file, file.text.parse()))
}

fn check_manifest(file: &File, manifest: &Result<Table, toml::de::Error>) -> Vec<Finding> {
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            let what = format!("cannot be read: {}; correct it", error.message());
            return vec![Finding::at(&file.path, 1, what)];
        }
    };
    let Some(package) = manifest.get("package").and_then(|package| package.get("name")?.as_str()) else {
        return vec![Finding::at(&file.path, 1, "the package has no name; name it")];
    };
    let Some(row) = ALLOWED.iter().find(|row| row.package == package) else {
        let what = format!("`{package}` has no row in the table of imports; add one to xtask/src/tidy/imports.rs");
        return vec![Finding::at(&file.path, 1, what)];
    };
    let imports = imports_of(manifest);
    let unused = row.unused(&imports).map(|name| {
        let what = format!("the table of imports lets `{package}` import `{name}`, and it does not; take that out");
        Finding::at(&file.path, 1, what)
    });
    let refused = imports.iter().filter(|import| !row.allows(import));
    refused
        .map(|import| {
            let line = file.lines().find(|(_, line)| line.contains(&import.key)).map_or(1, |(at, _)| at);
            let what =
                format!("`{package}` may not import `{}`; move the code, or turn the import round", import.package);
            Finding::at(&file.path, line, what)
        })
        .chain(unused)
        .collect()
}

/// One import of a crate of ours.
struct Import {
    key: String,
    package: String,
    in_tests: bool,
}

impl Allowed {
    fn allows(&self, import: &Import) -> bool {
        let name = import.package.strip_prefix("tidegate-").unwrap_or(&import.package);
        self.always.contains(&name) || (import.in_tests && self.in_tests.contains(&name))
    }

    /// What may be imported and is not.
    fn unused(&self, imports: &[Import]) -> impl Iterator<Item = &'static str> {
        let is_used = |name: &str, in_tests: bool| {
            imports.iter().any(|import| {
                import.in_tests == in_tests
                    && import.package.strip_prefix("tidegate-").unwrap_or(&import.package) == name
            })
        };
        let always: Vec<_> = self.always.iter().filter(|name| !is_used(name, false)).collect();
        let in_tests: Vec<_> = self.in_tests.iter().filter(|name| !is_used(name, true)).collect();
        always.into_iter().chain(in_tests).copied()
    }
}

fn imports_of(manifest: &Table) -> Vec<Import> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut imports = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(dependencies) = table.get(section).and_then(Value::as_table) else { continue };
            for (key, value) in dependencies {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned();
                if package.starts_with("tidegate") || value.get("path").is_some() {
                    imports.push(Import { key: key.clone(), package, in_tests: section == "dev-dependencies" });
                }
            }
        }
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_says_is_what_a_crate_imports() {
        let text = "[package]\nname = \"tidegate-stage\"\n[dependencies]\ntidegate-engine.workspace = true\n\
            tokio = \"1\"\n";
        assert_eq!(check(&Tree::from_texts(&[("crates/stage/Cargo.toml", text)])), []);
        let in_tests = text.replace("[dependencies]", "[dev-dependencies]");
        let found = check(&Tree::from_texts(&[("crates/stage/Cargo.toml", &in_tests)]));
        assert!(found.len() == 1 && found[0].to_string().contains("take that out"), "{found:?}");
    }

    #[test]
    fn a_finding_stands_on_the_imports_line() {
        let text = "[package]\nname = \"tidegate-sim\"\n[dependencies]\ntidegate-sentry.workspace = true\n";
        let found = check(&Tree::from_texts(&[("crates/sim/Cargo.toml", text)]));
        assert!(found.iter().any(|one| one.to_string().starts_with("crates/sim/Cargo.toml:4: ")), "{found:?}");
    }
}
