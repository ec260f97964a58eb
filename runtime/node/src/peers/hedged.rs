//! Asking several nodes for what one of them can give.
//!
//! Owns when the next is asked. Must not: know what for.

use std::future::Future;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use wasmrun_model::id::NodeId;

/// What the first of these nodes gives that has it. They are asked in their order: the next when one has nothing, or
/// says nothing for so long. Who has not answered by then is not waited for.
pub(super) async fn first_of<T, A>(
    nodes: impl IntoIterator<Item = NodeId>,
    soon: Duration,
    ask: impl Fn(NodeId) -> A,
) -> Option<T>
where
    A: Future<Output = Option<T>>,
{
    let mut nodes = nodes.into_iter().peekable();
    let mut asked = FuturesUnordered::new();
    loop {
        if let Some(node) = nodes.next() {
            asked.push(ask(node));
        }
        let is_more = nodes.peek().is_some();
        tokio::select! {
            biased;
            said = asked.next() => match said {
                Some(Some(found)) => return Some(found),
                Some(None) => {}
                None => return None,
            },
            () = tokio::time::sleep(soon), if is_more => {}
        }
    }
}
