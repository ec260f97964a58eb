//! Values in chunks, in and out.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmrun_model::units;
use wasmrun_model::value::{Handle, ValueType};
use wasmrun_model::wire::{Bytes, CHUNK_BYTES, Form, ObjectRef, Request, Response, STAGED_BYTES};
use wasmrun_store::StagingWriter;

use crate::connection::Connection;
use crate::error::{Error, GetError};
use crate::named::Named;
use crate::routes::{Answer, Answers, Routes};
use crate::value::Value;

impl Connection {
    /// Sends a request, and then the first `len` bytes of `source`. The answer.
    pub(crate) async fn send_all(
        &self,
        request: Request,
        len: u64,
        source: impl Read,
    ) -> Result<Response, Error> {
        let mut answers = self.start(request).await?;
        let answer = answers.next_answer().await?;
        let mut sending = Sending {
            routes: &self.routes,
            id: answers.id,
            is_over: false,
        };
        match answer {
            Answer::Said(Response::Continue) => self.send_chunks(answers.id, len, source).await?,
            Answer::Staging(staging) => {
                self.send_staged(&mut answers, staging, len, source).await?;
            }
            other => return Err(other.unexpected()),
        }
        sending.is_over = true;
        answers.next().await
    }

    async fn send_chunks(&self, id: u64, len: u64, mut source: impl Read) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let part = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let mut chunk = vec![0; part];
            source.read_exact(&mut chunk).map_err(Error::Source)?;
            left -= chunk.len() as u64;
            self.send(id, Request::Chunk(Bytes(chunk))).await?;
        }
        Ok(())
    }

    /// Sends bytes through memory that the node reads: it takes one part while the next is written.
    async fn send_staged(
        &self,
        answers: &mut Answers,
        mut staging: StagingWriter,
        len: u64,
        mut source: impl Read,
    ) -> Result<(), Error> {
        let parts = (staging.len() as u64 / STAGED_BYTES).max(1);
        let (mut written, mut taken, mut left) = (0, 0, len);
        while taken < written || left > 0 {
            if left > 0 && written - taken < parts {
                let (offset, len) = (written % parts * STAGED_BYTES, left.min(STAGED_BYTES));
                let part = staging.get_mut(offset as usize..(offset + len) as usize);
                let part = part.ok_or_else(|| Error::Unexpected("too little memory".into()))?;
                source.read_exact(part).map_err(Error::Source)?;
                (written, left) = (written + 1, left - len);
                let staged = Request::Staged { offset, len };
                self.send(answers.id, staged).await?;
                // It is to be written to the socket before the next part is copied.
                tokio::task::yield_now().await;
            } else {
                match answers.next().await? {
                    Response::Continue => taken += 1,
                    other => return Err(Error::unexpected(&other)),
                }
            }
        }
        Ok(())
    }
}

/// Bytes that the node waits for, and keeps room for. Unless all were sent, dropping it tells the node that no more come.
struct Sending<'a> {
    routes: &'a Routes,
    id: u64,
    is_over: bool,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.routes.abandon(self.id);
        }
    }
}

/// A value that is there: mapped, or on its way here.
#[derive(Debug)]
pub struct Incoming {
    /// What its bytes are.
    pub form: Form,
    /// How many they are.
    pub len: u64,
    /// Its type, where the node knows it.
    pub ty: Option<ValueType>,
    /// What it names, where the node has said that.
    named: Option<Arc<Named>>,
    source: Source,
    connection: Arc<Connection>,
}

/// Where the bytes come from.
#[derive(Debug)]
enum Source {
    /// They come in chunks; so many are left.
    Chunks { left: u64, answers: Answers },
    /// They are there; what is before has been taken.
    Mapped { value: Value, taken: usize },
}

impl Incoming {
    pub(crate) async fn start(
        connection: &Arc<Connection>,
        object: ObjectRef,
        timeout: Option<Duration>,
    ) -> Result<Self, GetError> {
        let answers = Self::request(connection, &object, timeout, true).await?;
        match Self::read(connection, answers).await? {
            Some(incoming) => Ok(incoming),
            None => Self::copied(connection, &object, timeout).await,
        }
    }

