//! What else there is, chapter by chapter. Each says in some lines what it saw; tests compare them.
//!
//! The chapters come first, in the order of `wit/by-hand.wit`, then the tasks and the actor that they need.

use std::cell::Cell;
use std::hint::black_box;

use crate::bindings::exports::example::by_hand::tour::{
    self, Guest, GuestCounter, Holding, Identity, Refusal,
};
use crate::bindings::wasmrun::runtime::actors::{self, Actor, CallOptions};
use crate::bindings::wasmrun::runtime::context;
use crate::bindings::wasmrun::runtime::objects::{
    self, Cancellation, Error, FailureKind, Form, Number, Object,
};
use crate::bindings::wasmrun::runtime::tasks::{self, Argument, Options};
use crate::values::{OBJECT_NAME, Reader, Writer};
use crate::{ByHand, as_declared, borrowed, number, say};

/// Some milliseconds: enough to see that something does not come.
const A_MOMENT_MS: u64 = 50;

fn values() -> Result<Vec<String>, Error> {
    // The host does not know of what type a stored value is, so the guest says how it is encoded.
    let five = objects::put(Form::Postcard, &Writer::default().number(5_u64).0)?;
    let list = objects::put(Form::Buffer(Number::U16), &[1, 0, 2, 0, 3, 0])?;
    let stored = list.get(None)?;
    let Form::Buffer(Number::U16) = stored.form else {
        return Err(Error::Refused("it was stored as u16".into()));
    };
    // Another handle is the same object, and keeps it when the first is gone.
    let again = list.duplicate();
    let same = list.id() == again.id();
    drop(list);
    let size = again.size(None)?;

    // Each of these is a value that names objects. A handle in it has no length before it.
    let made = tasks::spawn("numbers", &[number(7_u64), number(4_u64)], None)?.get(None)?;
    let handle = |from: &mut Reader<'_>| Object::named(from.take(OBJECT_NAME));
    let handles: Result<Vec<Object>, Error> =
        Reader(&made.bytes).list(handle).into_iter().collect();
    let mut some = handles?;
    some.remove(0);
    some.push(five);
    let names = Writer::default().list(&some, |to, it| to.raw(&it.name()));
    // Stored, the list keeps what it names. The host does not see names in the bytes, so it is told.
    let told: Vec<Vec<u8>> = some.iter().map(Object::name).collect();
    let stored_names = objects::put_with(Form::Postcard, &names.0, &told)?;
    drop(some);
    let sum = tasks::spawn("sum", &[Argument::Value(names.0)], None)?.get(None)?;
    let sum_of_stored = tasks::spawn("sum", &[Argument::Object(&stored_names)], None)?.get(None)?;
    // A name opens nothing by itself: it must have been given to this task.
    let forged = Object::named(&[7; OBJECT_NAME]).map(|it| it.id());
    let told = vec![vec![7; OBJECT_NAME]];
    let kept = objects::put_with(Form::Postcard, &told[0], &told).map(|it| it.id());
    let told = vec![vec![7; OBJECT_NAME - 1]];
    let cut = objects::put_with(Form::Postcard, &told[0], &told).map(|it| it.id());

    Ok(vec![
        format!("stored {:?} as {size} bytes", stored.bytes),
        format!("its duplicate is the same: {same}"),
        format!("8 + 9 + 10 + 5 = {}", Reader(&sum.bytes).number()),
        format!("the stored list: {}", Reader(&sum_of_stored.bytes).number()),
        format!("a forged name is refused: {}", is_refused(&forged)),
        format!("nor kept by what is stored: {}", is_refused(&kept)),
        format!("what is no name is refused: {}", is_refused(&cut)),
    ])
}

