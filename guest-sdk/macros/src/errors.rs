//! Gathers errors, so that all of a module are told at once.

/// Errors, each with its place.
#[derive(Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    /// One more.
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, if there is one; its error is kept otherwise.
    pub fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether there is none so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The value, unless there were errors.
    pub fn or<T>(self, value: T) -> syn::Result<T> {
        match self.0 {
            Some(errors) => Err(errors),
            None => Ok(value),
        }
    }
}
