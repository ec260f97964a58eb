//! The suite on a real etcd server, started by each test on ports and in a folder of its own.
//!
//! Where there is no etcd the tests say so and do nothing, unless `WASMRUN_REQUIRE_ETCD` is set, as in CI.
//! `WASMRUN_ETCD` names the program if it is not on the path.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use wasmrun_control::ControlStore;
use wasmrun_control::etcd::{Etcd, EtcdConfig};

use crate::Harness;

pub struct Server {
    folder: TempDir,
    program: PathBuf,
    /// For clients, and for other servers, of which there are none.
    ports: [u16; 2],
    child: Child,
}

impl Server {
    /// A new server, or nothing where there is no etcd.
    pub async fn start() -> Option<Self> {
        let program = std::env::var_os("WASMRUN_ETCD").map_or("etcd".into(), PathBuf::from);
        let folder = tempfile::tempdir().unwrap();
        // Somebody else may take a port before etcd does: then with others.
        for _ in 0..10 {
            let ports = free_ports();
            let child = match spawn(&program, &folder, ports) {
                Ok(child) => child,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let why = "there is no etcd server here: install Debian's etcd-server";
                    wasmrun_tests::skipped("WASMRUN_REQUIRE_ETCD", why);
                    return None;
                }
                Err(error) => panic!("cannot start {}: {error}", program.display()),
            };
            let mut server = Self {
                folder: tempfile::tempdir().unwrap(),
                program: program.clone(),
                ports,
                child,
            };
            if server.is_up().await {
                server.folder = folder;
                return Some(server);
            }
        }
        panic!("etcd does not start");
    }

    pub fn config(&self) -> EtcdConfig {
        EtcdConfig::new([format!("http://127.0.0.1:{}", self.ports[0])], "test")
    }

    /// Waits until it takes connections; false if it has ended instead.
    async fn is_up(&mut self) -> bool {
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            let address = ("127.0.0.1", self.ports[0]);
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// As with SIGKILL: nothing is put in order.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same server once more.
    pub async fn start_again(&mut self) {
        loop {
            self.child = spawn(&self.program, &self.folder, self.ports).unwrap();
            if self.is_up().await {
                return;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn spawn(program: &PathBuf, folder: &TempDir, ports: [u16; 2]) -> std::io::Result<Child> {
    let [clients, peers] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let log = std::fs::File::create(folder.path().join("log"))?;
    Command::new(program)
        .args(["--name", "test", "--data-dir"])
        .arg(folder.path().join("data"))
        .args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ])
        .args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
        ])
        .args(["--initial-cluster", &format!("test={peers}")])
        // The shortest lease follows from these: a second.
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        // On hosts other than amd64, Debian's etcd wants to be told that this is meant.
        .env("ETCD_UNSUPPORTED_ARCH", "arm64")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

struct InEtcd {
    server: Server,
    store: Arc<Etcd>,
}

async fn make(_: &str) -> Option<InEtcd> {
    let server = Server::start().await?;
    let store = Etcd::new(&server.config()).unwrap();
    Some(InEtcd {
        server,
        store: Arc::new(store),
    })
}

#[async_trait]
impl Harness for InEtcd {
    fn store(&self) -> Arc<dyn ControlStore> {
        Arc::clone(&self.store) as _
    }

    async fn restart(&mut self) {
        self.server.kill();
        self.server.start_again().await;
    }
}

crate::conform!(make);
