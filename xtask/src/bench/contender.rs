//! The proxies that are compared, each with the configuration that does the same work.
//!
//! All run as many workers as they have cores, which is one in most comparisons, write no access log, keep connections
//! to clients and to the origin, and hold idle clients long.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::load::Shape;
use super::service::{Service, free_address};
use crate::command::{Profile, find_program, output};

/// The default policy, by name: an older tidegate may have another.
const DEFAULT: &str = "{ policy = \"waiting\" }";

/// What a proxy has to do in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Pass every request to the origin.
    Pass,
    /// The same, asking the origin by HTTP/2, as it is for gRPC.
    PassGrpc,
    /// Refuse every request with 503.
    Refuse,
    /// Refuse every request with 503, each after its policy's own test: see `bench c2`.
    RefuseTested,
}

/// One proxy, or one of its ways to refuse.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    /// Its name in tables and in `--only`.
    pub name: &'static str,
    /// What it can do.
    pub duties: &'static [Duty],
    /// Which program it is.
    program: Program,
    configure: fn(&Place) -> String,
    arguments: fn(&Path, usize) -> Vec<String>,
}

/// A program that has one or more contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Nginx,
    Haproxy,
    Envoy,
    Tidegate(Profile),
    Before,
}

/// Where a proxy is and what it does there.
struct Place {
    duty: Duty,
    workers: usize,
    /// How it is asked.
    shape: Shape,
    listen: SocketAddr,
    admin: SocketAddr,
    origin: SocketAddr,
}

/// Another build of our own, named by an environment variable: for a change that claims to make it faster.
pub const BEFORE: &str = "tidegate-before";

/// Every contender. The first is the one to which ratios are taken.
pub const CONTENDERS: &[Contender] = &[
    Contender {
        name: "nginx",
        duties: &[Duty::Pass, Duty::PassGrpc, Duty::Refuse],
        program: Program::Nginx,
        configure: nginx,
        arguments: nginx_arguments,
    },
    Contender {
        name: "haproxy",
        duties: &[Duty::Pass, Duty::PassGrpc, Duty::Refuse],
        program: Program::Haproxy,
        configure: haproxy,
        arguments: |file, _| vec!["-db".into(), "-f".into(), file.display().to_string()],
    },
    Contender {
        name: "envoy",
        duties: &[Duty::Pass, Duty::PassGrpc, Duty::Refuse],
        program: Program::Envoy,
        configure: envoy,
        arguments: envoy_arguments,
    },
    Contender {
        name: "tidegate",
        duties: &[Duty::Pass, Duty::PassGrpc, Duty::Refuse],
        program: Program::Tidegate(Profile::Dist),
        configure: |place| match place.duty {
            Duty::Pass | Duty::PassGrpc => tidegate(place, DEFAULT),
            _ => tidegate(place, "{ policy = \"concurrency\", limit = 0, queue = 0 }"),
        },
        arguments: tidegate_arguments,
    },
    Contender {
        name: BEFORE,
        duties: &[Duty::Pass, Duty::PassGrpc, Duty::Refuse],
        program: Program::Before,
        configure: |place| match place.duty {
            Duty::Pass | Duty::PassGrpc => tidegate(place, DEFAULT),
            _ => tidegate(place, "{ policy = \"concurrency\", limit = 0, queue = 0 }"),
        },
        arguments: tidegate_arguments,
    },
    Contender {
        name: "tidegate-threshold",
        duties: &[Duty::Refuse, Duty::RefuseTested],
        program: Program::Tidegate(Profile::Dist),
        configure: |place| match place.duty {
            Duty::RefuseTested => tidegate_c2(place, "{ policy = \"threshold\", fixed = 0.0 }"),
            _ => tidegate(place, "{ policy = \"threshold\", fixed = 0.0 }"),
        },
        arguments: tidegate_arguments,
    },
    Contender {
        name: "tidegate-batch",
        duties: &[Duty::RefuseTested],
        program: Program::Tidegate(Profile::Dist),
        configure: |place| tidegate_c2(place, "{ policy = \"batch\", delays = [\"0ms\", \"50ms\"] }"),
        arguments: tidegate_arguments,
    },
];

