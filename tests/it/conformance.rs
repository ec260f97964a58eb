//! What every driver and every guest does: the tables of `tests/conformance`, by the client crate and a module in Rust.
//! `tests/conformance/README.md` says what stands in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Grants, Limits, Module, Terms};
use wasmrun_client::{
    Actor, Argument, CallOptions, CreateActor, Error, Future, GetError, Handles, Submit,
};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::failure::{LimitHit, LimitKind, TaskError};
use wasmrun_model::id::{ActorId, ObjectId, TaskId};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::json::from_json;
use wasmrun_model::value::{DecodeLimits, Encoded, FunctionType, Handle, Value, ValueType};
use wasmrun_tests::guest;

use crate::node::Node;

fn table(name: &str) -> Json {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let text = fs::read(folder.join(name).with_extension("json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// What a part of a table has, by name.
fn rows(part: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let rows = part.as_object().expect("an object").iter();
    rows.map(|(name, row)| (name.as_str(), row))
}

fn items(json: &Json) -> &[Json] {
    json.as_array().map_or(&[][..], Vec::as_slice)
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_else(|| panic!("{json} is no text"))
}

fn millis(json: &Json) -> Option<Duration> {
    json.as_u64().map(Duration::from_millis)
}

fn count(json: &Json) -> u32 {
    let count = json.as_u64().and_then(|it| it.try_into().ok());
    count.unwrap_or_else(|| panic!("{json} is no count"))
}

/// What a step has failed with.
#[derive(Debug)]
struct Failure {
    kind: &'static str,
    why: String,
    error: Option<Box<TaskError>>,
    /// The type of what there is no value of.
    ty: Option<ValueType>,
}

impl Failure {
    fn new(kind: &'static str, why: &dyn ToString) -> Self {
        Self {
            kind,
            why: why.to_string(),
            error: None,
            ty: None,
        }
    }

    fn misfit(why: &dyn ToString) -> Self {
        Self::new("misfit", why)
    }

    fn assert_is(&self, expected: &Json) {
        assert_eq!(self.kind, text(&expected["kind"]), "{}", self.why);
        let error = self.error.as_deref();
        if let Some(payload) = expected.get("value") {
            let ty = self.ty.as_ref().expect("a function with a result");
            let Some(TaskError::Guest { value, .. }) = error else {
                panic!("{self:?}");
            };
            let value = decode(ty, value, DecodeLimits::default()).unwrap();
            assert_eq!(value, from_json(ty, &json!({ "err": payload })).unwrap());
        }
        if let Some(argument) = expected.get("argument") {
            let Some(TaskError::Dependency { index, .. }) = error else {
                panic!("{self:?}");
            };
            assert_eq!(*index, count(argument));
        }
        if let Some(kind) = expected.get("cause") {
            let cause = match error {
                Some(TaskError::Dependency { cause, .. }) => Some(cause),
                Some(TaskError::ActorDied { cause, .. }) => cause.as_ref(),
                _ => None,
            };
            let cause = cause.map(|it| it.kind());
            assert_eq!(cause, kind.as_str(), "{self:?}");
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), &error)
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Failed { error, .. } => Self {
                error: Some(Box::new(error.clone())),
                ..Self::new(error.kind(), &error)
            },
            GetError::TimedOut => Self::new("timeout", &error),
            GetError::Request(error) => error.into(),
        }
    }
}

/// What a step has named.
enum Named {
    /// An object, and its type, if it has one.
    Object(Future, Option<ValueType>),
    Actor(Actor),
}

/// A session, and what a case has named.
struct Stage {
    client: Client,
    modules: BTreeMap<String, Module>,
    named: BTreeMap<String, Named>,
}

impl Stage {
    fn new(node: &Node, guests: &[&str]) -> Self {
        let address = format!("unix:{}", node.socket().display());
        let client = Client::connect(&address.parse().unwrap(), Default::default()).unwrap();
        let load = |name: &&str| {
            let bytes = fs::read(guest(name)).unwrap();
            let module = client.wait(client.load(&bytes)).unwrap();
            ((*name).to_owned(), module)
        };
        let modules = guests.iter().map(load).collect();
        Self {
            client,
            modules,
            named: BTreeMap::new(),
        }
    }

    /// A function or class by `GUEST.NAME`: its full name and its type.
    fn function(&self, path: &str) -> Result<(&Module, &str, &FunctionType), Failure> {
        let (guest, name) = path.split_once('.').expect("GUEST.NAME");
        let module = &self.modules[guest];
        let suffix = format!("#{name}");
        let all = module.functions.iter().chain(&module.classes);
        let mut found = all.filter(|(full, _)| full == name || full.ends_with(&suffix));
        match (found.next(), found.next()) {
            (Some((full, ty)), None) => Ok((module, full.as_str(), ty)),
            _ => Err(Failure::new("name", &path)),
        }
    }

    fn object(&self, name: &Json) -> &Future {
        match &self.named[text(name)] {
            Named::Object(future, _) => future,
            Named::Actor(_) => panic!("{name} is an actor"),
        }
    }

    fn objects(&self, names: &Json) -> Vec<Future> {
        let names = items(names).iter();
        names.map(|name| self.object(name).clone()).collect()
    }

    fn type_of(&self, name: &Json) -> Option<&ValueType> {
        match &self.named[text(name)] {
            Named::Object(_, ty) => ty.as_ref(),
            Named::Actor(_) => None,
        }
    }

    fn actor(&self, name: &Json) -> Actor {
        match &self.named[text(name)] {
            Named::Actor(actor) => actor.clone(),
            Named::Object(..) => panic!("{name} is an object"),
        }
    }

    fn reference(&self, json: &Json) -> Option<&Named> {
        let name = json.get("ref")?.as_str()?;
        Some(&self.named[name])
    }

    /// The value with handles in the place of what it refers to.
    fn with_handles(&self, json: &Json, handles: &mut Handles) -> Json {
        match (json, self.reference(json)) {
            (_, Some(Named::Object(future, _))) => {
                handles.future(future);
                future.handle().to_string().into()
            }
            (_, Some(Named::Actor(actor))) => {
                handles.actor(actor);
                actor.handle().to_string().into()
            }
            (Json::Array(items), None) => {
                let items = items.iter().map(|it| self.with_handles(it, handles));
                items.collect::<Vec<Json>>().into()
            }
            (Json::Object(fields), None) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|(name, it)| (name.clone(), self.with_handles(it, handles)));
                Json::Object(fields.collect())
            }
            (json, None) => json.clone(),
        }
    }

    fn argument(&self, ty: &ValueType, json: &Json) -> Result<Argument, Failure> {
        match self.reference(json) {
            Some(Named::Object(future, _)) => return Ok(future.into()),
            Some(Named::Actor(actor)) => return Ok(actor.into()),
            None => {}
        }
        let mut handles = Handles::default();
        let json = self.with_handles(json, &mut handles);
        let value = from_json(ty, &json).map_err(|error| Failure::misfit(&error))?;
        let argument = match ty.has_handles() {
            true => handles.encode(ty, &value),
            false => encode(ty, &value).map(Argument::Value),
        };
        argument.map_err(|error| Failure::misfit(&error))
    }

    fn arguments(&self, ty: &FunctionType, step: &Json) -> Result<Vec<Argument>, Failure> {
        let given = items(&step["args"]);
        if given.len() > ty.params().len() {
            return Err(Failure::misfit(&"there are more arguments than parameters"));
        }
        // What is left out is none, where it can be.
        let none = Json::Null;
        let params = ty.params().iter().enumerate();
        params
            .map(|(at, (_, ty))| self.argument(ty, given.get(at).unwrap_or(&none)))
            .collect()
    }

    fn call(&mut self, step: &Json) -> Result<(), Failure> {
        let path = text(&step["call"]);
        let options = &step["options"];
        let (task, result) = if step.get("on").is_some() {
            let actor = self.actor(&step["on"]);
            let method = path.rsplit('.').next().expect("a name");
            let ty = actor.method(method).expect("a method");
            let values = self.arguments(ty, step)?;
            let options = CallOptions {
                time_limit: millis(&options["time-limit-ms"]),
                ..CallOptions::default()
            };
            let call = actor.start(method, values, options);
            (self.client.wait(call)?, ty.result().cloned())
        } else {
            let (module, full, ty) = self.function(path)?;
            let mut wire = Submit::function(module, full).wire().clone();
            ask(options, &mut wire.terms, &mut wire.limits, &mut wire.grants)?;
            if let Some(name) = options.get("name") {
                wire.name = text(name).to_owned();
            }
            let submit = Submit::of(wire).values(self.arguments(ty, step)?);
            let result = ty.result().cloned();
            (self.client.wait(self.client.submit(submit))?, result)
        };
        let future = task.future();
        match step.get("as") {
            Some(name) => {
                self.keep(name, Named::Object(future, result));
                Ok(())
            }
            None => self.assert_value(&future, result.as_ref(), None, step.get("is")),
        }
    }

    fn create(&mut self, step: &Json) -> Result<(), Failure> {
        let (module, full, ty) = self.function(text(&step["create"]))?;
        let mut create = CreateActor::new(module, full, self.arguments(ty, step)?);
        let (options, wire) = (&step["options"], &mut create.wire);
        ask(options, &mut wire.terms, &mut wire.limits, &mut wire.grants)?;
        wire.name = options["name"].as_str().map(str::to_owned);
        wire.wishes.restarts = options.get("restarts").map(count);
        wire.wishes.call_retries = options.get("call-retries").map(count);
        let actor = self.client.wait(self.client.create_actor(create))?;
        self.keep(&step["as"], Named::Actor(actor));
        Ok(())
    }

    fn get(&mut self, step: &Json) -> Result<(), Failure> {
        let (named, timeout) = (&step["get"], millis(&step["timeout-ms"]));
        if let Json::Array(names) = named {
            let futures = self.objects(named);
            let got = self.client.wait(self.client.get_all(&futures, timeout))?;
            for ((name, got), expected) in names.iter().zip(got).zip(items(&step["is"])) {
                assert_same(self.type_of(name), &got?, expected);
            }
            return Ok(());
        }
        let (future, ty) = (self.object(named).clone(), self.type_of(named).cloned());
        let Some(name) = step.get("as") else {
            return self.assert_value(&future, ty.as_ref(), timeout, step.get("is"));
        };
        let made = self.client.wait(future.get(timeout))?;
        let value = decode(&ty.expect("a value"), &made, DecodeLimits::default()).unwrap();
        let of = step.get("of").map(|path| self.function(text(path)));
        let of = of.transpose()?.and_then(|(_, _, ty)| ty.result().cloned());
        let handle = handle(&value);
        let it = match made.future(&handle) {
            Some(future) => Named::Object(future, of),
            None => {
                let actor = self.client.wait(made.actor(&handle))?;
                Named::Actor(actor.expect("the value names it"))
            }
        };
        self.keep(name, it);
        Ok(())
    }

    fn put(&mut self, step: &Json) -> Result<(), Failure> {
        let (_, _, ty) = self.function(text(&step["for"]))?;
        let ty = ty.params()[0].1.clone();
        let value = from_json(&ty, &step["put"]).map_err(|error| Failure::misfit(&error))?;
        let value = encode(&ty, &value).map_err(|error| Failure::misfit(&error))?;
        let stored = self.client.wait(self.client.put(&value))?;
        self.keep(&step["as"], Named::Object(stored, Some(ty)));
        Ok(())
    }

    /// Which of these objects are there once so many are, at most so many.
    fn ready<'a>(
        &self,
        names: &'a Json,
        count: u32,
        timeout: Option<Duration>,
    ) -> Result<Vec<&'a str>, Failure> {
        let (futures, count) = (self.objects(names), count as usize);
        let ready = self.client.wait_for(&futures, count, timeout);
        let ready = self.client.wait(ready)?.into_iter().take(count);
        Ok(ready.map(|at| text(&items(names)[at])).collect())
    }

    fn keep(&mut self, name: &Json, it: Named) {
        self.named.insert(text(name).to_owned(), it);
    }

    fn assert_value(
        &self,
        future: &Future,
        ty: Option<&ValueType>,
        timeout: Option<Duration>,
        expected: Option<&Json>,
    ) -> Result<(), Failure> {
        let got = self.client.wait(future.get(timeout));
        let got = got.map_err(|error| Failure {
            ty: ty.cloned(),
            ..error.into()
        })?;
        if let Some(expected) = expected {
            assert_same(ty, &got, expected);
        }
        Ok(())
    }

    fn perform(&mut self, step: &Json) -> Result<(), Failure> {
        let timeout = millis(&step["timeout-ms"]);
        let (verb, it) = rows(step)
            .find(|(verb, _)| VERBS.contains(verb))
            .unwrap_or_else(|| panic!("there is no step {step}"));
        match verb {
            "call" => self.call(step)?,
            "create" => self.create(step)?,
            "get" => self.get(step)?,
            "put" => self.put(step)?,
            "find" => {
                let actor = self.client.wait(self.client.find_actor(text(it)))?;
                self.keep(&step["as"], Named::Actor(actor));
            }
            "kill" => self.client.wait(self.actor(it).kill())?,
            "cancel" => {
                self.client.wait(self.object(it).cancel())?;
            }
            "wait" => {
                let ready = self.ready(it, count(&step["count"]), timeout)?;
                assert_eq!(json!(ready), step["ready"]);
            }
            _ => assert_eq!(self.ready(it, 1, timeout)?, [text(&step["first"])]),
        }
        Ok(())
    }

    fn step(&mut self, step: &Json) {
        match (self.perform(step), step.get("fails")) {
            (Ok(()), None) => {}
            (Err(failure), Some(expected)) => failure.assert_is(expected),
            (Ok(()), Some(expected)) => panic!("{step} did not fail: {expected}"),
            (Err(failure), None) => panic!("{step} failed: {failure:?}"),
        }
    }
}

