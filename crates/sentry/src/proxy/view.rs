//! A request as rules see it.

use std::net::IpAddr;

use http::{HeaderValue, header, request};
use tidegate_classify::RequestView;

use crate::client::Client;
use crate::tls::Facts;

/// A request that hyper has parsed, as the classifier sees it.
pub(crate) struct View<'a> {
    pub(crate) parts: &'a request::Parts,
    pub(crate) client: &'a Client,
}

impl RequestView for View<'_> {
    fn method(&self) -> &str {
        self.parts.method.as_str()
    }

    fn host(&self) -> Option<&str> {
        self.parts.headers.get(header::HOST)?.to_str().ok()
    }

    fn path(&self) -> &str {
        self.parts.uri.path_and_query().map_or("*", |path| path.as_str())
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.parts.headers.get(lowercase_name).map(HeaderValue::as_bytes)
    }

    fn last_header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.parts.headers.get_all(lowercase_name).iter().next_back().map(HeaderValue::as_bytes)
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.client.peer().ip().to_canonical())
    }

    fn certificate_names(&self) -> &[String] {
        self.client.facts().map_or(&[], Facts::names)
    }
}
