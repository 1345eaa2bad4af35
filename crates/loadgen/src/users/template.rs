//! Texts with names in braces, which stand for something that is known later.

use std::collections::BTreeMap;

/// A text in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The user's number, counted round from 1 to the number given, where one is.
    User(Option<u32>),
    Class,
    Captured(String),
}

/// What a user knows.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The user's number, from 1.
    pub(crate) user: u32,
    /// The class of the user's group.
    pub(crate) class: String,
    /// Captured out of pages.
    pub(crate) captured: BTreeMap<String, String>,
}

impl Template {
    /// # Errors
    /// When a brace is not closed, or what is in it cannot be a name.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("{text:?} has no }} after its {{"))?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::named(name)?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Template { parts })
    }

    /// The names that must have been captured.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| if let Part::Captured(name) = part { Some(&name[..]) } else { None })
    }

    /// The text, if everything is known.
    pub(crate) fn fill(&self, known: &Known) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text += part,
                Part::User(None) => text += &known.user.to_string(),
                Part::User(Some(round)) => text += &((known.user - 1) % round + 1).to_string(),
                Part::Class => text += &known.class,
                Part::Captured(name) => text += known.captured.get(name)?,
            }
        }
        Some(text)
    }
}

impl Part {
    fn named(name: &str) -> Result<Part, String> {
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        match (name, name.strip_prefix("user%").map(str::parse)) {
            ("user", _) => Ok(Part::User(None)),
            ("class", _) => Ok(Part::Class),
            (_, Some(Ok(round))) if round > 0 => Ok(Part::User(Some(round))),
            _ if plain => Ok(Part::Captured(name.to_owned())),
            _ => Err(format!("{{{name}}} is neither a name nor {{user%N}} with N above 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in() {
        let mut known = Known { user: 17, class: "1".into(), captured: BTreeMap::new() };
        let template = Template::parse("/u{user}/{user%16}/{class}?m={message}").unwrap();
        assert_eq!(template.names().collect::<Vec<_>>(), ["message"]);
        assert_eq!(template.fill(&known), None);
        known.captured.insert("message".into(), "5".into());
        assert_eq!(template.fill(&known).unwrap(), "/u17/1/1?m=5");
    }
}
