//! See `tidegate_fuzz::connection`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::connection(data));

#[cfg(not(fuzzing))]
fn main() {
    tidegate_fuzz::campaign::main("connection");
}
