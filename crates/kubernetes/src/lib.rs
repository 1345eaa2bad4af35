//! How an API server of Kubernetes is asked: by the control plane, which scales deployments, by sentries, which follow
//! the pods of a service, and by the operator, which follows policies.
//!
//! | file | question |
//! |---|---|
//! | `access.rs` | how the API server is reached, and who this is there |
//! | `trouble.rs` | what an error means, and when to ask again |
//! | `slices.rs` | which pods a service has, from its endpoint slices: pure |
//! | `objects.rs` | which objects of a kind there are now: lists and watches |
//! | `endpoints.rs` | which pods a service has now |

#![forbid(unsafe_code)]

mod access;
mod endpoints;
mod objects;
mod slices;
mod trouble;

pub use access::{Access, load};
pub use endpoints::Endpoints;
pub use objects::{Object, Objects};
pub use slices::{Pod, pods};
pub use trouble::{Kind, Pause, Trouble, causes};
