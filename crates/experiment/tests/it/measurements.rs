//! What depends on the machine's speed: judged alone, on a machine that is watched.

mod live;
