//! A node that has made some objects and actors, and only writes down what a guest asks of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wasmrun_engine::{
    ClassIndex, FunctionIndex, GuestArgument, HandleSlot, Readable, ServiceError, Services,
    Waiting, Wishes,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, ActorName, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::task::Cancellation;
use wasmrun_model::value::{Encoded, Handle, NumberList};

use crate::guest;

/// A node that has made some objects and actors, and only writes down what a guest asks of it.
#[derive(Default)]
pub struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    values: BTreeMap<ObjectName, Result<Encoded, ServiceError>>,
    /// What the guest may name, each at its slot.
    known: Vec<Handle>,
    /// How many handles the guest has.
    held: BTreeMap<Handle, i64>,
    asked: Vec<String>,
    made: u32,
}

impl Pages {
    /// Something new, of which the guest has a handle.
    fn make(&mut self, asked: String) -> HandleSlot {
        self.asked.push(asked);
        self.made += 1;
        let name = object(1000 + self.made);
        self.hand_out(Handle::Object(name))
    }

    fn hand_out(&mut self, handle: Handle) -> HandleSlot {
        *self.held.entry(handle).or_default() += 1;
        self.slot(&handle).unwrap_or_else(|| {
            self.known.push(handle);
            HandleSlot(self.known.len() as u32 - 1)
        })
    }

    fn slot(&self, handle: &Handle) -> Option<HandleSlot> {
        let at = self.known.iter().position(|known| known == handle)?;
        Some(HandleSlot(at as u32))
    }

    fn named(&self, slot: HandleSlot) -> Handle {
        self.known[slot.0 as usize]
    }

    /// Arguments, as they are written down.
    fn said(&self, arguments: &[GuestArgument]) -> String {
        let said = arguments.iter().map(|argument| match argument {
            GuestArgument::Value(bytes) => format!("Value({bytes:?})"),
            GuestArgument::Object(slot) => match self.named(*slot) {
                Handle::Object(name) => format!("Object({name:?})"),
                Handle::Actor(_) => panic!("an actor was given as an object"),
            },
        });
        format!("[{}]", said.collect::<Vec<_>>().join(", "))
    }
}

/// An object by its number; those from 1001 on, guests have made.
pub fn object(number: u32) -> ObjectName {
    let task = TaskId::from_bytes([2; 16]);
    ObjectName {
        id: ObjectId::of(task, number),
        owner: NodeId::from_bytes([3; 16]),
    }
}

/// An actor by its number.
pub fn actor(number: u8) -> ActorName {
    ActorName {
        id: ActorId::from_bytes([number; 16]),
        owner: NodeId::from_bytes([3; 16]),
    }
}

/// An object that every guest here was given: 1.5, 2 and 4.
pub const NUMBERS: u32 = 1;
/// Another: 7.
pub const SEVEN: u32 = 2;
/// One that nobody could make.
pub const FAILED: u32 = 3;
/// An actor that every guest here was given.
pub const GIVEN: u8 = 9;
/// The one that every guest gets that creates one.
pub const CREATED: u8 = 10;

impl Book {
    pub fn new() -> Arc<Self> {
        let book = Self::default();
        let mut pages = book.0.lock().unwrap();
        let failed = ServiceError::Failed {
            origin: TaskId::from_bytes([4; 16]),
            error: Arc::new(TaskError::Cancelled),
        };
        pages.values = BTreeMap::from([
            (object(NUMBERS), Ok(buffer(&[1.5, 2.0, 4.0]))),
            (object(SEVEN), Ok(Encoded::Postcard(vec![7]))),
            (object(FAILED), Err(failed)),
        ]);
        let objects = [NUMBERS, SEVEN, FAILED].map(|it| Handle::Object(object(it)));
        pages.known = objects
            .into_iter()
            .chain([Handle::Actor(actor(GIVEN))])
            .collect();
        drop(pages);
        Arc::new(book)
    }

