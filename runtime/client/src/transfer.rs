//! Values in chunks, in and out.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::value::{Encoded, ValueType};
use wasmrun_model::wire::{Bytes, Form, ObjectRef, Request, Response};

use crate::connection::{Answers, Connection};
use crate::error::{Error, GetError};

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Connection {
    /// Sends a request, and then `len` bytes that `next` gives. The answer.
    pub(crate) async fn send_all(
        &self,
        request: Request,
        len: u64,
        mut next: impl FnMut() -> std::io::Result<Vec<u8>>,
    ) -> Result<Response, Error> {
        let mut answers = self.start(request).await?;
        match answers.next().await? {
            Response::Continue => {}
            other => return Err(Error::unexpected(&other)),
        }
        let mut left = len;
        while left > 0 {
            let mut chunk = next().map_err(Error::Source)?;
            if chunk.is_empty() {
                let short = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(Error::Source(short));
            }
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            self.send(answers.id, Request::Chunk(Bytes(chunk))).await?;
        }
        answers.next().await
    }
}

/// A value that is there, on its way here.
#[derive(Debug)]
pub struct Incoming {
    /// What its bytes are.
    pub form: Form,
    /// How many they are.
    pub len: u64,
    /// Its type, where the node knows it.
    pub ty: Option<ValueType>,
    left: u64,
    answers: Answers,
}

impl Incoming {
    pub(crate) async fn start(
        connection: &Arc<Connection>,
        object: ObjectRef,
        timeout: Option<Duration>,
    ) -> Result<Self, GetError> {
        let timeout_ms = timeout.map(milliseconds);
        let mut answers = connection
            .start(Request::Get { object, timeout_ms })
            .await?;
        match answers.next().await? {
            Response::Value { form, len, ty } => Ok(Self {
                form,
                len,
                ty,
                left: len,
                answers,
            }),
            Response::Failed { origin, error } => Err(GetError::Failed {
                origin,
                error: error.into(),
            }),
            Response::TimedOut => Err(GetError::TimedOut),
            other => Err(Error::unexpected(&other).into()),
        }
    }

    /// Its next bytes; `None` at the end.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.answers.next().await? {
            Response::Chunk(bytes) if (1..=self.left).contains(&(bytes.0.len() as u64)) => {
                self.left -= bytes.0.len() as u64;
                Ok(Some(bytes.0))
            }
            other => Err(Error::unexpected(&other)),
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn value(mut self) -> Result<Encoded, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend(chunk);
        }
        Ok(self.form.encoded(bytes))
    }
}
