//! Rust source with its code and its comments apart, line by line, so that a word in a string or a comment is not
//! taken for code; and where the tests and the functions are.

use std::ops::RangeInclusive;

/// A Rust file, taken apart. All three views have the lines of the original.
#[derive(Debug)]
pub struct Source {
    code: String,
    comments: String,
    tests: Vec<RangeInclusive<usize>>,
}

/// A function and the lines it takes.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, without a path.
    pub name: String,
    /// The line of its `fn`, counted from 1.
    pub line: usize,
    /// From `fn` to the closing brace.
    pub lines: usize,
}

impl Source {
    /// Takes a file apart; `path` tells whether all of it is test code.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let tests = if is_test_path(path) { vec![1..=usize::MAX] } else { test_items(&code) };
        Self { code, comments, tests }
    }

    /// The code: strings, characters and comments blanked out.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The lines of code, counted from 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The lines of comments, counted from 1.
    pub fn comment_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.comments.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether a line is in a test, an example or a benchmark.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// Every function with a body, also the nested ones.
    pub fn functions(&self) -> Vec<Function> {
        let starts = words(&self.code, "fn");
        starts.filter_map(|at| function(&self.code, at)).collect()
    }
}

/// Where `word` stands in `text` as a whole word.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back().is_some_and(part);
        let after = text[at + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

/// From the `{` at `open` to the end of its `}`.
pub fn braces(code: &str, open: usize) -> Option<&str> {
    let mut depth = 0usize;
    for (offset, byte) in code[open..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(&code[open..=open + offset]);
        }
    }
    None
}

/// The line on which a byte lies, counted from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn is_test_path(path: &str) -> bool {
    let in_folder = |name: &str| path.contains(&format!("/{name}/")) || path.starts_with(&format!("{name}/"));
    path.ends_with("/tests.rs") || ["tests", "benches", "examples", "fuzz"].iter().any(|name| in_folder(name))
}

fn function(code: &str, at: usize) -> Option<Function> {
    let rest = &code[at + "fn".len()..];
    let name: String = rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    // `fn(` is a type; `;` before the body is a declaration (but `[u8; 4]` is not its end).
    let mut brackets = 0i32;
    let open = rest.char_indices().find(|&(_, c)| {
        brackets += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        c == '{' || (c == ';' && brackets == 0)
    });
    let (open, found) = open?;
    if name.is_empty() || found == ';' {
        return None;
    }
    let open = at + "fn".len() + open;
    let body = braces(code, open)?;
    let lines = code[at..open + body.len()].matches('\n').count() + 1;
    Some(Function { name, line: line_of(code, at), lines })
}

fn test_items(code: &str) -> Vec<RangeInclusive<usize>> {
    let attributes = code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test"));
    let ranges = attributes.map(|(at, _)| {
        let end = match code[at..].find(['{', ';']) {
            Some(offset) if code[at + offset..].starts_with('{') => {
                at + offset + braces(code, at + offset).map_or(0, str::len)
            }
            Some(offset) => at + offset,
            None => code.len(),
        };
        line_of(code, at)..=line_of(code, end)
    });
    ranges.collect()
}

/// Code and comments of a text, each with the other blanked out, line for line.
fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut rest = text;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = token(rest, first, after_word);
        let piece = &rest[..length];
        match kind {
            Kind::Code => code.push_str(piece),
            Kind::Comment | Kind::Literal => blank(piece, &mut code),
        }
        match kind {
            Kind::Comment => comments.push_str(piece),
            Kind::Code | Kind::Literal => blank(piece, &mut comments),
        }
        after_word = first.is_alphanumeric() || first == '_';
        rest = &rest[length..];
    }
    (code, comments)
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What the text begins with, and how many bytes of it belong together.
fn token(text: &str, first: char, after_word: bool) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment(text));
    }
    if !after_word && let Some(length) = raw_string(text) {
        return (Kind::Literal, length);
    }
    if first == '"' {
        return (Kind::Literal, quoted(text));
    }
    if first == '\''
        && let Some(length) = character(text)
    {
        return (Kind::Literal, length);
    }
    (Kind::Code, first.len_utf8())
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` and `cr"…"`, if the text begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let after_r = ["r", "br", "cr"].iter().find_map(|start| text.strip_prefix(start))?;
    let hashes = after_r.bytes().take_while(|byte| *byte == b'#').count();
    let body = after_r[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| start + at + end.len()))
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; none for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        let (_, _escape) = chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

fn blank(piece: &str, into: &mut String) {
    into.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("src/a.rs", text).code().to_owned()
    }

    #[test]
    fn strings_characters_and_comments_are_no_code() {
        let text = concat!(
            "a(\"x // {\"); // y {\n",
            "b(r#\"q \" {\"#, '\\'', '{', b\"\\\"{\", br\"{\");\n",
            "/* { /* { */ { */ c::<'static>('\\u{7b}');\n",
        );
        let code = code(text);
        assert!(!code.contains('{'), "{code}");
        for kept in ["a(", "b(", "c::<'static>("] {
            assert!(code.contains(kept), "{kept} lost in {code}");
        }
        assert_eq!(code.lines().count(), 3);
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::new("src/a.rs", "let s = \"// no\"; // yes\n");
        let comment: Vec<_> = source.comment_lines().map(|(_, line)| line.trim()).collect();
        assert_eq!(comment, ["// yes"]);
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text = "trait T {\n    fn declared(&self) -> [u8; 4];\n}\n\
            pub fn long(\n    f: fn(u8),\n) -> [u8; 2] {\n    [0, 1]\n}\n";
        let found = Source::new("src/a.rs", text).functions();
        assert_eq!(found, [Function { name: "long".into(), line: 4, lines: 5 }]);
    }

    #[test]
    fn test_code_is_known_by_attribute_and_by_folder() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("src/a.rs", text);
        let in_test: Vec<_> = (1..=6).filter(|line| source.is_test(*line)).collect();
        assert_eq!(in_test, [2, 3, 4, 5]);
        assert!(Source::new("crates/a/tests/live.rs", text).is_test(1));
        assert!(!Source::new("crates/testbed/src/a.rs", text).is_test(1));
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("std nostd std_x (std)", "std").collect::<Vec<_>>(), [0, 17]);
    }
}
