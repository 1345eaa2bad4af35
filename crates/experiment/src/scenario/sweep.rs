//! Sweeps: the same scenario with other values, every combination a run of its own.
//!
//! ```toml
//! [sweep]
//! "servers.count" = [2, 3, 4]
//! "load.gold.rate" = ["x0.5", "x1", "x2"]
//! "sla.target" = ["250ms", "500ms"]
//! ```
//!
//! A key is the way to a value through the file; in lists of tables the next part is the entry's name (its class, where
//! it has none) or its number from 0. A value stands in place of the file's, or multiplies it when it is written `x2`.
//!
//! Values that only make sense together stand in a table with a `name`; the key is then just a word for them:
//!
//! ```toml
//! [sweep]
//! before = [
//!     { name = "10", "servers.off" = 18, "load.all.rate" = "75/s" },
//!     { name = "20", "servers.off" = 16, "load.all.rate" = "150/s" },
//! ]
//! ```

use tidegate_config::{ConfigErrors, Found, Step, suggestion};
use tidegate_workload::Profile;
use toml::{Table, Value};

use super::Scenario;

/// One combination of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Keys and values as written; empty where there is no sweep.
    pub settings: Vec<(String, String)>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// More combinations than anybody wants to wait for.
const MOST: usize = 10_000;

impl Scenario {
    /// Every combination of the sweep, the last key fastest; the scenario itself when there is none.
    ///
    /// # Errors
    /// When a combination makes no sense, though each of its values does with the file's other ones.
    pub fn points(&self) -> Result<Vec<Point>, ConfigErrors> {
        let mut points = vec![Vec::new()];
        for (key, values) in &self.sweep {
            let values = values.as_array().cloned().unwrap_or_default();
            let with = |settings: &Vec<(String, Value)>| -> Vec<Vec<(String, Value)>> {
                values.iter().map(|value| [settings.clone(), vec![(key.clone(), value.clone())]].concat()).collect()
            };
            points = points.iter().flat_map(with).collect();
        }
        points.into_iter().map(|settings| self.point(&settings)).collect()
    }

    /// The scenario with these values, each at the key that is the way to it.
    pub(super) fn with(&self, settings: &Table) -> Result<Scenario, ConfigErrors> {
        let settings: Vec<(String, Value)> = settings.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let sweep = self.sweep.clone();
        Ok(Scenario { sweep, ..self.point(&settings)?.scenario })
    }

    fn point(&self, settings: &[(String, Value)]) -> Result<Point, ConfigErrors> {
        let name = |(key, value): &(String, Value)| (key.clone(), written(value));
        let source =
            format!("{} with {}", self.id, settings.iter().map(|s| shown(&name(s))).collect::<Vec<_>>().join(", "));
        let whole = |problem: String| ConfigErrors::whole(&source, problem);
        let mut plain = self.clone();
        plain.space = None;
        plain.short.iter_mut().for_each(|short| short.every = None);
        plain.sweep = Table::new();
        if settings.is_empty() {
            return Ok(Point { settings: Vec::new(), scenario: plain });
        }
        // Its values were tried with the file's; with others they need not make sense.
        let live = plain.live.take();
        let sets: Vec<Table> = plain.arms.iter_mut().map(|arm| std::mem::take(&mut arm.set)).collect();
        let mut table: Table = toml::from_str(&plain.to_toml()).map_err(|error| whole(error.to_string()))?;
        for (key, value) in settings {
            for (key, value) in parts(key, value) {
                set(&mut table, key, value).map_err(whole)?;
            }
        }
        let mut scenario = Scenario { live, ..Scenario::parse(&table.to_string(), &source)? };
        scenario.arms.iter_mut().zip(sets).for_each(|(arm, set)| arm.set = set);
        Ok(Point { settings: settings.iter().map(name).collect(), scenario })
    }
}