fn options() -> Result<Vec<String>, Error> {
    let asked = Options {
        resources: vec![
            ("CPU".into(), "0.5".into()),
            ("memory".into(), "16MiB".into()),
        ],
        retries: Some(1),
        retry_on_error: None,
        time_limit_ms: Some(60_000),
        priority: Some(1),
        label_selector: Some("!spot".into()),
        strategy: Some("spread".into()),
    };
    let who = tasks::spawn("who", &[], Some(&asked))?.get(None)?;
    let who = Reader(&who.bytes).identity();
    let mut said: Vec<String> = who
        .holdings
        .iter()
        .map(|it| format!("{} {} of {} units", it.name, it.amount, it.units.len()))
        .collect();

    let patient = Options {
        retries: Some(2),
        retry_on_error: None,
        ..as_declared()
    };
    let attempt = tasks::spawn("flaky", &[number(2_u64)], Some(&patient))?.get(None)?;
    said.push(format!(
        "went well in attempt {}",
        Reader(&attempt.bytes).number()
    ));

    let brief = Options {
        time_limit_ms: Some(A_MOMENT_MS),
        ..as_declared()
    };
    said.push(outcome(&tasks::spawn("spin", &[], Some(&brief))?));

    let much = Options {
        resources: vec![("CPU".into(), "100000".into())],
        ..as_declared()
    };
    let refused = tasks::spawn("who", &[], Some(&much));
    said.push(format!(
        "too many CPUs are refused: {}",
        is_refused(&refused)
    ));
    Ok(said)
}

fn failures() -> Result<Vec<String>, Error> {
    let double = |n: Argument<'_>| tasks::spawn("double", &[n], None);
    // The error case of a function's result has a payload, which is typed.
    let large = double(number(2_000_u64))?;
    let refused = large.get(None);
    let payload = match &refused {
        Err(Error::Failed(failure)) if failure.kind == FailureKind::Guest => &failure.payload,
        _ => &None,
    };
    let payload = payload.as_ref().map(|bytes| Reader(bytes).refusal());
    // What needs it fails with it, and says where that began.
    let needs = double(Argument::Object(&large))?;
    let origins = [refused, needs.get(None)].map(|it| match it {
        Err(Error::Failed(failure)) => failure.origin,
        _ => String::new(),
    });
    // Handed on as this task's own error, it stays what it was.
    let passed = tasks::spawn("quadruple", &[number(501_u64)], None)?;
    let trapped = tasks::spawn("flaky", &[number(1_u64)], None)?;
    let unknown = tasks::spawn("halve", &[number(1_u64)], None);
    let untyped = tasks::spawn("double", &[Argument::Value(vec![0x80])], None);
    Ok(vec![
        match payload {
            Some(Refusal::TooLarge(most)) => format!("at most {most}"),
            Some(Refusal::Odd) => "odd".into(),
            None => "no payload".into(),
        },
        format!(
            "{}, begun in the same task: {}",
            kind(&needs),
            origins[0] == origins[1]
        ),
        outcome(&passed),
        kind(&trapped),
        format!("an unknown function is refused: {}", is_refused(&unknown)),
        format!("a wrong argument is refused: {}", is_refused(&untyped)),
    ])
}

fn waiting() -> Result<Vec<String>, Error> {
    // It must not take the CPU that the others need.
    let idle = Options {
        resources: vec![("CPU".into(), "0".into())],
        ..as_declared()
    };
    let endless = tasks::spawn("spin", &[], Some(&idle))?;
    let ends = tasks::spawn("double", &[number(4_u64)], None)?;
    let both = [endless, ends];
    let first = objects::wait(&borrowed(&both), 1, None)?;
    let in_time = objects::wait(&borrowed(&both), 2, Some(A_MOMENT_MS))?;
    let [endless, _] = both;
    let timeouts = [
        endless.get(Some(A_MOMENT_MS)).map(|_| ()),
        endless.size(Some(A_MOMENT_MS)).map(|_| ()),
    ];
    endless.cancel();

    // Who asks itself would wait for ever.
    let counter = actors::create("counter", &[number(0_u64)], None)?;
    let said = counter.call("ask", &[Argument::Value(counter.name())])?;
    let said = Reader(&said.get(None)?.bytes).text();
    Ok(vec![
        format!("first {first:?}, in time {in_time:?}"),
        timeouts
            .map(|it| it.map_or_else(say, |()| "there".into()))
            .join(", "),
        said.split(':').next().unwrap_or_default().into(),
    ])
}

fn cancelling() -> Result<Vec<String>, Error> {
    let endless = tasks::spawn("spin", &[], None)?;
    let task = endless.cancel();
    let ended = kind(&endless);
    let again = endless.cancel();

    // One call runs until the signal is at 2, and one waits behind it.
    let signal = actors::create("counter", &[number(0_u64)], None)?;
    let counter = actors::create("counter", &[number(0_u64)], None)?;
    let arguments = [Argument::Value(signal.name()), number(2_u64)];
    let running = counter.call("follow", &arguments)?;
    let waits = counter.call("add", &[number(1_u64)])?;
    until(&signal, 1)?;
    let cancelled = [waits.cancel(), running.cancel()];
    signal.call("add", &[number(1_u64)])?;
    let after = counter.call("add", &[number(5_u64)])?.get(None)?;

    let [waits, running] = cancelled.map(came_of);
    Ok(vec![
        format!(
            "a task: {}, then {ended}, then {}",
            came_of(task),
            came_of(again)
        ),
        format!("a call that waits: {waits}, one that runs: {running}"),
        format!("the actor is at {}", Reader(&after.bytes).number()),
    ])
}

