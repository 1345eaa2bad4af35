//! What clients speak: the protocol, TLS, how far they share connections, and the messages of gRPC.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use tidegate_config::units::parse_size;
use tidegate_loadgen::{Plan, Protocol, Trust, UsersPlan, grpc};

/// Options of both kinds of load.
#[derive(Debug, clap::Args)]
pub(super) struct SpeakArgs {
    /// What clients speak: h1 (HTTP/1.1), h2 (HTTP/2; in clear text without asking, over TLS as agreed on), or grpc
    /// (unary calls over HTTP/2; the path of a URL is /package.Service/Method)
    #[arg(long, value_name = "PROTOCOL", default_value_t = Protocol::H1)]
    protocol: Protocol,
    /// With grpc: size of a call's message, such as 1KiB. It is one field that no service knows, so every one reads it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["message_file", "users"])]
    message: Option<u64>,
    /// With grpc: file with a call's message, encoded
    #[arg(long, value_name = "FILE", conflicts_with = "users")]
    message_file: Option<PathBuf>,
    /// With h2 and grpc: most requests at once on a connection; default: as many as the server allows
    #[arg(long, value_name = "N", conflicts_with = "users")]
    streams: Option<usize>,
    /// For https: PEM file of the authorities to believe; default: this machine's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// For https: believe whatever certificate is shown
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// For https: make each handshake a full one; otherwise sessions are resumed, as browsers do it
    #[arg(long, conflicts_with = "users")]
    full_handshakes: bool,
}

impl SpeakArgs {
    /// Writes it into a plan.
    pub(super) fn say(&self, plan: &mut Plan) -> Result<()> {
        (plan.protocol, plan.trust, plan.resumes) = (self.protocol, self.trust(), !self.full_handshakes);
        ensure!(
            self.streams.is_none() || self.protocol.is_multiplexed(),
            "--streams: HTTP/1.1 has one request at a time on a connection; it is for --protocol h2 or grpc"
        );
        if let Some(streams) = self.streams {
            ensure!(streams > 0, "--streams: must be at least 1");
            plan.per_connection = streams;
        }
        if let Some(message) = self.read_message()? {
            for stream in &mut plan.streams {
                stream.body = message.clone().into();
            }
        }
        Ok(())
    }

    /// Writes it into a plan of users.
    pub(super) fn say_users(&self, plan: &mut UsersPlan) {
        (plan.protocol, plan.trust) = (self.protocol, self.trust());
    }

    fn trust(&self) -> Trust {
        match &self.ca {
            Some(file) => Trust::File(file.clone()),
            None if self.insecure => Trust::Anybody,
            None => Trust::System,
        }
    }

    fn read_message(&self) -> Result<Option<Vec<u8>>> {
        if self.message.is_none() && self.message_file.is_none() {
            return Ok(None);
        }
        let option = if self.message.is_some() { "--message" } else { "--message-file" };
        ensure!(self.protocol == Protocol::Grpc, "{option}: only gRPC has messages; add --protocol grpc");
        if let Some(file) = &self.message_file {
            let message = std::fs::read(file).with_context(|| format!("--message-file: {}", file.display()))?;
            ensure!(message.len() <= LARGEST, "--message-file: {} is larger than 256 MiB", file.display());
            return Ok(Some(message));
        }
        let size = self.message.unwrap_or_default();
        match size {
            1..SMALLEST => bail!("--message: the smallest message that is not empty has {SMALLEST} bytes"),
            _ if size > LARGEST as u64 => bail!("--message: more than 256 MiB"),
            _ => Ok(Some(grpc::message(size).to_vec())),
        }
    }
}

const SMALLEST: u64 = grpc::SMALLEST as u64;

/// A call's message at most: it is sent again and again, out of memory.
const LARGEST: usize = 256 << 20;