/// What a step does: each has one of these.
const VERBS: [&str; 9] = [
    "call",
    "create",
    "get",
    "put",
    "find",
    "kill",
    "cancel",
    "wait",
    "completed",
];

/// What functions and actors ask for.
fn ask(
    options: &Json,
    terms: &mut Terms,
    limits: &mut Limits,
    grants: &mut Grants,
) -> Result<(), Failure> {
    for (name, value) in options.as_object().into_iter().flatten() {
        match name.as_str() {
            "cpus" => amount(terms, ResourceName::CPU, value)?,
            "memory" => amount(terms, ResourceName::MEMORY, value)?,
            "time-limit-ms" => limits.time_ms = value.as_u64(),
            "retries" => terms.retries = Some(count(value)),
            "retry-on-error" => terms.retry_on_error = value.as_bool(),
            "priority" => terms.priority = count(value).try_into().expect("a small number"),
            "strategy" => {
                let strategy = text(value).parse::<Strategy>();
                terms.strategy = strategy.map_err(|error| Failure::misfit(&error))?;
            }
            "env" => {
                let all = rows(value).map(|(name, it)| (name.to_owned(), text(it).to_owned()));
                grants.env = all.collect();
            }
            // Of functions or actors alone.
            "name" | "restarts" | "call-retries" => {}
            other => panic!("there is no option {other}"),
        }
    }
    Ok(())
}

