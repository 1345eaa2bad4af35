//! What mutants are made of beside the corpus: pieces of each target's language that bytes changed blindly never hit.

/// A target without a language of its own.
pub fn none() -> Vec<Vec<u8>> {
    Vec::new()
}

/// Of HTTP/1: lines, fields, framings and their ends, lawful and not, and whole requests, so that boundaries are
/// reached.
pub fn http() -> Vec<Vec<u8>> {
    HTTP.iter().map(|word| word.to_vec()).collect()
}

/// Of configuration files: every table and key of the reference, values of each kind, and their ends.
pub fn configuration() -> Vec<Vec<u8>> {
    let reference = include_str!("../../docs/configuration.md");
    let quoted = |line: &str| Some(line.split_once('`')?.1.split_once('`')?.0.to_owned());
    let keys = reference.lines().filter(|line| line.starts_with("| `")).filter_map(quoted);
    let keys = keys.map(|key| format!("{key} = "));
    let tables = reference.lines().filter(|line| line.starts_with("### `[")).filter_map(quoted);
    let tables = tables.map(|table| format!("\n{table}\n"));
    keys.chain(tables).map(String::into_bytes).chain(VALUES.iter().map(|word| word.to_vec())).collect()
}

const VALUES: &[&[u8]] = &[
    b"\n",
    b"\"",
    b"'",
    b"[",
    b"]",
    b"{ ",
    b" }",
    b", ",
    b"\"\"\n",
    b"true\n",
    b"false\n",
    b"0\n",
    b"-1\n",
    b"0.5\n",
    b"1e308\n",
    b"nan\n",
    b"inf\n",
    b"9223372036854775807\n",
    b"\"1ms\"\n",
    b"\"1e9s\"\n",
    b"\"0s\"\n",
    b"\"20/s\"\n",
    b"\"0/s\"\n",
    b"\"64KiB\"\n",
    b"\"50%\"\n",
    b"\"101%\"\n",
    b"\"127.0.0.1:9000\"\n",
    b"\":0\"\n",
    b"\"10.0.0.0/8\"\n",
    b"\"[::1]:1\"\n",
    b"\"p99\"\n",
    b"\"mean\"\n",
    b"\"off\"\n",
    b"{ policy = \"sentry\" }\n",
    b"{ policy = \"concurrency\", limit = 1 }\n",
    b"[{ path_prefix = \"/a\" }]\n",
    b"[{ header = { name = \"x\", value = \"y\" } }]\n",
];

const HTTP: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: t\r\n\r\n1;e\r\na\r\n0\r\nt: v\r\n\r\n",
    b"PUT /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET /u HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"GET //x/../y;v=%2f/%7e?q#f HTTP/1.1\r\n",
    b"GET http://u@h:80/p HTTP/1.1\r\n",
    b"CONNECT h:443 HTTP/1.1\r\n",
    b"GET  / HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n",
    b"/../",
    b"%2e%2e/",
    b"%00",
    b"\\",
    b"Host: a\r\n",
    b"Host:\r\n",
    b"Host: a b\r\n",
    b"Host : a\r\n",
    b"host: [::1]:80\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: +3\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: Chunked\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"transfer-encoding:\x0bchunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive, X-Tier, Host, TE\r\n",
    b"Connection: upgrade\r\n",
    b"Upgrade: h2c\r\n",
    b"HTTP2-Settings: AAMAAABk\r\n",
    b"Expect: 100-continue\r\n",
    b"TE: trailers\r\n",
    b"Trailer: Content-Length\r\n",
    b"Cookie: a=1; a=\"2; b=3\"\r\n",
    b"X-Tier: gold\r\n",
    b"X_Forwarded_For: 1.2.3.4\r\n",
    b"X-Forwarded-For: 1.2.3.4\r\n",
    b"Forwarded: for=\"[::1]\";host=x\r\n",
    b"Tidegate-Quality: 0.1\r\n",
    b"X-Real-IP: 1.2.3.4\r\n",
    b" folded\r\n",
    b": nameless\r\n",
    b"X: a\0b\r\n",
    b"X: a\rb\r\n",
    b"X: \xe9\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\n\n",
    b"\r",
    b"3\r\nabc\r\n",
    b"3;x=\"y\r\nz\"\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\n\n",
    b"0\r\nT: v\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"abc",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_reference_are_words() {
        let words = configuration();
        for word in ["listen = ", "\n[[application]]\n", "\n[admin]\n", "key_file = "] {
            assert!(words.iter().any(|one| one == word.as_bytes()), "{word:?} is none");
        }
    }
}
