//! The processor's clock, in a process of its own: it is for the whole process, and for good.

use std::time::{Duration, Instant};

use tidegate_stage::{ClassId, Event, use_processor_clock};

#[test]
fn the_processors_clock_goes_on_where_the_systems_was_and_as_fast() {
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
    assert!(
        age > least.mul_f64(0.99) - Duration::from_micros(50) && age < most.mul_f64(1.01),
        "{least:?} {age:?} {most:?}"
    );
    assert!(earlier.age() >= age);
}
