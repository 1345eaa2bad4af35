//! Header fields that an operator wants changed: in requests to servers, and in answers to clients.

use http::HeaderName;
use tidegate_engine::ClassId;

/// A change of a header field.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderChange {
    /// The field.
    pub name: HeaderName,
    /// What becomes of it.
    pub action: Action,
    /// Of requests of these classes; empty: of all.
    pub classes: Vec<ClassId>,
    /// Of answers: in the sentry's own refusals, too.
    pub refused: bool,
}

impl HeaderChange {
    /// Whether it is made for requests of a class.
    pub(crate) fn is_for(&self, class: ClassId) -> bool {
        self.classes.is_empty() || self.classes.contains(&class)
    }
}

/// What becomes of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It has this value and no other.
    Set(Value),
    /// It has this value, too.
    Add(Value),
    /// It goes.
    Remove,
}

/// A field's value, perhaps with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// As it was typed.
    pub text: String,
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// As it is.
    Text(String),
    /// What a request has there.
    Of(Placeholder),
}

/// What a value can have of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// The client's address.
    Client,
    /// The host that was asked for, as in `Host`.
    Host,
    /// The name of its class.
    Class,
    /// Its id, where it has one.
    RequestId,
}

impl Placeholder {
    /// Every one, in the order of messages.
    pub const ALL: [Placeholder; 4] =
        [Placeholder::Client, Placeholder::Host, Placeholder::Class, Placeholder::RequestId];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Placeholder::Client => "client",
            Placeholder::Host => "host",
            Placeholder::Class => "class",
            Placeholder::RequestId => "request_id",
        }
    }
}

impl Value {
    /// What was typed: `{name}` is a placeholder, `{{` a brace.
    ///
    /// # Errors
    /// What cannot stand in a field, or is no placeholder.
    pub fn parse(text: &str) -> Result<Value, String> {
        let printable = text.bytes().all(|b| b == b'\t' || (0x20..=0x7e).contains(&b));
        if !printable || text.trim() != text {
            return Err(format!(
                "\"{text}\" cannot be a header's value; write printable ASCII without spaces around it"
            ));
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('{') {
                plain.push('{');
                rest = after;
                continue;
            }
            let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
            let is_closed = after.len() < rest.len() - name.len();
            let Some(of) = Placeholder::ALL.into_iter().find(|of| of.name() == name && is_closed) else {
                let known = Placeholder::ALL.map(|of| format!("{{{}}}", of.name())).join(", ");
                return Err(format!("{{{name}}} is unknown; known here: {known}; write {{{{ for a brace"));
            };
            parts.extend((!plain.is_empty()).then(|| Part::Text(std::mem::take(&mut plain))));
            parts.push(Part::Of(of));
            rest = after;
        }
        plain.push_str(rest);
        parts.extend((!plain.is_empty()).then_some(Part::Text(plain)));
        Ok(Value { text: text.to_owned(), parts })
    }

    /// Whether it is known before the request is, but for its class.
    pub fn is_of_class_only(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Of(Placeholder::Class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_placeholders() {
        let parts = |text: &str| Value::parse(text).map(|value| value.parts);
        let (text, of) = (|text: &str| Part::Text(text.to_owned()), Part::Of);
        assert_eq!(parts("plain"), Ok(vec![text("plain")]));
        assert_eq!(parts("{client}"), Ok(vec![of(Placeholder::Client)]));
        assert_eq!(
            parts("a {{b} {class}/{host}"),
            Ok(vec![text("a {b} "), of(Placeholder::Class), text("/"), of(Placeholder::Host)])
        );
        assert!(Value::parse("x {class}").is_ok_and(|value| value.is_of_class_only()));
        assert!(Value::parse("{request_id}").is_ok_and(|value| !value.is_of_class_only()));
        for bad in ["{clinet}", "{client", "{}", "a\r\nX: b", " a", "\u{e4}"] {
            assert!(Value::parse(bad).is_err(), "{bad}");
        }
    }
}
