//! A function of a module as a tool: its schemas, its arguments, its answer.

use std::fmt::Write;
use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use wasmrun_client::wire;
use wasmrun_client::{Client, Submit};
use wasmrun_model::failure::TaskError;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::schema::{self, Side};
use wasmrun_model::value::{
    DecodeLimits, FunctionType, Segment, TextError, TextFault, Value, ValueType, json,
};

use crate::call;

/// How much of a type is written into a tool's description, in bytes: the schemas say it all.
const MAX_TYPE_BYTES: usize = 600;

/// A function that can be called as a tool.
#[derive(Debug)]
pub(crate) struct Function {
    /// What its tasks have in common, but for the arguments.
    pub(crate) template: wire::Submit,
    /// Its full name.
    pub(crate) name: String,
    pub(crate) ty: FunctionType,
}

impl Function {
    /// What the tool says of itself.
    pub(crate) fn description(&self, module: &str, docs: Option<&str>) -> String {
        let mut text = docs.map_or_else(String::new, |docs| format!("{}\n\n", docs.trim()));
        let ty = self.ty.to_string();
        let _ = write!(
            text,
            "Calls `{}` of {module} in a fresh sandbox.",
            self.name
        );
        if ty.len() <= MAX_TYPE_BYTES {
            let _ = write!(text, " WIT: `{ty}`.");
        }
        text
    }

    pub(crate) fn input_schema(&self) -> Arc<JsonObject> {
        Arc::new(schema::of_arguments(self.ty.params()))
    }

    /// `{"result": …}`: what the function returns where all went well.
    pub(crate) fn output_schema(&self) -> Arc<JsonObject> {
        let ok = self.ty.result().and_then(ValueType::when_ok);
        let result = ok.map_or(json!({ "type": "null" }), |ty| {
            schema::of_type(ty, Side::Output)
        });
        let schema =
            json!({ "type": "object", "properties": { "result": result }, "required": ["result"] });
        match schema {
            Json::Object(schema) => Arc::new(schema),
            _ => unreachable!("it was made an object"),
        }
    }

    /// Calls it.
    pub(crate) async fn call(
        &self,
        client: &Client,
        arguments: JsonObject,
        cancelled: &CancellationToken,
    ) -> CallToolResult {
        let none = call::Printed::default();
        let values = match json::arguments_from_json(&self.ty, &Json::Object(arguments)) {
            Ok(values) => values,
            Err(error) => return call::failed(wrong_argument(&error), &none, &none),
        };
        let values = self.ty.params().iter().zip(&values);
        let values = values
            .map(|((_, ty), value)| encode(ty, value).expect("it was read by this type").into());
        let submit = Submit::of(self.template.clone()).values(values);
        let ended = match call::run(client, submit, cancelled).await {
            Ok(ended) => ended,
            Err(error) => return call::failed(error.to_string(), &none, &none),
        };
        let result = ended.result.and_then(|value| self.answer(value));
        match result {
            Ok(result) => {
                let mut answer = CallToolResult::structured(json!({ "result": result }));
                let printed = call::printed(&ended.stdout, &ended.stderr);
                answer.content.extend(printed);
                answer
            }
            Err(error) => call::failed(self.failure(&error), &ended.stdout, &ended.stderr),
        }
    }

    /// The result as JSON; of a `result`, what its ok case holds.
    fn answer(&self, value: Option<wasmrun_client::Value>) -> Result<Json, TaskError> {
        let (Some(ty), Some(value)) = (self.ty.result(), value) else {
            return Ok(Json::Null);
        };
        let value = call::value(ty, &value)?;
        Ok(match payload(ty, &value) {
            Payload::Whole => json::to_json(ty, &value).expect("it was decoded by this type"),
            Payload::Case(Some((ty, value))) => {
                json::to_json(ty, value).expect("it is of its type")
            }
            Payload::Case(None) => Json::Null,
        })
    }

    fn failure(&self, error: &TaskError) -> String {
        let name = self.name.rsplit('#').next().unwrap_or(&self.name);
        if let (
            TaskError::Guest {
                value,
                passed: None,
                ..
            },
            Some(ty),
        ) = (error, self.ty.result())
        {
            let value = decode(ty, value, DecodeLimits::default()).ok();
            if let Some(Payload::Case(payload)) = value.as_ref().map(|value| payload(ty, value)) {
                let payload = payload.and_then(|(ty, value)| json::to_json(ty, value).ok());
                return match payload {
                    Some(payload) => format!("{name}: the function returned an error: {payload}"),
                    None => format!("{name}: the function returned an error that carries nothing"),
                };
            }
        }
        format!("{name}: {}", call::with_frames(error))
    }
}

/// What a function's value is to its caller.
enum Payload<'a> {
    /// Itself.
    Whole,
    /// What a case of a `result` holds.
    Case(Option<(&'a ValueType, &'a Value)>),
}

fn payload<'a>(ty: &'a ValueType, value: &'a Value) -> Payload<'a> {
    let (ValueType::Result(ty), Value::Result(value)) = (ty, value) else {
        return Payload::Whole;
    };
    let (ty, value) = match value {
        Ok(value) => (&ty.ok, value),
        Err(value) => (&ty.err, value),
    };
    Payload::Case(ty.as_ref().zip(value.as_deref()))
}

/// What is wrong with the arguments, and where.
fn wrong_argument(error: &TextError) -> String {
    let mut segments = error.path.segments();
    let Some(first) = segments.next() else {
        return match &error.fault {
            TextFault::UnknownField { found, known } if known.is_empty() => {
                format!("there is no argument {found:?}: the function takes none")
            }
            TextFault::UnknownField { found, known } => {
                format!("there is no argument {found:?}; the arguments are {known}")
            }
            TextFault::MissingField { name, ty } => {
                format!("argument {name:?} is missing; add it, its type is {ty}")
            }
            fault => format!("arguments: {fault}"),
        };
    };
    let mut text = match first {
        Segment::Name(name) => format!("argument `{name}`"),
        Segment::Index(at) | Segment::Position(at) => format!("argument {at}"),
    };
    for segment in segments {
        let _ = match segment {
            Segment::Name(name) => write!(text, ".{name}"),
            Segment::Index(at) => write!(text, "[{at}]"),
            Segment::Position(at) => write!(text, ".{at}"),
        };
    }
    format!("{text}: {}", error.fault)
}
