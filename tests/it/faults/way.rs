//! A way to a server over TCP that can be cut: what one node is cut off from and the others are not.
//!
//! Owns its threads: they end with the way.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How soon a thread notices that the way is cut or gone.
const LOOK: Duration = Duration::from_millis(20);

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// What is sent arrives when the way is open again, on the same connections.
    Silent,
    /// Connections break, and there are no new ones.
    Broken,
    /// There is no such way any more.
    Over,
}

/// See the module.
pub(super) struct Way {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Way {
    /// To who listens at `target`.
    pub(super) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = listener.local_addr().expect("it has an address");
        listener.set_nonblocking(true).expect("it is a socket");
        let state = Arc::new(Mutex::new(State::Open));
        let shared = state.clone();
        thread::spawn(move || accept(&listener, target, &shared));
        Self { address, state }
    }

    pub(super) fn set(&self, state: State) {
        *locked(&self.state) = state;
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.set(State::Over);
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections, until there is no such way any more.
fn accept(listener: &TcpListener, target: SocketAddr, state: &Arc<Mutex<State>>) {
    loop {
        let now = *locked(state);
        match now {
            State::Over => return,
            // The kernel takes them; nobody hears of it.
            State::Silent => {}
            State::Open | State::Broken => {
                if let Ok((from, _)) = listener.accept() {
                    // One that is dropped is one that breaks.
                    if now == State::Open
                        && let Ok(to) = TcpStream::connect(target)
                    {
                        join(&from, &to, state);
                    }
                    continue;
                }
            }
        }
        thread::sleep(LOOK);
    }
}

/// Passes on what comes, both ways.
fn join(one: &TcpStream, other: &TcpStream, state: &Arc<Mutex<State>>) {
    for (from, to) in [(one, other), (other, one)] {
        from.set_nonblocking(false).expect("it is a socket");
        from.set_read_timeout(Some(LOOK)).expect("it is a time");
        let [mut from, mut to] = [from, to].map(|it| it.try_clone().expect("there is room"));
        let state = state.clone();
        thread::spawn(move || {
            pass(&mut from, &mut to, &state);
            // The other direction ends with this one.
            for socket in [from, to] {
                let _ = socket.shutdown(Shutdown::Both);
            }
        });
    }
}

/// Passes on what comes from one end, until the connection is over.
fn pass(from: &mut TcpStream, to: &mut TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let now = *locked(state);
        match now {
            State::Open => {}
            State::Silent => {
                thread::sleep(LOOK);
                continue;
            }
            State::Broken | State::Over => return,
        }
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                if to.write_all(&buffer[..len]).is_err() {
                    return;
                }
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Err(_) => return,
        }
    }
}
