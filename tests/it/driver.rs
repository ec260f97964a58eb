//! Drivers in Rust, with the crate `wasmrun-client`, against a node: handles in what they pass and get, and what they
//! stop. And the same from the command line, where people write names.

use std::fs;

use tokio::task::JoinSet;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, List, Module, Rows, What};
use wasmrun_client::{
    Actor, Argument, Cancellation, CreateActor, Future, GetError, Handles, PutOptions, Submit,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Handle, Value, ValueType};
use wasmrun_tests::{assert_says, guest};

use crate::node::Node;

/// A driver of a node, and the module that its tasks are from.
struct Driver {
    node: Node,
    client: Client,
    module: Module,
}

impl Driver {
    fn start() -> Self {
        let node = Node::start();
        let client = Self::connect(&node);
        let bytes = fs::read(guest("sdk")).unwrap();
        let module = client.wait(client.load(&bytes)).unwrap();
        Self {
            node,
            client,
            module,
        }
    }

    fn connect(node: &Node) -> Client {
        let address = format!("unix:{}", node.socket().display());
        Client::connect(&address.parse().unwrap(), Default::default()).unwrap()
    }

    /// The type of a function.
    fn function(&self, name: &str) -> &wasmrun_model::value::FunctionType {
        let full = format!("#{name}");
        let mut functions = self.module.functions.iter();
        let found = functions.find(|(it, _)| it == name || it.ends_with(&full));
        &found.unwrap_or_else(|| panic!("there is no {name}")).1
    }

    fn submit(&self, name: &str, values: impl IntoIterator<Item = Argument>) -> Future {
        let submit = Submit::function(&self.module, name).values(values);
        self.client
            .wait(self.client.submit(submit))
            .unwrap()
            .future()
    }

    fn counter(&self, start: u64) -> Actor {
        let create = CreateActor::new(&self.module, "counter", vec![number(start)]);
        self.client.wait(self.client.create_actor(create)).unwrap()
    }

    fn call(&self, actor: &Actor, method: &str, values: Vec<Argument>) -> Future {
        self.client.wait(actor.call(method, values)).unwrap()
    }

    fn number(&self, future: &Future) -> u64 {
        let value = self.client.wait(future.get(None)).unwrap();
        match decode(&ValueType::U64, &value, DecodeLimits::default()) {
            Ok(Value::U64(n)) => n,
            other => panic!("{other:?}"),
        }
    }

    fn failure(&self, future: &Future) -> TaskError {
        match self.client.wait(future.get(None)) {
            Err(GetError::Failed { error, .. }) => error,
            other => panic!("{other:?}"),
        }
    }

    /// What a task makes, and its value.
    fn made(&self, name: &str, future: &Future) -> (wasmrun_client::Value, Value) {
        let made = self.client.wait(future.get(None)).unwrap();
        let ty = self.function(name).result().unwrap();
        let value = decode(ty, &made, DecodeLimits::default()).unwrap();
        (made, value)
    }

