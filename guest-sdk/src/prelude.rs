//! What a module of tasks uses: `use wasmrun_guest::prelude::*;`.

pub use std::time::Duration;

pub use crate::actor::{ActorHandle, LimitCalls};
pub use crate::context;
pub use crate::error::{Error, Failure, FailureKind};
pub use crate::future::{Cancellation, Future, cancel, get, get_all, get_all_timeout, put, wait};
pub use crate::mapped::Mapped;
