//! Variables of the environment in files: `${NAME}` stands for the value of `NAME`.
//!
//! *Intuition.* One file serves many processes that differ in a name and an address: whoever starts them says these in
//! the environment. Values are put into the text before anything reads it, so they may stand within any value.
//!
//! *Awkward cases.* A value must not be able to say more than a value: quotes, backslashes and line breaks are refused.
//! `$${` is a `${` that stands for itself. Nothing is replaced in lines that are comments. Text that merely contains a
//! `$`, such as a regular expression, is as it was.

use crate::error::{ConfigErrors, Problem};

/// The text with values in the places of variables. `lookup` gives the value of a variable, if it is set.
pub(crate) fn fill(text: &str, source: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, ConfigErrors> {
    if !text.contains("${") {
        return Ok(text.to_owned());
    }
    let mut problems = Vec::new();
    let mut filled = String::with_capacity(text.len());
    for (at, line) in text.split_inclusive('\n').enumerate() {
        match line.trim_start().starts_with('#') {
            true => filled.push_str(line),
            false => fill_line(line, &lookup, &mut filled).unwrap_or_else(|message| {
                problems.push(Problem { line: Some(at + 1), key: String::new(), message });
            }),
        }
    }
    match problems.is_empty() {
        true => Ok(filled),
        false => Err(ConfigErrors { source: source.to_owned(), problems }),
    }
}

/// Fills a line as far as the first thing that is wrong with it.
fn fill_line(line: &str, lookup: &impl Fn(&str) -> Option<String>, filled: &mut String) -> Result<(), String> {
    let mut rest = line;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            filled.push_str(&rest[..at - 1]);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        let (name, after) =
            rest[at + 2..].split_once('}').ok_or("\"${\" has no \"}\"; write $${ for the characters")?;
        if !is_name(name) {
            return Err(format!("\"${{{name}}}\" is no name of a variable; write $${{ for the characters themselves"));
        }
        let value = lookup(name).ok_or_else(|| {
            format!("the variable {name} is not set in the environment; set it, or write $${{ for the characters ${{")
        })?;
        if value.contains(|c: char| matches!(c, '"' | '\'' | '\\') || c.is_control()) {
            return Err(format!("the value of {name} has a quote, a backslash or a line break; it must have none"));
        }
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(())
}

fn is_name(name: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_first) && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "NAME" => Some(String::from("sentry-2")),
            "ADDRESS" => Some(String::from("127.0.0.2")),
            "EVIL" => Some(String::from("x\"\nadmin = \"0.0.0.0:1")),
            "INNER" => Some(String::from("${NAME}")),
            _ => None,
        };
        fill(text, "shop.toml", lookup).map_err(|errors| errors.to_string())
    }

    #[test]
    fn values_stand_in_the_places_of_variables() {
        assert_eq!(filled("name = \"${NAME}\"\n").as_deref(), Ok("name = \"sentry-2\"\n"));
        assert_eq!(filled("a = \"${ADDRESS}:80\" # ${NAME}").as_deref(), Ok("a = \"127.0.0.2:80\" # sentry-2"));
        assert_eq!(filled("a = \"${INNER}\"").as_deref(), Ok("a = \"${NAME}\""), "once");
    }

    #[test]
    fn what_is_no_variable_stays() {
        for text in ["path = \"^/a$\"", "a = \"$NAME\"", "# ${NOBODY}\n  # ${", "", "a = \"{NAME}\""] {
            assert_eq!(filled(text).as_deref(), Ok(text));
        }
        assert_eq!(filled("a = \"$${NAME}\"").as_deref(), Ok("a = \"${NAME}\""));
    }

    #[test]
    fn all_that_is_wrong_is_said_with_lines() {
        let said = filled("a = \"${NOBODY}\"\nb = \"${NAME}\"\nc = \"${a b}\"\nd = \"${EVIL}\"\ne = \"${\"\n")
            .expect_err("wrong");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("shop.toml:1: the variable NOBODY is not set"), "{said}");
        assert!(lines[1].starts_with("shop.toml:3: \"${a b}\" is no name"), "{said}");
        assert!(lines[2].starts_with("shop.toml:4: the value of EVIL has a quote"), "{said}");
        assert!(lines[3].starts_with("shop.toml:5: \"${\" has no \"}\""), "{said}");
        assert_eq!(lines.len(), 4);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it_and_one_without_variables_is_as_it_was(text in "[ -~\n]{0,60}") {
            let filled = filled(&text);
            if !text.contains("${") {
                prop_assert_eq!(filled, Ok(text));
            }
        }
    }
}