    /// Waits until a task with such a name runs. As below.
    fn wait_for_running(&self, name: &str) {
        loop {
            let list = List::of(What::Tasks).with("state", "running");
            match self.client.wait(self.client.list(list)).unwrap().rows {
                Rows::Tasks(rows) if rows.iter().any(|row| row.name.ends_with(name)) => return,
                Rows::Tasks(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// What is stored for the one parameter of a function.
    fn stored(
        &self,
        function: &str,
        value: &Value,
        handles: &Handles,
        options: PutOptions,
    ) -> Future {
        let ty = &self.function(function).params()[0].1;
        let value = encode(ty, value).unwrap();
        let put = self.client.put_with(&value, handles, options);
        self.client.wait(put).unwrap()
    }

    /// Waits until so many objects are kept or in the store. As below.
    fn wait_for_objects(&self, count: usize) {
        loop {
            let list = List::of(What::Objects);
            match self.client.wait(self.client.list(list)).unwrap().rows {
                Rows::Objects(rows) if rows.len() == count => return,
                Rows::Objects(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until there are so many actors. Each look is a request, which takes its time.
    fn wait_for_actors(&self, count: usize) {
        loop {
            let list = List::of(What::Actors).with("state", "running");
            match self.client.wait(self.client.list(list)).unwrap().rows {
                Rows::Actors(rows) if rows.len() == count => return,
                Rows::Actors(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn number(n: u64) -> Argument {
    encode(&ValueType::U64, &Value::U64(n)).unwrap().into()
}

fn handle(value: &Value) -> Handle {
    match value {
        Value::Handle(handle) => **handle,
        Value::Option(Some(value)) | Value::Result(Ok(Some(value))) => handle(value),
        other => panic!("no handle: {other:?}"),
    }
}

#[test]
fn values_that_are_passed_on_hold_handles() {
    let driver = Driver::start();
    let (six, ten) = (
        driver.submit("double", [number(3)]),
        driver.submit("double", [number(5)]),
    );
    let counter = driver.counter(100);
    let visit = driver.function("go-round").params()[0].1.clone();
    let mut handles = Handles::default();
    let value = Value::Record(vec![
        Value::Option(Some(Box::new(handles.actor(&counter)))),
        Value::List(vec![handles.future(&six), handles.future(&ten)]),
    ]);
    let argument = handles.encode(&visit, &value).unwrap();
    let (_, id) = (counter.id(), counter.id().to_string());
    // The argument holds what it names.
    drop((six, ten, counter));
    let visited = driver.submit("go-round", [argument]);

    // And so does what comes back.
    let (made, value) = driver.made("go-round", &visited);
    drop(visited);
    let parts = match value {
        Value::Result(Ok(Some(value))) => match *value {
            Value::Tuple(parts) => parts,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let last = made.future(&handle(&parts[1])).unwrap();
    assert_eq!(driver.number(&last), 116);
    let counter = driver.client.wait(made.actor(&handle(&parts[0])));
    let counter = counter.unwrap().expect("the value names it");
    assert_eq!(counter.id().to_string(), id);
    assert!(made.future(&handle(&parts[0])).is_none());
    // What was made of the value needs it no longer.
    drop(made);
    let next = driver.call(&counter, "incr", vec![Argument::from(&last)]);
    assert_eq!(driver.number(&next), 232);
    // An actor by itself, and a future for its handle.
    let used = driver.submit("use-counter", [Argument::from(&counter), number(1)]);
    let (_, used) = driver.made("use-counter", &used);
    assert_eq!(used, Value::Result(Ok(Some(Box::new(Value::U64(233))))));
}

#[test]
fn what_came_twice_is_kept_until_both_are_gone() {
    let driver = Driver::start();
    let maker = driver.submit("make-counter", [number(7)]);
    let (first, value) = driver.made("make-counter", &maker);
    let (second, _) = driver.made("make-counter", &maker);
    let named = handle(&value);
    let counter = |value: &wasmrun_client::Value| {
        let actor = driver.client.wait(value.actor(&named)).unwrap();
        actor.expect("the value names it")
    };
    let (one, other) = (counter(&first), counter(&first));
    drop((first, maker, one));
    assert_eq!(driver.number(&driver.call(&other, "value", vec![])), 7);
    drop(other);
    let last = counter(&second);
    drop(second);
    assert_eq!(driver.number(&driver.call(&last, "value", vec![])), 7);
    driver.wait_for_actors(1);
    drop(last);
    driver.wait_for_actors(0);
}

#[test]
fn what_a_session_has_no_handle_of_cannot_be_passed() {
    let driver = Driver::start();
    let counter = driver.counter(1);
    let other = Driver::connect(&driver.node);
    let bare = encode(
        &ValueType::Handle(counter.handle().kind()),
        &counter.handle().into(),
    );
    let submit =
        Submit::function(&driver.module, "use-counter").values([bare.unwrap().into(), number(1)]);
    let refused = other.wait(other.submit(submit)).unwrap_err();
    let id = counter.id().to_string();
    assert_says(
        &refused.to_string(),
        &[
            "there is no actor",
            &id,
            "that this session has a handle of",
        ],
    );
}

#[test]
fn what_is_stored_keeps_what_it_names() {
    let driver = Driver::start();
    let (six, counter) = (driver.submit("double", [number(3)]), driver.counter(100));
    let mut handles = Handles::default();
    let visit = Value::Record(vec![
        Value::Option(Some(Box::new(handles.actor(&counter)))),
        // It counts once, however often it is there.
        Value::List(vec![handles.future(&six), handles.future(&six)]),
    ]);
    let visit = driver.stored("go-round", &visit, &handles, PutOptions::default());
    let name = six.handle();
    drop((six, counter, handles));
    // The receiver has handles of what it names, though the node does not know its type.
    let got = driver.client.wait(visit.get(None)).unwrap();
    assert_eq!(driver.number(&got.future(&name).unwrap()), 6);
    drop(got);
    for counted in [112, 124] {
        let went = driver.submit("go-round", [Argument::from(&visit)]);
        let (made, value) = driver.made("go-round", &went);
        let Value::Result(Ok(Some(value))) = value else {
            panic!("{value:?}");
        };
        let Value::Tuple(parts) = *value else {
            panic!("{value:?}");
        };
        let last = made.future(&handle(&parts[1])).unwrap();
        assert_eq!(driver.number(&last), counted);
    }
    // Nobody but the stored value has a handle of the actor now.
    driver.wait_for_actors(1);
    drop(visit);
    driver.wait_for_actors(0);
}

#[test]
fn what_is_kept_keeps_what_it_names_until_it_is_deleted() {
    let driver = Driver::start();
    let count = encode(&ValueType::U32, &Value::U32(10_000)).unwrap();
    // Large enough for the store, where it can be seen.
    let numbers = driver.submit("ramp", [count.into()]);
    let mut handles = Handles::default();
    let order = Value::Record(vec![Value::String("n".into()), handles.future(&numbers)]);
    let options = PutOptions {
        is_kept: true,
        ..PutOptions::default()
    };
    let order = driver.stored("fill", &order, &handles, options);
    let id = order.id().to_string();
    driver.client.wait(numbers.get(None)).unwrap();
    drop((numbers, handles, order));
    driver.wait_for_objects(2);
    let found = driver.client.wait(driver.client.find_object(&id)).unwrap();
    let (_, filled) = driver.made("fill", &driver.submit("fill", [found.into()]));
    let expected = Value::String("n: 10000".into());
    assert_eq!(filled, Value::Result(Ok(Some(Box::new(expected)))));
    driver.client.wait(driver.client.delete(&id)).unwrap();
    driver.wait_for_objects(0);
}

#[test]
fn large_values_with_handles_are_stored_first() {
    let driver = Driver::start();
    let doubled = [2, 3].map(|n| driver.submit("double", [number(n)]));
    let mut handles = Handles::default();
    let many = doubled.iter().cycle().take(3000);
    let list = Value::List(many.map(|it| handles.future(it)).collect());
    let ty = &driver.function("gather").params()[0].1;
    let argument = handles.encode(ty, &list).unwrap();
    drop(doubled);
    let sum = driver.submit("gather", [argument]);
    let (_, sum) = driver.made("gather", &sum);
    let expected = Value::U64(3000 / 2 * (4 + 6));
    assert_eq!(sum, Value::Result(Ok(Some(Box::new(expected)))));
    driver.wait_for_objects(0);
}

#[test]
fn what_a_session_has_no_handle_of_cannot_be_stored() {
    let driver = Driver::start();
    let (six, counter) = (driver.submit("double", [number(3)]), driver.counter(1));
    let other = Driver::connect(&driver.node);
    let refused = |handles: &Handles| {
        let value = encode(&ValueType::U64, &Value::U64(1)).unwrap();
        let put = other.put_with(&value, handles, PutOptions::default());
        other.wait(put).unwrap_err().to_string()
    };
    let mut handles = Handles::default();
    handles.actor(&counter);
    let id = counter.id().to_string();
    assert_says(
        &refused(&handles),
        &[
            "there is no actor",
            &id,
            "that this session has a handle of",
        ],
    );
    let mut handles = Handles::default();
    handles.future(&six);
    let id = six.id().to_string();
    assert_says(
        &refused(&handles),
        &[
            "there is no object",
            &id,
            "that this session has made or was given",
        ],
    );
    // More than there may be, whatever they are.
    let put = wire::Put {
        form: wire::Form::Postcard,
        len: 0,
        is_kept: false,
        room_ms: None,
        can_stage: false,
        objects: vec![six.name(); wire::MAX_NAMES],
        actors: vec![counter.name()],
    };
    let put = driver.client.request(wire::Request::Put(Box::new(put)));
    let refused = driver.client.wait(put).unwrap_err();
    assert_says(
        &refused.to_string(),
        &["the value names 50001 objects and actors, and may name 50000"],
    );
    // The session goes on.
    assert_eq!(driver.number(&six), 6);
}

#[test]
fn cancelling_tells_what_came_of_it() {
    let driver = Driver::start();
    let cancel = |future: &Future| driver.client.wait(future.cancel()).unwrap();
    let spins = driver.submit("spin", []);
    assert_eq!(cancel(&spins), Cancellation::Cancelled);
    assert_eq!(driver.failure(&spins), TaskError::Cancelled);
    assert_eq!(cancel(&spins), Cancellation::Over);

    let counter = driver.counter(1);
    let runs = driver.call(&counter, "spin", vec![]);
    let waits = driver.call(&counter, "value", vec![]);
    driver.wait_for_running(".spin");
    assert_eq!(cancel(&runs), Cancellation::RunsOn);
    assert_eq!(cancel(&waits), Cancellation::Cancelled);
    assert_eq!(driver.failure(&waits), TaskError::Cancelled);
    driver.client.wait(counter.kill()).unwrap();
    let error = driver.failure(&runs);
    assert!(matches!(error, TaskError::ActorDied { .. }), "{error}");
    let stored = encode(&ValueType::U64, &Value::U64(1)).unwrap();
    let stored = driver.client.wait(driver.client.put(&stored)).unwrap();
    assert_eq!(cancel(&stored), Cancellation::Over);
}

#[test]
fn people_write_the_names_of_actors_and_the_ids_of_objects() {
    let node = Node::start();
    let create = |class: &str, arguments: &str, name: &str| {
        let create = node.wasmrun(["actor", "create"]).arg(guest("sdk"));
        create.args([class, arguments, "--name", name]).ok()
    };
    create("counter", "40", "total");
    let submit = |call: &str| {
        let submit = node.wasmrun(["submit"]).arg(guest("sdk"));
        submit.args(["--invoke", call])
    };
    assert_eq!(submit("use-counter(\"total\", 2)").ok(), "ok(42)\n");
    submit("use-counter(\"tutal\", 2)").fails_saying(2, &["there is no actor 'tutal'"]);
    // As results show them.
    let shown = submit("go-round({counter: \"total\", by: []})").ok();
    let actor = shown.split('"').nth(1).expect("a handle").to_owned();
    assert!(actor.contains('@'), "{shown}");
    let again = submit(&format!("use-counter(\"{actor}\", 1)"));
    assert_eq!(again.ok(), "ok(43)\n");

    // An object that is kept, within a record and given to an actor.
    let object = submit("ramp(3)").arg("--detach").ok().trim().to_owned();
    let fill = submit(&format!("fill({{name: \"n\", numbers: \"{object}\"}})"));
    assert_eq!(fill.ok(), "ok(\"n: 3\")\n");
    create("keeper", "", "shelf");
    let keep = format!("keep(\"{object}\")");
    node.wasmrun(["actor", "call", "shelf", &keep]).ok();
    assert_eq!(
        node.wasmrun(["actor", "call", "shelf", "sum()"]).ok(),
        "ok(3)\n"
    );

    // A node of the command's own has none.
    let alone = wasmrun_tests::Wasmrun::submit("sdk");
    alone
        .args(["--invoke", "use-counter(\"total\", 2)"])
        .fails_saying(2, &["there is no actor 'total'", "`wasmrun node start`"]);
}

#[test]
fn more_values_are_waited_for_than_a_node_takes_requests() {
    let driver = Driver::start();
    let counter = driver.counter(1);
    driver.call(&counter, "spin", vec![]);
    let value = |_| driver.call(&counter, "value", vec![]);
    let calls: Vec<Future> = (0..5_000).map(value).collect();
    let values = driver.client.wait(async {
        let mut values = JoinSet::new();
        for call in calls {
            values.spawn(async move { call.get(None).await });
        }
        // By then all have been asked for that can be.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        counter.kill().await.unwrap();
        values.join_all().await
    });
    assert_eq!(values.len(), 5_000);
    for value in values {
        let Err(GetError::Failed { error, .. }) = value else {
            panic!("{value:?}");
        };
        assert!(matches!(error, TaskError::ActorDied { .. }), "{error}");
    }
}

#[test]
fn a_module_stays_loaded_for_who_uses_it_whatever_others_load() {
    let driver = Driver::start();
    let other = Driver::connect(&driver.node);
    for number in 0..300 {
        let module = format!(
            r#"(component
                (core module $m (func (export "f") (result i32) i32.const {number}))
                (core instance $i (instantiate $m))
                (func (export "f") (result u32) (canon lift (core func $i "f"))))"#
        );
        let module = wat::parse_str(&module).unwrap();
        other.wait(other.load(&module)).unwrap();
    }
    let sum = driver.submit("add", [number(1), number(2)]);
    assert_eq!(driver.number(&sum), 3);
}

#[test]
fn who_needs_an_object_is_told() {
    let driver = Driver::start();
    let count = encode(&ValueType::U32, &Value::U32(20_000)).unwrap();
    let data = driver.submit("ramp", [count.into()]);
    let create = CreateActor::new(&driver.module, "keeper", Vec::new());
    let create = driver.client.create_actor(create);
    let keeper = driver.client.wait(create).unwrap();
    let kept = driver.call(&keeper, "keep", vec![Argument::from(&data)]);
    driver.client.wait(kept.get(None)).unwrap();
    // A task that wants all CPUs waits for this one.
    let spins = driver.submit("spin-task", []);
    driver.wait_for_running("spin-task");
    let sum = Submit::function(&driver.module, "sum").values([Argument::from(&data)]);
    let sum = sum.terms(wire::Terms {
        resources: [(ResourceName::CPU, Amount::units(2))].into(),
        ..wire::Terms::default()
    });
    let sum = driver.client.wait(driver.client.submit(sum)).unwrap();

    let id = data.id().to_string();
    let told = driver.node.wasmrun(["get", &id]).json(0);
    assert_eq!(
        (&told["kind"], &told["id"]),
        (&"object".into(), &id.clone().into())
    );
    let copy = &told["copies"][0];
    assert_eq!(
        (&copy["copy"], &copy["kept"]),
        (&"primary".into(), &false.into())
    );
    let holders = told["holders"].as_array().expect("a list").iter();
    let holders: Vec<_> = holders
        .map(|it| ["kind", "how", "id"].map(|field| it[field].as_str().unwrap_or_default()))
        .collect();
    let (actor, task) = (keeper.id().to_string(), sum.id().to_string());
    assert!(holders.contains(&["actor", "handle", &*actor]), "{told}");
    assert!(holders.contains(&["task", "argument", &*task]), "{told}");
    let drivers = holders.iter().filter(|it| it[..2] == ["driver", "handle"]);
    assert_eq!(drivers.count(), 1, "{told}");
    // A task's id is the task's as long as that is remembered.
    let task = driver.node.wasmrun(["get", &id[..32]]).json(0);
    assert_eq!(task["kind"], "task");
    let people = driver.node.wasmrun(["get", &id]).ok();
    assert_says(&people, &["copies:", "primary", "who needs it:", "keeper"]);
    drop((spins, sum));

    // What stays until it is deleted.
    let file = driver.node.dir.path().join("file");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let put = driver.node.wasmrun(["put"]).arg(&file).ok();
    let told = driver.node.wasmrun(["get", put.trim()]).json(0);
    assert_eq!(told["holders"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(told["holders"][0]["how"], "kept");
    driver
        .node
        .wasmrun(["get", &"0".repeat(40)])
        .fails_saying(2, &["there is no object"]);
}
