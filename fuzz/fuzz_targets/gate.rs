//! See `tidegate_fuzz::gate`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::gate(data));

#[cfg(not(fuzzing))]
fn main() {
    tidegate_fuzz::campaign::main("gate");
}