impl Contender {
    /// The same, as checks build it if it is our own: for a look that is no record.
    pub fn quickly_built(self) -> Self {
        let program = match self.program {
            Program::Tidegate(_) => Program::Tidegate(Profile::Release),
            other => other,
        };
        Self { program, ..self }
    }

    /// The program's file; none when this machine lacks it.
    pub fn program(&self) -> Option<PathBuf> {
        match self.program {
            Program::Nginx => find_program("nginx"),
            Program::Haproxy => find_program("haproxy"),
            Program::Envoy => {
                let given = std::env::var_os("ENVOY").map(PathBuf::from);
                given.or_else(|| find_program("envoy"))
            }
            Program::Tidegate(profile) => Some(profile.tidegate()),
            Program::Before => std::env::var_os("TIDEGATE_BEFORE").map(PathBuf::from),
        }
    }

    /// Builds the program, when it is ours.
    ///
    /// # Errors
    /// When it does not build.
    pub fn build(&self) -> Result<()> {
        match self.program {
            Program::Tidegate(profile) => profile.build(),
            Program::Nginx | Program::Haproxy | Program::Envoy | Program::Before => Ok(()),
        }
    }

    /// The program's own words about its version.
    pub fn version(&self) -> String {
        let Some(program) = self.program() else { return "absent".to_owned() };
        let flag = if self.program == Program::Nginx || self.program == Program::Haproxy { "-v" } else { "--version" };
        let shell = format!("\"$0\" {flag} 2>&1 | head -n 2 | tr '\\n' ' '");
        let said = output(Command::new("sh").arg("-c").arg(shell).arg(&program));
        // Some say where they lie; that is true on this machine only.
        let said = said.map(|said| said.replace(&program.display().to_string(), self.name));
        said.unwrap_or_else(|error| format!("unknown: {error}"))
    }

    /// Starts it on one core, in front of the origin.
    ///
    /// # Errors
    /// When it is missing, refuses its configuration or does not listen.
    pub fn start(&self, asked: (Duty, Shape), origin: SocketAddr, core: usize, dir: &Path) -> Result<Service> {
        self.start_on(asked, origin, &[core], dir)
    }

    /// The same with a worker for each of several cores.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(
        &self,
        (duty, shape): (Duty, Shape),
        origin: SocketAddr,
        cores: &[usize],
        dir: &Path,
    ) -> Result<Service> {
        let program = self.program().with_context(|| format!("{} is not on this machine", self.name))?;
        let workers = cores.len();
        let place = Place { duty, workers, shape, listen: free_address()?, admin: free_address()?, origin };
        let file = dir.join(format!("{}.{}", self.name, self.extension()));
        fs::write(&file, (self.configure)(&place))?;
        let mut command = Command::new(program);
        command.args((self.arguments)(&file, workers)).current_dir(dir);
        Service::start_on(self.name, command, cores, place.listen, dir)
    }

    fn extension(&self) -> &'static str {
        match self.program {
            Program::Nginx | Program::Haproxy => "conf",
            Program::Envoy => "yaml",
            Program::Tidegate(_) | Program::Before => "toml",
        }
    }
}

/// Makes the certificate that proxies show where they are asked over TLS, and its key.
///
/// # Errors
/// When openssl does not.
pub fn make_certificate(dir: &Path) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"]).current_dir(dir);
    output(&mut openssl).context("openssl (Debian package openssl) makes a certificate")?;
    let both = [fs::read(dir.join("cert.pem"))?, fs::read(dir.join("key.pem"))?].concat();
    Ok(fs::write(dir.join("both.pem"), both)?)
}

/// Its errors go to its log, everything else into the folder.
pub fn nginx_arguments(file: &Path, _workers: usize) -> Vec<String> {
    let dir = file.parent().unwrap_or(file).display().to_string();
    vec!["-e".into(), "stderr".into(), "-p".into(), dir, "-c".into(), file.display().to_string()]
}

/// TLS 1.3 as the others speak it, and as nginx does by itself from 1.23.4 on: a session of 1.2 is resumed without new
/// keys, which is another piece of work.
const NGINX_TLS: &str =
    "ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on; ";

