//! Several sentries before the same servers, all in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_sentry::{Sentry, SentryHandle, config, record::NoRecords};
use tidegate_wire::{Keys, random_u64};

use super::super::ServiceError;
use crate::scenario::Fleet;

/// How long sentries may take to hear of each other.
const PATIENCE: Duration = Duration::from_secs(10);

/// As many sentries as the fleet has, one without any; those that exchange hear of each other.
pub(super) fn start(
    process: impl Fn() -> config::Config,
    fleet: Option<&Fleet>,
) -> Result<Vec<SentryHandle>, ServiceError> {
    let Some(fleet) = fleet else {
        return Ok(vec![Sentry::start(process(), Arc::new(NoRecords))?]);
    };
    let keys = Keys::derive(&[random_u64(), random_u64()].map(u64::to_ne_bytes).concat());
    let with = |sentries: &[SocketAddr]| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sentries = sentries.iter().copied().map(config::PeerPlace::from).collect();
        let peers = config::Peers { listen, sentries, key_file: PathBuf::new(), keys: keys.clone() };
        config::Config { peers: fleet.exchange.then_some(peers), ..process() }
    };
    let start = |_| Sentry::start(with(&[]), Arc::new(NoRecords));
    let sentries = (0..fleet.sentries).map(start).collect::<Result<Vec<_>, _>>()?;
    if !fleet.exchange {
        return Ok(sentries);
    }
    // Only now it is known where each is.
    let all: Vec<_> = sentries.iter().filter_map(|sentry| Some(sentry.peers()?.address())).collect();
    for sentry in &sentries {
        sentry.reload(with(&all))?;
    }
    let deadline = Instant::now() + PATIENCE;
    let hears_all = |sentry: &SentryHandle| {
        let peers = sentry.peers().map(|view| view.peers()).unwrap_or_default();
        peers.iter().filter(|peer| peer.heard.is_some()).count() + 1 == all.len()
    };
    while !sentries.iter().all(hears_all) {
        if Instant::now() > deadline {
            return Err(ServiceError::NotHeard);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(sentries)
}
