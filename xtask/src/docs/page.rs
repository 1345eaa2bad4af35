//! One document as HTML: headings get anchors, links get their new targets.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::book::{Book, Page};
use crate::command::root;
use crate::tidy::documents::{anchor, is_ours, resolve};

/// A document as HTML, and what was met in it.
#[derive(Debug, Default)]
pub struct Rendered {
    pub html: String,
    pub headings: Vec<Heading>,
    /// Links within the site, as `file#part`.
    pub links: Vec<String>,
    /// Files to copy, from the root of the repository.
    pub files: BTreeSet<String>,
    pub problems: Vec<String>,
}

/// A heading, for the table of contents and the search.
#[derive(Debug, PartialEq, Eq)]
pub struct Heading {
    pub level: usize,
    pub anchor: String,
    pub text: String,
}

/// Makes a page's HTML. `repository` is where files that are no pages can be read.
pub fn render(page: &Page, text: &str, book: &Book, repository: &str) -> Rendered {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let events: Vec<Event<'_>> = Parser::new_ext(text, options).collect();
    let mut writer = Writer { page, book, repository, rendered: Rendered::default(), used: BTreeMap::new() };
    let headings = headings(&events);
    let mut next = headings.into_iter();
    let mut out = Vec::with_capacity(events.len());
    let mut block = String::new();
    for event in events {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let text = next.next().unwrap_or_default();
                out.push(writer.heading(level, text));
            }
            Event::End(TagEnd::Heading(level)) => out.push(markup(format!("</a></{level}>\n"))),
            Event::Start(Tag::Table(columns)) => {
                out.push(markup("<div class=\"wide\">".to_owned()));
                out.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => out.extend([Event::End(TagEnd::Table), markup("</div>\n".to_owned())]),
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = writer.link(&dest_url);
                out.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = writer.picture(&dest_url);
                out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
            }
            // A block comes line by line.
            Event::Html(html) => block.push_str(&html),
            Event::Start(Tag::HtmlBlock) => block.clear(),
            Event::End(TagEnd::HtmlBlock) => writer.html(&block),
            Event::InlineHtml(html) => writer.html(&html),
            other => out.push(other),
        }
    }
    let Writer { mut rendered, .. } = writer;
    html::push_html(&mut rendered.html, out.into_iter());
    if rendered.headings.first().is_none_or(|heading| heading.level != 1) {
        rendered.problems.push("does not begin with a title".to_owned());
    }
    rendered
}

struct Writer<'a> {
    page: &'a Page,
    book: &'a Book,
    repository: &'a str,
    rendered: Rendered,
    /// How often each anchor was asked for.
    used: BTreeMap<String, usize>,
}

impl<'a> Writer<'a> {
    fn heading(&mut self, level: HeadingLevel, text: String) -> Event<'static> {
        let mut name = anchor(&text);
        let times = self.used.entry(name.clone()).or_default();
        if *times > 0 {
            name = format!("{name}-{times}");
        }
        *times += 1;
        let start = format!("<{level} id=\"{name}\"><a class=\"self\" href=\"#{name}\">");
        self.rendered.headings.push(Heading { level: level as usize, anchor: name, text });
        markup(start)
    }

    fn link(&mut self, target: &str) -> CowStr<'a> {
        if !is_ours(target) {
            if !is_well_formed(target) {
                self.rendered.problems.push(format!("the link `{target}` is no address"));
            }
            return target.to_owned().into();
        }
        let (path, part) = target.split_once('#').map_or((target, None), |(path, part)| (path, Some(part)));
        let source = if path.is_empty() { Some(self.page.source.clone()) } else { resolve(&self.page.source, path) };
        let Some(source) = source.filter(|source| root().join(source).exists()) else {
            self.rendered.problems.push(format!("the link `{target}` leads nowhere"));
            return target.to_owned().into();
        };
        let part = part.map(|part| format!("#{part}")).unwrap_or_default();
        match self.book.page_of(&source) {
            Some(page) => {
                let link = format!("{}{part}", page.file);
                self.rendered.links.push(link.clone());
                link.into()
            }
            None => format!("{}/blob/main/{source}{part}", self.repository).into(),
        }
    }

    fn picture(&mut self, target: &str) -> CowStr<'a> {
        match resolve(&self.page.source, target).filter(|file| is_ours(target) && root().join(file).is_file()) {
            Some(file) => {
                self.rendered.files.insert(file.clone());
                file.into()
            }
            None => {
                self.rendered.problems.push(format!("the picture `{target}` is not a file of ours"));
                target.to_owned().into()
            }
        }
    }

    /// Comments are left out; anything else would be a hole in the text's plainness.
    fn html(&mut self, html: &str) {
        let html = html.trim();
        let is_comment = html.strip_prefix("<!--").is_some_and(|rest| rest.find("-->") == rest.len().checked_sub(3));
        if !html.is_empty() && !is_comment {
            self.rendered.problems.push(format!("`{html}` is HTML; write Markdown, or `code` what looks so"));
        }
    }
}

