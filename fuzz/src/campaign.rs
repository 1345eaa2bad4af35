//! A target fed with mutants of its corpus, as many as are asked for, on stable Rust: in every test run some thousands,
//! with `cargo xtask fuzz --executions N` as many as one likes.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crate::mutate::Mutator;
use crate::{Target, corpus};

/// A mutant that a target panicked on, kept as a file.
#[derive(Debug)]
pub struct Finding {
    /// Which mutant of the seed.
    pub number: u64,
    /// Where it was written.
    pub file: PathBuf,
}

/// Feeds the mutants `0..executions` of a seed to a target, on `jobs` threads. Each panic prints itself.
///
/// # Errors
/// The first finding of a thread that has one; it fed no more after it.
pub fn run(target: &Target, seed: u64, executions: u64, jobs: u64) -> Result<(), Finding> {
    let mutator = Mutator::new(corpus(target), (target.words)(), target.longest);
    let one = |first: u64| {
        let mut numbers = (first..executions).step_by(usize::try_from(jobs).unwrap_or(1));
        numbers.try_for_each(|number| feed(target, &mutator, seed, number))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|first| scope.spawn(move || one(first))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("panics of targets are caught"))
    })
}

fn feed(target: &Target, mutator: &Mutator, seed: u64, number: u64) -> Result<(), Finding> {
    let mutant = mutator.mutant(seed, number);
    let Err(_) = catch_unwind(AssertUnwindSafe(|| (target.body)(&mutant))) else { return Ok(()) };
    // Where cargo-fuzz puts what it finds.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
    let file = folder.join(format!("{seed}-{number}"));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &mutant));
    if let Err(error) = written {
        eprintln!("{}: {error}; the mutant is {}", file.display(), mutant.escape_ascii());
    }
    Err(Finding { number, file })
}

/// The seed of this run: `TIDEGATE_SEED`, or any. Printed, so that a failure comes again.
///
/// # Panics
/// When the variable is no number.
pub fn seed() -> u64 {
    let told = std::env::var("TIDEGATE_SEED").ok();
    let told = told.map(|text| text.parse().unwrap_or_else(|_| panic!("TIDEGATE_SEED={text} is no decimal u64")));
    let seed = told.unwrap_or_else(|| RandomState::new().hash_one(()));
    eprintln!("TIDEGATE_SEED={seed}");
    seed
}

/// What a target's binary does in an ordinary build: with `--executions N [--jobs N]` it feeds mutants and prints a
/// line of JSON, otherwise it runs the files that are named.
///
/// # Panics
/// On a finding, a file that cannot be read, or words that it does not know.
pub fn main(name: &str) {
    let target = Target::named(name);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"));
    let (executions, jobs) = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--executions", _] => (number(&arguments[1]), 1),
        ["--executions", _, "--jobs", _] => (number(&arguments[1]), number(&arguments[3])),
        files => {
            for file in files {
                (target.body)(&fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}")));
            }
            return;
        }
    };
    let (seed, start) = (seed(), Instant::now());
    if let Err(Finding { number, file }) = run(target, seed, executions, jobs) {
        panic!("{name}: mutant {number} of TIDEGATE_SEED={seed} is a finding: {}", file.display());
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({ "target": name, "executions": executions, "seed": seed, "seconds": seconds, "jobs": jobs })
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;
    use crate::words::none;

    /// A test for each target, so that they run beside each other.
    macro_rules! mutants_of {
        ($($name:ident)*) => {
            const TESTED: &[&str] = &[$(stringify!($name)),*];
            $(
                #[test]
                fn $name() {
                    in_a_test(stringify!($name));
                }
            )*
        };
    }

    mutants_of! { classifier controller config headers gate connection datagrams doorstep }

    fn in_a_test(name: &str) {
        let (target, seed) = (Target::named(name), seed());
        if let Err(Finding { number, file }) = run(target, seed, target.mutants, 1) {
            panic!("TIDEGATE_SEED={seed}, mutant {number} is a finding; when it is mended, keep {}", file.display());
        }
    }

    #[test]
    fn every_target_is_tested() {
        assert!(TARGETS.iter().map(|target| target.name).eq(TESTED.iter().copied()));
    }

    #[test]
    fn a_fault_that_is_planted_is_found_kept_and_found_again() {
        fn body(data: &[u8]) {
            assert!(!data.windows(4).any(|window| window == b"e: 1"), "the planted fault");
        }
        let planted = Target { name: "headers", body, words: none, longest: 512, mutants: 0 };
        let first = run(&planted, 3, 20_000, 1).expect_err("the corpus has it");
        let input = fs::read(&first.file).expect("the finding was kept");
        fs::remove_file(&first.file).expect("it can be removed");
        assert!(catch_unwind(|| body(&input)).is_err(), "what was kept is not what was found");
        let again = run(&planted, 3, first.number + 1, 1).expect_err("the same seed");
        assert_eq!(again.number, first.number);
        fs::remove_file(&again.file).expect("it can be removed");
    }

    /// A campaign whose inputs all fail at the first byte looks at nothing.
    #[test]
    fn mutants_get_beyond_the_first_reader() {
        let share = |name: &str, reaches: &dyn Fn(&[u8]) -> bool| {
            let target = Target::named(name);
            let mutator = Mutator::new(corpus(target), (target.words)(), target.longest);
            (0..2000).filter(|&number| reaches(&mutator.mutant(5, number))).count() as f64 / 2000.0
        };
        let limits = crate::gate_limits();
        let whole = |data: &[u8]| !tidegate_sentry::fuzz::read_all(data, &limits).0.is_empty();
        let answered = |data: &[u8]| tidegate_sentry::fuzz::read_all(data, &limits).0.iter().any(|read| read.plain);
        let served = |data: &[u8]| tidegate_sentry::fuzz::connection(data) > 0;
        let text = |data: &[u8]| std::str::from_utf8(data).is_ok_and(|text| text.contains("[[application]]"));
        for (what, share, least) in [
            ("whole requests", share("gate", &whole), 0.3),
            ("plain requests", share("gate", &answered), 0.1),
            ("requests that a server reads", share("connection", &served), 0.1),
            ("applications", share("config", &text), 0.3),
        ] {
            assert!(share >= least, "{what}: {share} of the mutants");
        }
    }
}
