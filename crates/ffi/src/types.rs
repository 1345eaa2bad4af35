//! What crosses the boundary, as `tidegate.h` has it. A test holds sizes, places and numbers against the header.

/// Version of what `tidegate.h` says; a program that was compiled with another must not go on.
pub const ABI_VERSION: u32 = 1;

/// In what a call returns: there are decisions to be polled.
pub const POLL: i32 = 1;
/// In what a call returns: the time for the next tick is nearer than the last tick said.
pub const SOONER: i32 = 2;

/// A decision: begin.
pub const ADMITTED: u32 = 1;
/// A decision: wait for another decision.
pub const WAITS: u32 = 2;
/// A decision: answer with a refusal.
pub const REFUSED: u32 = 3;

/// An end: answered to the last byte, and not with an error of the server.
pub const ANSWERED: u32 = 0;
/// An end: the server failed.
pub const FAILED: u32 = 1;
/// An end: nobody wanted to wait any longer.
pub const TIMED_OUT: u32 = 2;
/// An end: a service further down refused the request.
pub const REFUSED_BELOW: u32 = 3;

/// Who left: the client.
pub const BY_CLIENT: u32 = 0;
/// Who left: the service, by a time-out of its own.
pub const BY_TIME_OUT: u32 = 1;

/// A server takes requests.
pub const UP: u32 = 0;
/// A server does not answer.
pub const DOWN: u32 = 1;
/// A server finishes what it has.
pub const DRAINING: u32 = 2;

/// A form: the value of the header field `Tidegate-Decision`.
pub const HEADER: u32 = 0;
/// A form: a sentence for a person.
pub const TEXT: u32 = 1;
/// A form: JSON.
pub const JSON: u32 = 2;
/// A form: a page for a browser.
pub const HTML: u32 = 3;

/// A request that arrives: `tidegate_request`. All zeros are a request of the most important class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// When its client stops waiting, on the clock of `now_ns`; 0: nobody said.
    pub deadline_ns: u64,
    /// A hash of what is asked for, by which costs are learned; 0: not told apart.
    pub url: u64,
    /// A hash of on whose behalf it comes; 0: not told apart.
    pub tenant: u64,
    /// A hash of what ties it to others that go to the same server; 0: nothing.
    pub session: u64,
    /// The caller's: comes back with decisions that are polled.
    pub user: u64,
    /// What kind of request it is: its place in `request_type` of the configuration.
    pub request_type: u16,
    /// How important it is: its place in `class` of the configuration, 0 is the most important.
    pub class: u8,
    /// Not 0: it was tried before.
    pub is_retry: u8,
    /// 0.
    pub reserved: u32,
}

/// What becomes of a request: `tidegate_decision`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Decision {
    /// Of one that is admitted or waits: names it until its end.
    pub ticket: u64,
    /// [`Request::user`].
    pub user: u64,
    /// Of a refusal: when to come back, nanoseconds.
    pub retry_after_ns: u64,
    /// Of a refusal: the response time that was foreseen, nanoseconds; 0: none was.
    pub predicted_ns: u64,
    /// [`ADMITTED`], [`WAITS`] or [`REFUSED`].
    pub kind: u32,
    /// Why it is refused, or would have been; 0: it is not.
    pub reason: u32,
    /// The same as `retry_after_ns` in whole seconds, for `Retry-After`: rounded up, and never 0.
    pub retry_after_s: u32,
    /// Which server gets it: its place in `servers` of the configuration.
    pub server: u16,
    /// [`Request::class`].
    pub class: u8,
    /// Not 0: it is admitted only because of shadow mode.
    pub shadow: u8,
}

/// How an admitted request ended: `tidegate_end`. All zeros but the ticket: it was answered.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Which request.
    pub ticket: u64,
    /// How long the server worked on it, nanoseconds; 0: since it was admitted.
    pub service_time_ns: u64,
    /// Bytes of the answer; 0: not counted.
    pub bytes: u64,
    /// [`ANSWERED`], [`FAILED`], [`TIMED_OUT`] or [`REFUSED_BELOW`].
    pub end: u32,
    /// 0.
    pub reserved: u32,
}

/// What became of a class's requests: `tidegate_counts`. Since the start, but for the last two.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that arrived.
    pub offered: u64,
    /// Of these, tried before.
    pub retries: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Of these, by the guarantee of their class.
    pub guaranteed: u64,
    /// Requests that were refused; in shadow mode, that would have been.
    pub refused: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Of these, within the target.
    pub in_target: u64,
    /// Requests that failed, or that a time-out ended.
    pub failed: u64,
    /// Requests whose clients left.
    pub cancelled: u64,
    /// Requests that are worked on now.
    pub in_flight: u64,
    /// Requests that wait now.
    pub waiting: u64,
}
