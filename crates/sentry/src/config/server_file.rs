//! A file of servers: what an application's `servers` may be kept in, for other programs to write.

use std::path::{Path, PathBuf};

use tidegate_config::{At, ConfigErrors, List, Report, parse_document, section};
use tidegate_engine::ServerSetup;

use super::Server;
use super::raw::RawServer;
use super::resolve::{RealWorld, Resolver};

section! {
    /// The file.
    pub(in crate::config) struct RawServerFile ("in a file of servers") {
        /// The application's servers, as in the configuration.
        servers: List<RawServer>,
    }
}

/// A file of servers, and what was in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerFile {
    /// Where it is.
    pub path: PathBuf,
    /// The servers that it named when it was read last.
    pub servers: Vec<(Server, ServerSetup)>,
}

impl ServerFile {
    /// What is in the file now.
    ///
    /// # Errors
    /// Everything that is wrong in it, with lines.
    pub fn read(path: &Path) -> Result<Vec<(Server, ServerSetup)>, ConfigErrors> {
        let text = tidegate_config::load(path)?;
        parse(&text, &path.display().to_string())
    }
}

/// The servers that a text names. None is good, too: there may be some later.
pub(super) fn parse(text: &str, source: &str) -> Result<Vec<(Server, ServerSetup)>, ConfigErrors> {
    let mut report = Report::new(text);
    let Some(document) = parse_document(text, &mut report) else { return Err(report.failure(source)) };
    let raw = RawServerFile::read_table(document.get_ref(), &mut report);
    let list = raw.servers.map(|At { value, .. }| value.0);
    if list.is_none() && !report.has_errors() {
        report.error(&(0..0), "this file names no servers; write servers = [\"10.0.0.1:80\", ...], or servers = []");
    }
    // Nothing in it refers to other files.
    let world = RealWorld { folder: PathBuf::new() };
    let servers = Resolver::new(&world, &mut report).listed(list.unwrap_or_default());
    if report.has_errors() { Err(report.failure(source)) } else { Ok(servers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_are_written_as_in_the_configuration() {
        let text = "servers = [\"10.0.0.1:80\", { name = \"big\", address = \"b.internal:80\", weight = 2 }]\n";
        let servers = parse(text, "f").expect("valid");
        let all: Vec<_> = servers.iter().map(|(s, setup)| (&*s.name, &*s.address, setup.weight)).collect();
        assert_eq!(all, [("10.0.0.1:80", "10.0.0.1:80", 1.0), ("big", "b.internal:80", 2.0)]);
        assert!(parse("servers = []", "f").expect("valid").is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let problem = |text: &str| parse(text, "f").expect_err(text).to_string();
        assert!(
            problem("\nservres = []\n").contains("f:2: unknown key \"servres\" in a file of servers; did you mean")
        );
        assert!(problem("servers = [\"10.0.0.1\"]").contains("the port is missing"));
        assert!(problem("servers = { file = \"g\" }").contains("a file of servers names no other file"));
        assert!(problem("servers = [\"a:1\", \"a:1\"]").contains("is there twice"));
        assert!(problem("").contains("names no servers"));
        assert!(problem("servers = [").contains("f:1"));
    }
}
