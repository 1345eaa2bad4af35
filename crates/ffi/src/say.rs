//! What a refused client is told: the forms that the sentry's own refusals have.

use std::ffi::CString;
use std::sync::LazyLock;

use tidegate_engine::Reason;

use crate::app::reason_of;
use crate::types;

/// A reason in words, as C has them.
pub(crate) struct Words {
    pub(crate) name: CString,
    pub(crate) explanation: CString,
}

/// The words for the reason of this number; `None`: it is none.
pub(crate) fn words(reason: u32) -> Option<&'static Words> {
    static WORDS: LazyLock<Vec<Words>> = LazyLock::new(|| {
        let c_text = |text: &str| CString::new(text).unwrap_or_default();
        let words = |reason: &Reason| Words { name: c_text(reason.name()), explanation: c_text(reason.explanation()) };
        Reason::ALL.iter().map(words).collect()
    });
    reason_of(reason).and_then(|_| WORDS.get(reason as usize - 1))
}

/// A refusal, in words.
pub(crate) struct Refusal<'a> {
    pub(crate) reason: Reason,
    pub(crate) policy: &'a str,
    pub(crate) class: &'a str,
    /// When to come back, whole seconds.
    pub(crate) after: u32,
}

impl Refusal<'_> {
    /// It as a header field's value, a sentence, JSON or a page; `None`: there is no such form.
    pub(crate) fn in_form(&self, form: u32) -> Option<String> {
        let Refusal { reason, policy, class, after } = self;
        let (name, why) = (reason.name(), reason.explanation());
        Some(match form {
            types::HEADER => {
                format!("rejected; reason={name}; policy={}; class={}", token(policy), token(class))
            }
            types::TEXT => {
                format!("The service is busy; please try again in {after} s. The request was refused because {why}.\n")
            }
            types::JSON => {
                let told = serde_json::json!({
                    "error": "rejected",
                    "reason": name,
                    "policy": policy,
                    "class": class,
                    "retry_after_s": after,
                    "detail": why,
                });
                format!("{told}\n")
            }
            types::HTML => format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Please try again soon</title>\
                 </head>\n<body><h1>Please try again in {after} s</h1>\n<p>The service is busy. This request was \
                 refused because {why}.</p></body></html>\n"
            ),
            _ => return None,
        })
    }
}

/// A name as a value of a header field: as it is, or in quotes.
fn token(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !name.is_empty() && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_says_why_and_when_to_come_back() {
        let refusal = Refusal { reason: Reason::SlaTarget, policy: "waiting", class: "gold \"1\"", after: 3 };
        let told = |form| refusal.in_form(form).expect("a form");
        let header = "rejected; reason=sla-target; policy=waiting; class=\"gold \\\"1\\\"\"";
        assert_eq!(told(types::HEADER), header);
        assert!(told(types::TEXT).contains("again in 3 s. The request was refused because it could not"));
        assert!(told(types::HTML).contains("again in 3 s</h1>") && told(types::HTML).contains("because it could not"));
        let json: serde_json::Value = serde_json::from_str(&told(types::JSON)).expect("JSON");
        assert_eq!((&json["class"], &json["retry_after_s"]), (&"gold \"1\"".into(), &3.into()));
        assert!(refusal.in_form(4).is_none());
    }

    #[test]
    fn a_name_breaks_no_header() {
        assert_eq!(token("a\r\nb: c"), "\"a??b: c\"");
        assert_eq!((token("gold"), token("")), (String::from("gold"), String::from("\"\"")));
    }
}
