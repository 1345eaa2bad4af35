//! The commands that documents show, and how each is run.
//!
//! Every block of `sh` is run as it stands, line by line, and each line must end well, unless a comment right before
//! the block says otherwise. The comment's lines:
//!
//! | line | what it says |
//! |---|---|
//! | `given: COMMAND` | what the reader has already: run before the block, and not shown |
//! | `given: COMMAND -> ADDRESS` | the same, for a server: it goes on; the block waits until it listens |
//! | `address: IP` | an address that the machine has, besides its own |
//! | `stays: BEGIN -> ADDRESS` | a command that begins so goes on, and listens there; the next one there ends it |
//! | `stays: BEGIN` | the same, for what listens nowhere: it must still run when the block is over |
//! | `replace: THIS -> THAT` | text of the block that is other text when it is run, such as a shorter time |
//! | `after: COMMAND` | asked again and again until it ends well: what one sees when the block has worked |
//! | `needs: PROGRAM` | one of the external programs of `xtask/src/programs.rs` |
//! | `run by: STEP` | nothing: a step of `cargo xtask ci` runs them. `run by: BEGIN -> STEP`: one of them |
//! | `not run: REASON` | nothing, and why. `not run: BEGIN -> REASON`: one of them |
//!
//! Before a block that is no `sh`, `file: NAME` says that the reader has it as a file of that name. A block of `toml`
//! with an `[[application]]` and no name is a configuration: `tidegate check` must take it. A line with `run` may begin
//! the comment.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// What a document shows, in its order, and what is wrong with how it says so.
#[derive(Debug, Default)]
pub struct Shown {
    pub parts: Vec<Part>,
    pub problems: Vec<String>,
}

/// A block that matters when commands are run.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// A file that the reader has.
    File {
        name: String,
        text: String,
    },
    /// A configuration of a sentry, and where it begins in the document.
    Configuration {
        line: usize,
        text: String,
    },
    Block(Block),
}

/// A block of commands.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where it begins in the document.
    pub line: usize,
    pub addresses: Vec<String>,
    pub given: Vec<Given>,
    pub commands: Vec<Command>,
    pub after: Vec<String>,
    pub needs: Vec<String>,
}

/// Something that the reader has already.
#[derive(Debug, PartialEq, Eq)]
pub struct Given {
    pub line: String,
    /// Where it listens, if it goes on.
    pub address: Option<String>,
}

/// A command as it is shown, with what becomes of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub shown: String,
    pub how: How,
}

impl Shown {
    /// Its blocks of commands.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match part {
            Part::Block(block) => Some(block),
            Part::File { .. } | Part::Configuration { .. } => None,
        })
    }
}

/// What becomes of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum How {
    /// It is run, and ends.
    Run(String),
    /// It is run, and goes on; it may say where it listens.
    Stays { line: String, address: Option<String> },
    /// A step of the continuous integration runs it.
    Step(String),
    /// It is not run, for this reason.
    Not(String),
}

/// Least characters of a reason: less explains nothing.
const LEAST_REASON: usize = 15;

/// Reads a document. `is_step` tells steps of the continuous integration, `is_program` external programs.
pub fn read(text: &str, is_step: impl Fn(&str) -> bool, is_program: impl Fn(&str) -> bool) -> Shown {
    let mut shown = Shown::default();
    let mut said = Comment::default();
    let mut events = Parser::new(text).into_offset_iter();
    while let Some((event, range)) = events.next() {
        let line = 1 + text[..range.start].matches('\n').count();
        let mut problem = |what: String| shown.problems.push(format!("line {line}: {what}"));
        match event {
            Event::Start(Tag::HtmlBlock) => {
                let comment = until(&mut events, TagEnd::HtmlBlock);
                match Comment::read(&comment) {
                    Some(Ok(comment)) => said.lines.extend(comment.lines),
                    Some(Err(what)) => problem(what),
                    None => {}
                }
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                let code = until(&mut events, TagEnd::CodeBlock);
                let comment = std::mem::take(&mut said);
                match kind {
                    CodeBlockKind::Fenced(language) if &*language == "sh" => {
                        let (block, problems) = comment.block(line, &code);
                        problems.into_iter().chain(unknown(&block, &is_step, &is_program)).for_each(problem);
                        shown.parts.push(Part::Block(block));
                    }
                    CodeBlockKind::Fenced(language) if !language.is_empty() => match comment.file() {
                        Ok(Some(name)) => shown.parts.push(Part::File { name, text: code }),
                        Ok(None) if &*language == "toml" && code.contains("[[application]]") => {
                            shown.parts.push(Part::Configuration { line, text: code });
                        }
                        Ok(None) => {}
                        Err(what) => problem(what),
                    },
                    _ => problem("a block that does not say what it is: fence it, with its language".to_owned()),
                }
            }
            Event::Start(_) if !said.is_empty() => {
                problem("no block follows the comment that says how it is run".to_owned());
                said = Comment::default();
            }
            _ => {}
        }
    }
    shown
}

