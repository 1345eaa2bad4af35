//! The known name that is nearest to what was typed.

use strsim::osa_distance;

/// `; did you mean "x"?` when a known name is near, else the list of known names; nothing when there are none.
pub fn suggestion(given: &str, known: &[&str]) -> String {
    match nearest(given, known) {
        Some(name) => format!("; did you mean \"{name}\"?"),
        None if known.is_empty() => String::new(),
        None => format!("; known here: {}", known.join(", ")),
    }
}

/// The nearest name, unless it is another word: a third of the letters may be wrong, inserted, missing, or swapped with
/// a neighbour. That is enough for slips.
fn nearest<'n>(given: &str, known: &[&'n str]) -> Option<&'n str> {
    let (distance, name) = known.iter().map(|name| (osa_distance(given, name), *name)).min()?;
    (distance <= given.chars().count().max(3) / 3).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = ["listen", "servers", "target"];
        for slip in ["lisetn", "lsten", "listten", "Listen"] {
            assert_eq!(suggestion(slip, &known), "; did you mean \"listen\"?");
        }
        assert_eq!(suggestion("colour", &known), "; known here: listen, servers, target");
        assert_eq!(suggestion("to", &["at", "by"]), "; known here: at, by");
        assert_eq!(suggestion("listen", &[]), "");
    }
}
