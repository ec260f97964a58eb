//! What comes of asking for a task to be cancelled.

use serde::{Deserialize, Serialize};

/// What came of asking for a task or call to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cancellation {
    /// It will have no result: what waits ends at once, what runs at its next turn. A call that an actor at another
    /// node is in the middle of comes to its end there, and nobody hears of that.
    Cancelled,
    /// An actor is in the middle of the call, and could not go on from there: it comes to its own end.
    RunsOn,
    /// There is nothing to cancel: it has ended, or the value was stored.
    Over,
    /// Another node knows, and was asked: it may be any of the others.
    Asked,
}
