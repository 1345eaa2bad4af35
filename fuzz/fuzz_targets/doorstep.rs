//! See `tidegate_fuzz::doorstep`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::doorstep(data));

#[cfg(not(fuzzing))]
fn main() {
    tidegate_fuzz::campaign::main("doorstep");
}
