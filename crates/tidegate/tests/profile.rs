//! `tidegate profile` against servers whose capacity is known, and a nucleus that divides cores for it.

mod support;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use support::{Folder, Process, free_port, get, until};

fn profile(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("profile").args(arguments).output().expect("runs")
}

/// One measurement at a time: two would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A server with two cores that takes 20 ms of one for each request: it holds 100 per second.
fn emulate(folder: &Folder, name: &str, computes: bool) -> (Process, SocketAddr) {
    let listen = loopback(free_port());
    let service = "{ \"distribution\": \"constant\", \"value\": \"20ms\" }";
    let text = format!(
        "{{ \"listen\": \"{listen}\", \"cores\": 2, \"computes\": {computes}, \
         \"routes\": [{{ \"prefix\": \"/\", \"service\": {service} }}] }}"
    );
    let file = folder.path(&format!("{name}.json"));
    std::fs::write(&file, text).expect("a file");
    let process = Process::start(&["emulate", "--spec", &file]);
    until("the server answers", || get(listen, "/").is_some());
    (process, listen)
}

fn read(path: &str) -> toml::Table {
    std::fs::read_to_string(path).expect("written").parse().expect("TOML")
}

#[test]
fn a_known_capacity_is_found_announced_and_written_down() {
    let (_alone, folder) = (alone(), Folder::new("profile-known"));
    let (_server, address) = emulate(&folder, "server", false);
    let out = folder.path("shop.toml");
    let arguments = ["--target", "300ms", "--step", "1s", "--loop", "closed", "--most-in-flight", "40", "--out", &out];
    let measured = || {
        let run = profile(&[&["--to", &format!("page=http://{address}/page")][..], &arguments].concat());
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{told}");
        // What is sent, and where, is said before the first step.
        let (announced, _) = told.split_once("clients").expect("the head of the steps");
        assert!(announced.contains(&format!("http://{address}/page")) && announced.contains("40"), "{announced}");
        let file = read(&out);
        let page = &file["measured"]["type"][0];
        assert_eq!((page["name"].as_str(), file.get("softscale")), (Some("page"), None));
        let capacity = page["capacity"].as_float().expect("a number");
        // 30 at once take 300 ms each.
        let most = page["max_conn"].as_integer().expect("a closed loop");
        assert!(capacity < 110.0 && most <= 34, "{capacity}, {most}: noise does not do that");
        (capacity, most)
    };
    // A machine with other things to do makes the service look slower, never faster: that is measured anew, twice.
    let mut runs = std::iter::repeat_with(measured).take(3);
    let (_, most) =
        runs.find(|(capacity, most)| *capacity > 90.0 && *most >= 25).expect("near what is known in some run");
    // A configuration includes it, and is held to it.
    let site = |target: &str| {
        let text = format!(
            "[[application]]\nservers = \"{address}\"\nprofile = \"shop.toml\"\n{target}admission = \"switch\"\n\
             [[application.request_type]]\nname = \"page\"\nmatch = {{ path = \"/page\" }}\n"
        );
        std::fs::write(folder.path("site.toml"), text).expect("a file");
        let check = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["check", &folder.path("site.toml")]).output();
        let check = check.expect("runs");
        let told = [check.stdout, check.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (check.status.code(), told.concat())
    };
    let (code, told) = site("");
    assert!(code == Some(0) && told.contains(&format!("within_target = {most}.0")), "{told}");
    let (code, told) = site("target = \"2s\"\n");
    assert!(code == Some(2) && told.contains("site.toml:4: target is 2s here, but 300ms in profile"), "{told}");
    let svg = std::fs::read_to_string(folder.path("shop.svg")).expect("a plot");
    assert!(svg.starts_with("<svg") && svg.contains("closed loop"));
    // It is no profile for stealing, and says so.
    let model = profile(&["--model", &out]);
    assert_eq!(model.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&model.stderr).contains("--data"));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    for (arguments, expected) in [
        (vec![], "--to"),
        (vec!["--to", "https://a/"], "http://"),
        (vec!["--to", "http://a/", "--step", "1ms"], "--step"),
        (vec!["--to", "http://a/", "--target", "soon"], "--target"),
        (vec!["--to", "page=http://a/", "--target", "pages=1s"], "there are page"),
        (vec!["--to", "http://a/", "--data", "http://b/"], "--load-to"),
        (
            vec!["--to", "http://a/", "--data", "http://b/", "--load-to", "c", "--peak", "1/s", "--levels", "2"],
            "--levels",
        ),
        (vec!["--to", "http://a/", "--model", "x"], "--model"),
    ] {
        let refused = profile(&arguments);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let nobody = profile(&["--to", &format!("http://{}/", loopback(free_port())), "--step", "1s"]);
    let text = String::from_utf8_lossy(&nobody.stderr);
    assert!(!nobody.status.success() && text.contains("does not hold the target"), "{text}");
}

/// The data server's software really computes on the core that it is given; its data service sleeps.
#[test]
fn the_staircase_is_measured_with_cores_that_a_nucleus_divides() {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        return eprintln!("one core: there is nothing to divide");
    }
    let folder = Folder::new("profile-staircase");
    let ((_application, application), (_data, data)) = (emulate(&folder, "a", false), emulate(&folder, "d", true));
    let mut service = Command::new("sleep").arg("300").stdout(Stdio::null()).spawn().expect("sleep starts");
    let listen = loopback(free_port()).to_string();
    let text = format!(
        "server = \"{data}\"\nto = [\"{listen}\"]\nkey_file = \"key\"\n[isolation]\nstate_file = \"state.json\"\n\
         cores = \"0-1\"\ndata = {{ pid_file = \"service.pid\" }}\n"
    );
    std::fs::write(folder.path("nucleus.toml"), text).expect("a file");
    std::fs::write(folder.path("service.pid"), service.id().to_string()).expect("a file");
    let _nucleus = Process::start(&["nucleus", "-c", &folder.path("nucleus.toml")]);
    let (out, key) = (folder.path("shop.toml"), folder.path("key"));
    let (to, data_url) = (format!("http://{application}/"), format!("http://{data}/"));
    let run = profile(&[
        "--to",
        &to,
        "--target",
        "400ms",
        "--step",
        "1s",
        "--loop",
        "closed",
        "--most-in-flight",
        "8",
        "--out",
        &out,
        "--data",
        &data_url,
        "--load-to",
        &to,
        "--peak",
        "40/s",
        "--levels",
        "0.2,0.5",
        "--cores",
        "2",
        "--nucleus",
        &listen,
        "--server",
        &data.to_string(),
        "--key-file",
        &key,
    ]);
    // It may have ended.
    let _ = service.kill();
    let _ = service.wait();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let file = read(&out);
    let steps = file["softscale"]["steps"].as_array().expect("steps");
    assert_eq!(file["softscale"]["n_app"].as_integer(), Some(8), "the bound: it would hold more");
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0]["cores"].as_integer(), steps[0]["below"].as_float()), (Some(1), Some(0.5)));
    assert!(steps[0]["n_data"].as_integer().is_some_and(|n| n >= 1));
    assert_eq!(file["measured"]["lending"].as_array().map(Vec::len), Some(2));
    let model = profile(&["--model", &out, "--cores", "2"]);
    assert!(model.status.success() && String::from_utf8_lossy(&model.stdout).contains("absorbable"));
}
