//! A real etcd that is spoken to by TLS, and wants to know who we are.

use std::path::Path;
use std::process::Command;

use tidegate_control::etcd::{Etcd, EtcdError, EtcdTls, Txn};

use crate::support::etcd_server::{EtcdServer, etcd_is_present, is_present};
use crate::support::folder::folder;
use crate::support::{answer, until, was_late};

const CURVE: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

#[test]
fn etcd_is_spoken_to_by_tls_and_told_who_we_are() {
    if !etcd_is_present() || !is_present("openssl") {
        return;
    }
    let (folder, other) = (folder(), folder());
    let tls = authority(folder.path());
    let mut etcd = EtcdServer::start_with(Some((folder.path().to_owned(), tls.clone())));
    let way = Etcd::to(&[etcd.address()], Some(tls.clone())).expect("a thread");
    assert!(answer(|| way.commit(&Txn::default().put("/a", b"text"))).done);
    assert_eq!(answer(|| way.get("/a")).expect("it is there").value, b"text");

    let refused = |what: &str, tls: Option<EtcdTls>| {
        let way = Etcd::to(&[etcd.address()], tls).expect("a thread");
        let mut why = String::new();
        until(what, || match way.get("/a") {
            Err(EtcdError::Away(said)) => {
                why = said;
                !was_late(&why)
            }
            other => panic!("{what}: {other:?}"),
        });
        why
    };
    refused("clear text", None);
    refused("nobody", Some(EtcdTls { identity: None, ..tls.clone() }));
    let others = authority(other.path());
    refused("a stranger", Some(EtcdTls { identity: others.identity, ..tls.clone() }));
    let impostor = refused("an impostor", Some(EtcdTls { ca_file: others.ca_file, ..tls.clone() }));
    assert!(impostor.contains("certificate"), "{impostor}");

    // All certificates are renewed, and etcd starts again: nobody has to start us again.
    etcd.kill();
    authority(folder.path());
    etcd.begin();
    assert_eq!(answer(|| way.get("/a")).expect("it is there").value, b"text");
}

/// Makes an authority, a server's and a client's certificate.
fn authority(folder: &Path) -> EtcdTls {
    let run = |words: &[&str]| {
        let said = Command::new("openssl").args(words).current_dir(folder).output().expect("openssl is installed");
        assert!(said.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&said.stderr));
    };
    let new = |words: &[&str]| run(&[&["req"], &CURVE[..], words].concat());
    new(&["-x509", "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority"]);
    for name in ["server", "client"] {
        let (key, csr, out) = (format!("{name}-key.pem"), format!("{name}.csr"), format!("{name}.pem"));
        let subject = format!("/CN={name}");
        new(&["-keyout", &key, "-out", &csr, "-subj", &subject, "-addext", "subjectAltName=IP:127.0.0.1"]);
        let sign = ["x509", "-req", "-in", &csr, "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"];
        run(&[&sign[..], &["-copy_extensions", "copy", "-days", "2", "-out", &out]].concat());
    }
    let file = |name: &str| folder.join(name);
    EtcdTls { ca_file: file("ca.pem"), identity: Some((file("client.pem"), file("client-key.pem"))) }
}
