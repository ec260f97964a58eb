//! What was asked for and is not with the node yet, for drivers of other languages.
//!
//! Owns the order: calls begin in the order in which they were made, whichever thread made them. Who makes one does not wait
//! for the node: it has a [`Slot`], which is filled when the node has answered. Calls of one function that are waiting are
//! sent together. Must not: know values of any language.

mod gather;

use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use wasmrun_model::id::ObjectId;
use wasmrun_model::value::Encoded;

pub use self::gather::{Outcome, TOGETHER, Wanted, copied, each, ready, value};

use crate::routes::Answers;
use crate::wire::{INLINE_BYTES, MAX_CALLS, RefusalKind};
use crate::{
    Actor, Argument, CallOptions, Client, Error, Future, Handles, PutOptions, Submit, Task,
};

/// How many requests may be on their way at a time, so that what waits gathers.
const UNDER_WAY: usize = 64;

/// An object whose task is being submitted, or was.
#[derive(Debug, Default)]
pub struct Slot {
    state: OnceLock<Result<Future, Arc<Error>>>,
    is_filled: Notify,
    /// Who wants the value, until its call is sent: it is asked for together with that.
    wanted: Mutex<Option<Waiter>>,
}

/// Gets the answers to the request for a value.
type Waiter = oneshot::Sender<Answers>;

impl Slot {
    /// One that the node has answered for.
    pub fn filled(future: Future) -> Arc<Self> {
        let slot = Self::default();
        slot.fill(Ok(future));
        Arc::new(slot)
    }

    /// Says what the node has answered, once.
    pub fn fill(&self, state: Result<Future, Arc<Error>>) {
        // Nobody fills one twice.
        let _ = self.state.set(state);
        // A later request asks by the id.
        drop(self.wanted.lock().take());
        self.is_filled.notify_waiters();
    }

    /// Has the value asked for together with its call, unless that is sent, or somebody else has.
    fn want(&self) -> Option<oneshot::Receiver<Answers>> {
        let mut wanted = self.wanted.lock();
        if self.state.get().is_some() || wanted.as_ref().is_some_and(|it| !it.is_closed()) {
            return None;
        }
        let (waiter, answers) = oneshot::channel();
        *wanted = Some(waiter);
        Some(answers)
    }

    /// Who wants the value, if somebody does.
    fn waiter(&self) -> Option<Waiter> {
        self.wanted.lock().take().filter(|it| !it.is_closed())
    }

    /// Says what the node has answered to a call, once.
    fn fill_of(&self, waiter: Option<Waiter>, called: Result<(Task, Option<Answers>), Error>) {
        let future = called.map(|(task, answers)| {
            if let (Some(waiter), Some(answers)) = (waiter, answers) {
                // It may be gone.
                let _ = waiter.send(answers);
            }
            task.future()
        });
        self.fill(future.map_err(Arc::new));
    }

    /// The future, if the node has answered.
    pub fn now(&self) -> Option<Result<Future, Arc<Error>>> {
        self.state.get().cloned()
    }

    /// The future, once the node has answered.
    ///
    /// # Errors
    /// What the node has answered.
    pub async fn future(&self) -> Result<Future, Arc<Error>> {
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

/// An argument, which may be what a call makes that is not with the node yet, or name that.
#[derive(Debug)]
pub enum QueuedArgument {
    /// It is known.
    Value(Argument),
    /// What a call makes.
    Made(Arc<Slot>),
    /// A value that names what calls make.
    Draft(Draft),
}

/// A value in which names of objects are still to be written. It is no list of numbers.
#[derive(Debug, Default)]
pub struct Draft {
    /// The value as postcard. Where it names an object there is room for the name.
    pub bytes: Vec<u8>,
    /// Where the names go, and of what.
    pub objects: Vec<(usize, Arc<Slot>)>,
    /// What it names besides: those names are written.
    pub handles: Handles,
}

impl QueuedArgument {
    /// Whether the node has answered for all that it names.
    fn is_made(&self) -> bool {
        match self {
            Self::Value(_) => true,
            Self::Made(slot) => slot.now().is_some(),
            Self::Draft(draft) => draft.objects.iter().all(|(_, it)| it.now().is_some()),
        }
    }

    /// The argument, once the node has answered for all that it names.
    ///
    /// # Errors
    /// What the node has answered instead.
    pub async fn argument(self) -> Result<Argument, Arc<Error>> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Made(slot) => Ok(slot.future().await?.into()),
            Self::Draft(mut draft) => {
                for (at, slot) in draft.objects {
                    let future = slot.future().await?;
                    draft.handles.future(&future);
                    let name = future.name().to_bytes();
                    match draft.bytes.get_mut(at..at + name.len()) {
                        Some(room) => room.copy_from_slice(&name),
                        None => {
                            let why = "a value has no room for a name".to_owned();
                            return Err(Arc::new(Error::Unexpected(why)));
                        }
                    }
                }
                let value = Encoded::Postcard(draft.bytes);
                Ok(Argument::Naming(value, Arc::new(draft.handles)))
            }
        }
    }
}

