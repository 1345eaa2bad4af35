//! Health checks as TOML.

use toml::{Table, Value};

use super::super::Health;
use super::{put, put_list, put_some, time};

pub(super) fn health(given: &Health) -> Table {
    let mut out = Table::new();
    put_some(&mut out, "with", given.with.map(|with| with.name()));
    put_some(&mut out, "path", given.path.clone());
    if given.path.is_some() {
        put(&mut out, "method", given.method.as_str());
        put(&mut out, "status", given.status.iter().map(range).collect::<Vec<_>>());
    }
    put_some(&mut out, "service", given.service.clone());
    put_some(&mut out, "port", given.port.map(|port| i64::from(port.get())));
    put_some(&mut out, "host", given.host.clone());
    put_list(&mut out, "header", given.headers.iter().map(|(name, value)| field(name.as_str(), value)).collect());
    put(&mut out, "interval", time(given.interval));
    put(&mut out, "jitter", given.jitter);
    put(&mut out, "timeout", time(given.timeout));
    put(&mut out, "rise", i64::from(given.rise));
    put(&mut out, "fall", i64::from(given.fall));
    put(&mut out, "passive_failures", i64::from(given.passive_failures));
    put(&mut out, "passive_errors", i64::from(given.passive_errors));
    put(&mut out, "max_ejected", given.max_ejected);
    out
}

fn range((from, to): &(u16, u16)) -> Value {
    if from == to { Value::from(i64::from(*from)) } else { Value::from(format!("{from}-{to}")) }
}

fn field(name: &str, value: &http::HeaderValue) -> Value {
    let mut out = Table::new();
    put(&mut out, "name", name);
    put(&mut out, "value", String::from_utf8_lossy(value.as_bytes()).into_owned());
    Value::from(out)
}
