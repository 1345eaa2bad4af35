//! Licences of a crate as its manifest states them: an expression of SPDX, such as `MIT OR (Apache-2.0 AND ISC)`.
//!
//! Old manifests write `/` for `OR`, and no parentheses with it.

use std::iter::Peekable;

/// Whether licences that `may` be used suffice for what an expression asks for.
///
/// # Errors
/// What is wrong with the expression, in words.
pub fn suffices(expression: &str, may: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let words = words(expression);
    let mut reader = Reader { words: words.iter().map(String::as_str).peekable(), may };
    let allowed = reader.either()?;
    match reader.words.next() {
        None => Ok(allowed),
        Some(word) => Err(format!("`{word}` is one too many")),
    }
}

/// The expression as SPDX writes it.
pub fn spdx(expression: &str) -> String {
    words(expression).join(" ").replace("( ", "(").replace(" )", ")")
}

fn words(expression: &str) -> Vec<String> {
    let apart = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    apart.split_whitespace().map(str::to_owned).collect()
}

struct Reader<'a, I: Iterator<Item = &'a str>> {
    words: Peekable<I>,
    may: &'a dyn Fn(&str) -> bool,
}

impl<'a, I: Iterator<Item = &'a str>> Reader<'a, I> {
    fn either(&mut self) -> Result<bool, String> {
        let mut allowed = self.all()?;
        while self.words.next_if_eq(&"OR").is_some() {
            // Read on even when it is decided: the rest must be sound, too.
            allowed |= self.all()?;
        }
        Ok(allowed)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut allowed = self.one()?;
        while self.words.next_if_eq(&"AND").is_some() {
            allowed &= self.one()?;
        }
        Ok(allowed)
    }

    fn one(&mut self) -> Result<bool, String> {
        let word = self.words.next().ok_or("it ends too early")?;
        if word == "(" {
            let allowed = self.either()?;
            return match self.words.next() {
                Some(")") => Ok(allowed),
                _ => Err("a parenthesis is not closed".to_owned()),
            };
        }
        if matches!(word, ")" | "OR" | "AND" | "WITH") {
            return Err(format!("`{word}` where a licence should be"));
        }
        if self.words.next_if_eq(&"WITH").is_none() {
            return Ok((self.may)(word));
        }
        let exception = self.words.next().ok_or("`WITH` what?")?;
        // Stated as it stands, as cargo-deny wants it, although an exception only gives more rights.
        Ok((self.may)(&format!("{word} WITH {exception}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(allowed: &[&str], expression: &str) -> Result<bool, String> {
        suffices(expression, &|name| allowed.contains(&name))
    }

    #[test]
    fn either_side_of_or_and_both_sides_of_and() {
        for (allowed, expression, suffices) in [
            (&["MIT"][..], "MIT", true),
            (&["MIT"], "GPL-3.0-only", false),
            (&["MIT"], "GPL-3.0-only OR MIT", true),
            (&["MIT"], "Apache-2.0/MIT", true),
            (&["MIT"], "Apache-2.0 / MIT", true),
            (&["MIT"], "MIT AND ISC", false),
            (&["MIT", "ISC"], "MIT AND ISC", true),
            // AND binds closer than OR.
            (&["MIT"], "MIT OR Apache-2.0 AND ISC", true),
            (&["MIT"], "(MIT OR Apache-2.0) AND ISC", false),
            (&["MIT", "ISC"], "(MIT OR Apache-2.0) AND ISC", true),
            (&["Apache-2.0"], "Apache-2.0 WITH LLVM-exception", false),
            (&["Apache-2.0 WITH LLVM-exception"], "Apache-2.0 WITH LLVM-exception", true),
            (&["Apache-2.0 WITH LLVM-exception"], "Apache-2.0", false),
        ] {
            assert_eq!(with(allowed, expression), Ok(suffices), "{expression} with {allowed:?}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for wrong in ["", "OR", "MIT OR", "MIT Apache-2.0", "(MIT", "MIT)", "MIT WITH", "AND MIT"] {
            assert!(with(&["MIT"], wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn old_forms_become_spdx() {
        assert_eq!(spdx("Apache-2.0 / MIT"), "Apache-2.0 OR MIT");
        assert_eq!(spdx("(MIT OR Apache-2.0) AND ISC"), "(MIT OR Apache-2.0) AND ISC");
    }
}
