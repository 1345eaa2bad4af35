//! The library from outside: through its functions, from C, and from Go.

mod c;
mod calls;
mod go;
mod header;
mod measurements;
mod programs;
mod random;
#[expect(dead_code, reason = "an example's own main is not called here")]
#[path = "../../examples/rate.rs"]
mod rate;
mod threads;
