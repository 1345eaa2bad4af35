//! A process that may change the machine's packet filters, so that the one that reads what clients send need not.
//!
//! *Intuition.* The program starts itself once more before it does anything else. The copy keeps CAP_NET_ADMIN and
//! nothing else; the original gives it up, for good. What the copy can be asked for is a policer's few acts, in numbers
//! and addresses that are checked: who takes over the sentry can police the wrong connections, and no more.
//!
//! *Awkward cases.* A successor is started by a process without the capability. So it gets the *door*, a socket to the
//! helper to which both have the same end; nothing is ever read from it. Through the door each policer sends one end of
//! a socket of its own. The newest policer of a table has it, an older one is told so, and may have it back when that
//! one is gone, as after an upgrade that failed. The helper ends once nobody has the door or such a socket any more: it
//! removes the rules then, which a sentry that was killed could not. If the helper is killed, the rules end by their
//! lease.

mod protocol;
mod serve;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use crate::policer::InstallError;
use crate::rules::{Counts, Plan};
use protocol::{Answer, Ask, Wanted};

pub use serve::serve;

/// The helper answers within this time, or is taken for dead: `nft` with a large plan takes the longest.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to a helper.
#[derive(Debug)]
pub struct Helper {
    door: OwnedFd,
}

/// Why a policer does not do as it is told.
#[derive(Debug, thiserror::Error)]
pub enum PoliceError {
    /// The kernel refuses. The last lease runs out.
    #[error("the kernel's packet filter refuses: {0}")]
    Kernel(#[from] io::Error),
    /// Another policer of this helper has the table now.
    #[error("another process polices connections to this address now")]
    TakenOver,
    /// The helper is dead.
    #[error("the process that polices connections has ended: {0}")]
    Gone(io::Error),
}

impl Helper {
    /// What the door is called among sockets that are passed on.
    pub const NAME: &str = "policing";

    /// Starts a helper: a command that does nothing but [`serve()`] its standard input. To be called before this
    /// process has threads.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Helper> {
        use std::os::unix::process::CommandExt;
        let (door, theirs) = UnixStream::pair()?;
        // What is meant for the terminal's group is meant for who is at work there.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).env_clear().process_group(0).spawn()?;
        Ok(Helper { door: door.into() })
    }

    /// One that another process has started; `None` if it has ended.
    pub fn adopt(door: OwnedFd) -> Option<Helper> {
        let mut nothing = [0; 1];
        match recv(&door, &mut nothing, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Err(rustix::io::Errno::AGAIN) => Some(Helper { door }),
            _ => None,
        }
    }

    /// What a successor needs.
    pub fn door(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }

    /// A socket on which a policer is spoken of.
    fn enter(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let sockets = [theirs.as_fd()];
        with.push(SendAncillaryMessage::ScmRights(&sockets));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.door, &[IoSlice::new(&[protocol::VERSION])], &mut with, flags)?;
        Ok(ours)
    }
}

/// A policer in a helper. Dropped, its rules are removed.
#[derive(Debug)]
pub(crate) struct Remote {
    stream: UnixStream,
    plan: Plan,
    changes: u64,
}

impl Remote {
    pub(crate) fn install(plan: Plan, helper: &Helper) -> Result<Remote, InstallError> {
        // The helper has no names to say it with.
        if let Some((one, other)) = plan.overlap() {
            return Err(InstallError::Overlap(one.to_owned(), other.to_owned()));
        }
        let stream = helper.enter().map_err(|error| InstallError::Helper(PoliceError::Gone(error).to_string()))?;
        let mut remote = Remote { stream, plan, changes: 0 };
        let wanted = Wanted::new(&remote.plan, false);
        match remote.ask(&Ask::Install(wanted)) {
            Ok(Answer::Done) => Ok(remote),
            Ok(Answer::Refused(why)) => Err(InstallError::Helper(why)),
            Ok(_) => Err(InstallError::Helper(unexpected().to_string())),
            Err(error) => Err(InstallError::Helper(error.to_string())),
        }
    }

    /// Polices again where another has policed meanwhile, if that one is gone.
    pub(crate) fn reclaim(&mut self) -> Result<(), PoliceError> {
        let wanted = Wanted::new(&self.plan, true);
        self.ask(&Ask::Install(wanted)).and_then(done)
    }

    pub(crate) fn set_rate(&mut self, rate: Option<f64>) -> Result<bool, PoliceError> {
        match self.ask(&Ask::Rate(rate))? {
            Answer::Changed(changed) => Ok(changed),
            other => done(other).map(|()| false),
        }
    }

    pub(crate) fn renew(&mut self) -> Result<(), PoliceError> {
        self.ask(&Ask::Renew).and_then(done)
    }

    pub(crate) fn counts(&mut self) -> Result<Vec<Counts>, PoliceError> {
        match self.ask(&Ask::Counts)? {
            Answer::Counts { classes, changes } => {
                self.changes = changes;
                let named = self.plan.names().into_iter().zip(classes);
                Ok(named.map(|(class, (admitted, refused))| Counts { class, admitted, refused }).collect())
            }
            other => done(other).map(|()| Vec::new()),
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer, PoliceError> {
        protocol::send(&mut self.stream, ask).map_err(PoliceError::Gone)?;
        match protocol::receive(&mut self.stream).map_err(PoliceError::Gone)? {
            Some(Answer::TakenOver) => Err(PoliceError::TakenOver),
            Some(Answer::Failed(why)) => Err(PoliceError::Kernel(io::Error::other(why))),
            Some(answer) => Ok(answer),
            None => Err(PoliceError::Gone(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn done(answer: Answer) -> Result<(), PoliceError> {
    match answer {
        Answer::Done => Ok(()),
        Answer::Refused(why) => Err(PoliceError::Kernel(io::Error::other(why))),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> PoliceError {
    PoliceError::Gone(io::Error::new(io::ErrorKind::InvalidData, "it answers something else than was asked"))
}
