//! The simulator held against queueing theory.

use tidegate_sim::theory;

#[test]
fn means_are_within_the_99_percent_interval_of_the_run() {
    let table = theory::table(2, 120_000).expect("the setup makes sense");
    assert_eq!(table.len(), 11);
    println!("{}", theory::markdown(&table));
    // An interval that is wide enough holds anything.
    let wide: Vec<_> = table.iter().filter(|row| row.precision() > 0.15).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let wrong: Vec<_> = table.iter().filter(|row| !row.agrees()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
