//! `[reports]` and its key.

use super::*;

/// A folder with a key file, removed at the end.
pub(super) struct KeyFolder(std::path::PathBuf);

impl KeyFolder {
    /// Each test needs a secret of another length.
    pub(super) fn new(secret: &str) -> Self {
        let name = format!("tidegate-config-{}-{}", std::process::id(), secret.len());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), secret).expect("a file");
        KeyFolder(folder)
    }

    pub(super) fn parse(&self, reports: &str) -> Result<Checked, ConfigErrors> {
        let text = format!("{reports}\n[[application]]\nservers = \"127.0.0.1:9001\"\n");
        Config::parse(&text, &self.0.join("shop.toml"))
    }
}

impl Drop for KeyFolder {
    fn drop(&mut self) {
        // The folder is temporary: leaving it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn reports_are_read_with_their_key_and_printed_without() {
    let folder = KeyFolder::new("a secret of the tests");
    let config = folder.parse("[reports]\nkey_file = \"key\"").expect("valid").config;
    let reports = config.reports.as_ref().expect("reports");
    assert_eq!((reports.listen, reports.silent_after), (([127, 0, 0, 1], 9901).into(), None));
    assert_eq!(reports.when_silent, WhenSilent::Estimate);
    let printed = config.to_toml();
    assert!(!printed.contains("a secret") && !format!("{config:?}").contains("a secret"));
    assert_eq!(Config::parse(&printed, Path::new("/shop.toml")).expect("valid").config.to_toml(), printed);
    let text = "[reports]\nkey_file = \"key\"\nlisten = \":7\"\nsilent_after = \"1s\"\nwhen_silent = \"exclude\"";
    let reports = folder.parse(text).expect("valid").config.reports.expect("reports");
    assert_eq!((reports.listen.port(), reports.silent_after), (7, Some(Duration::from_secs(1))));
    assert_eq!(reports.when_silent, WhenSilent::Exclude);
}

#[test]
fn reports_without_a_good_key_are_errors_that_say_what_to_do() {
    let folder = KeyFolder::new("short");
    let refused = |text: &str| folder.parse(text).map(|_| ()).expect_err("a bad file").to_string();
    assert!(refused("[reports]").contains("add key_file"));
    assert!(refused("[reports]\nkey_file = \"none\"").contains("cannot be read"));
    assert!(refused("[reports]\nkey_file = \"key\"").contains("head -c 32"));
    assert!(refused("[reports]\nkey_fil = \"key\"").contains("did you mean \"key_file\""));
    assert!(refused("[reports]\nwhen_silent = \"panic\"").contains("\"exclude\" or \"estimate\""));
}

#[test]
fn secrets_that_others_can_read_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("tidegate-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let secret = |name: &str, mode| {
        let path = folder.join(name);
        std::fs::write(&path, "0123456789abcdef").expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("our own file");
    };
    let text = "[admin]\ntoken_file = \"token\"\n[reports]\nkey_file = \"key\"\n\
                [[application]]\nservers = \"127.0.0.1:1\"\n";
    let path = folder.join("shop.toml");
    std::fs::write(&path, text).expect("a file");
    let warnings = |mode| {
        secret("token", mode);
        secret("key", mode);
        let checked = Config::load(&path).expect("it makes sense");
        checked.warnings.iter().map(|warning| warning.at("f")).collect::<Vec<String>>()
    };
    let (open, closed) = (warnings(0o644), warnings(0o600));
    std::fs::remove_dir_all(&folder).expect("our own folder");
    assert_eq!(closed, [""; 0]);
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(open[0].starts_with("f:2: ") && open[1].starts_with("f:4: "), "{open:?}");
    assert!(open.iter().all(|warning| warning.contains("chmod 600")), "{open:?}");
}
