//! See `tidegate_fuzz::datagrams`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::datagrams(data));

#[cfg(not(fuzzing))]
fn main() {
    tidegate_fuzz::campaign::main("datagrams");
}
