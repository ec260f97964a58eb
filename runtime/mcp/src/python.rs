//! Snippets of Python as a tool: the interpreter's function `run`, in a sandbox that is new for each.
//!
//! Owns how JSON crosses: inputs and result are texts of JSON, which `snippet.py` reads and writes around the code. Must not:
//! know what a value of Python is.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use wasmrun_client::wire;
use wasmrun_client::{Client, Submit};
use wasmrun_model::failure::{LimitKind, TaskError};
use wasmrun_model::units;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{
    DecodeLimits, Encoded, FunctionType, NumberKind, NumberList, Value, ValueType,
};

use crate::call::{self, Printed};
use crate::data;

/// The tool's name.
pub(crate) const NAME: &str = "run_python";
/// The end of the function's full name.
const FUNCTION: &str = "#run";
const INTERFACE: &str = "wasmrun:python/interpreter@";
/// What runs around the code.
const SNIPPET: &str = include_str!("snippet.py");

/// The interpreter.
#[derive(Debug)]
pub(crate) struct Python {
    /// What its tasks have in common; with the longest time that a snippet may have.
    pub(crate) template: wire::Submit,
    ty: FunctionType,
}

/// What a call of the tool says.
struct Asked {
    code: String,
    inputs: String,
    time: Duration,
}

/// Whether this is the function that runs snippets, by its full name.
pub(crate) fn is_run(name: &str) -> bool {
    name.starts_with(INTERFACE) && name.ends_with(FUNCTION)
}

impl Python {
    /// `None` if the function does not take snippets as we send them.
    pub(crate) fn new(template: wire::Submit, ty: FunctionType) -> Option<Self> {
        let python = Self { template, ty };
        python.arguments("", "").map(|_| python)
    }

    fn most(&self) -> Duration {
        let ms = self.template.limits.time_ms;
        Duration::from_millis(ms.unwrap_or(crate::DEFAULT_TIME_MS))
    }

    /// What the tool says of itself; `reach` is what was granted.
    pub(crate) fn description(&self, reach: &str) -> String {
        format!(
            "Runs Python code (CPython with its standard library, no other packages) in a fresh sandbox, and returns what the \
             code leaves in the variable `result`, with what it prints. Nothing is kept between calls. `inputs` are set as \
             variables. A call may take {}. {reach}",
            units::milliseconds(milliseconds(self.most()))
        )
    }

