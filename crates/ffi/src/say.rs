//! What a refused client is told: the forms that the sentry's own refusals have.

use std::ffi::CString;
use std::sync::LazyLock;

use tidegate_engine::{Explanation, Reason};

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

/// A refusal as a header field's value, a sentence, JSON or a page; `None`: there is no such form.
pub(crate) fn in_form(told: &Explanation<'_>, form: u32) -> Option<String> {
    Some(match form {
        types::HEADER => told.field(),
        types::TEXT => told.text(),
        types::JSON => serde_json::to_string(told).ok()? + "\n",
        types::HTML => told.html(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_a_number() {
        let refusal = Explanation::new(Reason::SlaTarget, "waiting", "gold \"1\"", 3);
        let told = |form| in_form(&refusal, form).expect("a form");
        assert!(told(types::HEADER).starts_with("rejected; reason=sla-target"));
        assert!(told(types::TEXT).starts_with("The service") && told(types::HTML).starts_with("<!doctype html>"));
        let json: serde_json::Value = serde_json::from_str(&told(types::JSON)).expect("JSON");
        let expected = serde_json::json!({
            "error": "rejected", "reason": "sla-target", "policy": "waiting", "class": "gold \"1\"",
            "retry_after_s": 3, "detail": Reason::SlaTarget.explanation(),
        });
        assert_eq!(json, expected);
        assert!(in_form(&refusal, 4).is_none());
    }
}
