//! What the machine's speed has a part in: run alone, on a machine that is watched.

use std::process::Command;
use std::time::{Duration, Instant};

use tidegate_stage::{ClassId, Event, use_processor_clock};

/// That this process is the child which may change its clock.
const CHILD: &str = "TIDEGATE_TEST_CLOCK_CHILD";

/// What the child's line with its three times begins with.
const TIMES: &str = "nanoseconds by the clocks:";

/// The processor's clock is for the whole process and for good, so that other tests' paused time would stand no more:
/// the test starts itself as a child, and only that one changes its clock.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn the_processors_clock_goes_on_where_the_systems_was_and_as_fast() -> Result<(), String> {
    if std::env::var_os(CHILD).is_some() {
        let [least, age, most] = times_by_both_clocks().map(|time| time.as_nanos());
        println!("{TIMES} {least} {age} {most}");
        return Ok(());
    }
    let name = "measurements::the_processors_clock_goes_on_where_the_systems_was_and_as_fast";
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let output = child.args([name, "--exact", "--include-ignored", "--nocapture"]).env(CHILD, "1").output();
    let said = String::from_utf8_lossy(&output.expect("the program starts").stdout).into_owned();
    let line = said.lines().find_map(|line| line.split_once(TIMES));
    let (_, numbers) = line.unwrap_or_else(|| panic!("the child failed: {said}"));
    let times: Vec<_> =
        numbers.split_whitespace().map(|n| Duration::from_nanos(n.parse().expect("a number"))).collect();
    let [least, age, most] = times[..] else { panic!("three times: {numbers}") };
    if age > least.mul_f64(0.99) - Duration::from_micros(50) && age < most.mul_f64(1.01) {
        return Ok(());
    }
    Err(format!("an event is {age:?} old; by the system's clock between {least:?} and {most:?}, 1 % more or less"))
}

/// An event's age by the processor's clock after 50 ms, and between which two times it lies by the system's.
fn times_by_both_clocks() -> [Duration; 3] {
    let earlier = Event::new(ClassId(0), ());
    use_processor_clock();
    let start = Instant::now();
    let event = Event::new(ClassId(0), ());
    let since = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let (least, age) = (since.elapsed(), event.age());
    let most = start.elapsed();
    assert!(earlier.age() >= age, "the clock went back when it was changed");
    [least, age, most]
}