    /// The value of an object that was asked for before, without a limit of time.
    pub(crate) async fn answered(
        connection: &Arc<Connection>,
        object: ObjectRef,
        answers: Answers,
    ) -> Result<Self, GetError> {
        match Self::read(connection, answers).await? {
            Some(incoming) => Ok(incoming),
            None => Self::copied(connection, &object, None).await,
        }
    }

    /// Not mapped.
    async fn copied(
        connection: &Arc<Connection>,
        object: &ObjectRef,
        timeout: Option<Duration>,
    ) -> Result<Self, GetError> {
        let answers = Self::request(connection, object, timeout, false).await?;
        let copied = Self::read(connection, answers).await?;
        copied.ok_or_else(|| Error::Unexpected("a mapped value".into()).into())
    }

    async fn request(
        connection: &Arc<Connection>,
        object: &ObjectRef,
        timeout: Option<Duration>,
        can_map: bool,
    ) -> Result<Answers, GetError> {
        let began = Instant::now();
        let turn = connection.turn_to_wait();
        let turn = match timeout {
            Some(timeout) => {
                let turn = tokio::time::timeout(timeout, turn).await;
                turn.map_err(|_| GetError::TimedOut)?
            }
            None => turn.await,
        };
        let timeout = timeout.map(|all| all.saturating_sub(began.elapsed()));
        let request = Request::Get {
            object: object.clone(),
            timeout_ms: timeout.map(units::ms),
            can_map,
        };
        Ok(connection.start(request).await?.holding(turn))
    }

    /// `None` if it cannot be mapped here.
    async fn read(
        connection: &Arc<Connection>,
        mut answers: Answers,
    ) -> Result<Option<Self>, GetError> {
        let response = match answers.next_answer().await? {
            Answer::Said(response) => response,
            other @ Answer::Staging(_) => return Err(other.unexpected().into()),
            Answer::Mapped(mapped, view) => {
                let value = Value::mapped(mapped.form, view, connection.clone());
                return Ok(Some(Self {
                    form: mapped.form,
                    len: mapped.len_bytes,
                    ty: mapped.ty,
                    named: None,
                    source: Source::Mapped { value, taken: 0 },
                    connection: connection.clone(),
                }));
            }
            Answer::Unmappable => return Ok(None),
        };
        match response {
            Response::Value {
                form,
                len,
                ty,
                objects,
                actors,
            } => {
                let objects = objects.into_iter().map(Handle::Object);
                let handles = objects.chain(actors.into_iter().map(Handle::Actor));
                Ok(Some(Self {
                    form,
                    len,
                    ty,
                    named: Named::of_handles(connection, handles),
                    source: Source::Chunks { left: len, answers },
                    connection: connection.clone(),
                }))
            }
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
        match &mut self.source {
            Source::Mapped { value, taken } => {
                let rest = &value[*taken..];
                let chunk = rest[..rest.len().min(CHUNK_BYTES)].to_vec();
                *taken += chunk.len();
                Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
            }
            Source::Chunks { left: 0, .. } => Ok(None),
            Source::Chunks { left, answers } => match answers.next().await? {
                Response::Chunk(bytes) if (1..=*left).contains(&(bytes.0.len() as u64)) => {
                    *left -= bytes.0.len() as u64;
                    Ok(Some(bytes.0))
                }
                other => Err(Error::unexpected(&other)),
            },
        }
    }

    /// All of it that no [`Incoming::chunk`] has given.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn value(mut self) -> Result<Value, Error> {
        if let Source::Mapped { value, taken: 0 } = self.source {
            return Ok(value);
        }
        // After a chunk was taken the rest is no value, and its handles stay with the node until the session ends.
        let is_whole = matches!(self.source, Source::Chunks { left, .. } if left == self.len);
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            match bytes.is_empty() {
                true => bytes = chunk,
                false => bytes.extend(chunk),
            }
        }
        let value = Value::own(self.form, bytes);
        let ty = self.ty.as_ref().filter(|_| is_whole);
        let named = match self.named {
            Some(named) => Some(named),
            None => Named::of(&self.connection, ty, value.encoded())?,
        };
        Ok(value.with(named))
    }
}
