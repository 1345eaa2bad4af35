use clap::Parser;
use tempfile::NamedTempFile;
use tidegate_experiment::scenario::Scenario;
use tidegate_workload::{ArrivalProcess, Distribution, Profile, rng};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn args(line: &[&str]) -> Args {
    Cli::try_parse_from(["fit"].iter().chain(line)).unwrap_or_else(|error| panic!("{error}")).args
}

/// A file, removed when it is dropped.
fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

fn report(path: &Path, more: &[&str]) -> Report {
    let args = args(&[&[path.to_str().unwrap()], more].concat());
    Report::new(path, &args.fit().unwrap())
}

/// The snippet with what every scenario needs around it.
fn scenario(report: &Report) -> Scenario {
    let head = "id = \"fitted\"\ntitle = \"from a trace\"\nduration = \"60s\"\nsla = { target = \"1s\" }\n\
                servers = { count = 1 }\nclass = [{ name = \"everyone\" }]\narm = [{ name = \"sentry\" }]\n";
    let request = "[[request]]\nname = \"traced\"\nservice = { distribution = \"constant\", value = \"1ms\" }\n";
    let request = if report.scenario.contains("[[request]]") { "" } else { request };
    Scenario::parse(&format!("{head}{request}{}", report.scenario), "fitted").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn bursts_of_lognormal_sizes() {
    let gaps = ArrivalProcess::renewal(Distribution::lognormal(1.0, 3.0).unwrap()).unwrap();
    let profile: Profile = "0s:100/s, 200s:end".parse().unwrap();
    let (sizes, mut rng) = (Distribution::lognormal(500.0, 1.0).unwrap(), rng(3, 0));
    let line = |at: Duration| format!("{:.9},{:.3}\n", at.as_secs_f64(), sizes.sample(&mut rng));
    let text: String = gaps.arrivals(&profile, 1, 0).map(line).collect();
    let file = file(&format!("time,tokens\n{text}"));
    let found = report(file.path(), &["--cost-per-unit", "10us"]);
    let names: Vec<&str> = found.variables.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["gaps (s)", "tokens", "work (s)"]);
    for variable in &found.variables {
        assert_eq!(variable.fits[0].distribution.name(), "lognormal", "{variable}");
        assert!(variable.fits[0].ks < 0.02 && variable.fits.len() >= 5, "{variable}");
    }
    assert!(found.rates[0].dispersion > 4.0, "{found}");
    let scenario = scenario(&found);
    assert!(matches!(scenario.loads[0].arrivals, ArrivalProcess::Renewal(_)));
    assert!((scenario.requests[0].service.mean() - 0.005).abs() < 0.0005);
    assert!(found.to_string().contains("AIC above best"), "{found}");
    let half = report(file.path(), &["--from", "0s", "--to", "100s"]);
    assert!((0.4..0.6).contains(&(half.requests as f64 / found.requests as f64)), "{}", half.requests);
}

#[test]
fn counts_have_rates_only() {
    let text: String = (0..120).map(|at| format!("{},{}\n", at * 60, 100 + at % 7)).collect();
    let file = file(&format!("time,count\n{text}"));
    let found = report(file.path(), &[]);
    assert!(found.variables.is_empty() && found.popularity.is_none());
    assert_eq!(found.rates.iter().map(|scale| scale.stretch_s).collect::<Vec<_>>(), [60.0, 600.0]);
    assert_eq!(scenario(&found).loads[0].arrivals, ArrivalProcess::Poisson);
}

#[test]
fn an_access_log_has_popular_paths() {
    let law = Distribution::zipf(50, 1.1).unwrap();
    let mut rng = rng(5, 0);
    let mut line = |at: u32| {
        let (minute, second) = (at / 60 % 60, at % 60);
        let path = law.sample(&mut rng);
        format!("h - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"GET /{path} HTTP/1.1\" 200 {}\n", at % 900)
    };
    let file = file(&(0..3000).map(&mut line).collect::<String>());
    let found = report(file.path(), &[]);
    let exponent = found.popularity.as_ref().unwrap().zipf_exponent;
    assert!((exponent - 1.1).abs() < 0.1, "{exponent}");
    assert!(found.variables[1].zeros > 0 && found.to_string().contains("of them are 0"), "{found}");
    scenario(&found);
}

#[test]
fn mistakes_are_status_2_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (name, json) = (path("bad.csv"), path("bad.json"));
    std::fs::write(&name, "time,size\n0,1\n1,-1\n").unwrap();
    let name = name.as_str();
    assert_eq!(run(&args(&[name, "--json", &json])).unwrap(), ExitCode::from(2));
    assert!(!Path::new(&json).exists());
    let said = |line: &[&str]| format!("{:#}", args(line).fit().unwrap_err());
    assert!(said(&[name]).contains(":3: size = \"-1\" is no size"), "{}", said(&[name]));
    assert!(said(&[name, "--cost-per-unit", "bytes=1ms"]).contains("no column of sizes \"bytes\""));
    assert!(said(&[name, "--lenient", "--from", "9h"]).contains("there is no request in it"));
    assert_eq!(run(&args(&[name, "--lenient", "--json", &json])).unwrap(), ExitCode::SUCCESS);
    assert!(std::fs::read_to_string(&json).unwrap().contains("\"lines_left_out\": 1"));
}
