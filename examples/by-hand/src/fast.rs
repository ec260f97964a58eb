//! The fast lane: the same functions and classes again, with arguments and results as bytes.
//!
//! Owns the way from a name to what it stands for. A module can do without: then the host passes lists and records
//! element by element. It chooses for each call; so everything that is exported is here, and gives the same
//! result. A function's name comes with its interface.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ByHand;
use crate::bindings::exports::example::by_hand::survey::{Guest as Survey, GuestTally};
use crate::bindings::exports::example::by_hand::tour::{Guest as Tour, GuestCounter};
use crate::bindings::exports::wasmrun::runtime::calls::Guest;
use crate::bindings::wasmrun::runtime::actors::Actor;
use crate::bindings::wasmrun::runtime::objects::Object;
use crate::tally::Tally;
use crate::tour::Counter;
use crate::values::{ACTOR_NAME, OBJECT_NAME, Reader, Writer};

/// An instance of one of the classes.
enum Instance {
    Tally(Tally),
    Counter(Counter),
}

thread_local! {
    /// Their numbers are their positions here.
    static INSTANCES: RefCell<Vec<Rc<Instance>>> = const { RefCell::new(Vec::new()) };
}

impl Guest for ByHand {
    fn call(function: String, arguments: Vec<Vec<u8>>) -> Vec<u8> {
        let mut arguments = arguments.iter().map(|it| Reader(it));
        let mut next = || arguments.next().expect("the host has counted them");
        let to = Writer::default();
        let chapter = |said| to_chapter(Writer::default(), said);
        let to = match short(&function) {
            "survey" => to.result(
                Self::survey(next().short(), next().short()),
                |to, it| to.summary(&it),
                |to, why| to.bytes(why.as_bytes()),
            ),
            "look" => {
                let all = object(&mut next());
                to.summary(&Self::look(all, next().short(), next().short()))
            }
            "merge" => to.summary(&Self::merge(next().list(Reader::summary))),
            "values" => chapter(Self::values()),
            "options" => chapter(Self::options()),
            "failures" => chapter(Self::failures()),
            "waiting" => chapter(Self::waiting()),
            "cancelling" => chapter(Self::cancelling()),
            "counters" => chapter(Self::counters()),
            "who" => to.identity(&Self::who()),
            "double" => to.result(
                Self::double(next().number()),
                Writer::number,
                Writer::refusal,
            ),
            "quadruple" => to.result(
                Self::quadruple(next().number()),
                Writer::number,
                Writer::error,
            ),
            "flaky" => to.number(Self::flaky(next().short())),
            "spin" => {
                Self::spin();
                to
            }
            "numbers" => {
                let stored = Self::numbers(next().number(), next().short());
                to.list(&stored, |to, it| to.raw(&it.name()))
            }
            "sum" => to.number(Self::sum(next().list(object))),
            "count-for" => to.number(Self::count_for(actor(&mut next()), next().short())),
            other => panic!("there is no function {other}"),
        };
        to.0
    }

    fn create(class: String, arguments: Vec<Vec<u8>>) -> u32 {
        keep(match short(&class) {
            "tally" => Instance::Tally(Tally::new()),
            "counter" => Instance::Counter(Counter::new(Reader(&arguments[0]).number())),
            other => panic!("there is no class {other}"),
        })
    }

    fn invoke(instance: u32, method: String, arguments: Vec<Vec<u8>>) -> Vec<u8> {
        let mut arguments = arguments.iter().map(|it| Reader(it));
        let mut next = || arguments.next().expect("the host has counted them");
        let to = Writer::default();
        let to = match (&*instance_at(instance), &method[..]) {
            (Instance::Tally(it), "add") => to.number(it.add(next().summary())),
            (Instance::Tally(it), "total") => to.summary(&it.total()),
            (Instance::Counter(it), "add") => to.number(it.add(next().number())),
            (Instance::Counter(it), "crash") => to.number(it.crash(next().short())),
            (Instance::Counter(it), "follow") => {
                it.follow(actor(&mut next()), next().number());
                to
            }
            (Instance::Counter(it), "ask") => to.bytes(it.ask(actor(&mut next())).as_bytes()),
            (_, other) => panic!("there is no method {other}"),
        };
        to.0
    }

    fn checkpoint(instance: u32) -> Option<Vec<u8>> {
        match &*instance_at(instance) {
            Instance::Tally(_) => None,
            Instance::Counter(it) => Some(it.checkpoint()),
        }
    }

    fn restore(class: String, state: Vec<u8>) -> u32 {
        assert_eq!(short(&class), "counter", "no other has a checkpoint");
        keep(Instance::Counter(Counter::of(&state)))
    }
}

/// The name without its interface: no two of this module have the same.
fn short(name: &str) -> &str {
    name.rsplit_once('#').map_or(name, |(_, short)| short)
}

/// A handle is a name inside of bytes. The host has made this one known to the task.
fn object(from: &mut Reader<'_>) -> Object {
    Object::named(from.take(OBJECT_NAME)).expect("the task was given it")
}

fn actor(from: &mut Reader<'_>) -> Actor {
    Actor::named(from.take(ACTOR_NAME)).expect("the task was given it")
}

fn to_chapter(to: Writer, said: Result<Vec<String>, String>) -> Writer {
    to.result(
        said,
        |to, lines| to.list(&lines, |to, line| to.bytes(line.as_bytes())),
        |to, why| to.bytes(why.as_bytes()),
    )
}

fn keep(instance: Instance) -> u32 {
    INSTANCES.with_borrow_mut(|all| {
        all.push(Rc::new(instance));
        (all.len() - 1) as u32
    })
}

fn instance_at(number: u32) -> Rc<Instance> {
    INSTANCES.with_borrow(|all| all[number as usize].clone())
}
