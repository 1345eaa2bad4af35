//! The header and the library say the same: functions, structs, numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use tidegate::types::{self, Counts, Decision, End, Request};
use tidegate::{Failure, registry};

use crate::programs::{here, is_in_path, library, run, scratch};

fn header() -> String {
    std::fs::read_to_string(here().join("include/tidegate.h")).expect("the header")
}

/// The functions that the header declares: names before a bracket, outside comments.
fn declared() -> BTreeSet<String> {
    let text = header();
    let code: String = text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let before = |part: &str| part.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().map(str::to_owned);
    let names = code.split('(').filter_map(before);
    names.filter(|name| name.starts_with("tidegate_")).collect()
}

#[test]
fn the_header_declares_what_the_library_exports_and_no_more() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libtidegate.so")));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect();
    assert!(exported.len() > 20, "{exported:?}");
    assert_eq!(declared(), exported);
}

#[test]
fn the_program_in_c_uses_every_function() {
    let program = std::fs::read_to_string(here().join("tests/it/every_function.c")).expect("the program");
    let unused: Vec<_> = declared().into_iter().filter(|name| !program.contains(&format!("{name}("))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Assertions for C about a struct: its size, and where each field is and how large. Every field is there, as a struct
/// without gaps is as large as its fields together.
macro_rules! layout {
    ($c:literal, $rust:ty, $($field:ident as $name:literal),+) => {{
        let mut asserted = format!("_Static_assert(sizeof({}) == {}, \"size\");\n", $c, size_of::<$rust>());
        let sample = <$rust>::default();
        let mut sum = 0;
        $(
            let (at, size) = (offset_of!($rust, $field), size_of_val(&sample.$field));
            let (c, name) = ($c, $name);
            let _ = writeln!(asserted, "_Static_assert(offsetof({c}, {name}) == {at}, \"{name}\");");
            let _ = writeln!(asserted, "_Static_assert(sizeof((({c} *)0)->{name}) == {size}, \"{name}\");");
            sum += size;
        )+
        assert_eq!(sum, size_of::<$rust>(), "a field of {} is missing, or there is a gap", $c);
        asserted
    }};
}

fn layouts() -> String {
    let request = layout!("tidegate_request", Request,
        deadline_ns as "deadline_ns", url as "url", tenant as "tenant", session as "session", user as "user",
        request_type as "request_type", class as "class_", is_retry as "is_retry", reserved as "reserved");
    let decision = layout!("tidegate_decision", Decision,
        ticket as "ticket", user as "user", retry_after_ns as "retry_after_ns", predicted_ns as "predicted_ns",
        kind as "kind", reason as "reason", retry_after_s as "retry_after_s", server as "server", class as "class_",
        shadow as "shadow");
    let end = layout!("tidegate_end", End,
        ticket as "ticket", service_time_ns as "service_time_ns", bytes as "bytes", end as "end",
        reserved as "reserved");
    let counts = layout!("tidegate_counts", Counts,
        offered as "offered", retries as "retries", admitted as "admitted", guaranteed as "guaranteed",
        refused as "refused", completed as "completed", in_target as "in_target", failed as "failed",
        cancelled as "cancelled", in_flight as "in_flight", waiting as "waiting");
    [request, decision, end, counts].concat()
}

/// Every number that the header names.
fn numbers() -> Vec<(&'static str, i64)> {
    let wide = |name, number: u32| (name, i64::from(number));
    let narrow = |name, number: i32| (name, i64::from(number));
    vec![
        wide("TIDEGATE_ABI_VERSION", types::ABI_VERSION),
        narrow("TIDEGATE_POLL", types::POLL),
        narrow("TIDEGATE_SOONER", types::SOONER),
        narrow("TIDEGATE_E_ARGUMENT", Failure::Argument.code()),
        narrow("TIDEGATE_E_HANDLE", Failure::Handle.code()),
        narrow("TIDEGATE_E_TICKET", Failure::Ticket.code()),
        narrow("TIDEGATE_E_CONFIG", Failure::Config.code()),
        narrow("TIDEGATE_E_BROKEN", Failure::Broken.code()),
        narrow("TIDEGATE_E_FULL", Failure::Full.code()),
        wide("TIDEGATE_ADMITTED", types::ADMITTED),
        wide("TIDEGATE_WAITS", types::WAITS),
        wide("TIDEGATE_REFUSED", types::REFUSED),
        wide("TIDEGATE_ANSWERED", types::ANSWERED),
        wide("TIDEGATE_FAILED", types::FAILED),
        wide("TIDEGATE_TIMED_OUT", types::TIMED_OUT),
        wide("TIDEGATE_REFUSED_BELOW", types::REFUSED_BELOW),
        wide("TIDEGATE_BY_CLIENT", types::BY_CLIENT),
        wide("TIDEGATE_BY_TIME_OUT", types::BY_TIME_OUT),
        wide("TIDEGATE_UP", types::UP),
        wide("TIDEGATE_DOWN", types::DOWN),
        wide("TIDEGATE_DRAINING", types::DRAINING),
        wide("TIDEGATE_HEADER", types::HEADER),
        wide("TIDEGATE_TEXT", types::TEXT),
        wide("TIDEGATE_JSON", types::JSON),
        wide("TIDEGATE_HTML", types::HTML),
    ]
}

#[test]
fn structs_and_numbers_are_the_same_on_both_sides() {
    let mut text = String::from("#include \"tidegate.h\"\n");
    text += &layouts();
    for (name, number) in numbers() {
        let _ = writeln!(text, "_Static_assert({name} == {number}, \"{name}\");");
    }
    let file = scratch("header").join("layout.c");
    std::fs::write(&file, text).expect("a file");
    run(Command::new("cc").args(["-std=c11", "-fsyntax-only", "-I"]).arg(here().join("include")).arg(&file));
    let header = header();
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_whitespace().next());
    let named: BTreeSet<&str> = defined.filter(|name| *name != "TIDEGATE_H").collect();
    assert_eq!(named, numbers().into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>());
    assert!(header.contains(&format!("there are {} applications", registry::MOST)), "the most that there may be");
}

#[test]
fn the_header_is_cpp_too() {
    // A C compiler is there wherever this is built; one for C++ need not be.
    if !is_in_path("c++") {
        return println!("skipped: c++ is not in PATH");
    }
    let file = scratch("header").join("header.cpp");
    std::fs::write(&file, "#include \"tidegate.h\"\nint main() { return int(tidegate_abi_version()); }\n")
        .expect("a file");
    let mut compiler = Command::new("c++");
    compiler.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]).arg(here().join("include"));
    run(compiler.arg(&file));
}