fn counters() -> Result<Vec<String>, Error> {
    const NAME: &str = "by-hand-counter";
    let asked = actors::Options {
        resources: vec![("memory".into(), "16MiB".into())],
        name: Some(NAME.into()),
        restarts: Some(2),
        call_retries: Some(1),
        label_selector: Some("!spot".into()),
        strategy: Some("spread".into()),
        time_limit_ms: Some(60_000),
    };
    let counter = actors::create("counter", &[number(10_u64)], Some(&asked))?;
    let again = actors::create("counter", &[number(0_u64)], Some(&asked));
    let calls: Result<Vec<Object>, Error> = (1..4_u64)
        .map(|n| counter.call("add", &[number(n)]))
        .collect();
    let counts: Result<Vec<u64>, Error> = calls?.iter().map(number_of).collect();

    // Three more handles to it: by its name among all actors, by the bytes that stand for it, and a plain one.
    let others = [
        actors::find(NAME)?,
        Actor::named(&counter.name())?,
        counter.duplicate(),
    ];
    let same = others.iter().all(|it| it.id() == counter.id());
    drop(others);

    // A task gets the handle, and counts.
    let handle = Argument::Value(counter.name());
    let counted = tasks::spawn("count-for", &[handle, number(4_u64)], None)?;
    let counted = number_of(&counted)?;

    // It traps, is started again from its last checkpoint, and makes the call again.
    let generation = number_of(&counter.call("crash", &[number(1_u64)])?)?;
    let kept = number_of(&counter.call("add", &[number(0_u64)])?)?;

    // A call that takes too long ends the generation of its actor, and this one gets no other.
    let brief = CallOptions {
        time_limit_ms: Some(A_MOMENT_MS),
    };
    let alone = actors::create("counter", &[number(0_u64)], None)?;
    let never = [Argument::Value(counter.name()), number(u64::MAX)];
    let late = kind(&alone.call_with("follow", &never, brief)?);
    let dead = kind(&alone.call("add", &[number(1_u64)])?);

    counter.kill();
    let killed = kind(&counter.call("add", &[number(1_u64)])?);
    let found = actors::find(NAME);
    Ok(vec![
        format!("in order {:?}", counts?),
        format!("the name is taken: {}", is_refused(&again)),
        format!("all handles are the same actor: {same}"),
        format!("a task counted to {counted}"),
        format!("in generation {generation} it is at {kept}"),
        format!("{late}, then {dead}"),
        format!("killed: {killed}"),
        format!("nobody has the name: {}", is_refused(&found)),
    ])
}

/// Waits until a counter is as far as this.
fn until(counter: &Actor, count: u64) -> Result<(), Error> {
    while number_of(&counter.call("add", &[number(0_u64)])?)? < count {}
    Ok(())
}

fn number_of(object: &Object) -> Result<u64, Error> {
    Ok(Reader(&object.get(None)?.bytes).number())
}

/// How what was to make an object failed: the kind, and what is said about it.
fn outcome(object: &Object) -> String {
    match object.get(None) {
        Ok(_) => "no failure".into(),
        Err(Error::Failed(failure)) => {
            format!("{}: {}", kind_name(failure.kind), failure.message)
        }
        Err(error) => say(error),
    }
}

/// The same in a word.
fn kind(object: &Object) -> String {
    match object.get(None) {
        Ok(_) => "no failure".into(),
        Err(Error::Failed(failure)) => kind_name(failure.kind).into(),
        Err(error) => say(error),
    }
}

fn kind_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Guest => "guest",
        FailureKind::Trap => "trap",
        FailureKind::Exit => "exit",
        FailureKind::Limit => "limit",
        FailureKind::Arguments => "arguments",
        FailureKind::Cancelled => "cancelled",
        FailureKind::Dependency => "dependency",
        FailureKind::ActorDied => "actor-died",
        FailureKind::System => "system",
    }
}

