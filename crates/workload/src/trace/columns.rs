//! Lines with columns: `time,count` and `time,size,...`.

use super::error::Flaw;
use super::instant::Instant;
use super::{Shape, Sizes, Traced, What};

/// How lines with columns are read.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    counts: bool,
    /// Names of all columns, the time first.
    names: Vec<String>,
    /// The column that names the class.
    class: Option<usize>,
    /// Seconds in a unit of a time that is a plain number.
    time_unit: f64,
}

/// Column names that mean: this is how many there were.
const COUNT_NAMES: [&str; 7] = ["count", "counts", "requests", "hits", "invocations", "arrivals", "n"];

impl Columns {
    /// Reads the first line: a header, or, when it begins with a time, already an entry (`true`).
    pub(super) fn of_first_line(
        line: &str,
        shape: Option<Shape>,
        class_column: Option<&str>,
        time_unit: f64,
    ) -> Result<(Columns, bool), Flaw> {
        let fields = split(line);
        let is_entry = time(&fields[0], time_unit).is_some();
        let names: Vec<String> = match is_entry {
            true => (1..=fields.len()).map(|at| format!("column{at}")).collect(),
            false => fields.iter().map(|name| name.trim().to_owned()).collect(),
        };
        let counts = match shape {
            Some(shape) => shape == Shape::Counts,
            None if names.len() != 2 || class_column.is_some() => false,
            None if is_entry => {
                return Err(Flaw::Shape(
                    "there is no header that tells whether the second column is a count or a size: say which it is \
                     (counts or requests)"
                        .to_owned(),
                ));
            }
            None => COUNT_NAMES.iter().any(|name| names[1].eq_ignore_ascii_case(name)),
        };
        if counts && names.len() != 2 {
            return Err(Flaw::Shape(format!("counts have two columns, time and count; here are {}", names.len())));
        }
        let find = |wanted: &str| names.iter().skip(1).position(|name| name == wanted).map(|at| at + 1);
        let class =
            class_column.map(|wanted| find(wanted).ok_or_else(|| unknown_column(wanted, &names))).transpose()?;
        let sizes = names.len() - 1 - usize::from(class.is_some());
        if sizes > Sizes::MOST {
            return Err(Flaw::Shape(format!("{sizes} columns of sizes; at most {} are read", Sizes::MOST)));
        }
        Ok((Columns { counts, names, class, time_unit }, is_entry))
    }

    pub(super) fn shape(&self) -> Shape {
        if self.counts { Shape::Counts } else { Shape::Requests }
    }

    /// The names of the columns of sizes.
    pub(super) fn sizes(&self) -> Vec<String> {
        let all = self.names.iter().enumerate().skip(1).filter(|(at, _)| Some(*at) != self.class && !self.counts);
        all.map(|(_, name)| name.clone()).collect()
    }

    /// Reads a line.
    pub(super) fn read(&self, line: &str) -> Result<(Instant, What), Flaw> {
        let fields = split(line);
        if fields.len() != self.names.len() {
            return Err(Flaw::Columns { expected: self.names.len(), found: fields.len() });
        }
        let at = time(&fields[0], self.time_unit).ok_or_else(|| Flaw::Time(shortened(&fields[0])))?;
        if self.counts {
            let count = fields[1].trim();
            let count = count.parse().map_err(|_| Flaw::Count(shortened(count)))?;
            return Ok((at, What::Count(count)));
        }
        let mut traced = Traced::default();
        for (column, field) in fields.iter().enumerate().skip(1) {
            let field = field.trim();
            if self.class == Some(column) {
                traced.label = Some(field.into());
                continue;
            }
            let size = field.parse::<f64>().ok().filter(|size| size.is_finite() && *size >= 0.0);
            let flaw = || Flaw::Size { column: self.names[column].clone(), value: shortened(field) };
            traced.sizes.push(size.ok_or_else(flaw)?);
        }
        Ok((at, What::Request(traced)))
    }
}

fn unknown_column(wanted: &str, names: &[String]) -> Flaw {
    Flaw::Shape(format!("there is no column {wanted:?} beside the time; the columns are {}", names.join(", ")))
}

fn time(field: &str, unit: f64) -> Option<Instant> {
    let field = field.trim();
    if unit != 1.0 {
        return Instant::from_number(field, unit).or_else(|| field.parse().ok());
    }
    field.parse().ok()
}

/// Fields between commas (or semicolons or tabs, where there is no comma). Quotes hold a field together; a quote in a
/// quoted field is written twice.
fn split(line: &str) -> Vec<String> {
    let separator = [',', ';', '\t'].into_iter().find(|separator| line.contains(*separator)).unwrap_or(',');
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always one");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => fields.push(String::new()),
            _ => field.push(character),
        }
    }
    fields
}

/// What stands in a message: not a whole line of it.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
