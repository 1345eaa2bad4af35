//! The pages: plain HTML with forms, for any browser, with or without scripts (there are none).

mod html;

use crate::mailbox::{Account, Folder, Found, Listing, MOST_FOUND, Message, Summary};

pub use html::escape;
use html::{bytes, date, page, plural};

/// The page on which one signs in, with what went wrong before, if anything.
pub fn sign_in(trouble: Option<&str>) -> String {
    let trouble =
        trouble.map(|text| format!("<p class=\"note\" role=\"alert\">{}</p>", escape(text))).unwrap_or_default();
    let body = format!(
        "<h1>Sign in</h1>{trouble}\
         <form class=\"line\" method=\"post\" action=\"/login\">\
         <label for=\"name\">Account</label>\
         <input id=\"name\" name=\"name\" required autofocus autocomplete=\"username\" placeholder=\"user1\">\
         <button>Sign in</button></form>\
         <p>Generated accounts are named user1, user2 and so on, and need no password: their mail is made up.</p>"
    );
    page("Sign in", None, &body)
}

/// An account's folders.
pub fn folders(account: &Account, folders: &[Folder]) -> String {
    let mut rows = String::new();
    for folder in folders {
        rows += &format!(
            "<tr><td><a href=\"/folder/{}\">{}</a></td><td class=\"number\">{}</td></tr>\n",
            folder.id,
            escape(&folder.name),
            folder.messages
        );
    }
    let body = format!(
        "<h1>Folders</h1><table><thead><tr><th scope=\"col\">Folder</th><th scope=\"col\" class=\"number\">Messages</th>\
         </tr></thead><tbody>\n{rows}</tbody></table>"
    );
    page("Folders", Some(account), &body)
}

/// A part of a folder. `count` is how many were asked for; all when absent.
pub fn messages(account: &Account, listing: &Listing, count: Option<i64>) -> String {
    let folder = &listing.folder;
    let shown = listing.messages.len() as i64;
    let body = format!(
        "<h1>{}</h1><p>{}</p><div class=\"tools\">{}{}</div>{}",
        escape(&folder.name),
        match shown {
            0 => "No messages here.".to_owned(),
            _ =>
                format!("{} to {} of {}", listing.first + 1, listing.first + shown, plural(folder.messages, "message")),
        },
        search_form(folder.id, ""),
        turns(listing, shown, count),
        table(&listing.messages)
    );
    page(&folder.name, Some(account), &body)
}

/// One message, with what can be done with it.
pub fn message(account: &Account, message: &Message) -> String {
    let Message { summary, folder, text, folders } = message;
    let mut choices = String::new();
    for to in folders.iter().filter(|to| to.id != *folder) {
        choices += &format!("<option value=\"{}\">{}</option>", to.id, escape(&to.name));
    }
    let here = folders.iter().find(|at| at.id == *folder).map_or("folder", |at| &at.name);
    let id = summary.id;
    let body = format!(
        "<p><a href=\"/folder/{folder}\">Back to {}</a></p>\
         <img class=\"picture\" src=\"/render/{}.png\" width=\"96\" height=\"96\" alt=\"\">\
         <h1>{}</h1><dl><dt>From</dt><dd>{}</dd><dt>Sent</dt><dd>{}</dd><dt>Length</dt><dd>{}</dd></dl>\
         <div class=\"tools\"><form method=\"post\" action=\"/message/{id}/delete\"><button>{}</button></form>\
         <form class=\"line\" method=\"post\" action=\"/message/{id}/refile\"><label for=\"to\">Move to</label>\
         <select id=\"to\" name=\"folder\">{choices}</select><button>Move</button></form></div>\
         <div class=\"text\">{}</div>",
        escape(here),
        path_segment(&summary.sender),
        escape(&summary.subject),
        escape(&summary.sender),
        date(summary.sent),
        bytes(summary.bytes),
        if here == crate::mailbox::TRASH { "Delete for good" } else { "Delete" },
        escape(text.trim_end())
    );
    page(&summary.subject, Some(account), &body)
}

/// What a search found.
pub fn found(account: &Account, found: &Found, words: &str) -> String {
    let folder = &found.folder;
    let count = found.messages.len() as i64;
    let mut note = match count {
        0 => "Nothing found.".to_owned(),
        MOST_FOUND => format!("The latest {MOST_FOUND} messages found."),
        _ => format!("{} found.", plural(count, "message")),
    };
    if found.looked_at < folder.messages {
        note += &format!(
            " The service is busy: only the latest {} of {} messages were searched.",
            found.looked_at, folder.messages
        );
    }
    let body = format!(
        "<p><a href=\"/folder/{}\">Back to {}</a></p><h1>Search in {}</h1><div class=\"tools\">{}</div>\
         <p role=\"status\">{note}</p>{}",
        folder.id,
        escape(&folder.name),
        escape(&folder.name),
        search_form(folder.id, words),
        table(&found.messages)
    );
    page("Search", Some(account), &body)
}

/// What happened to the last message one worked on, above another page.
pub fn with_notice(html: &str, done: &str, message: i64) -> String {
    let text = match done.split_once("moved-to-") {
        Some((_, folder)) if folder.parse::<i64>().is_ok() => {
            format!(
                "Moved to <a href=\"/folder/{folder}\">this folder</a>: <a href=\"/message/{message}\">the message</a>."
            )
        }
        _ if done == "trashed" => format!("Moved to the trash: <a href=\"/message/{message}\">the message</a>."),
        _ if done == "deleted" => "Deleted for good.".to_owned(),
        _ => return html.to_owned(),
    };
    html.replacen("<h1>", &format!("<p class=\"note\" role=\"status\">{text}</p><h1>"), 1)
}

