//! Report of the fits: as text, as JSON, and as TOML for a scenario.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;

use serde::Serialize;
use tidegate_workload::fit::{Fit, Sample, TraceFit, fits};
use tidegate_workload::{ArrivalProcess, Distribution, Profile, ServiceTime};

/// Results of `tidegate fit`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the trace's file.
    pub trace: String,
    /// Format of the trace: counts, requests or access-log.
    pub shape: &'static str,
    /// Number of requests in the window.
    pub requests: u64,
    /// Lines that could not be read and were left out.
    pub lines_left_out: u64,
    /// Rates on scales of time, from the finest.
    pub rates: Vec<Scale>,
    /// The rate over time, in few steps.
    pub profile: Option<Profile>,
    /// Gaps between requests, sizes, and work.
    pub variables: Vec<Variable>,
    /// Which paths are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub popularity: Option<Popularity>,
    /// TOML for a scenario.
    pub scenario: String,
}

/// Rates on one scale of time.
#[derive(Debug, Serialize)]
pub struct Scale {
    /// Length of a stretch, seconds.
    pub stretch_s: f64,
    /// Number of intervals.
    pub stretches: u64,
    /// Mean rate, requests per second.
    pub mean_per_s: f64,
    /// Highest rate of an interval, requests per second.
    pub peak_per_s: f64,
    /// The highest over the mean.
    pub peak_to_mean: f64,
    /// Variance over mean of the counts.
    pub dispersion: f64,
}

/// Something that varies from request to request.
#[derive(Debug, Serialize)]
pub struct Variable {
    /// Name of the fitted variable.
    pub name: String,
    /// Number of values.
    pub count: u64,
    /// Of these 0; the fits are to the others.
    pub zeros: u64,
    /// Mean of the values.
    pub mean: f64,
    /// Standard deviation over mean.
    pub cv: f64,
    /// Smallest of the values.
    pub min: f64,
    /// Median of the values.
    pub p50: f64,
    /// 95th percentile of the values.
    pub p95: f64,
    /// Largest of the values.
    pub max: f64,
    /// The fitted distributions, best first.
    pub fits: Vec<Fitted>,
}

/// A distribution that was fitted.
#[derive(Debug, Serialize)]
pub struct Fitted {
    /// It, as scenario files write it.
    pub distribution: Distribution,
    /// How its parameters were found.
    pub method: &'static str,
    /// Kolmogorov-Smirnov distance.
    pub ks: f64,
    /// Logarithm of the likelihood of the sample.
    pub ln_likelihood: Option<f64>,
    /// Akaike's criterion.
    pub aic: Option<f64>,
    /// How much larger that is than the best one's.
    pub aic_above_best: Option<f64>,
}

/// Which paths are asked for.
#[derive(Debug, Serialize)]
pub struct Popularity {
    /// Number of different paths.
    pub paths: usize,
    /// Requests for paths beyond those that were counted.
    pub requests_beyond: u64,
    /// Exponent of the Zipf law that fits best.
    pub zipf_exponent: f64,
}