/// What is wrong with a scenario's sweep: each value is tried with the file's other ones.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |problem: String| found.push(Found { place: vec![Step::Key("sweep")], problem });
    let mut combinations = 1usize;
    for (key, values) in &scenario.sweep {
        let Some(values) = values.as_array().filter(|values| !values.is_empty()) else {
            add(format!("\"{key}\" needs a list of values, such as [1, 2, 4]"));
            continue;
        };
        combinations = combinations.saturating_mul(values.len());
        for value in values {
            if let Err(error) = scenario.point(&[(key.clone(), value.clone())]) {
                let problem = error.problems.first().map_or(String::new(), |p| format!("{} {}", p.key, p.message));
                add(format!("\"{key}\" = {}: {}", written(value), problem.trim()));
            }
        }
    }
    if combinations > MOST {
        add(format!("has {combinations} combinations; at most {MOST} can be run"));
    }
    found
}

fn shown((key, value): &(String, String)) -> String {
    format!("{key} = {value}")
}

/// What a value sets: itself or, where several stand together, each of them.
fn parts<'v>(key: &'v str, value: &'v Value) -> Vec<(&'v str, &'v Value)> {
    match named(value) {
        Some((_, table)) => table.iter().filter(|(key, _)| *key != NAME).map(|(key, value)| (&**key, value)).collect(),
        None => vec![(key, value)],
    }
}

/// Values that stand together, and their name.
fn named(value: &Value) -> Option<(&str, &Table)> {
    let table = value.as_table()?;
    Some((table.get(NAME)?.as_str()?, table))
}

const NAME: &str = "name";

fn written(value: &Value) -> String {
    match named(value) {
        Some((name, _)) => name.to_owned(),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// Puts a value in its place.
fn set(table: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let mut parts = key.split('.').peekable();
    let Some(mut part) = parts.next() else { return Err("a key is empty".to_owned()) };
    let mut at = table;
    loop {
        if parts.peek().is_none() {
            let old = at.get(part).cloned();
            at.insert(part.to_owned(), changed(key, old, value)?);
            return Ok(());
        }
        let known: Vec<String> = at.keys().cloned().collect();
        let unknown = || format!("there is no \"{part}\" on the way{}", hint(part, &known));
        at = match at.get_mut(part).ok_or_else(unknown)? {
            Value::Table(below) => below,
            Value::Array(entries) => {
                let entry = parts.next().unwrap_or_default();
                let names: Vec<String> = entries.iter().map(name_of).collect();
                let number = names.iter().position(|name| name == entry).or_else(|| entry.parse().ok());
                let missing = || format!("there is no {part} \"{entry}\"{}", hint(entry, &names));
                let below = number.and_then(|number| entries.get_mut(number)).and_then(Value::as_table_mut);
                below.ok_or_else(missing)?
            }
            _ => return Err(format!("\"{part}\" is a value: nothing is below it")),
        };
        let Some(next) = parts.next() else {
            return Err(format!("ends at \"{part}\", which has keys of its own: {}", keys(at)));
        };
        part = next;
    }
}

fn keys(table: &Table) -> String {
    table.keys().cloned().collect::<Vec<_>>().join(", ")
}

fn hint(given: &str, known: &[String]) -> String {
    suggestion(given, &known.iter().map(String::as_str).collect::<Vec<_>>())
}

fn name_of(entry: &Value) -> String {
    let key = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    key("name").or_else(|| key("class")).unwrap_or_default()
}

/// The new value: the one given, or the old one times a factor.
fn changed(key: &str, old: Option<Value>, value: &Value) -> Result<Value, String> {
    let factor = value.as_str().and_then(|text| text.strip_prefix('x')).and_then(|text| text.parse::<f64>().ok());
    let Some(factor) = factor else { return Ok(value.clone()) };
    if !(factor.is_finite() && factor >= 0.0) {
        return Err(format!("\"{key}\": a factor must be a finite number, 0 or more"));
    }
    match old {
        Some(Value::Integer(old)) => Ok(Value::Integer((old as f64 * factor).round() as i64)),
        Some(Value::Float(old)) => Ok(Value::Float(old * factor)),
        Some(Value::String(old)) => match (old.parse::<Profile>(), tidegate_workload::parse_duration(&old)) {
            (Ok(profile), _) => Ok(Value::String(profile.scale_rate(factor).to_string())),
            (_, Ok(time)) => Ok(Value::String(format!("{}s", time.as_secs_f64() * factor))),
            _ => Err(format!("\"{key}\": \"{old}\" cannot be multiplied")),
        },
        _ => Err(format!("\"{key}\" has no value in the file to multiply")),
    }
}