/// What names a step or program that there is not, or gives no reason.
fn unknown(block: &Block, is_step: impl Fn(&str) -> bool, is_program: impl Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for command in &block.commands {
        match &command.how {
            How::Step(step) if !is_step(step) => {
                problems.push(format!("`{}` is run by `{step}`, which is no step of `cargo xtask ci`", command.shown));
            }
            How::Not(reason) if reason.len() < LEAST_REASON => {
                problems.push(format!("`{}` is not run, without a reason that explains it", command.shown));
            }
            _ => {}
        }
    }
    for name in block.needs.iter().filter(|name| !is_program(name)) {
        problems.push(format!("needs `{name}`, which is not in xtask/src/programs.rs"));
    }
    problems
}

fn until<'a>(events: &mut impl Iterator<Item = (Event<'a>, std::ops::Range<usize>)>, end: TagEnd) -> String {
    let mut text = String::new();
    for (event, _) in events {
        match event {
            Event::End(tag) if tag == end => break,
            Event::Text(part) | Event::Html(part) => text.push_str(&part),
            _ => {}
        }
    }
    text
}

/// The lines of a comment: a key of [`KEYS`] and its value.
#[derive(Debug, Default)]
struct Comment {
    lines: Vec<(&'static str, String)>,
}

const KEYS: &[&str] = &["file", "given", "address", "stays", "replace", "after", "needs", "run by", "not run"];

impl Comment {
    /// A comment that is meant for us; `None` for any other text.
    fn read(html: &str) -> Option<Result<Self, String>> {
        let inner = html.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
        let (run, inner) = match inner.split_once('\n') {
            Some((first, rest)) if first.trim() == "run" => (true, rest),
            _ => (false, inner),
        };
        let lines = inner.lines().map(str::trim).filter(|line| !line.is_empty());
        let read: Result<Vec<_>, String> = lines.map(key_and_value).collect();
        match read {
            Ok(lines) => Some(Ok(Comment { lines })),
            Err(what) if run || KEYS.iter().any(|key| inner.starts_with(&format!("{key}:"))) => Some(Err(what)),
            Err(_) => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The name of a block that is not one of commands, if it has one.
    fn file(self) -> Result<Option<String>, String> {
        match <[_; 1]>::try_from(self.lines) {
            Ok([("file", name)]) if !name.contains(['/', '\\']) => Ok(Some(name)),
            Ok([(key, value)]) => Err(format!("`{key}: {value}` says nothing about this block")),
            Err(lines) if lines.is_empty() => Ok(None),
            Err(_) => Err("the block is no `sh`: only `file: NAME` can be said about it".to_owned()),
        }
    }

    fn block(self, line: usize, code: &str) -> (Block, Vec<String>) {
        let mut block = Block { line, commands: commands(code), ..Block::default() };
        let mut problems = Vec::new();
        for (key, value) in &self.lines {
            let (first, second) = match value.rsplit_once(" -> ") {
                Some((first, second)) => (first.trim(), Some(second.trim())),
                None => (value.as_str(), None),
            };
            let met = match *key {
                "given" => {
                    block.given.push(Given { line: first.to_owned(), address: second.map(str::to_owned) });
                    true
                }
                "address" => {
                    block.addresses.push(value.clone());
                    true
                }
                "after" => {
                    block.after.push(value.clone());
                    true
                }
                "needs" => {
                    block.needs.push(value.clone());
                    true
                }
                "replace" => block.replace(first, second),
                "stays" => block.set(first, |line| How::Stays {
                    line: line.trim_end_matches('&').trim().to_owned(),
                    address: second.map(str::to_owned),
                }),
                "run by" => block.name(first, second, How::Step),
                "not run" => block.name(first, second, How::Not),
                _ => false,
            };
            if !met {
                problems.push(format!("`{key}: {value}` fits nothing in the block"));
            }
        }
        (block, problems)
    }
}

impl Block {
    fn replace(&mut self, this: &str, that: Option<&str>) -> bool {
        let Some(that) = that else { return false };
        let mut met = false;
        for command in &mut self.commands {
            if let How::Run(line) | How::Stays { line, .. } = &mut command.how
                && line.contains(this)
            {
                *line = line.replace(this, that);
                met = true;
            }
        }
        met
    }

    /// Changes what becomes of the commands that are shown with this begin and were to be run.
    fn set(&mut self, begin: &str, how: impl Fn(&str) -> How) -> bool {
        let mut met = false;
        for command in self.commands.iter_mut().filter(|command| command.shown.starts_with(begin)) {
            if let How::Run(line) = &command.how {
                command.how = how(line);
                met = true;
            }
        }
        met
    }

    /// `STEP or reason` of all commands, or `BEGIN -> it` of some.
    fn name(&mut self, first: &str, second: Option<&str>, how: impl Fn(String) -> How) -> bool {
        match second {
            Some(second) => self.set(first, |_| how(second.to_owned())),
            None => self.set("", |_| how(first.to_owned())),
        }
    }
}

fn key_and_value(line: &str) -> Result<(&'static str, String), String> {
    let known = KEYS.iter().find_map(|key| Some((*key, line.strip_prefix(key)?.strip_prefix(':')?.trim())));
    match known {
        Some((key, value)) if !value.is_empty() => Ok((key, value.to_owned())),
        _ => Err(format!(
            "`{line}` is none of the things that can be said about how a block is run: {}",
            KEYS.join(", ")
        )),
    }
}

/// Lines that are commands; one that ends in a backslash goes on in the next.
fn commands(code: &str) -> Vec<Command> {
    let joined = code.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let shown = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    shown.map(|shown| Command { how: How::Run(shown.clone()), shown }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Shown {
        read(text, |step| step == "tests", |program| program == "curl")
    }

    fn block(text: &str) -> Block {
        let mut shown = shown(text);
        assert_eq!(shown.problems, Vec::<String>::new());
        match shown.parts.pop() {
            Some(Part::Block(block)) => block,
            other => panic!("no block: {other:?}"),
        }
    }

    fn run(line: &str) -> How {
        How::Run(line.to_owned())
    }

    #[test]
    fn a_block_is_run_as_it_stands() {
        let block = block("# T\n\n```sh\n# why\na --b \\\n  c   # d\n\ne\n```\n");
        let how: Vec<_> = block.commands.into_iter().map(|command| command.how).collect();
        assert_eq!((block.line, how), (3, vec![run("a --b c # d"), run("e")]));
    }

    #[test]
    fn a_comment_says_how_it_is_run() {
        let block = block(
            "<!-- run\nneeds: curl\naddress: 10.0.0.9\ngiven: b --x -> 127.0.0.1:9\ngiven: c\nstays: serve -> 127.0.0.1:1\n\
             replace: 30s -> 2s\nrun by: x -> tests\nnot run: y -> it would take a cluster\nafter: z | z\n-->\n\
             ```sh\nserve --for 30s &\nload 30s\nx 1\ny\n```\n",
        );
        let how: Vec<_> = block.commands.into_iter().map(|command| command.how).collect();
        let address = Some("127.0.0.1:1".to_owned());
        let stays = How::Stays { line: "serve --for 2s".to_owned(), address };
        let not = How::Not("it would take a cluster".to_owned());
        assert_eq!(how, [stays, run("load 2s"), How::Step("tests".to_owned()), not]);
        let given = [("b --x", Some("127.0.0.1:9".to_owned())), ("c", None)];
        assert_eq!(block.given, given.map(|(line, address)| Given { line: line.to_owned(), address }));
        assert_eq!(
            (block.needs, block.addresses, block.after),
            (vec!["curl".to_owned()], vec!["10.0.0.9".to_owned()], vec!["z | z".to_owned()],)
        );
    }

    #[test]
    fn files_are_those_with_a_name() {
        let shown = shown("<!-- file: a.toml -->\n```toml\nb = 1\n```\n\n```toml\nc = 1\n```\n");
        assert_eq!(shown.parts, [Part::File { name: "a.toml".into(), text: "b = 1\n".into() }]);
        assert_eq!(shown.problems, Vec::<String>::new());
    }

    #[test]
    fn configurations_are_those_of_applications() {
        let shown = shown("```toml\n[[application]]\n```\n\n```toml\n[softscale]\n```\n");
        assert_eq!(shown.parts, [Part::Configuration { line: 1, text: "[[application]]\n".into() }]);
    }

    #[test]
    fn what_makes_no_sense_is_a_problem() {
        let block = "```sh\na b\n```\n";
        for (comment, said) in [
            ("<!-- run by: nobody -->\n", "no step"),
            ("<!-- not run: because -->\n", "reason"),
            ("<!-- not run: c -> it would take a cluster -->\n", "fits nothing"),
            ("<!-- replace: 30s -> 2s -->\n", "fits nothing"),
            ("<!-- replace: a -->\n", "fits nothing"),
            ("<!-- needs: a-horse -->\n", "programs.rs"),
            ("<!-- file: a.toml -->\n", "fits nothing"),
            ("<!-- run\nsometimes: a\n-->\n", "none of the things"),
            ("<!-- needs: curl -->\n\nA text.\n\n", "no block follows"),
        ] {
            let problems = shown(&format!("{comment}{block}")).problems.join("\n");
            assert!(problems.contains(said), "{comment}: {problems}");
        }
        for text in ["    indented\n", "```\nof nothing\n```\n", "<!-- file: ../a -->\n```toml\n```\n"] {
            assert_eq!(shown(text).problems.len(), 1, "{text}");
        }
        assert!(shown("<!-- a remark -->\n\nA text.\n").problems.is_empty());
    }
}
