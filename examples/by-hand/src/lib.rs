//! Tasks, objects and actors from the WIT alone.
//!
//! Nothing of wasmrun is in here but its WIT files, from which `wit-bindgen` makes `bindings`. So this is what
//! any language with a WIT binding does. What the SDK would do besides: choose names and types at compile time,
//! encode arguments and results ([`values`]), find memory for windows ([`window`]), export the fast lane
//! ([`fast`]), and write the manifest.
//!
//! `survey` is a program of some use: it stores measurements once (`put`), starts a task for each part (`spawn`),
//! and passes what each will make, unseen, to an actor (`create`, `call`) that adds it up. The tasks read their
//! part in place (`map`). [`tour`] has what else there is, chapter by chapter. `README.md` says where each function
//! of the WIT files is used.

#![allow(
    clippy::unnecessary_mut_passed,
    reason = "the host writes to a window, whatever its WIT type says"
)]

#[allow(missing_docs, reason = "documented in wit/by-hand.wit")]
mod bindings {
    wit_bindgen::generate!({
        world: "example:by-hand/by-hand",
        path: ["../../wit", "wit"],
        generate_all,
    });
}

mod fast;
mod tally;
mod tour;
mod values;
mod window;

use bindings::exports::example::by_hand::survey::{Guest, Summary};
use bindings::wasmrun::runtime::actors;
use bindings::wasmrun::runtime::objects::{self, Error, Form, Number, Object};
use bindings::wasmrun::runtime::tasks::{self, Argument, Options};
use tally::Tally;
use values::{Reader, Writer};
use window::Window;

/// What the functions and classes need where nobody says otherwise: a custom section of the module. `wasmrun
/// annotate` can write it too.
#[used]
#[cfg_attr(target_family = "wasm", unsafe(link_section = "wasmrun:manifest"))]
static MANIFEST: [u8; MANIFEST_TEXT.len()] = *MANIFEST_TEXT;

const MANIFEST_TEXT: &[u8; include_bytes!("../manifest.json").len()] =
    include_bytes!("../manifest.json");

struct ByHand;

impl Guest for ByHand {
    type Tally = Tally;

    fn survey(count: u32, parts: u32) -> Result<Summary, String> {
        if count == 0 || parts == 0 {
            return Err("there must be a measurement and a part".into());
        }
        run(count, parts).map_err(say)
    }

    fn look(measurements: Object, index: u32, parts: u32) -> Summary {
        let size = measurements.size(None).expect("it is there");
        let mut window = Window::new(size as usize);
        // No copy: the pages of the store become pages of this window, until it is dropped.
        measurements
            .map(window.bytes_mut(), None)
            .expect("it is there");
        let all = &window.bytes()[..size as usize];
        let measurements = all.len() / 8;
        let bound = |part: u32| measurements * part as usize / parts as usize * 8;
        let part = &all[bound(index)..bound(index + 1)];
        let values = part.chunks_exact(8);
        let values = values.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        values.fold(Summary::NOTHING, Summary::with)
    }

    fn merge(parts: Vec<Summary>) -> Summary {
        parts.into_iter().fold(Summary::NOTHING, Summary::and)
    }
}

/// Stores the measurements, and has them looked at.
fn run(count: u32, parts: u32) -> Result<Summary, Error> {
    let bytes: Vec<u8> = (0..count).flat_map(|n| measure(n).to_le_bytes()).collect();
    // A list of numbers is a buffer: its elements as they are, which is what can be mapped.
    let measurements = objects::put(Form::Buffer(Number::F64), &bytes)?;
    let tally = actors::create("tally", &[], None)?;
    let (mut looked, mut added) = (Vec::new(), Vec::new());
    for index in 0..parts {
        // For a parameter that is a handle, an object is the handle. None of this waits.
        let arguments = [
            Argument::Object(&measurements),
            number(index),
            number(parts),
        ];
        let options = Options {
            strategy: Some("spread".into()),
            retries: Some(2),
            retry_on_error: None,
            ..as_declared()
        };
        let summary = tasks::spawn("look", &arguments, Some(&options))?;
        // For any other parameter it is the value, once it is there: the call starts then.
        added.push(tally.call("add", &[Argument::Object(&summary)])?);
        looked.push(summary);
    }
    let half = parts.div_ceil(2);
    let ready = objects::wait(&borrowed(&added), half, None)?;
    eprintln!("{} of {parts} parts are in", ready.len());
    // Calls of one caller run in their order, so this one sees all that were made before it.
    let total = tally.call("total", &[])?.get(None)?;
    // The same once more, from a list that is put together here of bytes as they came.
    let mut list = Writer::default().number(parts);
    for summary in looked {
        list = list.raw(&summary.get(None)?.bytes);
    }
    let merged = tasks::spawn("merge", &[Argument::Value(list.0)], None)?.get(None)?;
    assert_eq!(total.bytes, merged.bytes, "both ways give the same");
    Ok(Reader(&total.bytes).summary())
}

/// The measurement with this number.
fn measure(n: u32) -> f64 {
    f64::from(n.wrapping_mul(37) % 1000)
}

/// A whole number as an argument.
fn number(n: impl Into<u64>) -> Argument<'static> {
    Argument::Value(Writer::default().number(n).0)
}

fn borrowed(objects: &[Object]) -> Vec<&Object> {
    objects.iter().collect()
}

/// Options of a task that ask for nothing but what the manifest declares.
fn as_declared() -> Options {
    Options {
        resources: Vec::new(),
        retries: None,
        retry_on_error: None,
        time_limit_ms: None,
        priority: None,
        label_selector: None,
        strategy: None,
    }
}

/// Why there is no value, for people.
fn say(error: Error) -> String {
    match error {
        Error::Failed(failure) => format!("task {} failed: {}", failure.origin, failure.message),
        Error::TimedOut => "timed out".into(),
        Error::Deadlock(why) => format!("deadlock: {why}"),
        Error::Refused(why) => format!("refused: {why}"),
    }
}

bindings::export!(ByHand with_types_in bindings);

#[cfg(test)]
mod tests;
