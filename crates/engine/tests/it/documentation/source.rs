//! Reads what a policy's source says of itself.

use serde_json::Value;

/// A setting of a policy.
pub struct Setting {
    pub name: String,
    /// Its type, as written.
    pub kind: String,
    /// Its words, on one line.
    pub doc: String,
}

/// The doc comment at the head of a file, as Markdown that stands by itself.
pub fn essay(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.trim_start_matches("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let mut out = String::new();
    for line in lines {
        out.push_str(&without_paths(line));
        out.push('\n');
    }
    out
}

/// The fields of a struct, with their doc comments.
pub fn settings(text: &str, name: &str) -> Vec<Setting> {
    let begin = format!("pub struct {name} {{\n");
    let Some((_, body)) = text.split_once(&begin) else { return Vec::new() };
    let mut found = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            doc.push(words.trim());
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
            let doc = without_paths(&std::mem::take(&mut doc).join(" ")).replace('|', "\\|");
            found.push(Setting { name: name.to_owned(), kind: kind.trim_end_matches(',').to_owned(), doc });
        }
    }
    found
}

/// A default as it would be typed.
pub fn default_of(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Object(inside) if inside.is_empty() => "none".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        value => format!("`{value}`"),
    }
}

/// Links into the source become plain code: ``[`X`](crate::x)`` and ``[`X`]`` are `` `X` ``.
fn without_paths(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("[`") {
        let Some(end) = rest[at..].find("`]").map(|end| at + end) else { break };
        out.push_str(&rest[..at]);
        out.push_str(&rest[at + 1..=end]);
        rest = &rest[end + 2..];
        if rest.starts_with('(') {
            let Some(close) = rest.find(')') else { break };
            // A link out of the source stays one.
            rest = &rest[close + 1..];
        }
    }
    out.push_str(rest);
    out
}