fn nginx(place: &Place) -> String {
    let mut http = String::new();
    let _ =
        writeln!(http, "upstream origin {{ server {}; keepalive 64; keepalive_requests 1000000000; }}", place.origin);
    let _ = writeln!(http, "limit_req_zone $binary_remote_addr zone=refuse:1m rate=1r/m;");
    let (listens, certificate) = match place.shape {
        Shape::Http2 => (" http2", ""),
        Shape::Http2Tls => (" ssl http2", NGINX_TLS),
        shape if shape.is_tls() => (" ssl", NGINX_TLS),
        _ => ("", ""),
    };
    let _ = writeln!(http, "server {{ listen {}{listens}; {certificate}location / {{", place.listen);
    if place.duty == Duty::Refuse {
        // At this rate one request a minute passes; its lines go below the error log's level.
        let _ = writeln!(http, "limit_req zone=refuse; limit_req_status 503; limit_req_log_level info;");
    }
    if place.duty == Duty::PassGrpc {
        let _ = writeln!(http, "grpc_pass grpc://origin; }} }}");
        return nginx_frame("nginx", place.workers, &http);
    }
    let _ = writeln!(http, "proxy_http_version 1.1; proxy_set_header Connection \"\";");
    // With its small default buffers nginx needs twice the CPU for 64 kB: compare with a tuned one.
    let _ = writeln!(http, "proxy_buffer_size 16k; proxy_buffers 8 16k; proxy_busy_buffers_size 64k;");
    let _ = writeln!(http, "proxy_max_temp_file_size 0;");
    let _ = writeln!(http, "proxy_pass http://origin; }} }}");
    nginx_frame("nginx", place.workers, &http)
}

/// The configuration around what it listens to.
pub fn nginx_frame(name: &str, workers: usize, http: &str) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root root;\n" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.iter().map(|kind| format!("{kind}_temp_path {name}-{kind};\n")).collect();
    format!(
        "{user}daemon off; pid {name}.pid; error_log stderr crit; worker_processes {workers};\n\
         events {{ worker_connections 12000; }}\n\
         http {{\naccess_log off; keepalive_requests 1000000000; keepalive_timeout 600s;\n{temporary}{http}}}\n"
    )
}

fn haproxy(place: &Place) -> String {
    let refuse = if place.duty == Duty::Refuse { "  http-request deny deny_status 503\n" } else { "" };
    let front = match place.shape {
        Shape::Http2 => " proto h2",
        Shape::Http2Tls => " ssl crt both.pem alpn h2",
        shape if shape.is_tls() => " ssl crt both.pem",
        _ => "",
    };
    let back = if place.duty == Duty::PassGrpc { " proto h2" } else { "" };
    format!(
        "global\n  nbthread {}\n  maxconn 10500\n  no strict-limits\n\
         defaults\n  mode http\n  http-reuse always\n  timeout connect 5s\n  timeout client 600s\n  \
         timeout server 60s\n  timeout http-keep-alive 600s\n\
         frontend clients\n  bind {}{front}\n{refuse}  default_backend origin\n\
         backend origin\n  server origin {}{back}\n",
        place.workers, place.listen, place.origin
    )
}

fn envoy_arguments(file: &Path, workers: usize) -> Vec<String> {
    let workers = workers.to_string();
    let words = ["--concurrency", &workers, "--log-level", "error", "--disable-hot-restart", "-c"];
    words.iter().map(|word| (*word).to_owned()).chain([file.display().to_string()]).collect()
}