fn amount(terms: &mut Terms, resource: ResourceName, value: &Json) -> Result<(), Failure> {
    let amount = Amount::parse_for(&resource, text(value));
    let amount = amount.map_err(|error| Failure::misfit(&error))?;
    terms.resources.insert(resource, amount);
    Ok(())
}

/// The handle that a value is.
fn handle(value: &Value) -> Handle {
    match value {
        Value::Handle(handle) => **handle,
        Value::Result(Ok(Some(value))) => handle(value),
        other => panic!("no handle: {other:?}"),
    }
}

/// Of a result that a function returns, `expected` is the ok case.
#[track_caller]
fn assert_same(ty: Option<&ValueType>, got: &wasmrun_client::Value, expected: &Json) {
    let Some(ty) = ty else {
        assert!(expected.is_null() && got.is_empty(), "{got:?}");
        return;
    };
    let expected = match ty {
        ValueType::Result(_) => from_json(ty, &json!({ "ok": expected })),
        _ => from_json(ty, expected),
    };
    let (got, expected) = (
        decode(ty, got, DecodeLimits::default()).unwrap(),
        expected.unwrap(),
    );
    assert!(got.same_as(&expected), "{got:?} is not {expected:?}");
}

#[test]
fn values_there_and_back_and_those_that_do_not_fit() {
    let (node, table) = (Node::start(), table("drivers"));
    let mut stage = Stage::new(&node, &["fixture"]);
    for (path, values) in rows(&table["values"]) {
        // The first is the type, which the module says here.
        for it in &items(values)[1..] {
            stage.step(&json!({ "call": path, "args": [it], "is": it }));
        }
    }
    for (path, values) in rows(&table["misfits"]) {
        for it in items(values) {
            stage.step(&json!({ "call": path, "args": [it], "fails": { "kind": "misfit" } }));
        }
    }
}