    pub(crate) fn input_schema(&self) -> Arc<JsonObject> {
        schema(json!({
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": "The code. Assign what is to be returned to `result`: numbers, text, lists and dictionaries come back as JSON.",
                },
                "inputs": {
                    "type": "object",
                    "description": "Values for the code, which are variables of these names in it.",
                },
                "time_limit_s": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": self.most().as_secs_f64(),
                    "description": "Stop the code after so many seconds.",
                },
            },
            "required": ["code"],
            "additionalProperties": false,
        }))
    }

    pub(crate) fn output_schema() -> Arc<JsonObject> {
        schema(json!({
            "type": "object",
            "properties": {
                "result": { "description": "What the variable `result` held; null if nothing." },
                "stdout": { "type": "string" },
                "stderr": { "type": "string" },
                "note": { "type": "string", "description": "What of the result is not as it was." },
            },
            "required": ["result", "stdout", "stderr"],
        }))
    }

    /// Runs a snippet.
    pub(crate) async fn call(
        &self,
        client: &Client,
        arguments: JsonObject,
        cancelled: &CancellationToken,
    ) -> CallToolResult {
        let none = Printed::default();
        let asked = match self.asked(arguments) {
            Ok(asked) => asked,
            Err(wrong) => return call::failed(wrong, &none, &none),
        };
        let mut template = self.template.clone();
        template.limits.time_ms = Some(milliseconds(asked.time));
        let values = self.arguments(&asked.code, &asked.inputs);
        let values = values.expect("they were tried").into_iter().map(Into::into);
        let ended = match call::run(client, Submit::of(template).values(values), cancelled).await {
            Ok(ended) => ended,
            Err(error) => return call::failed(error.to_string(), &none, &none),
        };
        let texts = match &ended.result {
            Ok(Some(value)) => self.returned(value),
            Ok(None) => Err("the interpreter has returned nothing".into()),
            Err(TaskError::Limit { hit, .. })
                if hit.kind == LimitKind::Time && asked.time < self.most() =>
            {
                let (time, most) = (asked.time.as_secs_f64(), self.most().as_secs_f64());
                Err(format!(
                    "the code has taken {time} s and was stopped; give a longer time_limit_s, up to {most}"
                ))
            }
            Err(error) => Err(self.failure(error)),
        };
        match texts.and_then(|texts| answer(&texts)) {
            Ok(answer) => answer,
            Err(text) => call::failed(text, &ended.stdout, &ended.stderr),
        }
    }

    fn asked(&self, arguments: JsonObject) -> Result<Asked, String> {
        let (mut code, mut inputs, mut time) = (None, "{}".to_owned(), self.most());
        for (name, value) in arguments {
            match (&*name, value) {
                ("code", Json::String(text)) => code = Some(text),
                ("code", _) => return Err("argument `code`: expected a string".into()),
                ("inputs", value @ Json::Object(_)) => inputs = value.to_string(),
                ("inputs", Json::Null) | ("time_limit_s", Json::Null) => {}
                ("inputs", _) => {
                    return Err(
                        "argument `inputs`: expected an object, whose names become variables"
                            .into(),
                    );
                }
                ("time_limit_s", value) => time = self.time(&value)?,
                (name, _) => {
                    return Err(format!(
                        "there is no argument {name:?}; the arguments are code, inputs, time_limit_s"
                    ));
                }
            }
        }
        let code = code.ok_or("argument \"code\" is missing; add it, its type is string")?;
        Ok(Asked { code, inputs, time })
    }

    fn time(&self, value: &Json) -> Result<Duration, String> {
        let most = self.most();
        let time = value
            .as_f64()
            .and_then(|s| Duration::try_from_secs_f64(s).ok());
        time.filter(|time| !time.is_zero() && *time <= most).ok_or_else(|| {
            let most = most.as_secs_f64();
            format!("argument `time_limit_s`: expected a number of seconds above 0 and up to {most}, found {value}")
        })
    }

    /// The function's arguments, if it takes these.
    fn arguments(&self, code: &str, inputs: &str) -> Option<Vec<Encoded>> {
        let bytes = data::write(&[("code", code), ("inputs", inputs)]);
        let bytes = NumberList::from_le_bytes(NumberKind::U8, bytes)?;
        let nothing = || Value::List(Vec::new());
        let inputs = Value::Record(vec![Value::Numbers(bytes), nothing(), nothing()]);
        let values = [Value::String(SNIPPET.to_owned()), inputs];
        let params = self.ty.params();
        if params.len() != values.len() {
            return None;
        }
        let all = params.iter().zip(&values);
        all.map(|((_, ty), value)| encode(ty, value).ok()).collect()
    }

    /// The texts that came back.
    fn returned(&self, value: &wasmrun_client::Value) -> Result<Texts, String> {
        let ty = self
            .ty
            .result()
            .ok_or("the interpreter has returned nothing")?;
        let texts = match call::value(ty, value) {
            Ok(Value::Result(Ok(Some(value)))) => match *value {
                Value::Record(parts) => parts.into_iter().next().and_then(texts_in),
                _ => None,
            },
            _ => None,
        };
        texts.ok_or_else(|| {
            "the interpreter has returned something else than was asked of it".into()
        })
    }

    /// What is said of a task that has failed: a limit, or something that the code has done to what is around it.
    fn failure(&self, error: &TaskError) -> String {
        if let (TaskError::Guest { value, .. }, Some(ty)) = (error, self.ty.result())
            && let Some(traceback) = traceback(ty, value)
        {
            return traceback;
        }
        // Its frames are those of the interpreter, and tell nothing of the code.
        error.to_string()
    }
}

type Texts = std::collections::BTreeMap<String, String>;

fn texts_in(data: Value) -> Option<Texts> {
    match data {
        Value::Numbers(bytes) => data::read(&bytes.into_le_bytes()),
        _ => None,
    }
}

/// The text of an exception that came out of the interpreter.
fn traceback(ty: &ValueType, value: &Encoded) -> Option<String> {
    let decoded = decode(ty, value, DecodeLimits::default());
    let Ok(Value::Result(Err(Some(raised)))) = decoded else {
        return None;
    };
    match *raised {
        // Its class, its message, its traceback, details.
        Value::Record(parts) => match parts.into_iter().nth(2) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The tool's answer.
fn answer(texts: &Texts) -> Result<CallToolResult, String> {
    let printed = |name| Printed::of(texts.get(name).map_or("", String::as_str));
    let (stdout, stderr) = (printed("stdout"), printed("stderr"));
    let answered = texts.get("result").map(|text| serde_json::from_str(text));
    let Some(Ok(Json::Object(mut answered))) = answered else {
        return Err("the code has left no answer that can be read".into());
    };
    if let Some(Json::String(traceback)) = answered.remove("raised") {
        return Ok(call::failed(traceback, &stdout, &stderr));
    }
    answered.insert("stdout".into(), stdout.text().into());
    answered.insert("stderr".into(), stderr.text().into());
    Ok(CallToolResult::structured(Json::Object(answered)))
}

fn milliseconds(time: Duration) -> u64 {
    units::ms(time).max(1)
}

fn schema(schema: Json) -> Arc<JsonObject> {
    match schema {
        Json::Object(schema) => Arc::new(schema),
        _ => unreachable!("it is an object"),
    }
}
