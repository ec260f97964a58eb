//! Statistics over many measurements: tasks, objects and actors from the WIT alone.
//!
//! Nothing of wasmrun is in here but its WIT files, from which `wit-bindgen` makes `bindings`. So this is what
//! any language with a WIT binding does. What the SDK would do besides: choose names and types at compile time,
//! encode arguments (here: [`number`], [`Summary::read`]) and find memory for windows ([`Window`]).
//!
//! One function stores the measurements once (`put`), starts a task for each part (`spawn`), and passes what
//! each will make, unseen, to an actor (`create`, `call`) that adds it up. The tasks read their part in place
//! (`map`).

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

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;

use bindings::exports::example::by_hand::survey::{Guest, GuestTally, Summary};
use bindings::wasmrun::runtime::actors;
use bindings::wasmrun::runtime::objects::{self, Error, Form, Number, Object};
use bindings::wasmrun::runtime::tasks::{self, Argument};

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
        // No copy: the pages of the store become pages of this window, until the task ends.
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
}

/// Stores the measurements, and has them looked at.
fn run(count: u32, parts: u32) -> Result<Summary, Error> {
    let bytes: Vec<u8> = (0..count).flat_map(|n| measure(n).to_le_bytes()).collect();
    // A list of numbers is a buffer: its elements as they are, which is what can be mapped.
    let measurements = objects::put(Form::Buffer(Number::F64), &bytes)?;
    let tally = actors::create("tally", &[], None)?;
    let mut added = Vec::new();
    for index in 0..parts {
        // For a parameter that is a handle, an object is the handle. None of this waits.
        let arguments = [
            Argument::Object(&measurements),
            number(index.into()),
            number(parts.into()),
        ];
        let summary = tasks::spawn("look", &arguments, None)?;
        // For any other parameter it is the value, once it is there: the call starts then.
        added.push(tally.call("add", &[Argument::Object(&summary)])?);
    }
    let half = parts.div_ceil(2);
    let borrowed: Vec<&Object> = added.iter().collect();
    let ready = objects::wait(&borrowed, half, None)?;
    eprintln!("{} of {parts} parts are in", ready.len());
    // Calls of one caller run in their order, so this one sees all that were made before it.
    let total = tally.call("total", &[])?.get(None)?;
    Ok(Summary::read(&total.bytes))
}

/// The measurement with this number.
fn measure(n: u32) -> f64 {
    f64::from(n.wrapping_mul(37) % 1000)
}

/// A whole number as an argument: in postcard, seven bits a byte, the lowest first, and the eighth bit says
/// that more follow. All unsigned integers of more than 8 bits are so.
fn number(mut n: u64) -> Argument<'static> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    Argument::Value(bytes)
}

fn say(error: Error) -> String {
    match error {
        Error::Failed(failure) => format!("task {} failed: {}", failure.origin, failure.message),
        Error::TimedOut => "timed out".into(),
        Error::Deadlock(why) | Error::Refused(why) => why,
    }
}

impl Summary {
    /// Of no measurement.
    const NOTHING: Self = Self {
        count: 0,
        sum: 0.0,
        least: f64::INFINITY,
        most: f64::NEG_INFINITY,
    };

    /// With one more measurement.
    fn with(self, value: f64) -> Self {
        self.and(Self {
            count: 1,
            sum: value,
            least: value,
            most: value,
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// From postcard: the fields in their order, floats as 8 bytes.
    fn read(bytes: &[u8]) -> Self {
        let (floats, groups) = (bytes.len() - 24, bytes.iter().enumerate());
        let count = groups.take(floats);
        let float = |at: usize| {
            let at = floats + 8 * at;
            f64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        Self {
            count: count.fold(0, |n, (at, byte)| n | u64::from(byte & 0x7f) << (7 * at)),
            sum: float(0),
            least: float(1),
            most: float(2),
        }
    }
}

/// See `wit/by-hand.wit`.
struct Tally(RefCell<(u32, Summary)>);

impl GuestTally for Tally {
    fn new() -> Self {
        Self(RefCell::new((0, Summary::NOTHING)))
    }

    fn add(&self, part: Summary) -> u32 {
        let (parts, total) = &mut *self.0.borrow_mut();
        *parts += 1;
        *total = total.and(part);
        *parts
    }

    fn total(&self) -> Summary {
        self.0.borrow().1
    }
}

const PAGE: usize = 64 << 10;

/// Memory that an object can be mapped to: whole pages of WebAssembly.
struct Window {
    at: *mut u8,
    layout: Layout,
}

impl Window {
    /// One for an object of so many bytes.
    fn new(bytes: usize) -> Self {
        let pages = bytes.div_ceil(PAGE).max(1) * PAGE;
        let layout = Layout::from_size_align(pages, PAGE).expect("it fits into memory");
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        Self { at, layout }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it was allocated with this layout, and is zeros or what was mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.layout.size()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Before the memory is anybody else's; where nothing is mapped there is nothing to take back.
        let _ = objects::unmap(self.bytes_mut());
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.at, self.layout) }
    }
}

bindings::export!(ByHand with_types_in bindings);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_varints() {
        let bytes = |n| match number(n) {
            Argument::Value(bytes) => bytes,
            Argument::Object(_) => unreachable!("it is a value"),
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(300), [0xac, 2]);
    }

    #[test]
    fn summaries_are_read_as_they_are_written() {
        let floats = [4.5_f64, -1.0, 3.0].map(f64::to_le_bytes).concat();
        let read = Summary::read(&[&[0xac, 2][..], &floats].concat());
        assert_eq!(
            (read.count, read.sum, read.least, read.most),
            (300, 4.5, -1.0, 3.0)
        );
    }

    #[test]
    fn parts_make_the_whole() {
        let all = |from: u32, to: u32| {
            (from..to)
                .map(measure)
                .fold(Summary::NOTHING, Summary::with)
        };
        let (whole, parts) = (all(0, 1000), all(0, 400).and(all(400, 1000)));
        assert_eq!((whole.count, whole.sum), (1000, 499_500.0));
        assert_eq!(
            (parts.count, parts.sum, parts.least, parts.most),
            (1000, 499_500.0, 0.0, 999.0)
        );
    }
}
