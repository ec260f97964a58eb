//! Following what services the cluster is to serve: each is begun by itself.
//!
//! Owns which attempts are under way, and when one that has failed is repeated. Must not: know how a service is served,
//! which is its [`ServiceHost`]'s.
//!
//! Invariants: no service waits for another one, such as for a key that the head does not give; of one service one attempt
//! is under way at most, and that is for what is wanted now; none is once the host is closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{AbortHandle, Aborted, BoxFuture, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{ServiceKey, ServiceRecord, Wanted};

/// How soon what could not be served is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often is looked at least: the server may be gone.
const EVERY: Duration = Duration::from_secs(30);

/// Who serves what is wanted.
pub(super) trait ServiceHost: Send + Sync + 'static {
    /// Whether nothing is begun any more.
    fn is_stopping(&self) -> bool;

    /// Ends what is not wanted any more.
    fn end_others(self: &Arc<Self>, wanted: &Wanted);

    /// Has a service answer as its record says. False if it cannot yet. May be dropped before.
    fn serve_one(
        self: Arc<Self>,
        key: ServiceKey,
        record: Arc<ServiceRecord>,
    ) -> BoxFuture<'static, bool>;
}

/// Serves what is wanted, until the host stops, is closed or is gone.
pub(super) async fn follow<H: ServiceHost>(
    host: Weak<H>,
    wanted: watch::Receiver<Wanted>,
    mut closed: watch::Receiver<bool>,
) {
    tokio::select! {
        () = serve(host, wanted) => {}
        // An attempt under way holds its host, so this ends them.
        _ = closed.wait_for(|is_closed| *is_closed) => {}
    }
}

async fn serve<H: ServiceHost>(host: Weak<H>, mut wanted: watch::Receiver<Wanted>) {
    let mut attempts = Attempts::default();
    loop {
        let now = wanted.borrow_and_update().clone();
        let Some(host) = host.upgrade() else {
            return;
        };
        if host.is_stopping() {
            return;
        }
        host.end_others(&now);
        attempts.begin(&host, &now);
        drop(host);
        let mut due = Instant::now() + EVERY;
        loop {
            tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                is_served = attempts.next() => if !is_served {
                    due = due.min(Instant::now() + AGAIN);
                },
                () = sleep_until(due) => break,
            }
        }
    }
}

/// Attempts to serve what is wanted.
#[derive(Default)]
struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, (ServiceKey, Result<bool, Aborted>)>>,
    /// What each is for, and how it is given up.
    under_way: BTreeMap<ServiceKey, (Arc<ServiceRecord>, AbortHandle)>,
}

impl Attempts {
    /// Begins one for each service that has none under way, and gives up those for what is not wanted any more.
    fn begin<H: ServiceHost>(&mut self, host: &Arc<H>, wanted: &Wanted) {
        let next = |key: &ServiceKey| wanted.get(key).filter(|it| it.ending_ms.is_none());
        self.under_way.retain(|key, (record, attempt)| {
            let is_wanted = next(key).is_some_and(|it| it == record);
            if !is_wanted {
                attempt.abort();
            }
            is_wanted
        });
        for (key, record) in wanted.iter().filter(|(_, it)| it.ending_ms.is_none()) {
            if self.under_way.contains_key(key) {
                continue;
            }
            let serving = host.clone().serve_one(key.clone(), record.clone());
            let (attempt, handle) = abortable(serving);
            let known = (record.clone(), handle);
            self.under_way.insert(key.clone(), known);
            let key = key.clone();
            self.running
                .push(Box::pin(async move { (key, attempt.await) }));
        }
    }

    /// Waits until one has ended, for ever if none is under way: whether its service is served.
    async fn next(&mut self) -> bool {
        loop {
            match self.running.next().await {
                Some((key, Ok(is_served))) => {
                    self.under_way.remove(&key);
                    return is_served;
                }
                Some((_, Err(Aborted))) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;
    use tokio::sync::{Notify, mpsc};

    use super::*;

    /// Says what it does, and waits for the key of `tls`. What is `late` fails the first time.
    struct Fake {
        said: mpsc::UnboundedSender<String>,
        key: Notify,
        tried: Mutex<BTreeSet<String>>,
        served: Mutex<BTreeSet<String>>,
    }

    impl Fake {
        /// One, and what it says.
        fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
            let (said, heard) = mpsc::unbounded_channel();
            let fake = Self {
                said,
                key: Notify::new(),
                tried: Mutex::default(),
                served: Mutex::default(),
            };
            (Arc::new(fake), heard)
        }
    }

    impl ServiceHost for Fake {
        fn is_stopping(&self) -> bool {
            false
        }

        fn end_others(self: &Arc<Self>, _: &Wanted) {}

        fn serve_one(
            self: Arc<Self>,
            (_, name): ServiceKey,
            _: Arc<ServiceRecord>,
        ) -> BoxFuture<'static, bool> {
            let serving = async move {
                if self.served.lock().contains(&name) {
                    return true;
                }
                let is_first = self.tried.lock().insert(name.clone());
                if name == "late" && is_first {
                    return false;
                }
                if name == "tls" {
                    self.said.send("asks for the key".into()).unwrap();
                    self.key.notified().await;
                }
                self.served.lock().insert(name.clone());
                self.said.send(name).unwrap();
                true
            };
            Box::pin(serving)
        }
    }

    fn wanted(names: &[&str], module: u8) -> Wanted {
        let key = |name: &str| ("t".parse().unwrap(), name.to_owned());
        let record = |name: &str| Arc::new(ServiceRecord::for_test(name, module));
        Arc::new(names.iter().map(|it| (key(it), record(it))).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_whose_key_is_not_there_holds_up_no_other() {
        let (fake, mut heard) = Fake::new();
        let mut hear = async || {
            let next = tokio::time::timeout(100 * EVERY, heard.recv()).await;
            next.expect("nothing goes on").expect("it is there")
        };
        let (sender, receiver) = watch::channel(wanted(&["early", "tls"], 1));
        let (_open, closed) = watch::channel(false);
        let following = tokio::spawn(follow(Arc::downgrade(&fake), receiver, closed));
        let both = BTreeSet::from([hear().await, hear().await]);
        assert!(both.contains("early") && both.contains("asks for the key"));
        // It is not answered, and others come.
        let more = ["early", "late", "new", "tls"];
        sender.send_replace(wanted(&more, 1));
        assert_eq!(hear().await, "new");
        assert_eq!(hear().await, "late", "the second time");
        // The service is replaced: it begins with what is wanted now.
        sender.send_replace(wanted(&more, 2));
        assert_eq!(hear().await, "asks for the key");
        fake.key.notify_one();
        assert_eq!(hear().await, "tls");
        following.abort();
    }
    #[tokio::test(start_paused = true)]
    async fn attempts_under_way_end_when_the_host_is_closed() {
        let (fake, mut heard) = Fake::new();
        let (_sender, receiver) = watch::channel(wanted(&["tls"], 1));
        let (open, closed) = watch::channel(false);
        let following = tokio::spawn(follow(Arc::downgrade(&fake), receiver, closed));
        assert_eq!(heard.recv().await.as_deref(), Some("asks for the key"));
        open.send_replace(true);
        following.await.unwrap();
        assert_eq!(Arc::strong_count(&fake), 1, "nothing holds it any more");
    }
}
