//! What whoever is refused is told: a field of the answer's head for programs, and a sentence, JSON or a page.
//!
//! *Applied.* By the sentry, and by services that have the engine inside: their clients read the same.

use alloc::format;
use alloc::string::String;

use serde::Serialize;

use crate::decision::Reason;

/// A refusal in words. Serialized it is the JSON form, its keys in the order of the alphabet.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Explanation<'a> {
    class: &'a str,
    detail: &'static str,
    error: &'static str,
    policy: &'a str,
    reason: &'static str,
    retry_after_s: u64,
}

impl<'a> Explanation<'a> {
    /// Of a request of this class, refused by this policy; it may come again after so many seconds.
    pub const fn new(reason: Reason, policy: &'a str, class: &'a str, retry_after_s: u64) -> Self {
        let (detail, reason) = (reason.explanation(), reason.name());
        Explanation { class, detail, error: "rejected", policy, reason, retry_after_s }
    }

    /// The value of the field `Tidegate-Decision`.
    pub fn field(&self) -> String {
        let Explanation { reason, policy, class, .. } = self;
        format!("rejected; reason={reason}; policy={}; class={}", field_value(policy), field_value(class))
    }

    /// A sentence for a person, and a line's end.
    pub fn text(&self) -> String {
        let Explanation { detail, retry_after_s, .. } = self;
        format!(
            "The service is busy; please try again in {retry_after_s} s. The request was refused because {detail}.\n"
        )
    }

    /// A page for a person.
    pub fn html(&self) -> String {
        let Explanation { detail, retry_after_s, .. } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Please try again soon</title>\
             </head>\n<body><h1>Please try again in {retry_after_s} s</h1>\n<p>The service is busy. This request was \
             refused because {detail}.</p></body></html>\n"
        )
    }
}

/// A name as it may stand in `Tidegate-Decision`: letters, digits and the marks of a token, else quoted.
pub fn field_value(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !name.is_empty() && name.bytes().all(is_plain) {
        return String::from(name);
    }
    let printable = name.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
    let escaped: String =
        printable.flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])).collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_says_why_and_when_to_come_back() {
        let told = Explanation::new(Reason::SlaTarget, "waiting", "gold \"1\"", 3);
        assert_eq!(told.field(), "rejected; reason=sla-target; policy=waiting; class=\"gold \\\"1\\\"\"");
        assert!(told.text().contains("again in 3 s. The request was refused because it could not"));
        assert!(told.html().contains("again in 3 s</h1>") && told.html().contains("because it could not"));
    }

    #[test]
    fn names_cannot_break_out_of_the_field() {
        assert_eq!((field_value("gold"), field_value("")), (String::from("gold"), String::from("\"\"")));
        assert_eq!(field_value("a; b\"\r\nX: y"), "\"a; b\\\"??X: y\"");
    }
}
