//! The proxies that ask, by the configurations that their pages show, with other addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::service::{Service, free_address};
use crate::command::{self, find_program};
use crate::real::sentry::Sentry;

use super::PROXY_CORE;

/// A proxy, with where its program is.
#[derive(Debug)]
pub enum Proxy {
    Envoy(PathBuf),
    Nginx(PathBuf),
    Haproxy(PathBuf),
}

/// Who decides what it lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// Nobody.
    Nobody,
    /// It does, by what it has for that.
    Itself,
    /// It asks tidegate.
    Tidegate,
}

/// A sentry that a proxy asks, and where it is told of ends.
pub struct Asked {
    pub sentry: Sentry,
    ends: SocketAddr,
}

/// As Envoy's documentation shows it, with a shorter interval.
const ADAPTIVE: &str = "
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { interval: 60s, request_count: 50 }";

/// One thread, as one is measured, and room for all of the load.
const ONE_THREAD: &str = "global\n    nbthread 1\n    maxconn 4000\n\n";

/// Twice as many at a time as the service has processors, as somebody would set it who knows the service.
const LIMIT: &str = "limit_conn all 8; limit_conn_status 503;";

impl Proxy {
    /// The proxy of this name.
    ///
    /// # Errors
    /// When there is none, or not on this machine.
    pub fn named(name: &str) -> Result<Proxy> {
        match name {
            "envoy" => {
                let program = std::env::var_os("ENVOY").map(PathBuf::from).or_else(|| find_program("envoy"));
                Ok(Proxy::Envoy(program.context("Envoy is not on this machine; put its program in ENVOY")?))
            }
            "nginx" => Ok(Proxy::Nginx(find_program("nginx").context("nginx is not on this machine")?)),
            "haproxy" => Ok(Proxy::Haproxy(find_program("haproxy").context("HAProxy is not on this machine")?)),
            _ => bail!("tidegate is not tried beside \"{name}\"; write envoy, nginx or haproxy"),
        }
    }

    /// What people call it.
    pub fn title(&self) -> &'static str {
        match self {
            Proxy::Envoy(_) => "Envoy",
            Proxy::Nginx(_) => "nginx",
            Proxy::Haproxy(_) => "HAProxy",
        }
    }

    /// What it has for itself.
    pub fn own(&self) -> &'static str {
        match self {
            Proxy::Envoy(_) => "Envoy's adaptive concurrency",
            Proxy::Nginx(_) => "nginx's limit_conn, 8 at a time",
            Proxy::Haproxy(_) => "HAProxy's maxconn, 8 at a time, and its queue, 0.3 s",
        }
    }

    /// A sentry that it asks.
    ///
    /// # Errors
    /// When its page shows none, or it does not start.
    pub fn asked(&self, dir: &Path) -> Result<Asked> {
        let (listen, ends) = (free_address()?, free_address()?);
        let text = self.shown("toml")?.replace("127.0.0.1:8080", &listen.to_string());
        // The admin API's address is not the page's either.
        let text = text.replace("[admin]\nlisten = \"127.0.0.1:9900\"\n", "");
        let text = format!("ends = \"{ends}\"\n[sentry]\nworkers = 1\n\n{text}");
        Ok(Asked { sentry: Sentry::with_file(&text, listen, PROXY_CORE, dir)?, ends })
    }

    /// Itself, before a service.
    ///
    /// # Errors
    /// When its page shows no configuration, or it does not start.
    pub fn start(&self, decides: Decides, service: SocketAddr, asked: &Asked, dir: &Path) -> Result<Service> {
        let listen = free_address()?;
        let (text, command) = match self {
            Proxy::Envoy(program) => {
                let mut text = self.shown("yaml")?;
                for (port, address) in [(10000, listen), (9001, service), (8080, asked.sentry.address())] {
                    text = text.replace(&format!("port_value: {port} "), &format!("port_value: {} ", address.port()));
                }
                let mut envoy = Command::new(program);
                envoy.args(["--concurrency", "1", "-l", "warning", "--use-dynamic-base-id"]);
                (envoy_decides(text, decides)?, envoy)
            }
            Proxy::Nginx(program) => {
                let mut text = self.shown("nginx")?;
                for (port, address) in
                    [(10000, listen), (9001, service), (8080, asked.sentry.address()), (9902, asked.ends)]
                {
                    text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
                }
                let mut nginx = Command::new(program);
                nginx.arg("-p").arg(dir);
                // One process, as one is measured.
                nginx.args(["-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;"]);
                (nginx_decides(text, decides)?, nginx)
            }
            Proxy::Haproxy(program) => {
                let mut text = self.shown("haproxy")?;
                for (port, address) in
                    [(10000, listen), (9001, service), (8080, asked.sentry.address()), (9902, asked.ends)]
                {
                    text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
                }
                let agent = dir.join("spoe.conf");
                fs::write(&agent, self.shown("ini")?)?;
                text = text.replace("spoe.conf", &agent.to_string_lossy());
                let mut haproxy = Command::new(program);
                haproxy.arg("-db");
                (haproxy_decides(&text, decides)?, haproxy)
            }
        };
        let (file, mut command) = (dir.join("proxy.conf.yaml"), command);
        fs::write(&file, text)?;
        command.arg(if matches!(self, Proxy::Haproxy(_)) { "-f" } else { "-c" }).arg(&file);
        Service::start("proxy", command, PROXY_CORE, listen, dir)
    }

    /// The block of a language in its page.
    fn shown(&self, language: &str) -> Result<String> {
        let page = format!("docs/{}.md", self.title().to_lowercase());
        let text = fs::read_to_string(command::root().join(&page))?;
        let block = text.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        Ok(block.with_context(|| format!("{page} shows no {language}"))?.to_owned())
    }
}

fn envoy_decides(mut text: String, decides: Decides) -> Result<String> {
    if decides != Decides::Tidegate {
        let own = if decides == Decides::Itself { ADAPTIVE } else { "" };
        let begin = text.find("\n          - name: tidegate\n").context("docs/envoy.md has no filter `tidegate`")?;
        let end = text.find("\n          - name: envoy.filters.http.router").context("docs/envoy.md has no router")?;
        text.replace_range(begin..end, own);
    }
    Ok(text)
}

fn haproxy_decides(text: &str, decides: Decides) -> Result<String> {
    let mut text = format!("{ONE_THREAD}{text}");
    if decides != Decides::Tidegate {
        let begin = text.find("    filter spoe").context("docs/haproxy.md has no filter")?;
        let end = text.find("    default_backend").context("docs/haproxy.md has no default_backend")?;
        text.replace_range(begin..end, "");
        text.truncate(text.find("backend tidegate").context("docs/haproxy.md has no `backend tidegate`")?);
    }
    if decides == Decides::Itself {
        text =
            text.replace("    server shop ", "    timeout queue 300ms\n    default-server maxconn 8\n    server shop ");
    }
    Ok(text)
}

fn nginx_decides(mut text: String, decides: Decides) -> Result<String> {
    if decides != Decides::Tidegate {
        let begin = text.find("location / {").context("docs/nginx.md has no `location /`")?;
        let end = text.find("location @admitted {").context("docs/nginx.md has no `location @admitted`")?;
        text.replace_range(begin..end, "");
        let own = if decides == Decides::Itself { LIMIT } else { "" };
        text = text.replace("location @admitted {", &format!("location / {{ access_log off; {own}"));
        text = text.replace("    server {", "    limit_conn_zone $server_port zone=all:64k;\n    server {");
    }
    Ok(text)
}
