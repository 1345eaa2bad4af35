//! A plane's state as it is kept where room is dear.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::plane::PlaneState;

/// Makes a state small.
pub(super) fn pack(state: &PlaneState) -> std::io::Result<Vec<u8>> {
    squeeze(&serde_json::to_vec(state)?)
}

/// The state that was packed.
pub(super) fn unpack(packed: &[u8]) -> std::io::Result<PlaneState> {
    Ok(serde_json::from_slice(&inflate(packed)?)?)
}

/// Makes a text small.
pub(super) fn squeeze(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text)?;
    packer.finish()
}

/// The text that was made small.
pub(super) fn inflate(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    ZlibDecoder::new(packed).read_to_end(&mut text)?;
    Ok(text)
}
