//! Files of servers, and who looks names up.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use tidegate_config::{At, List};

use super::super::raw::{RawServer, RawServerTable};
use super::super::server_file;
use super::super::{Server, ServerFile};
use super::Resolver;

/// Where name servers listen.
const DNS: u16 = 53;

/// The servers that are in files.
pub(super) fn in_files(files: &[ServerFile]) -> impl Iterator<Item = &Server> + Clone {
    files.iter().flat_map(|file| file.servers.iter().map(|(server, _)| server))
}

impl Resolver<'_, '_, '_> {
    /// Files of servers, with what is in them now.
    pub(super) fn server_files(&mut self, list: Vec<At<RawServer>>) -> Vec<ServerFile> {
        let files: Vec<_> =
            list.into_iter().filter_map(|At { value: RawServer(table), .. }| self.file(table)).collect();
        let names = files.iter().map(|(file, at)| (file.path.to_str().unwrap_or_default(), &at.span));
        self.once("file", "name each file once", names);
        files.into_iter().map(|(file, _)| file).collect()
    }

    fn file(&mut self, table: RawServerTable) -> Option<(ServerFile, At<String>)> {
        let RawServerTable { file, name, address, role, cores, weight, max_connections } = table;
        let file = file?;
        let others = [
            ("name", name.map(|given| given.span)),
            ("address", address.map(|given| given.span)),
            ("role", role.map(|given| given.span)),
            ("cores", cores.map(|given| given.span)),
            ("weight", weight.map(|given| given.span)),
            ("max_connections", max_connections.map(|given| given.span)),
        ];
        if let Some((key, span)) = others.into_iter().find_map(|(key, span)| Some((key, span?))) {
            self.report
                .error(&span, format!("\"{key}\" is for one server; write it in the file, at the server it is for"));
        }
        let path = self.world.absolute(Path::new(&file.value));
        let text = match self.world.read(Path::new(&file.value)).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                self.report.error(&file.span, format!("file \"{}\" is not text", file.value));
                return None;
            }
            Err(error) => {
                self.report.error(&file.span, format!("file \"{}\" cannot be read: {error}", file.value));
                return None;
            }
        };
        match server_file::parse(&text, &path.display().to_string()) {
            Ok(servers) => Some((ServerFile { path, servers }, file)),
            Err(errors) => {
                self.report.error(&file.span, errors.to_string());
                None
            }
        }
    }

    /// The name servers to ask: addresses, on port 53 where they do not say.
    pub(super) fn resolvers(&mut self, list: At<List<String>>) -> Vec<SocketAddr> {
        let resolver = |given: At<String>| {
            let text = given.value.trim();
            let address = text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, DNS)));
            if address.is_none() {
                let message = format!("\"{text}\" is no address of a name server; write for example \"10.0.0.2:53\"");
                self.report.error(&given.span, message);
            }
            address
        };
        list.value.0.into_iter().filter_map(resolver).collect()
    }
}