/// The page of a request that got nothing.
pub fn trouble(title: &str, text: &str, hint: &str) -> String {
    page(title, None, &format!("<h1>{}</h1><p>{}</p><p>{}</p>", escape(title), escape(text), escape(hint)))
}

/// The running stages.
pub fn stages(drawing: &str, table: &str) -> String {
    let body = format!(
        "<h1>Stages</h1><p>Each request type is a stage with an admission controller of its own. \
         <a href=\"/api/stages\">The same as JSON</a>.</p>{table}<div class=\"graph\">{drawing}</div>"
    );
    page("Stages", None, &body)
}

/// A file of the program's own: media type and content.
pub fn file(name: &str) -> Option<(&'static str, &'static [u8])> {
    match name {
        "style.css" => Some(("text/css; charset=utf-8", include_bytes!("../assets/style.css"))),
        "logo.svg" => Some(("image/svg+xml", include_bytes!("../assets/logo.svg"))),
        _ => None,
    }
}

/// Messages on one page, unless another number is asked for.
pub const PER_PAGE: i64 = 50;

fn table(messages: &[Summary]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    let mut rows = String::with_capacity(256 * messages.len());
    for m in messages {
        rows += &format!(
            "<tr><td class=\"who\">{}</td><td><a href=\"/message/{}\">{}</a></td><td class=\"when\">{}</td>\
             <td class=\"number\">{}</td></tr>\n",
            escape(m.sender.split(" <").next().unwrap_or_default()),
            m.id,
            escape(&m.subject),
            date(m.sent),
            bytes(m.bytes)
        );
    }
    format!(
        "<table><thead><tr><th scope=\"col\">From</th><th scope=\"col\">Subject</th><th scope=\"col\">Sent</th>\
         <th scope=\"col\" class=\"number\">Length</th></tr></thead><tbody>\n{rows}</tbody></table>"
    )
}

/// Links to later and earlier messages, and to all of them.
fn turns(listing: &Listing, shown: i64, count: Option<i64>) -> String {
    let (id, step) = (listing.folder.id, count.unwrap_or(PER_PAGE));
    let mut links = Vec::new();
    if listing.first > 0 {
        links.push(format!("<a rel=\"prev\" href=\"/folder/{id}?first={}\">Later</a>", (listing.first - step).max(0)));
    }
    if listing.first + shown < listing.folder.messages {
        links.push(format!("<a rel=\"next\" href=\"/folder/{id}?first={}\">Earlier</a>", listing.first + shown));
        links.push(format!("<a href=\"/folder/{id}?show=all\">All</a>"));
    }
    if links.is_empty() {
        String::new()
    } else {
        format!("<nav class=\"line\" aria-label=\"Pages\">{}</nav>", links.join(" &middot; "))
    }
}

fn search_form(folder: i64, words: &str) -> String {
    format!(
        "<form class=\"line\" role=\"search\" action=\"/search\"><input type=\"hidden\" name=\"folder\" value=\"{folder}\">\
         <label for=\"q\">Search texts</label><input id=\"q\" name=\"q\" type=\"search\" required value=\"{}\">\
         <button>Search</button></form>",
        escape(words)
    )
}

/// Letters and digits only: names a picture, and needs no escaping.
fn path_segment(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.split(" <").next().unwrap_or_default().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_visitors_write_is_escaped() {
        let evil = "<script>alert(\"x\")</script>";
        let account = Account { id: 1, name: evil.to_owned(), class: 1 };
        let folder = Folder { id: 1, name: evil.to_owned(), messages: 1 };
        let summary = Summary { id: 1, sender: evil.to_owned(), subject: evil.to_owned(), sent: 0, bytes: 1 };
        let folders = vec![folder.clone(), Folder { id: 2, ..folder.clone() }];
        let listing = Listing { folder: folder.clone(), first: 0, messages: vec![summary.clone()] };
        let found = Found { messages: vec![summary.clone()], looked_at: 1, folder };
        let message = Message { summary, folder: 1, text: evil.to_owned(), folders: folders.clone() };
        for html in [
            sign_in(Some(evil)),
            super::folders(&account, &folders),
            messages(&account, &listing, None),
            super::message(&account, &message),
            super::found(&account, &found, evil),
            with_notice("<h1>x", evil, 1),
            trouble(evil, evil, evil),
        ] {
            assert!(!html.contains("<script"), "{html}");
        }
    }

    #[test]
    fn pages_can_be_turned() {
        let folder = Folder { id: 7, name: "Inbox".into(), messages: 120 };
        let summary = Summary { id: 1, sender: "A".into(), subject: "B".into(), sent: 0, bytes: 1 };
        let listing = Listing { folder, first: 50, messages: vec![summary; 50] };
        let html = messages(&Account { id: 1, name: "user1".into(), class: 1 }, &listing, Some(50));
        for part in ["51 to 100 of 120 messages", "/folder/7?first=0", "/folder/7?first=100", "show=all"] {
            assert!(html.contains(part), "{part}");
        }
    }
}
