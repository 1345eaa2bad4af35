//! Every command that the documents show is one that the program understands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Cli;

const HOW: [&str; 2] = ["tidegate ", "cargo run --release -- "];

#[test]
fn commands_in_the_documents_are_understood() {
    let mut shown = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).expect("a file");
        for command in commands(&text) {
            let words = shlex::split(&command).unwrap_or_else(|| panic!("{}: {command}", file.display()));
            let parsed = Cli::try_parse_from([String::from("tidegate")].into_iter().chain(words));
            // `--help` and `--version` are told as errors, too.
            let wrong = parsed.err().filter(clap::Error::use_stderr);
            assert!(wrong.is_none(), "{}: {command}\n{}", file.display(), wrong.unwrap());
            shown += 1;
        }
    }
    assert!(shown > 30, "{shown} commands found: has the form of the documents changed?");
}

#[test]
fn commands_are_found_in_blocks_and_in_sentences() {
    let text = "Say `tidegate check FILE` or `tidegate`.\n\n    tidegate run --to a \\\n      --target 1s   # why\n\n\
                ```sh\ncargo run --release -- demo       # see\ntidegate run ... --x\n```\n";
    assert_eq!(commands(text), ["check FILE", "run --to a --target 1s", "demo"]);
}

/// The Markdown files that people read.
fn documents() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![top.join("README.md"), top.join("CONTRIBUTING.md"), top.join("deploy/README.md")];
    let docs = fs::read_dir(top.join("docs")).expect("a folder").flatten().map(|entry| entry.path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    found
}

/// What follows the program's name, wherever a command is shown whole.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let joined = text.replace("\\\n", " ");
    let mut fenced = false;
    for line in joined.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            found.extend(arguments(line.split(" #").next().unwrap_or_default().trim()));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).filter_map(arguments));
        }
    }
    found
}

fn arguments(command: &str) -> Option<String> {
    let rest = HOW.iter().find_map(|how| command.strip_prefix(how))?;
    let whole = !rest.contains("...") && !rest.contains('…') && !rest.contains('|');
    whole.then(|| rest.split_whitespace().collect::<Vec<_>>().join(" "))
}
