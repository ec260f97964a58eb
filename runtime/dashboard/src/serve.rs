//! A dashboard from its start to its end.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use wasmrun_client::ConnectError;
use wasmrun_client::wire::Address;
use wasmrun_net::{PemPart, server_tls};

use crate::data::Source;
use crate::listen;
use crate::live::LiveViews;
use crate::routes::{self, App};
use crate::sessions::Sessions;
use crate::site::Site;

/// Where the page is by default: only this machine reaches it.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7463);
/// How many ports are tried from the default one on.
const PORTS: u16 = 64;

/// How the page is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where.
    pub address: SocketAddr,
    /// Whether the user chose that address. If not, the next free port will do.
    pub is_chosen: bool,
    /// The certificate. An address that other machines reach needs one.
    pub tls: Option<Tls>,
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate, and those between it and a root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindDashboardError {
    /// Other machines reach the address, and there is no certificate.
    #[error(
        "other machines can reach {0}, and the page lets people cancel work: give it a certificate with --dashboard-cert and \
         --dashboard-key, or use 127.0.0.1 and forward that port, as `ssh -L` does"
    )]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error("the page cannot be served at {address}: {error}; name a free address of this machine")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The certificate or the key cannot be used.
    #[error(
        "{} cannot be used for the page: {why}; give a certificate and its private key, each in a PEM file",
        path.display()
    )]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The socket of a page, before there is a node: nobody is answered yet.
#[derive(Debug)]
pub struct BoundDashboard {
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    address: SocketAddr,
}

impl BoundDashboard {
    /// Listens, on the tokio runtime that this runs on.
    ///
    /// # Errors
    /// When other machines reach the address and there is no certificate, when that or its key cannot be used, and when the
    /// address cannot be listened on.
    pub async fn bind(config: Config) -> Result<Self, BindDashboardError> {
        if config.tls.is_none() && !config.address.ip().is_loopback() {
            return Err(BindDashboardError::Open(config.address));
        }
        let tls = config.tls.as_ref().map(server_config).transpose()?;
        let listener = bind(&config).await?;
        // The port, where the system has chosen it.
        let address = listener.local_addr().unwrap_or(config.address);
        Ok(Self {
            listener,
            tls,
            address,
        })
    }

    /// Serves the page of the node at this socket.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn serve(self, node: Address) -> Result<Dashboard, ConnectError> {
        let source = Source::connect(node).await?;
        let app = Arc::new(App {
            site: Site::new(self.address, self.tls.is_some()),
            sessions: Mutex::new(Sessions::default()),
            source: Arc::new(source),
            live: LiveViews::default(),
            followers: Arc::new(Semaphore::new(listen::MOST_FOLLOWERS)),
        });
        let router = routes::router(app.clone());
        let tls = self.tls.map(TlsAcceptor::from);
        let accepting = tokio::spawn(listen::accept(self.listener, tls, router));
        Ok(Dashboard { app, accepting })
    }
}

/// The page of a node, served. Dropping it closes the socket, all connections and all sessions with the node.
#[derive(Debug)]
pub struct Dashboard {
    app: Arc<App>,
    accepting: JoinHandle<()>,
}

impl Dashboard {
    /// The page's URL. Without a link it shows only how to get one.
    pub fn url(&self) -> String {
        self.app.site.url()
    }

    /// A new link, which works once, within ten minutes.
    pub fn link(&self) -> String {
        let key = self.app.sessions.lock().link(Instant::now());
        format!("{}/enter?key={key}", self.url())
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // The connections are the accepting task's, and end with it.
        self.accepting.abort();
        self.app.live.stop();
    }
}

/// Listens at the address, or at the next port that is free if the user chose none.
async fn bind(config: &Config) -> Result<TcpListener, BindDashboardError> {
    let mut address = config.address;
    for _ in 0..PORTS {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if !config.is_chosen && error.kind() == io::ErrorKind::AddrInUse => {
                address.set_port(address.port().saturating_add(1));
            }
            Err(error) => return Err(BindDashboardError::Listen { address, error }),
        }
    }
    let error = io::Error::from(io::ErrorKind::AddrInUse);
    Err(BindDashboardError::Listen {
        address: config.address,
        error,
    })
}

