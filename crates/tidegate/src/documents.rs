//! Every command that the documents show is one that the program understands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::Cli;

const HOW: [&str; 2] = ["tidegate ", "cargo run --release -- "];

#[test]
fn commands_in_the_documents_are_understood() {
    let mut shown = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).expect("a file");
        let (whole, mentioned) = commands(&text);
        for command in &whole {
            let words = shlex::split(command).unwrap_or_else(|| panic!("{}: {command}", file.display()));
            let parsed = Cli::try_parse_from([String::from("tidegate")].into_iter().chain(words));
            // `--help` and `--version` are told as errors, too.
            let wrong = parsed.err().filter(clap::Error::use_stderr);
            assert!(wrong.is_none(), "{}: {command}\n{}", file.display(), wrong.unwrap());
        }
        for command in &mentioned {
            assert_eq!(unknown(command), None, "{}: {command}", file.display());
        }
        shown += whole.len() + mentioned.len();
    }
    assert!(shown > 30, "{shown} commands found: has the form of the documents changed?");
}

#[test]
fn commands_are_found_in_blocks_and_in_sentences() {
    let text = "Say `tidegate check --x` or `tidegate`.\n\n    tidegate run --to a \\\n      --target 1s   # why\n\n\
                ```sh\ncargo run --release -- demo       # see\ntidegate run ... --x\n```\n";
    let (whole, mentioned) = commands(text);
    assert_eq!(whole, ["run --to a --target 1s", "demo"]);
    assert_eq!(mentioned, ["check --x"]);
    assert_eq!(unknown("check --x"), Some("--x".to_owned()));
    assert_eq!(unknown("walk"), Some("walk".to_owned()));
    assert_eq!(unknown("experiment run C1 --seeds 4"), None);
}

/// The first word of a command that is no subcommand or option where it stands.
fn unknown(command: &str) -> Option<String> {
    let mut at = Cli::command();
    for (place, word) in command.split_whitespace().enumerate() {
        if let Some(inner) = at.find_subcommand(word) {
            at = inner.clone();
        } else if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or_default();
            if name != "help" && !at.get_arguments().any(|known| known.get_long() == Some(name)) {
                return Some(word.to_owned());
            }
        } else if place == 0 {
            return Some(word.to_owned());
        }
    }
    None
}

/// The Markdown files that people read.
fn documents() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![top.join("README.md"), top.join("CONTRIBUTING.md"), top.join("deploy/README.md")];
    let docs = fs::read_dir(top.join("docs")).expect("a folder").flatten().map(|entry| entry.path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    found
}

/// What follows the program's name: in commands shown whole, and in those that a sentence mentions.
fn commands(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut whole, mut mentioned) = (Vec::new(), Vec::new());
    let joined = text.replace("\\\n", " ");
    let mut fenced = false;
    for line in joined.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            whole.extend(arguments(line.split(" #").next().unwrap_or_default().trim()));
        } else {
            mentioned.extend(line.split('`').skip(1).step_by(2).filter_map(arguments));
        }
    }
    (whole, mentioned)
}

fn arguments(command: &str) -> Option<String> {
    let rest = HOW.iter().find_map(|how| command.strip_prefix(how))?;
    let whole = !rest.contains("...") && !rest.contains('…') && !rest.contains('|');
    whole.then(|| rest.split_whitespace().collect::<Vec<_>>().join(" "))
}
