//! `[peers]`: other sentries, and the key that they share.

use super::reports::KeyFolder;
use super::*;

fn parse(folder: &KeyFolder, peers: &str) -> Result<Checked, ConfigErrors> {
    folder.parse(&format!("[peers]\n{peers}"))
}

#[test]
fn other_sentries_are_read_with_their_key_and_printed_without() {
    let folder = KeyFolder::new("another secret of the tests");
    let text = "sentries = [\"10.0.0.1:9903\", \"[fd00::2]:9903\", \"Sentries.example:9903\"]\nkey_file = \"key\"";
    let config = parse(&folder, text).expect("valid").config;
    let peers = config.peers.as_ref().expect("peers");
    assert_eq!(peers.listen, ([127, 0, 0, 1], 9903).into());
    let named = PeerPlace::Host { name: String::from("Sentries.example"), port: 9903 };
    assert_eq!((peers.sentries.len(), &peers.sentries[2]), (3, &named));
    let printed = config.to_toml();
    assert!(printed.contains("\"[fd00::2]:9903\"") && printed.contains("\"Sentries.example:9903\""), "{printed}");
    assert!(!printed.contains("another secret"), "{printed}");
    assert!(Config::parse(&printed, Path::new("/shop.toml")).expect("valid").config.to_toml() == printed, "{printed}");
}

#[test]
fn what_is_wrong_with_other_sentries_is_said() {
    let folder = KeyFolder::new("one more secret of the tests");
    for (text, part) in [
        ("key_file = \"key\"", "add sentries"),
        ("sentries = [\"10.0.0.1:9903\"]", "add key_file"),
        ("sentries = [\"10.0.0.1\"]\nkey_file = \"key\"", "port is missing; write \"10.0.0.1:9903\""),
        ("sentries = [\"fd00::1\"]\nkey_file = \"key\"", "port is missing; write \"[fd00::1]:9903\""),
        ("sentries = [\"a.example\"]\nkey_file = \"key\"", "sentry \"a.example\": the port is missing; write \"a.ex"),
        ("sentries = [\"a.example:0\"]\nkey_file = \"key\"", "port 0 is no port; write an address such as"),
        ("sentries = [\"10.0.0.1:0\"]\nkey_file = \"key\"", "port 0 is no port; write an address such as"),
        ("sentries = [\"a.example:x\"]\nkey_file = \"key\"", "\"x\" is not a port; write a number"),
        ("sentries = [\"a..example:1\"]\nkey_file = \"key\"", "neither a name nor an address; write"),
        ("sentries = [\"10.0.0.256:1\"]\nkey_file = \"key\"", "neither a name nor an address; write"),
        ("sentries = [\"udp://a.example:1\"]\nkey_file = \"key\"", "neither a name nor an address; write"),
        ("sentries = [\"\"]\nkey_file = \"key\"", "neither a name nor an address; write"),
        ("sentries = [\"a.example:1\", \"a.example:1\"]\nkey_file = \"key\"", "there already; leave it out"),
        ("sentries = [\"0.0.0.0:9903\"]\nkey_file = \"key\"", "nobody's address"),
        ("sentries = [\"10.0.0.1:1\", \"10.0.0.1:1\"]\nkey_file = \"key\"", "there already"),
        ("sentries = [\"10.0.0.1:1\"]\nkey_file = \"none\"", "cannot be read"),
        ("listen = \"nowhere\"\nsentries = [\"10.0.0.1:1\"]\nkey_file = \"key\"", "listen = \"nowhere\""),
        ("sentriez = []\nkey_file = \"key\"", "did you mean \"sentries\""),
    ] {
        let errors = parse(&folder, text).expect_err(text).to_string();
        assert!(errors.contains(part), "{text}: {errors}");
    }
}
