//! How new connections are turned away, where the policy `resource` wants that.

use tidegate_classify::Network;

/// How new connections are turned away.
#[derive(Clone, Debug, PartialEq)]
pub struct SynPolicing {
    /// With what.
    pub with: SynWith,
    /// Whether the sentry does not start where the kernel cannot do it.
    pub required: bool,
    /// Classes of clients by their addresses, each with a part of the rate.
    pub classes: Vec<SynClass>,
    /// The part of everybody else, in proportion to the classes' shares.
    pub rest_share: f64,
    /// Clients that are never turned away: those that check the service's health.
    pub exempt: Vec<Network>,
}

/// With what new connections are turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynWith {
    /// The kernel where it can, else the workers.
    #[default]
    Auto,
    /// The kernel, or the sentry does not start.
    Nftables,
    /// The workers.
    AcceptAndReset,
    /// Nothing.
    Off,
}

impl SynWith {
    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            SynWith::Auto => "auto",
            SynWith::Nftables => "nftables",
            SynWith::AcceptAndReset => "accept-and-reset",
            SynWith::Off => "off",
        }
    }
}

/// Clients with a part of the rate of new connections.
#[derive(Clone, Debug, PartialEq)]
pub struct SynClass {
    /// Its name.
    pub name: String,
    /// Where its clients are.
    pub network: Vec<Network>,
    /// Its part of the rate, in proportion to the others' shares.
    pub share: f64,
}

impl Default for SynPolicing {
    fn default() -> Self {
        SynPolicing { with: SynWith::Auto, required: false, classes: Vec::new(), rest_share: 1.0, exempt: Vec::new() }
    }
}