fn envoy(place: &Place) -> String {
    let limit = "          - name: envoy.filters.http.local_ratelimit
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: refuse
              status: { code: ServiceUnavailable }
              token_bucket: { max_tokens: 1, tokens_per_fill: 1, fill_interval: 60s }
              filter_enabled: { default_value: { numerator: 100, denominator: HUNDRED } }
              filter_enforced: { default_value: { numerator: 100, denominator: HUNDRED } }
";
    let limit = if place.duty == Duty::Refuse { limit } else { "" };
    let tls = "      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [ALPN]
            tls_certificates: [{ certificate_chain: { filename: cert.pem }, private_key: { filename: key.pem } }]
";
    let tls = if place.shape.is_tls() { tls } else { "" };
    let tls = tls.replace("ALPN", if place.shape.is_http2() { "h2" } else { "http/1.1" });
    let http2 = "    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
";
    let http2 = if place.duty == Duty::PassGrpc { http2 } else { "" };
    format!(
        "static_resources:
  listeners:
  - name: clients
    address: {{ socket_address: {{ address: {listen_ip}, port_value: {listen_port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes: [{{ match: {{ prefix: / }}, route: {{ cluster: origin }} }}]
          http_filters:
{limit}          - name: envoy.filters.http.router
            typed_config: {{ '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
{tls}  clusters:
  - name: origin
    type: STATIC
    connect_timeout: 5s
{http2}    circuit_breakers: {{ thresholds: [{{ max_connections: 24000, max_pending_requests: 24000, max_requests: 24000 }}] }}
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {origin_ip}, port_value: {origin_port} }} }} }}
",
        listen_ip = place.listen.ip(),
        listen_port = place.listen.port(),
        origin_ip = place.origin.ip(),
        origin_port = place.origin.port(),
    )
}

fn tidegate_arguments(file: &Path, _workers: usize) -> Vec<String> {
    vec!["run".into(), "-c".into(), file.display().to_string()]
}

fn tidegate(place: &Place, admission: &str) -> String {
    let scheme = if place.duty == Duty::PassGrpc { "h2c://" } else { "" };
    let certificate = "\n[[application.tls.certificate]]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let tls = if place.shape.is_tls() { certificate } else { "" };
    // Limits as generous as the others': clients that may connect and idle.
    format!(
        "[sentry]\nworkers = {}\n\n[admin]\nlisten = \"{}\"\n\n[[application]]\nname = \"bench\"\nlisten = \"{}\"\n\
         servers = [\"{scheme}{}\"]\nadmission = {admission}\nlimits = {{ connections = 12000 }}\n\
         timeouts = {{ client_idle = \"600s\" }}\n{tls}",
        place.workers, place.admin, place.listen, place.origin
    )
}

/// Every test fails: one request occupies the server's only processor for good, and by configuration any other would
/// take ten times the target. So each one is classified, tested and refused; none is refused untested.
fn tidegate_c2(place: &Place, admission: &str) -> String {
    format!(
        "[sentry]\nworkers = {}\n\n[admin]\nlisten = \"{}\"\n\n[[application]]\nname = \"bench\"\nlisten = \"{}\"\n\
         servers = [{{ address = \"{}\", cores = 1 }}]\ntarget = \"1s\"\ndefault_cost = \"10s\"\n\
         admission = {admission}\nlimits = {{ connections = 12000, waiting = 12000 }}\n\
         timeouts = {{ client_idle = \"600s\", first_byte = \"600s\" }}\n\n\
         [[application.class]]\nname = \"gold\"\nmatch = [{{ path_prefix = \"/gold\" }}]\n\n\
         [[application.class]]\nname = \"silver\"\n",
        place.workers, place.admin, place.listen, place.origin
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(duty: Duty) -> Place {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        Place { duty, workers: 1, shape: Shape::KeepAlive, listen: at(1001), admin: at(1002), origin: at(1003) }
    }

    #[test]
    fn every_configuration_names_its_ports_and_only_a_refusing_one_refuses() {
        for contender in CONTENDERS {
            let mut texts = Vec::new();
            for duty in contender.duties {
                let text = (contender.configure)(&place(*duty));
                assert!(text.contains("1001") && text.contains("1003"), "{}: {text}", contender.name);
                texts.push(text);
            }
            texts.dedup();
            assert_eq!(texts.len(), contender.duties.len(), "{} does the same twice", contender.name);
        }
    }

    #[test]
    fn ours_is_toml() {
        let text = tidegate(&place(Duty::Refuse), "{ policy = \"threshold\", fixed = 0.0 }");
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["sentry"]["workers"].as_integer(), Some(1));
        assert_eq!(table["application"][0]["admission"]["policy"].as_str(), Some("threshold"));
    }
}
