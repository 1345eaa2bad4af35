//! The capability that policing takes: who has it, who keeps it alone, and who gives it up.
//!
//! *Awkward case.* A capability that is in the bounding set comes back to root with the next program. Taking one out of
//! it takes CAP_SETPCAP, which root has, and a service with some capabilities has not. Such a service gets none back
//! either, as its program has none in its file.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Whether this thread may change packet filters.
pub fn may_police() -> bool {
    capabilities(None).is_ok_and(|sets| sets.permitted.contains(CapabilitySet::NET_ADMIN))
}

/// Gives up the right to change packet filters, for this thread, those that it starts, and programs that they start.
///
/// # Errors
/// What the system says.
pub fn give_up_policing() -> io::Result<()> {
    take_out(CapabilitySet::NET_ADMIN);
    let sets = capabilities(None)?;
    let less = |set: CapabilitySet| set.difference(CapabilitySet::NET_ADMIN);
    // What is not permitted and inheritable leaves the ambient set.
    let sets = CapabilitySets {
        effective: less(sets.effective),
        permitted: less(sets.permitted),
        inheritable: less(sets.inheritable),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Gives up every other right, for this thread, those that it starts, and programs that they start.
///
/// # Errors
/// What the system says, for example that it lacks this one.
pub fn keep_policing_only() -> io::Result<()> {
    let one = CapabilitySet::NET_ADMIN;
    // Also those that this program does not know.
    (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)).filter(|set| *set != one).for_each(take_out);
    set_no_new_privs(true)?;
    set_capabilities(None, CapabilitySets { effective: one, permitted: one, inheritable: one })?;
    // For `nft`, which is another program.
    Ok(configure_capability_in_ambient_set(one, true)?)
}

fn take_out(one: CapabilitySet) {
    // The kernel may not know it, and this process may not be allowed to.
    let _ = remove_capability_from_bounding_set(one);
}
