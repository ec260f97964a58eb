//! Who else keeps modules that must outlive this node.
//!
//! Owns asking for that: each module once at a time, of one node after the other, where a slow one does not keep the
//! next from being asked. Must not: send bytes; who is asked comes for them.
//!
//! Invariant: nobody who waits for one module waits for another.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wasmrun_model::id::{Digest, NodeId};

use super::hedged::first_of;

/// Of how many modules it is remembered who else keeps them.
const MOST_HELD: usize = 1024;
/// How many nodes are remembered of each.
const MOST_HOLDERS: usize = 8;
/// How many nodes are asked to keep a module.
const MOST_ASKED: usize = 3;
/// How long one may say nothing until the next is asked too.
const SOON: Duration = Duration::from_millis(500);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Holders(Mutex<State>);

#[derive(Default)]
struct State {
    by_module: HashMap<Digest, Vec<NodeId>>,
    /// Modules that somebody is being asked to keep, and what will come of it.
    asking: HashMap<Digest, watch::Receiver<Option<bool>>>,
}

impl Holders {
    /// Sees to it that one of these nodes keeps a module, if there are any. False if none would, or has not said so
    /// in time: then it is asked on. `ask` is whether a node keeps it, and must end.
    pub(super) async fn share<A>(
        self: &Arc<Self>,
        digest: Digest,
        others: Vec<NodeId>,
        patience: Duration,
        ask: impl Fn(NodeId) -> A + Clone + Send + Sync + 'static,
    ) -> bool
    where
        A: Future<Output = bool> + Send + 'static,
    {
        let shared = async {
            loop {
                let mut answer = match self.begin(digest, &others, &ask) {
                    Begun::Held => return true,
                    Begun::Asking(answer) => answer,
                };
                let is_held = match answer.wait_for(Option::is_some).await {
                    Ok(is_held) => *is_held == Some(true),
                    Err(_) => false,
                };
                // Where others were asked for somebody else, it may be that one of those keeps it.
                if !is_held {
                    return false;
                }
            }
        };
        let shared = tokio::time::timeout(patience, shared).await;
        shared.unwrap_or(false)
    }

    /// Asks these nodes, unless one of them keeps a module already or somebody is being asked.
    fn begin<A>(
        self: &Arc<Self>,
        digest: Digest,
        others: &[NodeId],
        ask: &(impl Fn(NodeId) -> A + Clone + Send + Sync + 'static),
    ) -> Begun
    where
        A: Future<Output = bool> + Send + 'static,
    {
        let mut state = self.0.lock();
        let mut holders = state.by_module.get(&digest).into_iter().flatten();
        if others.is_empty() || holders.any(|holder| others.contains(holder)) {
            return Begun::Held;
        }
        // One that is closed has ended with the threads that asked.
        if let Some(asking) = state.asking.get(&digest)
            && asking.has_changed().is_ok()
        {
            return Begun::Asking(asking.clone());
        }
        let (said, answer) = watch::channel(None);
        state.asking.insert(digest, answer.clone());
        let (this, ask) = (Arc::downgrade(self), ask.clone());
        let some: Vec<NodeId> = others.iter().copied().take(MOST_ASKED).collect();
        // It ends when all have been asked, at the latest with the node.
        tokio::spawn(async move {
            let ask = |node| {
                let asking = ask(node);
                async move { asking.await.then_some(node) }
            };
            let holder = first_of(some, SOON, ask).await;
            if let Some(this) = this.upgrade() {
                this.0.lock().ended(digest, holder);
            }
            said.send_replace(Some(holder.is_some()));
        });
        Begun::Asking(answer)
    }
}

/// What is done so that a module is kept.
enum Begun {
    /// Nothing: somebody keeps it, or there is nobody who could.
    Held,
    /// Somebody is asked.
    Asking(watch::Receiver<Option<bool>>),
}

impl State {
    fn ended(&mut self, digest: Digest, holder: Option<NodeId>) {
        self.asking.remove(&digest);
        if let Some(holder) = holder {
            if self.by_module.len() >= MOST_HELD {
                self.by_module.clear();
            }
            let holders = self.by_module.entry(digest).or_default();
            holders.retain(|it| *it != holder);
            holders.push(holder);
            if holders.len() > MOST_HOLDERS {
                holders.remove(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const FAR: Duration = Duration::from_secs(3600);

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    fn module(number: u8) -> Digest {
        Digest::from_bytes([number; 32])
    }

    #[tokio::test]
    async fn who_says_nothing_delays_neither_other_modules_nor_other_nodes() {
        let holders = Arc::<Holders>::default();
        let silent = |_| std::future::pending();
        let one = vec![node(1)];
        let short = Duration::from_millis(1);
        assert!(!holders.share(module(1), one.clone(), short, silent).await);
        // Of another module it is asked all the same.
        let yes = |_| async { true };
        assert!(holders.share(module(2), one, FAR, yes).await);
        let third = |node| async move {
            match node == self::node(3) {
                true => true,
                false => std::future::pending().await,
            }
        };
        let all = vec![node(1), node(2), node(3)];
        assert!(holders.share(module(3), all.clone(), FAR, third).await);
        let third = move |it| async move { it == node(3) };
        assert!(holders.share(module(4), all.clone(), FAR, third).await);
        assert!(
            !holders
                .share(module(5), all, FAR, |_| async { false })
                .await
        );
        assert!(
            holders
                .share(module(5), Vec::new(), FAR, |_| async { false })
                .await
        );
    }

    #[tokio::test]
    async fn each_module_is_asked_about_once_at_a_time_and_again_when_its_holder_is_gone() {
        let holders = Arc::<Holders>::default();
        let asked = Arc::<AtomicUsize>::default();
        let ask = || {
            let asked = asked.clone();
            move |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                async {
                    tokio::task::yield_now().await;
                    true
                }
            }
        };
        let share = |others| holders.share(module(1), others, FAR, ask());
        let both = tokio::join!(share(vec![node(1)]), share(vec![node(1)]));
        assert_eq!(both, (true, true));
        assert!(share(vec![node(1)]).await);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(share(vec![node(2)]).await);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
    #[tokio::test]
    async fn another_keeps_it_where_the_one_who_does_may_be_lost() {
        let holders = Arc::<Holders>::default();
        let asked = Arc::<AtomicUsize>::default();
        let share = |others: Vec<NodeId>| {
            let asked = asked.clone();
            let ask = move |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                async {
                    tokio::task::yield_now().await;
                    true
                }
            };
            holders.share(module(1), others, FAR, ask)
        };
        // Also where somebody else is being asked just now.
        let (one, other) = (vec![node(1), node(2)], vec![node(2)]);
        let both = tokio::join!(share(one.clone()), share(other.clone()));
        assert_eq!(both, (true, true));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        // Both are remembered.
        assert!(share(vec![node(1)]).await && share(other).await && share(one).await);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
