//! The network over real sockets on loopback, where needed through a proxy that is worse than any
//! network should be.

mod bulk;
mod enrolment;
mod events;
mod harness;
mod hostile;
mod messages;
mod proxy;
mod refusals;
mod sessions;
mod streams;
mod versions;