/// A call that is to be made.
#[derive(Debug)]
pub struct Command {
    /// Of what.
    pub what: What,
    /// Its arguments.
    pub values: Vec<QueuedArgument>,
    /// What is told of the node's answer.
    pub slot: Arc<Slot>,
}

/// What is called.
#[derive(Debug)]
pub enum What {
    /// A function, with all that is asked for it.
    Task(Arc<Submit>),
    /// A method of an actor.
    Call {
        /// The actor.
        actor: Actor,
        /// The method's name.
        method: Arc<str>,
        /// What is asked for the call.
        options: CallOptions,
    },
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Vec<Command>>,
    is_waiting: Notify,
}

impl Queue {
    /// Adds calls, in this order.
    pub fn push(&self, commands: impl IntoIterator<Item = Command>) {
        self.waiting.lock().extend(commands);
        self.is_waiting.notify_one();
    }
}

type Sent = Pin<Box<dyn std::future::Future<Output = ()> + Send>>;

/// Sends what waits. It ends with the runtime that it runs in.
pub async fn send_all(queue: Arc<Queue>, client: Client) {
    let mut sender = Sender {
        client,
        transfers: Arc::new(Semaphore::new(TRANSFERS)),
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

/// How many calls may be storing arguments at a time. The node takes 16 transfers of a session, others' among them.
const TRANSFERS: usize = 8;

/// The arguments of a group together. A call with more is sent alone. The client makes one request of so many.
const GROUP_BYTES: usize = INLINE_BYTES;

/// Calls of one function, which go in one request: the node takes all of them or none.
struct Group {
    submit: Arc<Submit>,
    calls: Vec<Vec<Argument>>,
    bytes: usize,
    slots: Vec<Arc<Slot>>,
}

impl Group {
    fn new(submit: Arc<Submit>) -> Self {
        Self {
            submit,
            calls: Vec::new(),
            bytes: 0,
            slots: Vec::new(),
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.calls.len() < MAX_CALLS && self.bytes + bytes <= GROUP_BYTES
    }
}

/// How many bytes of a request these are.
fn size_bytes(values: &[Argument]) -> usize {
    let sizes = values.iter().map(|value| match value {
        Argument::Value(encoded) | Argument::Naming(encoded, _) => encoded.size_bytes(),
        Argument::Future(_) => size_of::<ObjectId>(),
    });
    sizes.sum()
}

/// Whether the node has refused a group for the arguments of a call. It looks at all of them before it takes any call, so none
/// was begun. Of other errors that is not known.
fn is_of_arguments(error: &Error) -> bool {
    let Error::Refused(refusal) = error else {
        return false;
    };
    matches!(refusal.kind, RefusalKind::Usage | RefusalKind::NotFound)
}

struct Sender {
    client: Client,
    transfers: Arc<Semaphore>,
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
            if (!is_next || !values.iter().all(QueuedArgument::is_made))
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
                    let bytes = size_bytes(&values);
                    if let Some(full) = group.take_if(|it| !it.has_room(bytes)) {
                        self.submit(full).await;
                    }
                    let group = group.get_or_insert_with(|| Group::new(submit));
                    group.calls.push(values);
                    group.bytes += bytes;
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

    async fn arguments(
        &mut self,
        values: Vec<QueuedArgument>,
    ) -> Result<Vec<Argument>, Arc<Error>> {
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            all.push(match value {
                QueuedArgument::Value(value) => value,
                value if value.is_made() => value.argument().await?,
                value => self.meanwhile(value.argument()).await?,
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
        let (client, transfers) = (self.client.clone(), self.transfers.clone());
        self.begin(async move {
            let Group {
                submit,
                calls,
                bytes,
                slots,
            } = group;
            let _place = match bytes > GROUP_BYTES {
                true => transfers.acquire_owned().await.ok(),
                false => None,
            };
            if calls.len() > 1 {
                match client.submit_all(&submit, calls.clone()).await {
                    Ok(futures) => {
                        for (slot, future) in slots.iter().zip(futures) {
                            slot.fill(Ok(future));
                        }
                        return;
                    }
                    // By themselves the others are taken.
                    Err(error) if is_of_arguments(&error) => {}
                    Err(error) => {
                        let error = Arc::new(error);
                        slots.iter().for_each(|slot| slot.fill(Err(error.clone())));
                        return;
                    }
                }
            }
            for (values, slot) in calls.into_iter().zip(slots) {
                let submit = (*submit).clone().values(values);
                let waiter = slot.waiter();
                let called = client.submit_wanted(submit, waiter.is_some()).await;
                slot.fill_of(waiter, called);
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
            let waiter = slot.waiter();
            let is_wanted = waiter.is_some();
            let called = actor.start_wanted(&method, values, options, is_wanted);
            slot.fill_of(waiter, called.await);
        })
        .await;
    }
}
