//! Telling systemd how it is with the service: the protocol of `sd_notify`.
//!
//! Owns the datagrams. Where nobody has asked for them (`NOTIFY_SOCKET`), or they cannot be sent, nothing happens:
//! whoever waits for them notices that they do not come.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that the node is there, and what is to be shown about it.
pub fn ready(status: &str) {
    // One line each.
    let status: String = status.chars().filter(|c| !c.is_control()).collect();
    tell(&format!("READY=1\nSTATUS={status}\n"));
}

/// Says that it is about to end, when what runs has ended.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=ends when what runs has ended\n");
}

fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "systemd cannot be told how it is with the node");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // A name that is not in the file system.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let datagrams = UnixDatagram::unbound()?;
    datagrams.set_nonblocking(true)?;
    datagrams.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("wasmrun-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listens, socket) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.as_os_str().to_owned(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            send(&socket, "READY=1\n").unwrap();
            let mut bytes = [0; 64];
            let len = listens.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"READY=1\n");
        }
        assert!(send(OsStr::new("/nowhere/at/all"), "READY=1\n").is_err());
    }
}
