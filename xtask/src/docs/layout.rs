//! What stands around a page's text: the contents beside it, its headings, the way on; and the index for the search.

use std::fmt::Write as _;

use serde_json::json;

use super::book::{Book, Page};
use super::page::Rendered;

/// The whole page.
pub fn page(book: &Book, page: &Page, rendered: &Rendered) -> String {
    let title = match rendered.headings.first() {
        Some(first) if first.text != "tidegate" => format!("{} - tidegate", first.text),
        _ => "tidegate: overload control".to_owned(),
    };
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="style.css">
<script type="module" src="search.js"></script>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header><a class="brand" href="index.html"><img src="icon.svg" alt="" width="24" height="24"> tidegate</a>
<div id="search" role="search" hidden><input type="search" aria-label="Search headings" placeholder="Search headings"
 autocomplete="off" aria-controls="found"><ul id="found" hidden></ul></div></header>
<div class="sheet">
<details class="contents" open><summary>Contents</summary><nav aria-label="Contents">
{contents}</nav></details>
<main id="text">
{text}{onward}</main>
{here}</div>
</body>
</html>
"##,
        title = escaped(&title),
        contents = contents(book, page),
        text = rendered.html,
        onward = onward(book, page),
        here = here(rendered),
    )
}

/// Every heading with its place, as JSON for the search.
pub fn index(made: &[(&Page, Rendered)]) -> String {
    let entries: Vec<_> = made
        .iter()
        .flat_map(|(page, rendered)| {
            rendered.headings.iter().map(move |heading| {
                let part = if heading.level == 1 { String::new() } else { format!("#{}", heading.anchor) };
                json!({ "to": format!("{}{part}", page.file), "text": heading.text, "page": page.title })
            })
        })
        .collect();
    serde_json::Value::from(entries).to_string()
}

fn contents(book: &Book, now: &Page) -> String {
    let mut out = String::new();
    for part in &book.parts {
        write!(out, "<h2>{}</h2>\n<ul>\n", escaped(&part.title)).expect("memory");
        for page in &part.pages {
            let here = if page == now { " aria-current=\"page\"" } else { "" };
            let line = format!("<li><a href=\"{}\"{here}>{}</a></li>\n", page.file, escaped(&page.title));
            out.push_str(&line);
        }
        out.push_str("</ul>\n");
    }
    out
}

/// The headings of a long page.
fn here(rendered: &Rendered) -> String {
    let shown: Vec<_> = rendered.headings.iter().filter(|heading| matches!(heading.level, 2 | 3)).collect();
    if shown.len() < 3 {
        return "<aside></aside>\n".to_owned();
    }
    let mut out = "<aside><nav aria-label=\"On this page\"><h2>On this page</h2>\n<ul>\n".to_owned();
    for heading in shown {
        let (level, anchor, text) = (heading.level, &heading.anchor, escaped(&heading.text));
        writeln!(out, "<li class=\"level-{level}\"><a href=\"#{anchor}\">{text}</a></li>").expect("memory");
    }
    out + "</ul></nav></aside>\n"
}

fn onward(book: &Book, now: &Page) -> String {
    let pages: Vec<&Page> = book.pages().collect();
    let at = pages.iter().position(|page| *page == now).unwrap_or_default();
    let link = |page: Option<&&Page>, words: &str, kind: &str| match page {
        Some(page) => format!("<a rel=\"{kind}\" href=\"{}\">{words} {}</a>", page.file, escaped(&page.title)),
        None => "<span></span>".to_owned(),
    };
    let before = link(at.checked_sub(1).and_then(|before| pages.get(before)), "←", "prev");
    let after = link(pages.get(at + 1), "→", "next");
    format!("<nav class=\"onward\" aria-label=\"Pages\">{before}{after}</nav>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_text() {
        assert_eq!(escaped("<b> & \"c\""), "&lt;b&gt; &amp; &quot;c&quot;");
        let book = Book::read("## P\n- [A <b>](../README.md)\n- [B](b.md)\n").expect("contents");
        let first = book.pages().next().expect("a page");
        let whole = page(&book, first, &Rendered::default());
        assert!(whole.contains("A &lt;b&gt;") && !whole.contains("A <b>"));
        assert!(whole.contains("aria-current=\"page\">A") && whole.contains("rel=\"next\" href=\"b.html\""));
    }
}
