//! Other sentries before the same servers.

use std::fmt;

use super::family::{Families, Labels};
use super::{datagrams, flag};
use crate::board::Board;
use crate::peers::View;

/// Other sentries before the same servers, by their address, and what became of datagrams.
pub(super) fn write(out: &mut Families<'_>, board: &Board) -> fmt::Result {
    let view = board.peers();
    let others = view.map(View::peers).unwrap_or_default();
    let others = others.iter().filter(|peer| !peer.is_self);
    let others: Vec<(String, bool)> = others.map(|peer| (peer.address.to_string(), peer.heard.is_some())).collect();
    let speaks = others.iter().map(|(address, speaks)| (Labels::new("address", address), flag(*speaks)));
    out.gauge("tidegate_peer_speaks", "1 while the other sentry is heard.", None, speaks)?;
    let taken = ("tidegate_peer_messages_taken", "Datagrams of other sentries that were taken.");
    let ignored = ("tidegate_peer_messages_ignored", "Datagrams of other sentries that were ignored, by reason.");
    datagrams::write(out, view.map(View::counts), taken, ignored)
}
