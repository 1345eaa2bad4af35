//! What is no acceptable request: why, the status it gets, and the name it is counted under.

use crate::grpc;

/// Why a request is answered with an error at once. The names are the counters' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bad {
    /// Not HTTP, or broken syntax: 400.
    Syntax,
    /// A line that does not end in CR LF: 400.
    BareLineFeed,
    /// `Content-Length` and `Transfer-Encoding` together: 400.
    BothLengths,
    /// Several `Content-Length`, or one that is not a plain number: 400.
    ContentLength,
    /// A `Transfer-Encoding` that does not end in `chunked`, or is repeated, or in HTTP/1.0: 400.
    TransferEncoding,
    /// No `Host`, several, or one that is no host: 400.
    Host,
    /// A request target in no lawful form: 400.
    Target,
    /// A request target whose path can be read in two ways: 400.
    AmbiguousPath,
    /// A body that breaks its framing: 400.
    Body,
    /// From a client that may not ask this application: 403.
    ClientDenied,
    /// For a host or path that no application of the listener has: 404.
    NoApplication,
    /// The head did not arrive in time: 408.
    HeaderTimeout,
    /// The body did not arrive in time: 408.
    BodyTimeout,
    /// The body is larger than allowed: 413.
    BodyTooLarge,
    /// The request target is too long: 414.
    TargetTooLong,
    /// An `Expect` other than `100-continue`: 417.
    Expectation,
    /// Another host than the one that the TLS handshake named: 421.
    Misdirected,
    /// The head is larger, or has more fields, than allowed: 431.
    HeaderTooLarge,
    /// A method or a transfer coding that the sentry does not do: 501.
    NotImplemented,
    /// Not HTTP/1.x: 505.
    Version,
}

impl Bad {
    /// Every reason, for tables and metrics.
    pub const ALL: [Bad; 20] = [
        Bad::Syntax,
        Bad::BareLineFeed,
        Bad::BothLengths,
        Bad::ContentLength,
        Bad::TransferEncoding,
        Bad::Host,
        Bad::Target,
        Bad::AmbiguousPath,
        Bad::Body,
        Bad::ClientDenied,
        Bad::NoApplication,
        Bad::HeaderTimeout,
        Bad::BodyTimeout,
        Bad::BodyTooLarge,
        Bad::TargetTooLong,
        Bad::Expectation,
        Bad::Misdirected,
        Bad::HeaderTooLarge,
        Bad::NotImplemented,
        Bad::Version,
    ];

    /// The status the client gets.
    pub const fn status(self) -> u16 {
        match self {
            Bad::ClientDenied => 403,
            Bad::NoApplication => 404,
            Bad::HeaderTimeout | Bad::BodyTimeout => 408,
            Bad::BodyTooLarge => 413,
            Bad::TargetTooLong => 414,
            Bad::Expectation => 417,
            Bad::Misdirected => 421,
            Bad::HeaderTooLarge => 431,
            Bad::NotImplemented => 501,
            Bad::Version => 505,
            _ => 400,
        }
    }

    /// The status that a call of gRPC ends with. What it came with is at fault: nothing that is worth another try.
    pub(crate) const fn grpc_status(self) -> u8 {
        match self {
            Bad::ClientDenied => grpc::PERMISSION_DENIED,
            Bad::HeaderTimeout | Bad::BodyTimeout => grpc::DEADLINE_EXCEEDED,
            Bad::BodyTooLarge | Bad::TargetTooLong | Bad::HeaderTooLarge => grpc::RESOURCE_EXHAUSTED,
            Bad::NoApplication | Bad::Misdirected | Bad::NotImplemented => grpc::UNIMPLEMENTED,
            _ => grpc::INTERNAL,
        }
    }

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Bad::Syntax => "syntax",
            Bad::BareLineFeed => "bare-line-feed",
            Bad::BothLengths => "both-lengths",
            Bad::ContentLength => "content-length",
            Bad::TransferEncoding => "transfer-encoding",
            Bad::Host => "host",
            Bad::Target => "target",
            Bad::AmbiguousPath => "ambiguous-path",
            Bad::Body => "body",
            Bad::ClientDenied => "client-denied",
            Bad::NoApplication => "no-application",
            Bad::HeaderTimeout => "header-timeout",
            Bad::BodyTimeout => "body-timeout",
            Bad::BodyTooLarge => "body-too-large",
            Bad::TargetTooLong => "target-too-long",
            Bad::Expectation => "expectation",
            Bad::Misdirected => "misdirected",
            Bad::HeaderTooLarge => "header-too-large",
            Bad::NotImplemented => "not-implemented",
            Bad::Version => "version",
        }
    }
}
