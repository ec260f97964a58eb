//! What has to be reconstructed before something else can be.
//!
//! Owns the order. Must not: run anything, or know what a recipe is made of.

/// The way to one lost result: it, and before it its arguments that are lost, too. Depth first, one at a time: another
/// reader may be reconstructing the next one.
#[derive(Debug)]
pub struct Path<R>(Vec<R>);

impl<R> Path<R> {
    /// What is wanted in the end.
    pub fn new(last: R) -> Self {
        Self(vec![last])
    }

    /// What is to be begun next. `lacking` names one thing that it is made of and that nobody has and nobody makes.
    ///
    /// # Panics
    /// When all has been begun.
    pub fn next(&mut self, lacking: impl Fn(&R) -> Option<R>) -> &R {
        while let Some(before) = lacking(self.last()) {
            self.0.push(before);
        }
        self.last()
    }

    fn last(&self) -> &R {
        self.0.last().expect("there is more to be begun")
    }

    /// What was to be begun next has been. True if that was all.
    pub fn begun(&mut self) -> bool {
        self.0.pop();
        self.0.is_empty()
    }
}