    /// What was asked for, and the handles that the guest has still, without those that it gave away.
    pub fn balance(&self, given_away: &[HandleSlot]) -> (Vec<String>, BTreeMap<Handle, i64>) {
        let mut pages = self.0.lock().unwrap();
        for slot in given_away {
            let handle = pages.named(*slot);
            *pages.held.entry(handle).or_default() -= 1;
        }
        pages.held.retain(|_, count| *count != 0);
        (pages.asked.clone(), pages.held.clone())
    }
}

fn buffer(numbers: &[f64]) -> Encoded {
    let list = NumberList::from_elements(numbers.iter().copied());
    Encoded::Buffer {
        kind: list.kind(),
        bytes: list.into_le_bytes(),
    }
}

impl Services for Book {
    fn open(&self, handle: &Handle) -> Option<HandleSlot> {
        let mut pages = self.0.lock().unwrap();
        let slot = pages.slot(handle)?;
        *pages.held.entry(*handle).or_default() += 1;
        Some(slot)
    }

    fn duplicate(&self, slot: HandleSlot) {
        let mut pages = self.0.lock().unwrap();
        let handle = pages.named(slot);
        *pages.held.entry(handle).or_default() += 1;
    }

    fn release(&self, slot: HandleSlot) {
        let mut pages = self.0.lock().unwrap();
        let handle = pages.named(slot);
        *pages.held.entry(handle).or_default() -= 1;
    }

    fn handle(&self, slot: HandleSlot) -> Option<Handle> {
        Some(self.0.lock().unwrap().named(slot))
    }

    fn name(&self, slot: HandleSlot) -> Option<Handle> {
        self.handle(slot)
    }

    fn spawn(
        &self,
        function: FunctionIndex,
        arguments: Vec<GuestArgument>,
        _: Wishes,
    ) -> Result<HandleSlot, ServiceError> {
        let name = &guest().fast.function(function).name;
        let mut pages = self.0.lock().unwrap();
        let asked = format!("{name} {}", pages.said(&arguments));
        Ok(pages.make(asked))
    }

    fn create(
        &self,
        class: ClassIndex,
        given: Vec<GuestArgument>,
        _: Wishes,
    ) -> Waiting<'_, HandleSlot> {
        let mut pages = self.0.lock().unwrap();
        let asked = format!("{} {}", guest().fast.class(class).name, pages.said(&given));
        pages.asked.push(asked);
        let slot = pages.hand_out(Handle::Actor(actor(CREATED)));
        Box::pin(async move { Ok(slot) })
    }

    fn find<'a>(&'a self, _: &'a str) -> Waiting<'a, HandleSlot> {
        let slot = self.0.lock().unwrap().slot(&Handle::Actor(actor(GIVEN)));
        Box::pin(async move { Ok(slot.expect("every guest was given it")) })
    }

    fn call(
        &self,
        actor: HandleSlot,
        method: &str,
        arguments: Vec<GuestArgument>,
        _: Option<Duration>,
    ) -> Result<HandleSlot, ServiceError> {
        let mut pages = self.0.lock().unwrap();
        let Handle::Actor(actor) = pages.named(actor) else {
            panic!("an object was called");
        };
        let asked = format!("{actor} {method} {}", pages.said(&arguments));
        Ok(pages.make(asked))
    }

    fn kill(&self, _: HandleSlot) {}

    fn cancel(&self, _: HandleSlot) -> Cancellation {
        Cancellation::Over
    }

    fn put(&self, value: Encoded, _: Vec<Handle>) -> Waiting<'_, HandleSlot> {
        let slot = self.0.lock().unwrap().make(format!("put {value:?}"));
        Box::pin(async move { Ok(slot) })
    }

    fn get(&self, object: HandleSlot, _: Option<Duration>) -> Waiting<'_, Arc<dyn Readable>> {
        let pages = self.0.lock().unwrap();
        let Handle::Object(object) = pages.named(object) else {
            panic!("an actor has no value");
        };
        let value = pages.values[&object].clone();
        Box::pin(async { value.map(|it| Arc::new(it) as Arc<dyn Readable>) })
    }

    fn wait(
        &self,
        objects: Vec<HandleSlot>,
        _: usize,
        _: Option<Duration>,
    ) -> Waiting<'_, Vec<u32>> {
        Box::pin(async move { Ok((0..).zip(&objects).map(|(at, _)| at).collect()) })
    }
}