/// The texts of the headings, in order.
fn headings(events: &[Event<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = false;
    for event in events {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                open = true;
                found.push(String::new());
            }
            Event::End(TagEnd::Heading(_)) => open = false,
            Event::Text(text) | Event::Code(text) if open => {
                if let Some(last) = found.last_mut() {
                    last.push_str(text);
                }
            }
            _ => {}
        }
    }
    found
}

fn markup(text: String) -> Event<'static> {
    Event::Html(text.into())
}

/// An address elsewhere: its form is all that is looked at.
fn is_well_formed(target: &str) -> bool {
    if let Some(mail) = target.strip_prefix("mailto:") {
        return mail.contains('@');
    }
    let rest = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.split('/').next().is_some_and(|host| host.contains('.')) && !rest.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Rendered {
        let book = Book::read("## A\n- [Top](../README.md)\n- [C](../CONTRIBUTING.md)\n").expect("contents");
        let page = book.page_of("README.md").expect("a page");
        render(page, text, &book, "https://example.net/r")
    }

    #[test]
    fn links_are_led_to_pages_and_to_the_repository() {
        let page = rendered("# T `x`\n\n[a](CONTRIBUTING.md#tests) [b](Cargo.toml) [c](#t-x) [d](https://e.org/)\n");
        assert_eq!(page.problems, Vec::<String>::new());
        assert_eq!(page.links, ["contributing.html#tests", "index.html#t-x"]);
        assert!(page.html.contains("href=\"https://example.net/r/blob/main/Cargo.toml\""), "{}", page.html);
        assert_eq!(page.headings[0], Heading { level: 1, anchor: "t-x".into(), text: "T x".into() });
    }

    #[test]
    fn what_leads_nowhere_or_is_markup_is_a_problem() {
        for text in ["[a](gone.md)", "[a](http://nowhere)", "![p](gone.svg)", "![p](https://e.org/p.svg)", "<b>x</b>"] {
            assert_eq!(rendered(&format!("# T\n\n{text}\n")).problems.len().min(1), 1, "{text}");
        }
        assert_eq!(rendered("no title\n").problems.len(), 1);
        assert!(rendered("# T\n\n<!-- fine -->\n\n`<b>`\n\n<!-- a\nb -->\n\n").problems.is_empty());
        assert_eq!(rendered("# T\n\n<!-- a\nb --><b>\n").problems.len(), 1);
    }

    #[test]
    fn headings_of_one_name_have_anchors_of_their_own() {
        let page = rendered("# T\n## A\n## A\n");
        let anchors: Vec<_> = page.headings.iter().map(|heading| heading.anchor.as_str()).collect();
        assert_eq!(anchors, ["t", "a", "a-1"]);
    }
}
