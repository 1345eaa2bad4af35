//! What an operator wants changed of a request on its way to its server, and of the answer on its way back.

use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, header, request, response};

use super::Exchange;
use crate::config::HeaderChange;
use crate::headers;
use crate::headers::changes::{About, Asked, change, name_prefix};
use crate::upload::RequestBody;

impl Exchange {
    /// Makes the changes that the operator wants: what the rules and the log have read stays what it was.
    /// What answers' fields may be made of is kept.
    pub(super) fn change(&self, parts: &mut request::Parts) -> Asked {
        let routing = &self.local.live.config.routing;
        if let Some((target, taken)) =
            parts.uri.path_and_query().and_then(|target| routing.rewrite.apply(target.as_str()))
        {
            if !taken.is_empty() && self.local.live.config.forwarded.x_forwarded {
                name_prefix(&mut parts.headers, taken);
            }
            // What was canonical is a target without its prefix, too.
            parts.uri = PathAndQuery::try_from(target).map(Uri::from).unwrap_or_default();
        }
        if routing.request_headers.is_empty() && routing.response_headers.is_empty() {
            return Asked::default();
        }
        let id = headers::request_id(&parts.headers).cloned();
        let asked = Asked { host: parts.headers.get(header::HOST).cloned(), id };
        self.change_fields(&mut parts.headers, &routing.request_headers, &asked);
        asked
    }

    /// Fields that might be changed are no longer lines, nor will the answer's be.
    pub(super) fn keep_no_lines_to_change(&self, parts: &mut request::Parts, body: &mut RequestBody) {
        let routing = &self.local.live.config.routing;
        if !(routing.request_headers.is_empty() && routing.response_headers.is_empty())
            && let Some(lines) = body.take_lines()
        {
            lines.add_to(&mut parts.headers);
        }
    }

    /// The same of an answer to it.
    pub(super) fn change_answer(&self, parts: &mut response::Parts, asked: &Asked) {
        self.change_fields(&mut parts.headers, &self.local.live.config.routing.response_headers, asked);
    }

    fn change_fields(&self, headers: &mut HeaderMap, changes: &[HeaderChange], asked: &Asked) {
        let class = (self.ending.class(), self.local.live.class_name(self.ending.class()));
        change(headers, changes, &About { client: &self.client, asked, class });
    }
}
