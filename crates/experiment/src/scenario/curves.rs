//! A figure over the load: what several arms do at each of the rates that a scenario goes through.

use serde::{Deserialize, Serialize};
use tidegate_config::Step::{Index, Key};

use super::check::{Checker, classes};
use super::{Expect, Metric, Span};

/// The arms side by side: for each panel a line per arm, over what is offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curves {
    /// The spans of steady load: a point each, at what was offered then.
    pub over: Vec<Span>,
    /// What is drawn.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
}

/// One panel of the figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// The class it is about; everything when neither `class` nor `load` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The load it is about, in place of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// What is measured.
    pub metric: Metric,
    /// A line across it, such as a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Where the axis ends, for lines that leave it; beyond the highest point when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<f64>,
}

impl Panel {
    /// What is to be measured for one point.
    pub fn at(&self, over: Span) -> Expect {
        Expect {
            what: self.title.clone(),
            mark: None,
            claim: String::new(),
            because: String::new(),
            arms: Vec::new(),
            class: self.class.clone(),
            load: self.load.clone(),
            request: None,
            resource: None,
            relative_to: None,
            relative_to_arm: None,
            minus_arm: None,
            over_seeds: None,
            metric: self.metric,
            over,
            window: over.to - over.from,
            at_least: None,
            at_most: None,
            tolerance: 0.0,
            short: true,
            only: None,
        }
    }
}

impl Checker<'_> {
    pub(super) fn curves(&mut self) {
        let s = self.scenario;
        let Some(curves) = &s.curves else { return };
        let place = |key| vec![Key("curves"), Key(key)];
        self.demand(curves.over.len() >= 2, &place("over"), "needs two spans at least: a point each");
        let within = curves.over.iter().all(|span| span.to <= s.duration);
        self.demand(within, &place("over"), "ends after the scenario's `duration`");
        self.demand(!curves.panels.is_empty(), &place("panel"), "needs a panel at least");
        let loads = self.load_names();
        for (at, panel) in curves.panels.iter().enumerate() {
            let place = |key| vec![Key("curves"), Key("panel"), Index(at), Key(key)];
            if let Some(class) = &panel.class {
                self.known(place("class"), "class", class, &classes(s));
            }
            if let Some(load) = &panel.load {
                let names: Vec<&str> = loads.iter().map(String::as_str).collect();
                self.known(place("load"), "load", load, &names);
            }
            let positive = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value > 0.0);
            self.demand(positive(panel.bound), &place("bound"), "must be a finite number above 0");
            self.demand(positive(panel.top), &place("top"), "must be a finite number above 0");
        }
    }
}
