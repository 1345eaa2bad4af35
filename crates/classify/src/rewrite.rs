//! How the path that a server gets differs from the one that was asked for: a prefix is taken off, another put before.
//!
//! *Intuition.* Whoever gets all of `/api` may have been written to answer `/`. *Awkward cases.* What is taken off must
//! be what a rule or a route took it for, and what is left must be readable in one way still. So prefixes are compared
//! in the normal form that rules read ([`crate`]), and taken off the canonical spelling by whole segments, of which
//! both have as many. A path that is not spelt canonically stays as it is.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::RuleProblem;
use super::canonical::{Reading, reading};
use super::path::without_query;
use super::rules::{normal_pattern, with_path};

/// What is taken off paths and put before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// In normal form, without a slash at the end; the longest first.
    strip: Vec<String>,
    /// In canonical form, without a slash at the end.
    add: String,
}

impl Rewrite {
    /// Takes the longest of `strip` off that a path begins with, and then puts `add` before it.
    ///
    /// # Errors
    /// The first that is no path, or of `add`, that can be read in two ways.
    pub fn new(strip: &[String], add: &str) -> Result<Rewrite, RuleProblem> {
        let problem = |path: &str| RuleProblem::Path(path.to_owned());
        let normal = |path: &String| {
            let normal = normal_pattern(path)?;
            let text = core::str::from_utf8(&normal).map_err(|_| problem(path))?;
            let text = text.strip_suffix('/').unwrap_or(text);
            if text.starts_with('/') { Ok(text.to_owned()) } else { Err(problem(path)) }
        };
        let mut strip = strip.iter().map(normal).collect::<Result<Vec<_>, _>>()?;
        strip.sort_by_key(|prefix| core::cmp::Reverse(prefix.len()));
        let add = match add {
            "" => add,
            _ => {
                let plain = add.bytes().all(|b| (0x21..=0x7e).contains(&b) && !b"?#".contains(&b));
                let canonical = plain && add.starts_with('/') && reading(add) == Reading::Canonical;
                add.strip_suffix('/').filter(|_| canonical).or(canonical.then_some(add)).ok_or_else(|| problem(add))?
            }
        };
        Ok(Rewrite { strip, add: add.to_owned() })
    }

    /// Whether every path stays as it is.
    pub fn is_none(&self) -> bool {
        self.strip.is_empty() && self.add.is_empty()
    }

    /// The prefixes that are taken off.
    pub fn strip(&self) -> &[String] {
        &self.strip
    }

    /// What is put before the rest.
    pub fn add(&self) -> &str {
        &self.add
    }

