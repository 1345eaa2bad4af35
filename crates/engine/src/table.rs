//! The macro behind the policy tables: one entry names a policy once, everything else derives from it.

use crate::demands::Demands;
use crate::setup::{Setup, SetupError};

/// What settings answer when they have no method of that name: an inherent method goes before a trait's.
pub(crate) trait Settings {
    /// Checks the settings by themselves.
    fn check(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// Checks what depends on the application.
    fn fits(&self, setup: &Setup) -> Result<(), SetupError> {
        let _ = setup;
        Ok(())
    }

    /// What the policy needs from its driver.
    fn demands(&self) -> Demands {
        Demands::default()
    }
}

impl<T> Settings for T {}

/// Makes the configuration enum of a family of policies.
///
/// Each entry `Variant("name") => module` needs in `module` a `Config` (serde, `deny_unknown_fields`, `Default`) with
/// `fn build(&self, &Setup) -> impl Policy`, and those methods of [`Settings`] in which it differs.
macro_rules! policies {
    (
        $(#[$meta:meta])*
        pub enum $Config:ident for $Policy:ident, default $Default:ident {
            $($(#[doc = $doc:literal])+ $Variant:ident($name:literal) => $module:ident,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(tag = "policy")]
        pub enum $Config {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $Variant($module::Config),)+
        }

        impl $Config {
            /// Every policy's name, in the table's order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Every policy's name and what it does, in a line or two.
            pub const DESCRIPTIONS: &'static [(&'static str, &'static str)] = &[$(($name, concat!($($doc),+))),+];

            /// Name of the policy, as in the configuration.
            pub const fn name(&self) -> &'static str {
                match self { $($Config::$Variant(_) => $name),+ }
            }

            /// The policy of that name with its default settings.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some($Config::$Variant($module::Config::default())),)+ _ => None }
            }

            /// Checks the settings.
            ///
            /// # Errors
            /// The first setting that makes no sense.
            pub fn check(&self) -> Result<(), crate::setup::SetupError> {
                use crate::table::Settings;
                match self { $($Config::$Variant(config) => config.check(),)+ }
            }

            /// What the policy needs from its driver.
            pub fn demands(&self) -> crate::demands::Demands {
                use crate::table::Settings;
                match self { $($Config::$Variant(config) => config.demands(),)+ }
            }

            /// The names of the policies that, with default settings, demand something.
            pub fn names_that_demand(wants: impl Fn(&crate::demands::Demands) -> bool) -> alloc::vec::Vec<&'static str> {
                let wants = |name: &&str| Self::from_name(name).is_some_and(|policy| wants(&policy.demands()));
                Self::NAMES.iter().copied().filter(wants).collect()
            }

            /// Checks the settings that depend on the application.
            pub(crate) fn fits(&self, setup: &crate::setup::Setup) -> Result<(), crate::setup::SetupError> {
                use crate::table::Settings;
                match self { $($Config::$Variant(config) => config.fits(setup),)+ }
            }

            pub(crate) fn build(&self, setup: &crate::setup::Setup) -> alloc::boxed::Box<dyn $Policy> {
                match self { $($Config::$Variant(config) => alloc::boxed::Box::new(config.build(setup)),)+ }
            }
        }

        impl Default for $Config {
            fn default() -> Self {
                $Config::$Default(Default::default())
            }
        }
    };
}

pub(crate) use policies;