/// TLS with this certificate.
fn server_config(tls: &Tls) -> Result<Arc<ServerConfig>, BindDashboardError> {
    let bad = |path: &Path, why: String| BindDashboardError::Pem {
        path: path.to_owned(),
        why,
    };
    let read = |path| fs::read(path).map_err(|error| bad(path, error.to_string()));
    let config = server_tls(&read(&tls.cert)?, &read(&tls.key)?, &[b"http/1.1"]);
    let config = config.map_err(|error| match error.part {
        PemPart::Certificate => bad(&tls.cert, error.why),
        PemPart::Key => bad(&tls.key, error.why),
    })?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(address: &str) -> Config {
        Config {
            address: address.parse().expect("it is one"),
            is_chosen: true,
            tls: None,
        }
    }

    #[tokio::test]
    async fn other_machines_need_a_certificate() {
        let refused = BoundDashboard::bind(config("0.0.0.0:0")).await;
        let said = refused.expect_err("it is open").to_string();
        assert!(said.contains("--dashboard-cert"), "{said}");
        let mut with = config("0.0.0.0:0");
        with.tls = Some(Tls {
            cert: "/nowhere/cert.pem".into(),
            key: "/nowhere/key.pem".into(),
        });
        let refused = BoundDashboard::bind(with).await;
        let said = refused.expect_err("there is none").to_string();
        assert!(said.contains("/nowhere/cert.pem"), "{said}");
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said() {
        let dir = tempfile::tempdir().expect("there is room");
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("it is a name");
        let other = rcgen::KeyPair::generate().expect("it can be made");
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("it can be written");
            path
        };
        let (cert, key) = (
            file("cert", &made.cert.pem()),
            file("key", &made.signing_key.serialize_pem()),
        );
        let accepts = |cert: &PathBuf, key: &PathBuf| {
            let (cert, key) = (cert.clone(), key.clone());
            let accepted = server_config(&Tls { cert, key }).map(drop);
            accepted.map_err(|error| error.to_string())
        };
        assert_eq!(accepts(&cert, &key), Ok(()));
        let nowhere = dir.path().join("nowhere");
        let cut = file("cut", &format!("{begin}\nAAAA\n"));
        let garbled = file("garbled", &format!("{begin}\n!\n{end}\n"));
        let empty = file("empty", &format!("{begin}\nAAAA\n{end}\n"));
        let open = file("open", "-----BEGIN CERTIFICATE\n");
        let bad = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let bad = file("bad", bad);
        let other = file("other", &other.serialize_pem());
        for (cert, key, at, says) in [
            (&nowhere, &key, "nowhere", "No such file"),
            (&cert, &nowhere, "nowhere", "No such file"),
            (&key, &key, "key", "there is no certificate in it"),
            (
                &cert,
                &cert,
                "cert",
                "there is no unencrypted private key in it",
            ),
            (&cut, &key, "cut", "-----END is missing"),
            (&garbled, &key, "garbled", "is not base64"),
            (&open, &key, "open", "does not end with -----"),
            (
                &empty,
                &key,
                "empty",
                "its first certificate cannot be read",
            ),
            (&cert, &bad, "bad", "it cannot be read"),
            (&cert, &other, "other", "it is not that of the certificate"),
        ] {
            let said = accepts(cert, key).expect_err("it cannot be used");
            let begins = format!("{} cannot be used", dir.path().join(at).display());
            assert!(said.starts_with(&begins) && said.contains(says), "{said}");
        }
    }

    #[tokio::test]
    async fn the_next_port_will_do_unless_one_was_asked_for() {
        let taken = bind(&config("127.0.0.1:0")).await.expect("there is one");
        let mut next = config(&taken.local_addr().expect("it has one").to_string());
        bind(&next).await.expect_err("it is taken");
        next.is_chosen = false;
        let other = bind(&next).await.expect("others are free");
        assert_ne!(other.local_addr().ok(), taken.local_addr().ok());
    }
}
