//! What a cluster survives: nodes, links, disks and clients that fail under load.
//!
//! Each test ends with the same questions. Was each task counted, and once? Was each object there that can be
//! made again? Has every node that lives all its resources back, and nothing left of anybody? Tests use
//! addresses, folders and namespaces of their own, so all of them may run at the same time.

mod away;
mod detached;
mod disk;
mod durable;
mod elsewhere;
mod etcd;
mod gone;
mod groups;
mod kill;
mod lease;
mod links;
mod lost;
mod newcomer;
mod parted;
mod peers;
mod proxy;
mod remade;
mod removed;
mod rest;
mod room;
mod soak;
mod stops;
mod way;
mod world;

pub(crate) use rest::{Files, says_so};
pub(crate) use world::eventually;
