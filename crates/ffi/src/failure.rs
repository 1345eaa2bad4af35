//! Why a call did nothing.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use thiserror::Error;

/// Why a call did nothing. Its code is what the function returns; below 0, as what is not below 0 is a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A pointer is null or not aligned, or a number is out of range.
    #[error("{}", self.explanation())]
    Argument,
    /// No application has the handle: it was closed, or never was.
    #[error("{}", self.explanation())]
    Handle,
    /// No request has the ticket, or the call does not go with what it does.
    #[error("{}", self.explanation())]
    Ticket,
    /// The configuration makes no sense.
    #[error("{}", self.explanation())]
    Config,
    /// A panic happened in a call for this application.
    #[error("{}", self.explanation())]
    Broken,
    /// There are as many applications as there may be.
    #[error("{}", self.explanation())]
    Full,
}

impl Failure {
    /// Every failure.
    pub const ALL: [Failure; 6] =
        [Failure::Argument, Failure::Handle, Failure::Ticket, Failure::Config, Failure::Broken, Failure::Full];

    /// What a function returns for it.
    pub const fn code(self) -> i32 {
        match self {
            Failure::Argument => -1,
            Failure::Handle => -2,
            Failure::Ticket => -3,
            Failure::Config => -4,
            Failure::Broken => -5,
            Failure::Full => -6,
        }
    }

    /// What is wrong and what to do, for a person.
    pub const fn c_text(self) -> &'static CStr {
        match self {
            Failure::Argument => {
                c"an argument is null, not aligned or out of range; see what tidegate.h says of the function"
            }
            Failure::Handle => c"no application has this handle: it was closed, or tidegate_open did not give it",
            Failure::Ticket => {
                c"no request has this ticket, or the call does not go with what the request does: end each request once"
            }
            Failure::Config => {
                c"the configuration makes no sense; what tidegate_open wrote to its last argument says why"
            }
            Failure::Broken => {
                c"an error inside tidegate; serve without it, close the handle, and open another when you like"
            }
            Failure::Full => c"there are 1024 applications in this process, and there may be no more; close some",
        }
    }

    fn explanation(self) -> &'static str {
        self.c_text().to_str().unwrap_or_default()
    }
}

/// Calls, and turns what comes back, or a panic, into a number.
pub(crate) fn guard(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(told)) => told,
        Ok(Err(failure)) => failure.code(),
        Err(payload) => {
            // Dropping it could panic once more, and that would end the process.
            std::mem::forget(payload);
            Failure::Broken.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_a_number_and_so_is_a_panic() {
        assert_eq!((guard(|| Ok(3)), guard(|| Err(Failure::Ticket))), (3, -3));
        assert_eq!(guard(|| panic!("as a mistake would")), Failure::Broken.code());
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_ends_here_too() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        assert_eq!(guard(|| std::panic::panic_any(Bomb)), Failure::Broken.code());
    }
}
