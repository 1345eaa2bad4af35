//! The network: bytes through the interfaces, connections accepted, and those lost because nobody accepted them in
//! time.

use std::path::Path;

use super::{Growth, Source};

/// Interfaces and TCP counters of the network namespace that the nucleus runs in.
#[derive(Debug)]
pub(crate) struct Net {
    dev: Source,
    netstat: Source,
    snmp: Source,
    received: Growth,
    sent: Growth,
    overflows: Growth,
    accepts: Growth,
}

/// Connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Lost since the last call, per second.
    pub(crate) overflows: Option<f64>,
    /// Accepted since the last call, per second.
    pub(crate) accepts: Option<f64>,
    /// Accepted since the machine started.
    pub(crate) opened: Option<f64>,
}

impl Net {
    pub(crate) fn new(root: &Path) -> Net {
        Net {
            dev: Source::new(root, "proc/net/dev"),
            netstat: Source::new(root, "proc/net/netstat"),
            snmp: Source::new(root, "proc/net/snmp"),
            received: Growth::default(),
            sent: Growth::default(),
            overflows: Growth::default(),
            accepts: Growth::default(),
        }
    }

    /// Bytes received and sent per second since the last call.
    pub(crate) fn moved(&mut self, seconds: f64) -> (Option<f64>, Option<f64>) {
        let (received, sent) = self.dev.read().map_or((None, None), bytes);
        (self.received.rate(received, seconds), self.sent.rate(sent, seconds))
    }

    /// Connections that were accepted or lost, with rates since the last call.
    pub(crate) fn counted(&mut self, seconds: f64) -> Counted {
        let overflows = self.netstat.read().and_then(|text| table_value(text, "TcpExt:", "ListenOverflows"));
        let opened = self.snmp.read().and_then(|text| table_value(text, "Tcp:", "PassiveOpens"));
        let (overflows, accepts) = (self.overflows.rate(overflows, seconds), self.accepts.rate(opened, seconds));
        Counted { overflows, accepts, opened }
    }
}

/// Received and sent by all interfaces but loopback, which goes nowhere.
fn bytes(text: &str) -> (Option<f64>, Option<f64>) {
    let mut sum = (None, None);
    for line in text.lines().skip(2) {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let mut numbers = numbers.split_ascii_whitespace();
        let received = numbers.next().and_then(|word| word.parse::<u64>().ok());
        let sent = numbers.nth(7).and_then(|word| word.parse::<u64>().ok());
        if let (Some(received), Some(sent), false) = (received, sent, name.trim() == "lo") {
            sum = (Some(sum.0.unwrap_or(0.0) + received as f64), Some(sum.1.unwrap_or(0.0) + sent as f64));
        }
    }
    sum
}

/// A value of a table of two lines that begin with the same word: names, then numbers in the same order.
fn table_value(text: &str, table: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|candidate| candidate == name)?;
    values.split_ascii_whitespace().nth(at)?.parse::<u64>().ok().map(|value| value as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Tree;
    use super::*;

    const DEV: &str = "Inter-|   Receive\n face |bytes\n    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n\
                       eth0:1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n eth1: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";

    #[test]
    fn bytes_and_counters_since_the_last_call() {
        let tree = Tree::new(&[
            ("proc/net/dev", DEV),
            ("proc/net/netstat", "TcpExt: A ListenOverflows B\nTcpExt: 1 10 3\nIpExt: A\nIpExt: 5\n"),
            ("proc/net/snmp", "Ip: A\nIp: 5\nTcp: ActiveOpens PassiveOpens\nTcp: 7 100\n"),
        ]);
        let mut net = Net::new(tree.root());
        let counted = Counted { opened: Some(100.0), ..Counted::default() };
        assert_eq!((net.moved(1.0), net.counted(1.0)), ((None, None), counted));
        tree.write("proc/net/dev", &DEV.replace("eth0:1000", "eth0:3000").replace(" 5 0 0", " 9999 0 0"));
        tree.write("proc/net/netstat", "TcpExt: A ListenOverflows B\nTcpExt: 1 14 3\n");
        tree.write("proc/net/snmp", "Tcp: ActiveOpens PassiveOpens\nTcp: 7 150\n");
        assert_eq!(net.moved(0.5), (Some(4000.0), Some(0.0)));
        let counted = Counted { overflows: Some(8.0), accepts: Some(100.0), opened: Some(150.0) };
        assert_eq!(net.counted(0.5), counted);
    }

    #[test]
    fn missing_files_and_garbage() {
        let mut nothing = Net::new(Tree::new(&[]).root());
        assert_eq!((nothing.moved(1.0), nothing.counted(1.0)), ((None, None), Counted::default()));
        for text in
            ["", "TcpExt: ListenOverflows", "TcpExt: ListenOverflows\nTcpExt:", "TcpExt: X\nTcpExt: 1", "a\nb\neth0:x"]
        {
            assert_eq!(table_value(text, "TcpExt:", "ListenOverflows"), None);
            assert_eq!(bytes(text), (None, None));
        }
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in "[a-z0-9: \n-]{0,120}") {
            bytes(&text);
            table_value(&text, "a:", "b");
        }
    }
}