fn came_of(cancellation: Cancellation) -> &'static str {
    match cancellation {
        Cancellation::Cancelled => "cancelled",
        Cancellation::RunsOn => "runs on",
        Cancellation::Over => "over",
        Cancellation::Asked => "asked",
    }
}

fn is_refused<T>(it: &Result<T, Error>) -> bool {
    matches!(it, Err(Error::Refused(_)))
}

impl Guest for ByHand {
    type Counter = Counter;

    fn values() -> Result<Vec<String>, String> {
        values().map_err(say)
    }

    fn options() -> Result<Vec<String>, String> {
        options().map_err(say)
    }

    fn failures() -> Result<Vec<String>, String> {
        failures().map_err(say)
    }

    fn waiting() -> Result<Vec<String>, String> {
        waiting().map_err(say)
    }

    fn cancelling() -> Result<Vec<String>, String> {
        cancelling().map_err(say)
    }

    fn counters() -> Result<Vec<String>, String> {
        counters().map_err(say)
    }

    fn who() -> Identity {
        let holding = |held: context::Allocation| Holding {
            name: held.name,
            amount: held.amount,
            units: held.units.iter().map(|unit| unit.id).collect(),
        };
        Identity {
            task: context::task_id(),
            attempt: context::attempt(),
            node: context::node(),
            array_index: context::array_index(),
            holdings: context::resources().into_iter().map(holding).collect(),
        }
    }

    fn double(n: u64) -> Result<u64, Refusal> {
        const MOST: u64 = 1_000;
        match n {
            n if n > MOST => Err(Refusal::TooLarge(MOST)),
            n if n % 2 == 1 => Err(Refusal::Odd),
            n => Ok(n * 2),
        }
    }

    fn quadruple(n: u64) -> Result<u64, Error> {
        let double = tasks::spawn("double", &[number(n)], None)?;
        // An object of a `result<u64, _>` fits where a `u64` is asked for.
        let again = tasks::spawn("double", &[Argument::Object(&double)], None)?;
        double.get(None)?;
        Ok(Reader(&again.get(None)?.bytes).ok())
    }

    fn flaky(attempt: u32) -> u32 {
        assert!(context::attempt() >= attempt, "as it was told to");
        context::attempt()
    }

    fn spin() {
        loop {
            black_box(0);
        }
    }

    fn numbers(start: u64, count: u32) -> Vec<Object> {
        let put = |n| objects::put(Form::Postcard, &Writer::default().number(n).0);
        (start..start + u64::from(count))
            .map(|n| put(n).expect("there is room"))
            .collect()
    }

    fn sum(numbers: Vec<Object>) -> u64 {
        let numbers = numbers.iter().map(number_of);
        numbers.map(|it| it.expect("it is there")).sum()
    }

    fn count_for(counter: Actor, n: u32) -> u64 {
        let call = || counter.call("add", &[number(1_u64)]);
        let calls: Result<Vec<Object>, Error> = (0..n).map(|_| call()).collect();
        let counts = calls.and_then(|it| it.iter().map(number_of).collect::<Result<Vec<_>, _>>());
        counts.expect("it counts").pop().unwrap_or_default()
    }
}

/// See `wit/by-hand.wit`.
pub struct Counter(Cell<u64>);

impl Counter {
    /// From what [`checkpoint`](GuestCounter::checkpoint) gave.
    pub fn of(state: &[u8]) -> Self {
        let state = state.try_into().expect("eight bytes");
        Self(Cell::new(u64::from_le_bytes(state)))
    }
}

impl GuestCounter for Counter {
    fn new(start: u64) -> Self {
        Self(Cell::new(start))
    }

    fn add(&self, n: u64) -> u64 {
        self.0.set(self.0.get() + n);
        self.0.get()
    }

    fn crash(&self, generation: u32) -> u32 {
        ByHand::flaky(generation)
    }

    fn follow(&self, other: Actor, count: u64) {
        let _ = other.call("add", &[number(1_u64)]);
        // What goes wrong there ends this too.
        let _ = until(&other, count);
    }

    fn ask(&self, other: Actor) -> String {
        let asked = other.call("add", &[number(0_u64)]);
        let told = asked.and_then(|it| number_of(&it));
        told.map_or_else(say, |n| n.to_string())
    }

    fn checkpoint(&self) -> Vec<u8> {
        self.0.get().to_le_bytes().to_vec()
    }

    fn restore(state: Vec<u8>) -> tour::Counter {
        tour::Counter::new(Self::of(&state))
    }
}
