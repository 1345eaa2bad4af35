//! Which requests are an application's, where several share a listener, and what is changed of them on their way.

use tidegate_classify::{Access, Rewrite, Route};

use super::HeaderChange;

/// Which requests are an application's, and what is changed of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// Its own ones, in normal form; empty: all that no other application of the listener has.
    pub routes: Vec<Route>,
    /// Who may ask at all; `None`: everybody.
    pub access: Option<Access>,
    /// What of a path its servers are not told.
    pub rewrite: Rewrite,
    /// Changes of fields that servers get.
    pub request_headers: Vec<HeaderChange>,
    /// Changes of fields that clients get.
    pub response_headers: Vec<HeaderChange>,
}

impl Routing {
    /// Its routes, the one that takes everything included.
    pub(crate) fn all(&self) -> Vec<Route> {
        if self.routes.is_empty() { vec![Route::default()] } else { self.routes.clone() }
    }
}
