//! Changes of header fields that an operator wants: in requests to servers, and in answers to clients.

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue};
use tidegate_engine::ClassId;

use crate::client::Client;
use crate::config::{Action, HeaderChange, Part, Placeholder, Value};

/// What is known of a request when fields are changed for it.
pub(crate) struct About<'a> {
    pub(crate) client: &'a Client,
    pub(crate) asked: &'a Asked,
    pub(crate) class: (ClassId, &'a str),
}

/// What of a request's own fields values can be made of.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// `Host` as the rules read it.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) id: Option<HeaderValue>,
}

/// Makes `changes`, one after the other.
pub(crate) fn change(headers: &mut HeaderMap, changes: &[HeaderChange], about: &About<'_>) {
    for change in changes.iter().filter(|change| change.is_for(about.class.0)) {
        match &change.action {
            Action::Set(value) => match fill(value, about) {
                Some(value) => drop(headers.insert(change.name.clone(), value)),
                None => drop(headers.remove(&change.name)),
            },
            Action::Add(value) => {
                if let Some(value) = fill(value, about) {
                    headers.append(change.name.clone(), value);
                }
            }
            Action::Remove => drop(headers.remove(&change.name)),
        }
    }
}

/// The fields of a refusal that are not its own.
pub(crate) fn of_refusal<'a>(
    changes: &'a [HeaderChange],
    (class, name): (ClassId, &'a str),
) -> impl Iterator<Item = (&'a HeaderName, HeaderValue)> {
    changes.iter().filter(move |change| change.refused && change.is_for(class)).filter_map(move |change| {
        let (Action::Set(value) | Action::Add(value)) = &change.action else { return None };
        let write = |of: Placeholder, out: &mut Vec<u8>| {
            if of == Placeholder::Class {
                out.extend_from_slice(name.as_bytes());
            }
        };
        Some((&change.name, filled(value, write)?))
    })
}

/// A value for a request; `None`: nothing of it is known.
fn fill(value: &Value, about: &About<'_>) -> Option<HeaderValue> {
    filled(value, |of, out| match of {
        Placeholder::Client => out.extend_from_slice(about.client.forwarded_for().as_bytes()),
        Placeholder::Host => out.extend(about.asked.host.iter().flat_map(|value| value.as_bytes())),
        Placeholder::RequestId => out.extend(about.asked.id.iter().flat_map(|value| value.as_bytes())),
        Placeholder::Class => out.extend_from_slice(about.class.1.as_bytes()),
    })
}

fn filled(value: &Value, write: impl Fn(Placeholder, &mut Vec<u8>)) -> Option<HeaderValue> {
    let mut out = Vec::new();
    for part in &value.parts {
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Of(of) => write(*of, &mut out),
        }
    }
    HeaderValue::from_bytes(&out).ok().filter(|filled| !filled.is_empty() || value.parts.is_empty())
}

/// What was taken off a path, where servers that make links look for it: behind what a trusted proxy took off before.
pub(crate) fn name_prefix(headers: &mut HeaderMap, taken: &str) {
    let Ok(own) = HeaderValue::from_str(taken) else { return };
    match headers.entry(X_FORWARDED_PREFIX) {
        Entry::Occupied(mut before) => {
            let outer = before.get().as_bytes();
            let both = [outer.strip_suffix(b"/").unwrap_or(outer), own.as_bytes()].concat();
            before.insert(HeaderValue::from_bytes(&both).unwrap_or(own));
        }
        Entry::Vacant(none) => drop(none.insert(own)),
    }
}

const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
