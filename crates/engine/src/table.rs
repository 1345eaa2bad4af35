//! The macro behind the policy tables: one entry names a policy once, everything else derives from it.

/// Makes the configuration enum of a family of policies.
///
/// Each entry `Variant("name") => module` needs in `module` a `Config` (serde, `deny_unknown_fields`, `Default`) with
/// `fn check(&self) -> Result<(), SetupError>` and `fn build(&self, &Setup) -> impl Policy`.
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

            /// The policy's name.
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
                match self { $($Config::$Variant(config) => config.check(),)+ }
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
