//! `tidegate profile` against servers of which it is known what they hold, and a nucleus that divides cores for it.

use std::net::SocketAddr;
use std::process::Output;

use crate::support::{Folder, Process, free_port, get, loopback, tidegate, until};

pub fn profile(arguments: &[&str]) -> Output {
    tidegate(&[&["profile"], arguments].concat()).output().expect("runs")
}

/// A server with two cores that takes 20 ms of one for each request: it holds 100 per second. `more`: what else it is.
pub fn emulate(folder: &Folder, name: &str, more: &str) -> (Process, SocketAddr) {
    let listen = loopback(free_port());
    let service = "{ \"distribution\": \"constant\", \"value\": \"20ms\" }";
    let text = format!(
        "{{ \"listen\": \"{listen}\", \"cores\": 2, {more} \"routes\": [{{ \"prefix\": \"/\", \"service\": {service} }}] }}"
    );
    let file = folder.write(&format!("{name}.json"), &text);
    let process = Process::start(&["emulate", "--spec", &file]);
    until("the server answers", || get(listen, "/").is_some());
    (process, listen)
}

/// What a file says.
pub fn read(path: &str) -> toml::Table {
    std::fs::read_to_string(path).expect("written").parse().expect("TOML")
}

/// What it holds is a number of requests at once, so that no machine is too slow for it.
#[test]
fn what_a_server_holds_is_found_announced_and_written_down() {
    let folder = Folder::new();
    let (_server, address) = emulate(&folder, "server", "\"concurrency\": 4, \"accept_queue\": 0,");
    let (to, out) = (format!("page=http://{address}/page"), folder.path("shop.toml"));
    let arguments = ["--target", "10s", "--step", "500ms", "--loop", "closed", "--most-in-flight", "7", "--out", &out];
    let run = profile(&[&["--to", &to][..], &arguments].concat());
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    // What is sent, and where, is said before the first step.
    let (announced, _) = told.split_once("clients").expect("the head of the steps");
    assert!(
        announced.contains(&format!("http://{address}/page")) && announced.contains("up to 7 requests"),
        "{announced}"
    );
    let file = read(&out);
    let page = &file["measured"]["type"][0];
    assert_eq!((page["name"].as_str(), file.get("softscale")), (Some("page"), None));
    assert_eq!(page["max_conn"].as_integer(), Some(4), "{told}");
    // A configuration includes it, and is held to it.
    let site = |target: &str| {
        let text = format!(
            "[[application]]\nservers = \"{address}\"\nprofile = \"shop.toml\"\n{target}admission = \"switch\"\n\
             [[application.request_type]]\nname = \"page\"\nmatch = {{ path = \"/page\" }}\n"
        );
        let check = tidegate(&["check", &folder.write("site.toml", &text)]).output().expect("runs");
        let told = [check.stdout, check.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (check.status.code(), told.concat())
    };
    let (code, told) = site("");
    assert!(code == Some(0) && told.contains("within_target = 4.0"), "{told}");
    let (code, told) = site("target = \"2s\"\n");
    assert!(code == Some(2) && told.contains("site.toml:4: target is 2s here, but 10s in profile"), "{told}");
    let svg = folder.read("shop.svg");
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
    let nobody = profile(&["--to", &format!("http://{}/", loopback(free_port())), "--step", "500ms"]);
    let text = String::from_utf8_lossy(&nobody.stderr);
    assert!(!nobody.status.success() && text.contains("does not hold the target"), "{text}");
}

/// With so long a target no machine is too slow.
#[test]
fn the_staircase_is_measured_with_cores_that_a_nucleus_divides() {
    let folder = Folder::new();
    let Some(measured) = staircase(&folder, "60s", "500ms") else { return };
    let out = measured.expect("it is measured");
    let file = read(&out);
    let steps = file["softscale"]["steps"].as_array().expect("steps");
    assert_eq!(file["softscale"]["n_app"].as_integer(), Some(8), "the bound: it would hold more");
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0]["cores"].as_integer(), steps[0]["below"].as_float()), (Some(1), Some(0.5)));
    assert_eq!(steps[0]["n_data"].as_integer(), Some(8), "the same bound");
    assert_eq!(file["measured"]["lending"].as_array().map(Vec::len), Some(2));
    let model = profile(&["--model", &out, "--cores", "2"]);
    assert!(model.status.success() && String::from_utf8_lossy(&model.stdout).contains("absorbable"));
}

/// The data server's software really computes on the core that it is given; its data service sleeps. The profile that
/// was written, or what the program said when it failed; `None` with one core.
pub fn staircase(folder: &Folder, target: &str, step: &str) -> Option<Result<String, String>> {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        eprintln!("one core: there is nothing to divide");
        return None;
    }
    let (_application, application) = emulate(folder, "a", "");
    let (_data, data) = emulate(folder, "d", "\"computes\": true,");
    let (service, listen) = (Process::idle(), loopback(free_port()).to_string());
    let text = format!(
        "server = \"{data}\"\nto = [\"{listen}\"]\nkey_file = \"key\"\n[isolation]\nstate_file = \"state.json\"\n\
         cores = \"0-1\"\ndata = {{ pid_file = \"service.pid\" }}\n"
    );
    folder.write("service.pid", &service.id().to_string());
    let _nucleus = Process::start(&["nucleus", "-c", &folder.write("nucleus.toml", &text)]);
    let (out, key, server) = (folder.path("shop.toml"), folder.path("key"), data.to_string());
    let (to, data_url) = (format!("http://{application}/"), format!("http://{data}/"));
    let of_loop = ["--target", target, "--step", step, "--loop", "closed", "--most-in-flight", "8"];
    let of_data = ["--data", &data_url, "--load-to", &to, "--peak", "40/s", "--levels", "0.2,0.5", "--cores", "2"];
    let of_nucleus = ["--nucleus", &listen, "--server", &server, "--key-file", &key];
    let run = profile(&[&["--to", &to, "--out", &out], &of_loop[..], &of_data, &of_nucleus].concat());
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    Some(if run.status.success() { Ok(out) } else { Err(told) })
}
