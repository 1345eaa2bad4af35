//! Routes, and what is changed on the way, as TOML.

use tidegate_classify::Route;
use toml::{Table, Value};

use super::super::{Action, Application, HeaderChange};
use super::{put, put_list, put_some};

pub(super) fn routing(out: &mut Table, app: &Application) {
    let routing = &app.routing;
    put_list(out, "route", routing.routes.iter().map(route).collect());
    if let Some(access) = &routing.access {
        let mut table = Table::new();
        for (key, networks) in [("allow", access.allow()), ("deny", access.deny())] {
            put_list(&mut table, key, networks.iter().map(|network| Value::from(network.to_string())).collect());
        }
        put(out, "access", table);
    }
    if !routing.rewrite.is_none() {
        let mut rewrite = Table::new();
        if !routing.rewrite.strip().is_empty() {
            put(&mut rewrite, "strip_prefix", routing.rewrite.strip().to_vec());
        }
        put_some(&mut rewrite, "add_prefix", Some(routing.rewrite.add().to_owned()).filter(|add| !add.is_empty()));
        put(out, "rewrite", rewrite);
    }
    let changes = |list: &[HeaderChange]| list.iter().map(|change| header(change, app)).collect();
    put_list(out, "request_header", changes(&routing.request_headers));
    put_list(out, "response_header", changes(&routing.response_headers));
}

fn route(route: &Route) -> Value {
    let mut out = Table::new();
    put_some(&mut out, "host", route.host.clone());
    put_some(&mut out, "path", route.path.clone());
    Value::from(out)
}

fn header(change: &HeaderChange, app: &Application) -> Value {
    let mut out = Table::new();
    let (key, value) = match &change.action {
        Action::Set(value) => ("set", Some(value)),
        Action::Add(value) => ("add", Some(value)),
        Action::Remove => ("remove", None),
    };
    put(&mut out, key, change.name.as_str());
    put_some(&mut out, "value", value.map(|value| value.text.clone()));
    if !change.classes.is_empty() {
        let name =
            |class: &tidegate_engine::ClassId| app.setup.classes.get(class.index()).map(|class| class.name.clone());
        put(&mut out, "class", change.classes.iter().filter_map(name).collect::<Vec<_>>());
    }
    if change.refused {
        put(&mut out, "refused", true);
    }
    Value::from(out)
}
