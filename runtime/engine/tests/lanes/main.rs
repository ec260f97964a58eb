//! The two ways into a guest of the SDK, with equal results: the fast lane, and the exports with their own types, which a
//! host without the lane calls, or a component that it is composed with.
//!
//! The engine takes the lane where it finds it. So the module is loaded once more with the lane under a name that
//! nobody looks for. It needs the guests (`cargo xtask guests`).

mod book;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use wasmrun_engine::{
    ActorCall, ActorInstance, ActorOrigin, Birth, ClassIndex, Engine, EngineConfig, Entry, Grants,
    Input, Invocation, Limits, Module, TaskContext, TaskOutput,
};
use wasmrun_model::failure::{LimitHit, LimitKind, TaskError};
use wasmrun_model::id::TaskId;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::wave;
use wasmrun_model::value::{DecodeLimits, Encoded, EncodedRef, FunctionType, Handle, Value};

use book::{Book, CREATED, FAILED, GIVEN, NUMBERS, SEVEN, actor, object};

/// The same guest, by its fast lane and by its typed exports.
struct Guest {
    engine: Engine,
    fast: Module,
    typed: Module,
}

const LANE: &[u8] = b"wasmrun:runtime/calls@0.1.0";
const OTHER: &[u8] = b"wasmrun:runtime/cells@0.1.0";

/// Loaded once for all tests: they need it compiled twice.
fn guest() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = root.join("target/guests/sdk.wasm");
        let bytes = std::fs::read(&path).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; build it with `cargo xtask guests`",
                path.display()
            )
        });
        let engine = Engine::new(EngineConfig {
            max_sandboxes: 8,
            ..EngineConfig::default()
        })
        .unwrap();
        let (fast, typed) = (
            engine.load(&bytes).unwrap(),
            engine.load(&renamed(&bytes)).unwrap(),
        );
        let others = |module: &Module| {
            let interfaces = module.functions().iter().map(|it| it.interface.as_deref());
            let is_other = |it: &Option<&str>| it.is_some_and(|it| it.as_bytes() == OTHER);
            interfaces.filter(is_other).count()
        };
        // What is a lane by its name is no function that anybody calls.
        assert_eq!((others(&fast), others(&typed)), (0, 5));
        Guest {
            engine,
            fast,
            typed,
        }
    })
}

/// The module with its lane under another name of the same length, everywhere.
fn renamed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(LANE.len()).position(|it| it == LANE) {
        at += found + LANE.len();
        bytes[at - LANE.len()..at].copy_from_slice(OTHER);
    }
    assert_ne!(at, 0, "the guest has no fast lane");
    bytes
}

fn context() -> Arc<TaskContext> {
    Arc::new(TaskContext {
        task: TaskId::from_bytes([1; 16]),
        attempt: 3,
        tenant: Default::default(),
        node: "test".into(),
        array_index: None,
        span: None,
        trace: None,
        resources: Vec::new(),
    })
}

/// The arguments of a call that is written in WAVE.
fn arguments(ty: &FunctionType, call: &wave::Invocation) -> Vec<Encoded> {
    let values = call.arguments(ty).unwrap();
    let params = ty.params().iter().zip(&values);
    params
        .map(|((_, ty), value)| encode(ty, value).unwrap())
        .collect()
}

fn text(ty: &FunctionType, result: Option<&Encoded>) -> String {
    let (Some(ty), Some(result)) = (ty.result(), result) else {
        return "nothing".into();
    };
    let value: Value = decode(ty, result, DecodeLimits::default()).unwrap();
    wave::print(ty, &value).unwrap()
}

/// What came of a call, and what the guest asked for and kept.
type Came = (
    Result<String, TaskError>,
    Vec<String>,
    BTreeMap<Handle, i64>,
);