#[test]
fn behaviours_of_drivers() {
    let (node, table) = (Node::start(), table("drivers"));
    let mut stage = Stage::new(&node, &["fixture", "graph", "sdk"]);
    for (name, steps) in rows(&table["cases"]) {
        // Shown if one fails.
        eprintln!("{name}");
        items(steps).iter().for_each(|step| stage.step(step));
        stage.named.clear();
    }
}

#[test]
fn behaviours_of_guests() {
    let (node, table) = (Node::start(), table("guests"));
    let mut stage = Stage::new(&node, &["conformance"]);
    for (name, row) in rows(&table) {
        for call in items(&row["calls"]) {
            let mut step = call.clone();
            step["call"] = format!("conformance.{name}").into();
            if let Some(kind) = call.get("fails") {
                step["fails"] = json!({ "kind": kind });
            }
            stage.step(&step);
        }
    }
}

#[test]
fn the_table_has_all_kinds_of_failures() {
    let table = table("drivers");
    let hit = LimitHit {
        kind: LimitKind::Time,
        limit: 1,
        wanted: None,
    };
    let cause = || Box::new(TaskError::Cancelled);
    let object = ObjectId::of(TaskId::from_bytes([1; 16]), 0);
    let errors = [
        TaskError::Trap {
            message: String::new(),
            frames: Vec::new(),
        },
        TaskError::Guest {
            text: String::new(),
            value: Encoded::Postcard(Vec::new()),
            passed: None,
        },
        TaskError::Exit {
            code: 1,
            limit: None,
        },
        TaskError::Limit {
            hit,
            frames: Vec::new(),
        },
        TaskError::Cancelled,
        TaskError::Arguments(String::new()),
        TaskError::Dependency {
            index: 0,
            task: TaskId::from_bytes([1; 16]),
            name: String::new(),
            cause: cause(),
        },
        TaskError::ActorDied {
            actor: ActorId::from_bytes([1; 16]),
            cause: Some(cause()),
        },
        TaskError::Unschedulable(String::new()),
        TaskError::Sandbox(String::new()),
        TaskError::Lost(object),
    ];
    let kinds = errors.iter().map(TaskError::kind);
    for kind in kinds.chain([Error::Closed.kind()]) {
        assert!(items(&table["kinds"]).contains(&kind.into()), "{kind}");
    }
}
