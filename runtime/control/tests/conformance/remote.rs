//! The suite on a remote store, over a link that breaks, doubles and delays what it carries.
//!
//! Every test has a seed of its own, from its name; `WASMRUN_SEED` is mixed in.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wasmrun_control::remote::{
    EventLink, Link, LinkError, MAX_MESSAGE_BYTES, Remote, RemoteConfig, Request, Response, Server,
    ServerLimits, Session, WatchMessage, WatchRequest, WatchSession,
};
use wasmrun_control::{ClientId, ControlStore};

use crate::Harness;
use crate::embedded::InFolder;

/// Numbers that follow from a seed.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Dice {
    fn roll(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.fetch_add(1, Ordering::Relaxed).hash(&mut hasher);
        hasher.finish()
    }

    /// True once in `times`.
    fn one_in(&self, times: u64) -> bool {
        self.roll().is_multiple_of(times)
    }
}

#[derive(Debug)]
struct Flaky {
    session: watch::Receiver<Session>,
    dice: Arc<Dice>,
}

/// To bytes and back, as on a wire.
fn carried<T: serde::Serialize + serde::de::DeserializeOwned>(message: &T) -> T {
    let bytes = postcard::to_allocvec(message).unwrap();
    assert!(bytes.len() <= MAX_MESSAGE_BYTES, "{} bytes", bytes.len());
    postcard::from_bytes(&bytes).unwrap()
}

impl Flaky {
    async fn delay(&self) {
        if self.dice.one_in(4) {
            let micros = self.dice.roll() % 3_000;
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}

#[async_trait]
impl Link for Flaky {
    async fn call(&self, request: Request) -> Result<Response, LinkError> {
        if self.dice.one_in(20) {
            return Err(LinkError::unsent("no connection"));
        }
        self.delay().await;
        if self.dice.one_in(20) {
            return Err(LinkError::broken("lost on the way there"));
        }
        let session = self.session.borrow().clone();
        if self.dice.one_in(8) {
            // It arrives a second time, at some time.
            let (again, late) = (carried(&request), session.clone());
            let wait = Duration::from_micros(self.dice.roll() % 20_000);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                late.answer(again).await;
            });
        }
        let response = session.answer(carried(&request)).await;
        self.delay().await;
        match self.dice.one_in(12) {
            true => Err(LinkError::broken("lost on the way back")),
            false => Ok(carried(&response)),
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn EventLink>, LinkError> {
        self.delay().await;
        if self.dice.one_in(10) {
            return Err(LinkError::unsent("no connection"));
        }
        let session = self.session.borrow().clone();
        let mut on_the_way = VecDeque::new();
        let open = match session.watch(carried(&request)) {
            Ok(open) => Some(open),
            Err(error) => {
                on_the_way.push_back(WatchMessage::Ended(error));
                None
            }
        };
        Ok(Box::new(FlakyEvents {
            open,
            on_the_way,
            dice: Arc::clone(&self.dice),
        }))
    }
}

struct FlakyEvents {
    open: Option<WatchSession>,
    on_the_way: VecDeque<WatchMessage>,
    dice: Arc<Dice>,
}

#[async_trait]
impl EventLink for FlakyEvents {
    async fn next(&mut self) -> Result<WatchMessage, LinkError> {
        if self.dice.one_in(40) {
            return Err(LinkError::broken("the stream was reset"));
        }
        if let Some(message) = self.on_the_way.pop_front() {
            return Ok(carried(&message));
        }
        let message = match &mut self.open {
            Some(open) => open.next().await,
            None => None,
        };
        message.ok_or_else(|| LinkError::broken("the stream ended"))
    }
}

struct Far {
    near: InFolder,
    session: watch::Sender<Session>,
    store: Arc<Remote>,
}

fn session(near: &InFolder) -> Session {
    Server::new(near.embedded(), ServerLimits::default()).session()
}

async fn make(name: &str) -> Option<Far> {
    let near = InFolder::new().await;
    let mut hasher = DefaultHasher::new();
    (name, std::env::var("WASMRUN_SEED").ok()).hash(&mut hasher);
    let seed = hasher.finish();
    let sender = watch::Sender::new(session(&near));
    let link = Flaky {
        session: sender.subscribe(),
        dice: Arc::new(Dice(AtomicU64::new(seed))),
    };
    let client = ClientId(*b"a remote client.");
    let store = Remote::new(Arc::new(link), client, RemoteConfig::default());
    Some(Far {
        near,
        session: sender,
        store: Arc::new(store),
    })
}

#[async_trait]
impl Harness for Far {
    fn store(&self) -> Arc<dyn ControlStore> {
        Arc::clone(&self.store) as _
    }

    async fn restart(&mut self) {
        self.near.restart().await;
        self.session.send_replace(session(&self.near));
    }
}

crate::conform!(make);