async fn run_in(module: &Module, invocation: &str) -> Came {
    let invocation = wave::Invocation::parse(invocation).unwrap();
    let index = module.find(invocation.name()).unwrap();
    let ty = &module.function(index).ty;
    let values = arguments(ty, &invocation);
    let values: Vec<EncodedRef<'_>> = values.iter().map(EncodedRef::from).collect();
    let (book, limits) = (Book::new(), Limits::default());
    let invocation = Invocation {
        module,
        entry: Entry::Function(index),
        values: &values,
        args: &[],
        context: context(),
        grants: &Grants::default(),
        limits: &limits,
        output: &TaskOutput::new(limits.output, None),
        input: Input::Empty,
        services: book.clone(),
    };
    let outcome = guest().engine.run(invocation).await;
    let given_away = outcome.as_ref().map_or(&[][..], |it| &it.handles);
    let (asked, kept) = book.balance(given_away);
    let result = outcome.map(|outcome| text(ty, outcome.result.as_ref()));
    (result, asked, kept)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

/// Runs a function both ways: its result, and what it asked for. It keeps no handle.
#[track_caller]
fn both(invocation: &str) -> (Result<String, TaskError>, Vec<String>) {
    let fast = block_on(run_in(&guest().fast, invocation));
    let typed = block_on(run_in(&guest().typed, invocation));
    assert_eq!(fast, typed, "the lane gives the first for {invocation}");
    assert_eq!(fast.2, BTreeMap::new(), "what {invocation} has kept");
    (fast.0, fast.1)
}

#[track_caller]
fn gives(invocation: &str, result: &str) {
    assert_eq!(both(invocation).0.as_deref(), Ok(result), "{invocation}");
}

#[test]
fn values_of_every_kind_go_both_ways() {
    let star = "star({points: 5, radius: 0.5})";
    let all = |maybe: &str, outcome: &str, nothing: &str, shapes: &str| {
        format!(
            r#"{{flag: true, letter: 'ß', text: "tütü", small: -7, wide: -9000000000, real: 0.5, {maybe}outcome: {outcome}, nothing: {nothing}, pair: (65535, ["", "b"]), numbers: [0.5, -1], bytes: [0, 255], shapes: [{shapes}], trust: high, type: 18446744073709551615}}"#
        )
    };
    let some = "maybe: some({seed: 1, samples: 2}), ";
    let shapes = format!("dot, circle(1.5), rect((2, 3)), {star}");
    for value in [
        all(some, "ok(3)", "ok", &shapes),
        all("", r#"err("no")"#, "err", ""),
    ] {
        gives(&format!("echo({value})"), &value);
    }
    gives(
        &format!("area([dot, rect((2, 3)), {star}])"),
        "6.785398163397448",
    );
    gives("echo-result(ok([1, 2.5]))", "ok([1, 2.5])");
    gives("check(3)", "ok(3)");
    gives(
        "whoami()",
        r#"("01010101010101010101010101010101", 3, "test")"#,
    );
    gives("noop()", "nothing");
}

#[test]
fn failures_are_the_same_both_ways() {
    let said = |invocation: &str| match both(invocation).0 {
        Err(TaskError::Guest { text, passed, .. }) => (text, passed.is_some()),
        other => panic!("{invocation}: {other:?}"),
    };
    assert_eq!(said(r#"echo-result(err("no"))"#), (r#""no""#.into(), false));
    assert_eq!(said("check(0)"), ("empty".into(), false));
    assert_eq!(said("check(11)"), ("too-large({most: 10})".into(), false));
    // How an object failed is passed on as it is.
    let (text, is_passed) = said(&format!(r#"gather(["{}"])"#, object(FAILED)));
    assert!(is_passed && text.contains("cancelled"), "{text}");
}

#[test]
fn handles_go_both_ways() {
    let (numbers, seven, given) = (object(NUMBERS), object(SEVEN), actor(GIVEN));
    gives(&format!(r#"sum-mapped("{numbers}")"#), "7.5");
    gives(&format!(r#"gather(["{seven}", "{seven}"])"#), "ok(14)");
    gives("gather([])", "ok(0)");
    gives(
        &format!(r#"fill({{name: "n", numbers: "{numbers}"}})"#),
        r#"ok("n: 3")"#,
    );
    // Those that it made, and those that it was given.
    let (made, asked) = both("hand-out(21)");
    assert_eq!(made, Ok(format!(r#""{}""#, object(1001))));
    assert_eq!(asked, ["double [Value([21])]"]);
    let (made, asked) = both("make-counter(5)");
    assert_eq!(made, Ok(format!(r#"ok("{}")"#, actor(CREATED))));
    assert_eq!(asked, ["counter [Value([5])]"]);
    let (round, asked) = both(&format!(
        r#"go-round({{counter: some("{given}"), by: ["{seven}"]}})"#
    ));
    assert_eq!(
        round,
        Ok(format!(r#"ok((some("{given}"), "{}"))"#, object(1001)))
    );
    assert_eq!(asked, [format!("{given} incr [Object({seven:?})]")]);
    let (round, _) = both("go-round({counter: none, by: []})");
    assert_eq!(round, Ok(format!(r#"ok((none, "{}"))"#, object(1001))));
}

/// An actor, and the node that it asks.
struct Actor {
    instance: ActorInstance,
    module: &'static Module,
    class: ClassIndex,
    book: Arc<Book>,
}

impl Actor {
    async fn new(module: &'static Module, class: &str, from: ActorOrigin<'_>) -> Self {
        let (book, limits) = (Book::new(), Limits::default());
        let class = module.find_class(class).unwrap();
        let birth = Birth {
            module,
            class,
            from,
            context: context(),
            grants: &Grants::default(),
            limits: &limits,
            output: &TaskOutput::new(limits.output, None),
            services: book.clone(),
        };
        let instance = guest().engine.create_actor(birth).await.unwrap();
        Self {
            instance,
            module,
            class,
            book,
        }
    }

    async fn call(&mut self, invocation: &str) -> Came {
        let invocation = wave::Invocation::parse(invocation).unwrap();
        let class = self.module.class(self.class);
        let method = class.find(invocation.name()).unwrap();
        let ty = &class.method(method).ty;
        let values = arguments(ty, &invocation);
        let values: Vec<EncodedRef<'_>> = values.iter().map(EncodedRef::from).collect();
        let call = ActorCall {
            method,
            values: &values,
            context: context(),
            limits: &Limits::default(),
            services: self.book.clone(),
        };
        let outcome = self.instance.call(call).await;
        let given_away = outcome.as_ref().map_or(&[][..], |it| &it.handles);
        let (asked, kept) = self.book.balance(given_away);
        let result = outcome.map(|outcome| text(ty, outcome.result.as_ref()));
        (result, asked, kept)
    }
}

/// Makes these calls of an actor both ways: what each gave, and the actors.
async fn both_actors(
    class: &str,
    from: ActorOrigin<'_>,
    calls: &[&str],
) -> (Vec<Came>, [Actor; 2]) {
    let guest = guest();
    let mut fast = Actor::new(&guest.fast, class, from).await;
    let mut typed = Actor::new(&guest.typed, class, from).await;
    let mut came = Vec::new();
    for call in calls {
        came.push(fast.call(call).await);
        let by_type = typed.call(call).await;
        assert_eq!(
            came.last(),
            Some(&by_type),
            "the lane gives the first for {call}"
        );
    }
    (came, [fast, typed])
}

fn result(came: &Came) -> Result<&str, &TaskError> {
    came.0.as_deref()
}

#[test]
fn an_actor_and_its_state_go_both_ways() {
    block_on(async {
        let start = [Encoded::Postcard(vec![10])];
        let start = start.each_ref().map(EncodedRef::from);
        let calls = [
            "incr(5)",
            "decr(3)",
            "decr(100)",
            "incr-all([1, 2])",
            "value()",
        ];
        let (came, actors) = both_actors("counter", ActorOrigin::Arguments(&start), &calls).await;
        assert_eq!(result(&came[1]), Ok("ok(12)"));
        assert!(matches!(result(&came[2]), Err(TaskError::Guest { .. })));
        assert_eq!(result(&came[4]), Ok("15"));
        let mut states = Vec::new();
        for mut actor in actors {
            states.push(actor.instance.checkpoint(&Limits::default()).await.unwrap());
            // A state may be as large as a result.
            let tight = Limits {
                result: 7,
                ..Limits::default()
            };
            let too_large = actor.instance.checkpoint(&tight).await.unwrap_err();
            let hit = LimitHit {
                kind: LimitKind::Result,
                limit: 7,
                wanted: Some(8),
            };
            let frames = Vec::new();
            assert_eq!(too_large, TaskError::Limit { hit, frames });
        }
        let state = Some(15_u64.to_le_bytes().to_vec());
        assert_eq!(states, [state.clone(), state]);
        let state = ActorOrigin::Checkpoint(states[0].as_deref().unwrap());
        let (came, _) = both_actors("counter", state, &["incr(1)", "attempt()"]).await;
        assert_eq!((result(&came[0]), result(&came[1])), (Ok("16"), Ok("3")));
    });
}

#[test]
fn an_actor_keeps_handles_both_ways() {
    block_on(async {
        let numbers = object(NUMBERS);
        let keep = format!(r#"keep("{numbers}")"#);
        let calls = ["kept()", &keep, "kept()", "sum()", &keep];
        let (came, actors) = both_actors("keeper", ActorOrigin::Arguments(&[]), &calls).await;
        assert_eq!(result(&came[0]), Ok("none"));
        assert_eq!(result(&came[2]), Ok(&*format!(r#"some("{numbers}")"#)));
        assert_eq!(result(&came[3]), Ok("ok(7.5)"));
        // What it has kept, it has once; what it had in its place, it has let go.
        let kept = BTreeMap::from([(Handle::Object(numbers), 1)]);
        assert!(
            came[1..].iter().all(|(_, _, held)| *held == kept),
            "{came:?}"
        );
        for mut actor in actors {
            let state = actor.instance.checkpoint(&Limits::default()).await;
            assert_eq!(state, Ok(None), "its class has no state to give");
        }
        let (other, calls) = (
            actor(GIVEN),
            [format!(r#"meet("{}")"#, actor(GIVEN)), "ask(0)".into()],
        );
        let calls = calls.each_ref().map(|it| it.as_str());
        let (came, _) = both_actors("caller", ActorOrigin::Arguments(&[]), &calls).await;
        assert_eq!(result(&came[1]), Ok("ok(0)"));
        assert_eq!(came[1].2, BTreeMap::from([(Handle::Actor(other), 1)]));
    });
}
