//! What is typed of the way to an application.

use tidegate_config::{List, section};

section! {
    pub(in crate::config) struct RawRoute ("in route of [[application]]") {
        /// `"example.org"`, or `"*.example.org"` for the names below it; one of several. Case and port play no part.
        /// Default: any.
        host: List<String>,
        /// `"/a"` is `/a` and all below it, not `/ab`; `"/a/"` is only what is below; one of several. Default: any.
        path: List<String>,
    }
}

section! {
    pub(in crate::config) struct RawRewrite ("in [application.rewrite]") {
        /// `"/a"` is taken off `/a` and all below it; of several the longest that fits. Default: nothing.
        strip_prefix: List<String>,
        /// What is then put before every path. Default: nothing.
        add_prefix: String,
    }
}

section! {
    pub(in crate::config) struct RawRequestHeader ("in request_header of [[application]]") {
        /// The field that has `value` and no other. This, `add` or `remove`. Default: none.
        set: String,
        /// The field that has `value`, too. Default: none.
        add: String,
        /// The field that goes. Default: none.
        remove: String,
        /// With `{client}`, `{host}`, `{class}` and `{request_id}` filled in; `{{` is a brace. Default: none.
        value: String,
        /// Only for requests of this class, or of several. Default: all.
        class: List<String>,
    }
}

section! {
    pub(in crate::config) struct RawResponseHeader ("in response_header of [[application]]") {
        /// The field that has `value` and no other. This, `add` or `remove`. Default: none.
        set: String,
        /// The field that has `value`, too. Default: none.
        add: String,
        /// The field that goes. Default: none.
        remove: String,
        /// With `{client}`, `{host}`, `{class}` and `{request_id}` filled in; `{{` is a brace. Default: none.
        value: String,
        /// Only in answers to requests of this class, or of several. Default: all.
        class: List<String>,
        /// In the sentry's own refusals, too; only `{class}` is filled in there. Default: `false`.
        refused: bool,
    }
}

section! {
    pub(in crate::config) struct RawAccess ("in [application.access]") {
        /// Networks whose clients may ask; with any, nobody else may but by a more specific one. Default: all.
        allow: List<String>,
        /// Networks whose clients may not. The most specific network of both lists decides. Default: none.
        deny: List<String>,
    }
}
