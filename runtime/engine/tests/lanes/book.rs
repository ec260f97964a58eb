//! A node that has made some objects and actors, and only writes down what a guest asks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wasmrun_engine::{
    ClassIndex, FunctionIndex, Given, Readable, ServiceError, Services, Waiting, Wishes,
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
    known: BTreeSet<Handle>,
    /// How many handles the guest has.
    held: BTreeMap<Handle, i64>,
    asked: Vec<String>,
    made: u32,
}

impl Pages {
    /// Something new, of which the guest has a handle.
    fn make(&mut self, asked: String) -> ObjectName {
        self.asked.push(asked);
        self.made += 1;
        let name = object(1000 + self.made);
        self.hand_out(Handle::Object(name));
        name
    }

    fn hand_out(&mut self, handle: Handle) {
        self.known.insert(handle);
        *self.held.entry(handle).or_default() += 1;
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
    pub fn balance(&self, given_away: &[Handle]) -> (Vec<String>, BTreeMap<Handle, i64>) {
        let mut pages = self.0.lock().unwrap();
        for handle in given_away {
            *pages.held.entry(*handle).or_default() -= 1;
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
    fn retain(&self, handle: &Handle) -> bool {
        let mut pages = self.0.lock().unwrap();
        let is_known = pages.known.contains(handle);
        if is_known {
            *pages.held.entry(*handle).or_default() += 1;
        }
        is_known
    }

    fn release(&self, handle: &Handle) {
        *self.0.lock().unwrap().held.entry(*handle).or_default() -= 1;
    }

    fn named(&self, _: &Handle) {}

    fn spawn(
        &self,
        function: FunctionIndex,
        arguments: Vec<Given>,
        _: Wishes,
    ) -> Result<ObjectName, ServiceError> {
        let name = &guest().fast.function(function).name;
        let asked = format!("{name} {arguments:?}");
        Ok(self.0.lock().unwrap().make(asked))
    }

    fn create(&self, class: ClassIndex, given: Vec<Given>, _: Wishes) -> Waiting<'_, ActorName> {
        let asked = format!("{} {given:?}", guest().fast.class(class).name);
        let mut pages = self.0.lock().unwrap();
        pages.asked.push(asked);
        pages.hand_out(Handle::Actor(actor(CREATED)));
        Box::pin(async { Ok(actor(CREATED)) })
    }

    fn find<'a>(&'a self, _: &'a str) -> Waiting<'a, ActorName> {
        Box::pin(async { Ok(actor(GIVEN)) })
    }

    fn call(
        &self,
        actor: &ActorName,
        method: &str,
        arguments: Vec<Given>,
        _: Option<Duration>,
    ) -> Result<ObjectName, ServiceError> {
        let asked = format!("{actor} {method} {arguments:?}");
        Ok(self.0.lock().unwrap().make(asked))
    }

    fn kill(&self, _: &ActorName) {}

    fn cancel(&self, _: &ObjectName) -> Cancellation {
        Cancellation::Over
    }

    fn put(&self, value: Encoded, _: Vec<Handle>) -> Waiting<'_, ObjectName> {
        let name = self.0.lock().unwrap().make(format!("put {value:?}"));
        Box::pin(async move { Ok(name) })
    }

    fn get(&self, object: &ObjectName, _: Option<Duration>) -> Waiting<'_, Arc<dyn Readable>> {
        let value = self.0.lock().unwrap().values[object].clone();
        Box::pin(async { value.map(|it| Arc::new(it) as Arc<dyn Readable>) })
    }

    fn wait(
        &self,
        objects: Vec<ObjectName>,
        _: usize,
        _: Option<Duration>,
    ) -> Waiting<'_, Vec<u32>> {
        Box::pin(async move { Ok((0..).zip(&objects).map(|(at, _)| at).collect()) })
    }
}
