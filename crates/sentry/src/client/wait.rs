//! What connections wait for.

/// What a connection waits for, and so what it means when its deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The next request.
    #[default]
    Idle,
    /// The rest of what comes before requests: a PROXY header, a TLS handshake.
    Handshake,
    /// The rest of a head.
    Header,
    /// Its turn in a class queue: the engine's time-out, not ours.
    Queue,
    /// The server's answer to begin.
    FirstByte,
    /// The client's body to go on.
    RequestBody,
    /// The answer to go on.
    ResponseBody,
    /// The same; when the deadline passes, it is looked whether the answer is a stream.
    Look,
    /// Bytes through a tunnel.
    Tunnel,
    /// The client to close.
    Linger,
    /// The whole request has taken too long, whatever it waits for.
    Request,
    /// For nothing: the process is short of something, and this connection is to go.
    GiveWay,
    /// Nothing: the controller wants the request ended.
    Cancelled,
}
