//! System calls that neither a sentry nor a nucleus makes, and that whoever takes one over would like to: they are as
//! if the kernel had none of them, for the process, its threads and all programs that it starts.
//!
//! *Intuition.* A list of what is forbidden, not of what is allowed: a library that makes another harmless call must
//! not break a service. A service manager or a container engine can allow less (`SystemCallFilter=` in our units does);
//! this is for where nobody does. *Awkward cases.* Where there is a filter already, none is added: it may end who asks
//! for another one, as those of our units would. It cannot be taken back, and a successor inherits it: nothing is in
//! the list that a newer version is likely to need, and if one does, it takes a restart. What a call is given by its
//! address cannot be looked at, so `clone3`, which may ask for namespaces, is as if there were only `clone`, which may
//! not. *Cost.* That of having a filter at all, as the kernel (since 5.11) remembers which calls are always allowed.
//! *Source.* seccomp(2); the list is what Docker's and systemd's leave out, as far as privileges do not decide alone.

use std::collections::BTreeMap;
use std::fs;

use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use tracing::warn;

/// What is forbidden, by what it is about.
const FORBIDDEN: &[&[c_long]] = &[
    // Other processes' memory and files.
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_kcmp, libc::SYS_pidfd_getfd],
    // The tree of files.
    &[libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_move_mount],
    &[libc::SYS_open_tree, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick],
    &[libc::SYS_mount_setattr, libc::SYS_open_by_handle_at, libc::SYS_quotactl, libc::SYS_swapon, libc::SYS_swapoff],
    // Namespaces.
    &[libc::SYS_setns, libc::SYS_unshare, libc::SYS_clone3],
    // The kernel: programs, modules and keys in it, and the next one.
    &[libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd],
    &[libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module],
    &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl],
    &[libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_reboot, libc::SYS_syslog, libc::SYS_acct],
    // Queues of calls that no filter sees.
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
    // The machine's name and time.
    &[libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_settimeofday, libc::SYS_clock_settime],
    &[libc::SYS_clock_adjtime, libc::SYS_adjtimex],
    #[cfg(target_arch = "x86_64")]
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt],
];

/// Namespaces that a new process can be in.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
];

/// What makes a number that of the same call with 32-bit pointers, where the kernel has those.
const X32: c_long = 0x4000_0000;

/// Gives up these calls, for this thread, those that it starts, and programs that they start, unless a filter is in
/// force already. To be called before there are other threads. Where the kernel cannot do it, the log says so.
pub(super) fn give_up_calls() {
    let given_up = match has_filter() {
        Some(true) => return,
        Some(false) => forbid().map_err(|error| error.to_string()),
        None => Err("/proc does not say whether there is a filter already".to_owned()),
    };
    if let Err(why) = given_up {
        warn!(target: "tidegate", "system calls that are never made are not forbidden: {why}");
    }
}

/// Whether calls of this thread are filtered; of the process before it, of who started it, or of its own. Asked of a
/// file: a filter may forbid the call that would say it.
fn has_filter() -> Option<bool> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

fn forbid() -> Result<(), Error> {
    apply_filter(&filter()?)
}

fn filter() -> Result<BpfProgram, Error> {
    let has_x32 = cfg!(target_arch = "x86_64");
    let both = |call: c_long| [Some(call), has_x32.then_some(call | X32)].into_iter().flatten();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().copied().flatten().copied().flat_map(both).map(|call| (call, Vec::new())).collect();
    for call in both(libc::SYS_clone) {
        let rule = |flag: i32| {
            let flag = flag as u64;
            let asks = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
            SeccompRule::new(vec![asks])
        };
        let some = NAMESPACES.into_iter().map(rule).collect::<Result<Vec<_>, _>>().map_err(Error::Backend)?;
        rules.insert(call, some);
    }
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(Error::Backend)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, arch).map_err(Error::Backend)?;
    filter.try_into().map_err(Error::Backend)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::io::Errno;

    use super::*;

    /// On a thread of its own, which is all that it concerns.
    fn confined<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            forbid().expect("a filter");
            assert_eq!(has_filter(), Some(true));
            test()
        });
        thread.join().expect("no panic")
    }

    #[test]
    fn what_is_never_made_is_missing_here_and_in_what_is_started() {
        confined(|| {
            assert_eq!(rustix::process::chroot("/nowhere"), Err(Errno::NOSYS));
            let said = Command::new("unshare").args(["--user", "true"]).output().expect("it starts");
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.contains("Function not implemented"), "{said}");
        });
    }

    #[test]
    fn what_a_service_and_its_successors_need_is_there() {
        confined(|| {
            let thread = std::thread::spawn(|| Command::new("true").status().expect("it starts"));
            assert!(thread.join().expect("a thread").success());
            assert!(std::net::TcpListener::bind(("127.0.0.1", 0)).is_ok());
            assert!(rustix::thread::set_no_new_privs(true).is_ok());
        });
    }

    /// As a unit's does that has no `seccomp` among the calls that it allows: who asks for another filter is ended.
    #[test]
    fn where_there_is_a_filter_none_is_asked_for() {
        std::thread::spawn(|| {
            let asks = [(libc::SYS_seccomp, Vec::new())].into_iter().collect();
            let arch = std::env::consts::ARCH.try_into().expect("a known processor");
            let filter = SeccompFilter::new(asks, SeccompAction::Allow, SeccompAction::KillProcess, arch);
            let filter: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
            apply_filter(&filter).expect("it is in force");
            // A process is ended by it, and this one is not.
            give_up_calls();
            assert_ne!(rustix::process::chroot("/nowhere"), Err(Errno::NOSYS), "nothing was added");
        })
        .join()
        .expect("no panic");
    }
}
