//! What is wrong with a configuration, in words that say where and what to do.

use std::fmt;

/// One thing wrong, or doubtful, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` when it is about the file as a whole.
    pub line: Option<usize>,
    /// What is wrong and what to write.
    pub message: String,
}

/// Everything wrong with a configuration. Displays one line per problem: `shop.toml:14: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, or what stands for one.
    pub source: String,
    /// The problems, by line. Never empty.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// One problem with the file as a whole.
    pub(super) fn whole(source: &str, message: String) -> Self {
        ConfigErrors { source: source.to_owned(), problems: vec![Problem { line: None, message }] }
    }
}

impl Problem {
    /// The problem with its place in front.
    pub fn at(&self, source: &str) -> String {
        match self.line {
            Some(line) => format!("{source}:{line}: {}", self.message),
            None => format!("{source}: {}", self.message),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(|problem| problem.at(&self.source)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// `; did you mean "x"?` when a known name is near, else the list of known names.
pub(super) fn suggestion(given: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (distance(given, name), name)).min();
    match near {
        // A third of the letters may be wrong: enough for slips, too little for another word.
        Some((distance, name)) if distance <= given.chars().count().max(3) / 3 => format!("; did you mean \"{name}\"?"),
        Some(_) => format!("; known here: {}", known.join(", ")),
        None => String::new(),
    }
}

/// Letters to insert, delete, replace or swap with a neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        for (given, wanted) in [("tagret", "target"), ("servres", "servers"), ("listn", "listen"), ("clas", "class")] {
            let known = ["target", "servers", "listen", "class"];
            assert_eq!(suggestion(given, &known), format!("; did you mean \"{wanted}\"?"));
        }
        assert_eq!(suggestion("colour", &["target", "class"]), "; known here: target, class");
        assert_eq!(suggestion("x", &[]), "");
    }
}