impl Report {
    /// What there is to say about a fit.
    pub fn new(trace: &Path, fit: &TraceFit) -> Report {
        let named = fit.sizes.iter().map(|(name, sample)| (name.clone(), sample));
        let all = [("gaps (s)".to_owned(), &fit.gaps)].into_iter().chain(named);
        let all = all.chain([("work (s)".to_owned(), &fit.work)]);
        let variables: Vec<Variable> = all.filter_map(|(name, sample)| Variable::new(name, sample)).collect();
        let zipf = fit.popularity.exponent().map(|zipf_exponent| Popularity {
            paths: fit.popularity.paths(),
            requests_beyond: fit.popularity.others(),
            zipf_exponent,
        });
        let scale = |scale: &tidegate_workload::fit::Scale| Scale {
            stretch_s: scale.stretch.as_secs_f64(),
            stretches: scale.stretches,
            mean_per_s: scale.mean,
            peak_per_s: scale.peak,
            peak_to_mean: scale.peak / scale.mean,
            dispersion: scale.dispersion,
        };
        let mut report = Report {
            trace: trace.display().to_string(),
            shape: fit.shape.name(),
            requests: fit.requests,
            lines_left_out: fit.skipped,
            rates: fit.rates.scales.iter().map(scale).collect(),
            profile: fit.rates.profile.clone(),
            variables,
            popularity: zipf,
            scenario: String::new(),
        };
        report.scenario = report.snippet();
        report
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// A request type and a load, as scenario files have them.
    fn snippet(&self) -> String {
        #[derive(Serialize)]
        struct Snippet {
            #[serde(skip_serializing_if = "Vec::is_empty")]
            request: Vec<Request>,
            load: Vec<Load>,
        }
        #[derive(Serialize)]
        struct Request {
            name: &'static str,
            service: ServiceTime,
        }
        #[derive(Serialize)]
        struct Load {
            class: &'static str,
            requests: BTreeMap<&'static str, f64>,
            rate: Profile,
            arrivals: ArrivalProcess,
        }
        let Some(rate) = self.profile.clone() else { return String::new() };
        let usable = |fitted: &Fitted| ServiceTime::try_from(fitted.distribution).ok();
        let service = self.variable("work (s)").and_then(|work| work.fits.iter().find_map(usable));
        let request = service.into_iter().map(|service| Request { name: "traced", service }).collect();
        let requests = BTreeMap::from([("traced", 1.0)]);
        let load = vec![Load { class: "everyone", requests, rate, arrivals: self.arrivals() }];
        let text = toml::to_string(&Snippet { request, load }).unwrap_or_default();
        match service {
            Some(_) => text,
            None => format!(
                "# The request type \"traced\" is yours to add; with --cost-per-unit its work is fitted.\n{text}"
            ),
        }
    }

    /// Poisson, unless the gaps say otherwise.
    fn arrivals(&self) -> ArrivalProcess {
        let Some(gaps) = self.variable("gaps (s)") else { return ArrivalProcess::Poisson };
        let poisson = gaps.fits.iter().find(|fitted| fitted.distribution.name() == "exponential");
        let near = |best: &Fitted| poisson.is_some_and(|poisson| poisson.ks < best.ks + 0.01);
        match gaps.fits.iter().find(|fitted| ArrivalProcess::renewal(fitted.distribution).is_ok()) {
            Some(best) if !near(best) => ArrivalProcess::renewal(best.distribution).unwrap_or_default(),
            _ => ArrivalProcess::Poisson,
        }
    }
}

impl Variable {
    fn new(name: String, sample: &Sample) -> Option<Variable> {
        let (min, max) = sample.range()?;
        let sorted = sample.sorted();
        let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        let positive = &sorted[sorted.partition_point(|value| *value <= 0.0)..];
        let found = fits(positive);
        let best = found.first().and_then(|fit| fit.aic);
        let fitted = |fit: &Fit| Fitted {
            distribution: fit.distribution,
            method: fit.method,
            ks: fit.distance,
            ln_likelihood: fit.ln_likelihood,
            aic: fit.aic,
            aic_above_best: fit.aic.zip(best).map(|(aic, best)| aic - best),
        };
        Some(Variable {
            name,
            count: sample.count(),
            zeros: sample.zeros(),
            mean: sample.mean(),
            cv: sample.cv(),
            min,
            p50: at(0.50),
            p95: at(0.95),
            max,
            fits: found.iter().map(fitted).collect(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} requests ({})", self.trace, self.requests, self.shape)?;
        if self.lines_left_out > 0 {
            writeln!(f, "left out: {} lines that could not be read", self.lines_left_out)?;
        }
        writeln!(f, "\nrates over   stretches     mean/s     peak/s  peak/mean  variance/mean")?;
        for scale in &self.rates {
            writeln!(
                f,
                "{:>8} s  {:>11} {:>10.2} {:>10.2} {:>10.2} {:>14.2}",
                scale.stretch_s,
                scale.stretches,
                scale.mean_per_s,
                scale.peak_per_s,
                scale.peak_to_mean,
                scale.dispersion
            )?;
        }
        self.variables.iter().try_for_each(|variable| variable.fmt(f))?;
        if let Some(popularity) = &self.popularity {
            let exponent = popularity.zipf_exponent;
            writeln!(f, "\npopularity: {} paths, Zipf exponent {exponent:.3} (maximum likelihood)", popularity.paths)?;
        }
        if self.scenario.is_empty() { Ok(()) } else { write!(f, "\n# For a scenario file:\n\n{}", self.scenario) }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variable { name, count, mean, cv, min, p50, p95, max, .. } = self;
        let n = |number: f64| short(number);
        write!(f, "\n{name}: {count} values, mean {}, cv {}, ", n(*mean), n(*cv))?;
        writeln!(f, "min {}, p50 {}, p95 {}, max {}", n(*min), n(*p50), n(*p95), n(*max))?;
        if self.zeros > 0 {
            writeln!(f, "  {} of them are 0; the fits are to the others", self.zeros)?;
        }
        let parameters: Vec<String> = self.fits.iter().map(|fitted| written(&fitted.distribution)).collect();
        let width = parameters.iter().map(String::len).max().unwrap_or(0).max(12);
        writeln!(f, "  {:width$}      KS   AIC above best  method", "distribution")?;
        for (fitted, parameters) in self.fits.iter().zip(&parameters) {
            let above = fitted.aic_above_best.map_or("-".to_owned(), |above| format!("{above:.0}"));
            writeln!(f, "  {parameters:width$}  {:.4}  {above:>15}  {}", fitted.ks, fitted.method)?;
        }
        Ok(())
    }
}

/// A distribution in one line.
fn written(distribution: &Distribution) -> String {
    let mut text = distribution.name().to_owned();
    let Ok(toml::Value::Table(table)) = toml::Value::try_from(distribution) else { return text };
    for (key, value) in table.iter().filter(|(key, _)| *key != "distribution") {
        let number = value.as_float().map_or_else(|| value.to_string(), short);
        let _ = write!(text, " {key} {number}");
    }
    text
}

/// A number with four digits that matter.
fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let digits = (3.0 - number.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
