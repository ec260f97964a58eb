//! What nodes say to each other about tasks, objects and results.
//!
//! Owns the messages. Must not: know how they travel. The order of variants and fields is a layout on the
//! wire: a change raises the version of [`super::super::protocol`].

use serde::{Deserialize, Serialize};

/// Sent without an answer, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OneWay {}

/// Has one [`Response`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {}

/// Answers a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Response {}