    /// The target that the server gets for `target`, which is in origin form, and what was taken off it; `None`: the
    /// same.
    pub fn apply<'t>(&self, target: &'t str) -> Option<(String, &'t str)> {
        if self.is_none() || !target.starts_with('/') || reading(target) != Reading::Canonical {
            return None;
        }
        let length = without_query(target).len();
        let (path, query) = target.split_at(length);
        let segments = with_path(path.as_bytes(), None, |normal| {
            let path = normal.path?;
            let begins = |prefix: &&String| {
                path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
            };
            self.strip.iter().find(begins).map(|prefix| prefix.bytes().filter(|b| *b == b'/').count())
        });
        let cut = path.match_indices('/').nth(segments.unwrap_or(0)).map_or(path.len(), |(at, _)| at);
        let (taken, rest) = path.split_at(cut);
        let mut out = String::with_capacity(self.add.len() + rest.len() + query.len() + 1);
        out.push_str(&self.add);
        out.push_str(rest);
        if out.is_empty() {
            out.push('/');
        }
        out.push_str(query);
        Some((out, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical;
    use proptest::prelude::*;

    fn rewrite(strip: &[&str], add: &str) -> Rewrite {
        let strip: Vec<String> = strip.iter().map(|text| (*text).to_owned()).collect();
        Rewrite::new(&strip, add).expect("paths")
    }

    #[test]
    fn prefixes_are_whole_segments() {
        let rewrite = rewrite(&["/api", "/api/v1/", "/a b"], "");
        let sent = |target: &str| rewrite.apply(target).expect("canonical").0;
        for (asked, wanted) in [
            ("/api", "/"),
            ("/api/", "/"),
            ("/api?x=/api", "/?x=/api"),
            ("/api/x/", "/x/"),
            ("/apis", "/apis"),
            ("/api/v1/x", "/x"),
            ("/api/v1", "/"),
            ("/api/v10", "/v10"),
            ("/x/api", "/x/api"),
            ("/", "/"),
            ("/a%20b/c%2Ad", "/c%2Ad"),
        ] {
            assert_eq!(sent(asked), wanted, "{asked}");
        }
        for other in ["*", "/api/../x", "//api", "/%61pi/x"] {
            assert_eq!(rewrite.apply(other), None, "{other}: it is not canonical");
        }
        assert_eq!(rewrite.apply("/api/v1/x?y"), Some(("/x?y".to_owned(), "/api/v1")));
    }

    #[test]
    fn one_prefix_takes_another_s_place() {
        let rewrite = rewrite(&["/api"], "/v2/");
        let sent = |target: &str| rewrite.apply(target).expect("canonical").0;
        assert_eq!(["/api", "/api/", "/api/x?y", "/z"].map(sent), ["/v2", "/v2/", "/v2/x?y", "/v2/z"]);
        assert_eq!(Rewrite::default().apply("/x"), None);
    }

    #[test]
    fn what_is_no_path_is_said() {
        let bad = |strip: &[&str], add: &str| {
            let strip: Vec<String> = strip.iter().map(|text| (*text).to_owned()).collect();
            assert!(Rewrite::new(&strip, add).is_err(), "{strip:?} {add:?}");
        };
        bad(&["api"], "");
        bad(&["/"], "");
        bad(&["*"], "");
        bad(&["/a?b"], "");
        for add in ["v2", "/a?b", "/a#b", "/a//b", "/../b", "/%61", "/\u{e4}", "/a b"] {
            bad(&[], add);
        }
    }

    proptest! {
        /// What the server reads is what was asked for without the prefix, and can be read in one way.
        #[test]
        fn what_is_left_has_one_meaning(
            target in "(/|%2[fF]|%61|%20|a|b|\\.|;|%2e|\\\\){0,12}(\\?[/a]{0,3})?",
            strip in proptest::collection::vec("(/[ab ]{1,2}){1,3}", 0..3),
            add in "(/[ab]{1,2}){0,2}",
        ) {
            let rewrite = Rewrite::new(&strip, &add).expect("paths");
            let Some(asked) = canonical(&target).filter(|asked| asked.starts_with('/')) else { return Ok(()) };
            let Some((sent, taken)) = rewrite.apply(&asked) else {
                prop_assert!(rewrite.is_none() || reading(&asked) != Reading::Canonical);
                return Ok(());
            };
            prop_assert_eq!(reading(&sent), Reading::Canonical);
            let decoded = |text: &str| {
                let path = core::str::from_utf8(without_query(text)).expect("text").to_owned();
                with_path(path.as_bytes(), None, |target| String::from_utf8_lossy(target.path.expect("short")).into_owned())
            };
            let wanted = strip.iter().filter(|prefix| {
                decoded(&asked) == **prefix || decoded(&asked).starts_with(&alloc::format!("{prefix}/"))
            }).max_by_key(|prefix| prefix.len());
            if let Some(prefix) = wanted {
                prop_assert_eq!(&decoded(taken), prefix);
            } else {
                prop_assert_eq!(taken, "");
            }
            prop_assert!(asked.starts_with(taken) && sent.starts_with(&add));
            let left = [&add, &asked[taken.len()..]].concat();
            let left = if left.is_empty() || left.starts_with('?') { ["/", &left].concat() } else { left };
            prop_assert_eq!(sent, left);
        }
    }
}
