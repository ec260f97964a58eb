//! Where in a value something is wrong: `args[1].points[3].x`.
//!
//! A path is built only when something has failed, from the inside out while the error unwinds, so
//! that a walk that succeeds pays nothing for it.

use std::fmt;
use std::sync::Arc;

/// What a path starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// A value by itself: `value`.
    #[default]
    Value,
    /// All arguments of a call: `args`.
    Arguments,
    /// One argument of a call, counted from 0: `args[1]`.
    Argument(usize),
}

/// One step from a value into a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A record's field, or the payload of a variant's or result's case: `.x`.
    Name(Arc<str>),
    /// A list's element, counted from 0: `[3]`.
    Index(usize),
    /// A tuple's item, counted from 0: `.0`.
    Position(usize),
}

/// The way from a whole value to the part that an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    root: Root,
    /// Innermost first: errors unwind from the inside out.
    inner_first: Vec<Segment>,
}

impl Path {
    /// What the path starts from.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The steps, outermost first.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.inner_first.iter().rev()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.root {
            Root::Value => f.write_str("value")?,
            Root::Arguments => f.write_str("args")?,
            Root::Argument(index) => write!(f, "args[{index}]")?,
        }
        for segment in self.segments() {
            match segment {
                Segment::Name(name) => write!(f, ".{name}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Position(position) => write!(f, ".{position}")?,
            }
        }
        Ok(())
    }
}

/// An error that carries a [`Path`].
pub(super) trait Located {
    fn path_mut(&mut self) -> &mut Path;
}

/// Adds steps to an error on its way out; nothing is computed when there is no error.
pub(super) trait At {
    fn at_name(self, name: &Arc<str>) -> Self;
    fn at_case(self, name: &str) -> Self;
    fn at_index(self, index: usize) -> Self;
    fn at_position(self, position: usize) -> Self;
    fn under(self, root: Root) -> Self;
}

impl<T, E: Located> At for Result<T, Box<E>> {
    fn at_name(self, name: &Arc<str>) -> Self {
        push(self, || Segment::Name(name.clone()))
    }

    fn at_case(self, name: &str) -> Self {
        push(self, || Segment::Name(name.into()))
    }

    fn at_index(self, index: usize) -> Self {
        push(self, || Segment::Index(index))
    }

    fn at_position(self, position: usize) -> Self {
        push(self, || Segment::Position(position))
    }

    fn under(self, root: Root) -> Self {
        self.map_err(|mut error| {
            error.path_mut().root = root;
            error
        })
    }
}

fn push<T, E: Located>(
    result: Result<T, Box<E>>,
    segment: impl FnOnce() -> Segment,
) -> Result<T, Box<E>> {
    result.map_err(|mut error| {
        error.path_mut().inner_first.push(segment());
        error
    })
}

/// Writes at most `bytes_max` bytes of something printable and then `…`.
pub(super) fn clip(item: &impl fmt::Display, bytes_max: usize) -> String {
    struct Clip {
        text: String,
        bytes_max: usize,
    }
    impl fmt::Write for Clip {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            let room = self.bytes_max - self.text.len();
            if s.len() <= room {
                self.text.push_str(s);
                return Ok(());
            }
            self.text.push_str(&s[..s.floor_char_boundary(room)]);
            self.text.push('…');
            // Stops the writer: the rest may be very long.
            Err(fmt::Error)
        }
    }
    let mut clip = Clip {
        text: String::new(),
        bytes_max,
    };
    // An error here means "full", not "failed".
    let _ = fmt::write(&mut clip, format_args!("{item}"));
    clip.text
}
