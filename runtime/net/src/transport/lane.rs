//! Where connections are driven: those for messages where the network was started, those for bulk on threads of their
//! own, if there are any ([`crate::Config::bulk`]).
//!
//! Owns quinn's way to start its tasks. Must not: look at connections.
//!
//! What is received for bulk goes through three tasks, of the socket, the connection and the stream. At the side that
//! dials all three are on bulk's threads: on one they run in turn, while the bytes are in its cache; on several they wake
//! each other for each datagram.
//!
//! A connection that is accepted says only in its hello what it is for. So its driver begins where the network is, and
//! moves ([`Switch`]). Its socket, which it shares with those for messages, and the timer that it began with stay: that
//! runtime must not end before all that has moved.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tokio::runtime::Handle;

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// What moves the driver that is started next by this thread.
    static STARTING: RefCell<Option<Switch>> = const { RefCell::new(None) };
}

/// Starts all of an endpoint's tasks on one runtime.
#[derive(Debug)]
pub(crate) struct Lane(pub(crate) Handle);

impl Runtime for Lane {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _entered = self.0.enter();
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, driver: Driver) {
        let switch = STARTING.with_borrow_mut(Option::take);
        match switch {
            Some(switch) => drop(self.0.spawn(Movable(Some((driver, switch))))),
            None => drop(self.0.spawn(driver)),
        }
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let _entered = self.0.enter();
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

/// Moves a connection's driver to another runtime.
#[derive(Debug, Clone)]
pub(crate) struct Switch {
    to: Handle,
    is_on: Arc<AtomicBool>,
}

impl Switch {
    /// Makes what `accept` starts movable to that runtime. It must be started by a [`Lane`].
    pub(crate) fn over<T>(to: &Handle, accept: impl FnOnce() -> T) -> (T, Self) {
        let switch = Self {
            to: to.clone(),
            is_on: Arc::default(),
        };
        STARTING.set(Some(switch.clone()));
        let accepted = accept();
        // It may have been refused before anything was started.
        STARTING.set(None);
        (accepted, switch)
    }

    /// Moves it when it runs next.
    pub(crate) fn turn(&self) {
        self.is_on.store(true, Ordering::Release);
    }
}

/// A driver until it is moved.
struct Movable(Option<(Driver, Switch)>);

impl Future for Movable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.0.take() {
            Some((driver, switch)) if switch.is_on.load(Ordering::Acquire) => {
                // It is polled there at once, and whoever wakes it from then on wakes it there.
                switch.to.spawn(driver);
                Poll::Ready(())
            }
            Some((mut driver, switch)) => {
                let polled = driver.as_mut().poll(context);
                if polled.is_pending() {
                    self.0 = Some((driver, switch));
                }
                polled
            }
            None => Poll::Ready(()),
        }
    }
}
