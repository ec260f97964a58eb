//! What was asked for and is not with the node yet.
//!
//! Owns the order: calls begin in the order in which they were made, whichever thread made them. Who makes one does not wait
//! for the node: it has a [`Slot`], which is filled when the node has answered. Calls of one function that are waiting are
//! sent together. Must not: touch Python objects: it runs where nobody holds the interpreter.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wasmrun_client::wire::INLINE_BYTES;
use wasmrun_client::{Actor, Argument, CallOptions, Client, Error, Future, PutOptions, Submit};

/// How many requests may be on their way at a time, so that what waits gathers.
const UNDER_WAY: usize = 64;

/// An object whose task is being submitted, or was.
#[derive(Default)]
pub(crate) struct Slot {
    state: OnceLock<Result<Future, Arc<Error>>>,
    is_filled: Notify,
}

impl Slot {
    pub(crate) fn filled(future: Future) -> Arc<Self> {
        let slot = Self::default();
        slot.fill(Ok(future));
        Arc::new(slot)
    }

    fn fill(&self, state: Result<Future, Arc<Error>>) {
        // Nobody fills one twice.
        let _ = self.state.set(state);
        self.is_filled.notify_waiters();
    }

    /// The future, if the node has answered.
    pub(crate) fn now(&self) -> Option<Result<Future, Arc<Error>>> {
        self.state.get().cloned()
    }

    /// The future, once the node has answered.
    pub(crate) async fn future(&self) -> Result<Future, Arc<Error>> {
        loop {
            let mut filled = pin!(self.is_filled.notified());
            filled.as_mut().enable();
            if let Some(state) = self.now() {
                return state;
            }
            filled.await;
        }
    }
}

/// An argument, which may be what a call makes that is not with the node yet.
pub(crate) enum Given {
    Value(Argument),
    Made(Arc<Slot>),
}

pub(crate) struct Command {
    pub(crate) what: What,
    pub(crate) values: Vec<Given>,
    pub(crate) slot: Arc<Slot>,
}

pub(crate) enum What {
    Task(Arc<Submit>),
    Call {
        actor: Actor,
        method: Arc<str>,
        options: CallOptions,
    },
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Vec<Command>>,
    is_waiting: Notify,
}

impl Queue {
    pub(crate) fn push(&self, command: Command) {
        self.waiting.lock().push(command);
        self.is_waiting.notify_one();
    }
}

type Sent = Pin<Box<dyn std::future::Future<Output = ()> + Send>>;

/// Sends what waits. It ends with the session's thread.
pub(crate) async fn send_all(queue: Arc<Queue>, client: Client) {
    let mut sender = Sender {
        client,
        under_way: FuturesUnordered::new(),
    };
    loop {
        let commands = mem::take(&mut *queue.waiting.lock());
        if !commands.is_empty() {
            sender.send(commands).await;
            continue;
        }
        let mut waiting = pin!(queue.is_waiting.notified());
        waiting.as_mut().enable();
        if !queue.waiting.lock().is_empty() {
            continue;
        }
        tokio::select! {
            () = waiting => {}
            Some(()) = sender.under_way.next() => {}
        }
    }
}

/// Calls of one function.
struct Group {
    submit: Arc<Submit>,
    calls: Vec<Vec<Argument>>,
    slots: Vec<Arc<Slot>>,
}

struct Sender {
    client: Client,
    under_way: FuturesUnordered<Sent>,
}

impl Sender {
    async fn send(&mut self, commands: Vec<Command>) {
        // Calls of one function, one after the other.
        let mut group: Option<Group> = None;
        for Command { what, values, slot } in commands {
            let is_next = match (&what, &group) {
                (What::Task(submit), Some(group)) => Arc::ptr_eq(submit, &group.submit),
                _ => false,
            };
            // What an argument waits for may be in the group.
            let is_made = |it: &Given| match it {
                Given::Value(_) => true,
                Given::Made(slot) => slot.now().is_some(),
            };
            if (!is_next || !values.iter().all(is_made))
                && let Some(group) = group.take()
            {
                self.submit(group).await;
            }
            let values = match self.arguments(values).await {
                Ok(values) => values,
                Err(error) => {
                    slot.fill(Err(error));
                    continue;
                }
            };
            match what {
                What::Task(submit) => {
                    let group = group.get_or_insert_with(|| Group {
                        submit,
                        calls: Vec::new(),
                        slots: Vec::new(),
                    });
                    group.calls.push(values);
                    group.slots.push(slot);
                }
                What::Call {
                    actor,
                    method,
                    options,
                } => self.call(actor, method, options, values, slot).await,
            }
        }
        if let Some(group) = group {
            self.submit(group).await;
        }
    }

    /// Waits for something, while what is under way goes on.
    async fn meanwhile<T>(&mut self, waited: impl std::future::Future<Output = T>) -> T {
        let mut waited = pin!(waited);
        loop {
            tokio::select! {
                done = &mut waited => return done,
                Some(()) = self.under_way.next() => {}
            }
        }
    }

    async fn arguments(&mut self, values: Vec<Given>) -> Result<Vec<Argument>, Arc<Error>> {
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            all.push(match value {
                Given::Value(value) => value,
                Given::Made(slot) => match slot.now() {
                    Some(made) => made?.into(),
                    None => self.meanwhile(slot.future()).await?.into(),
                },
            });
        }
        Ok(all)
    }

    /// Sends something, behind all that was sent before, and lets it go on.
    async fn begin(&mut self, sent: impl std::future::Future<Output = ()> + Send + 'static) {
        let mut sent: Sent = Box::pin(sent);
        // Frames are written in the order in which they are first tried.
        if futures_util::poll!(&mut sent).is_ready() {
            return;
        }
        self.under_way.push(sent);
        while self.under_way.len() > UNDER_WAY {
            self.under_way.next().await;
        }
    }

    async fn submit(&mut self, group: Group) {
        let Group {
            submit,
            calls,
            slots,
        } = group;
        let client = self.client.clone();
        self.begin(async move {
            let made = match <[Vec<Argument>; 1]>::try_from(calls) {
                Ok([values]) => {
                    let submit = (*submit).clone().values(values);
                    client.submit(submit).await.map(|task| vec![task.future()])
                }
                Err(calls) => client.submit_all(&submit, calls).await,
            };
            match made {
                Ok(futures) => {
                    for (slot, future) in slots.iter().zip(futures) {
                        slot.fill(Ok(future));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    slots.iter().for_each(|slot| slot.fill(Err(error.clone())));
                }
            }
        })
        .await;
    }

    async fn call(
        &mut self,
        actor: Actor,
        method: Arc<str>,
        options: CallOptions,
        mut values: Vec<Argument>,
        slot: Arc<Slot>,
    ) {
        // What is stored first would be overtaken by the calls behind it.
        for value in &mut values {
            let (encoded, handles) = match value {
                Argument::Value(encoded) if encoded.size_bytes() > INLINE_BYTES => {
                    (&*encoded, Default::default())
                }
                Argument::Naming(encoded, handles) if encoded.size_bytes() > INLINE_BYTES => {
                    (&*encoded, handles.clone())
                }
                _ => continue,
            };
            let client = self.client.clone();
            let put = client.put_with(encoded, &handles, PutOptions::default());
            match self.meanwhile(put).await {
                Ok(stored) => *value = stored.into(),
                Err(error) => return slot.fill(Err(Arc::new(error))),
            }
        }
        self.begin(async move {
            let called = actor.start(&method, values, options).await;
            let called = called.map(|task| task.future());
            slot.fill(called.map_err(Arc::new));
        })
        .await;
    }
}
