//! The way to a client: frames, and descriptors of segments beside them.
//!
//! Owns the writing half of a connection, and knows which segments the client has the descriptors of:
//! only here is the order of all frames certain. Must not: decide who may map what.
//!
//! Invariants: what waits to be written has a limit, in frames and bytes; a descriptor is sent once, until the client was told to forget it; a client has at most
//! [`MAX_SEGMENTS`] of them; it is told of those that are closed, or it would keep their memory. A
//! descriptor that cannot be sent does not end the connection: the client asks for the bytes instead.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::Interest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wasmrun_model::value::ValueType;
use wasmrun_model::wire::{
    self, Form, Frame, MAX_SEGMENTS, Mapped, Refusal, RefusalKind, Response,
};
use wasmrun_store::{SegmentNumber, SegmentWatch, Staging, View};

use super::audit::Changes;
use super::way::Way;

/// How many frames may wait to be written.
const FRAMES_OUT: usize = 64;
/// How many bytes of frames may wait to be written. A longer frame waits alone.
const BYTES_OUT: usize = 4 << 20;
/// How many bytes are gathered before they are written, unless there are no more.
const GATHERED_BYTES: usize = 128 << 10;

/// The way to a client. Cheap to clone.
#[derive(Clone)]
pub(super) struct Out {
    queue: mpsc::Sender<Queued>,
    /// A permit for each byte that may wait.
    room: Arc<Semaphore>,
    pending: Arc<AtomicUsize>,
    /// What the audit has a line of once it is answered.
    changes: Option<Arc<Changes>>,
}

/// A value that a client is to map.
pub(super) struct ToMap {
    pub(super) form: Form,
    pub(super) ty: Option<ValueType>,
    pub(super) view: View,
}

enum Outgoing {
    Frame(Vec<u8>, OwnedSemaphorePermit),
    Mapped(u64, ToMap),
    Staging(u64, Arc<Staging>),
    /// Nothing comes after it.
    Last(Vec<u8>),
}

/// What waits to be written, and counts until it is, or never will be.
struct Queued {
    outgoing: Outgoing,
    pending: Pending,
}

/// Counts a frame that is on its way to a client, or a report that a client waits for, or that is to be written down.
pub(super) struct Pending(Arc<AtomicUsize>);

impl Pending {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The other end of a connection is gone.
pub(super) struct ConnectionClosed;

impl Out {
    /// The way, and what writes to its end. `pending` counts what is on the way.
    pub(super) fn new(way: Way, pending: Arc<AtomicUsize>) -> (Self, impl Future<Output = ()>) {
        let (queue, frames) = mpsc::channel(FRAMES_OUT);
        let out = Self {
            queue,
            room: Arc::new(Semaphore::new(BYTES_OUT)),
            pending,
            changes: None,
        };
        (out, Writer::new(way).write(frames))
    }

    /// With the audit of what is answered.
    pub(super) fn audited(self, changes: Option<Arc<Changes>>) -> Self {
        Self { changes, ..self }
    }

    pub(super) fn changes(&self) -> Option<&Changes> {
        self.changes.as_deref()
    }

    /// Sends an answer, once there is room for it.
    pub(super) async fn send(&self, id: u64, message: Response) -> Result<(), ConnectionClosed> {
        if let Some(changes) = &self.changes {
            changes.answer(id, &message);
        }
        let frame = frame(id, message).ok_or(ConnectionClosed)?;
        let bytes = u32::try_from(frame.len().min(BYTES_OUT)).expect("it is that small");
        // Nobody closes it.
        let room = self.room.clone().acquire_many_owned(bytes).await;
        let room = room.map_err(|_| ConnectionClosed)?;
        self.push(Outgoing::Frame(frame, room)).await
    }

    /// Tells the client where a value is. The caller keeps the view until the client says that it has
    /// dropped it, and knows that it is of the client's tenant and has pages of its own.
    pub(super) async fn map(&self, id: u64, value: ToMap) -> Result<(), ConnectionClosed> {
        if let Some(changes) = &self.changes {
            changes.is_over(id);
        }
        self.push(Outgoing::Mapped(id, value)).await
    }

    /// Tells the client that the bytes of its value may come, and through which memory. If it cannot be sent there they
    /// come in chunks.
    pub(super) async fn stage(
        &self,
        id: u64,
        staging: Arc<Staging>,
    ) -> Result<(), ConnectionClosed> {
        self.push(Outgoing::Staging(id, staging)).await
    }

    /// Says that nothing more comes, and, unless it was the client who ended the session, why: as the answer to a
    /// request, or 0, and for all others. To be called once; what is sent later is not written.
    pub(super) async fn end(&self, why: Option<(u64, Refusal)>) -> Result<(), ConnectionClosed> {
        let mut last = Vec::new();
        let mut say =
            |id, why| last.extend(frame(id, Response::Refused(why)).into_iter().flatten());
        if let Some((id, why)) = why {
            if id != 0 {
                say(id, why.clone());
            }
            say(0, why);
        }
        self.push(Outgoing::Last(last)).await
    }

    async fn push(&self, outgoing: Outgoing) -> Result<(), ConnectionClosed> {
        let pending = Pending::new(&self.pending);
        let queued = Queued { outgoing, pending };
        self.queue.send(queued).await.map_err(|_| ConnectionClosed)
    }
}

/// A message as a frame; a refusal where it cannot be one.
fn frame(id: u64, message: Response) -> Option<Vec<u8>> {
    wire::encode(&Frame { id, message })
        .or_else(|error| {
            let message = Response::Refused(Refusal {
                kind: RefusalKind::Full,
                message: format!("the answer cannot be sent: {error}"),
            });
            wire::encode(&Frame { id, message })
        })
        .ok()
}

struct Writer {
    way: Way,
    /// What is written next.
    gathered: Vec<u8>,
    /// Segments that the client has, the one that was used longest ago first.
    known: VecDeque<(SegmentNumber, SegmentWatch)>,
    /// Segments that are closed.
    closed: mpsc::UnboundedReceiver<SegmentNumber>,
    closing: mpsc::UnboundedSender<SegmentNumber>,
}

impl Writer {
    fn new(way: Way) -> Self {
        // There are no more in it than segments that the client has.
        let (closing, closed) = mpsc::unbounded_channel();
        Self {
            way,
            gathered: Vec::new(),
            known: VecDeque::new(),
            closed,
            closing,
        }
    }

    /// Writes until there are no more senders, or the last words are written.
    async fn write(mut self, mut queue: mpsc::Receiver<Queued>) {
        let (mut batch, mut is_open, mut is_shut) = (Vec::new(), true, false);
        let mut counted = Vec::new();
        loop {
            tokio::select! {
                biased;
                // We have a sender ourselves.
                Some(segment) = self.closed.recv() => {
                    self.forget(segment);
                }
                count = queue.recv_many(&mut batch, FRAMES_OUT) => {
                    if count == 0 {
                        return;
                    }
                }
            }
            let is_last = |it: &Queued| matches!(it.outgoing, Outgoing::Last(_));
            let is_last = batch.iter().any(is_last);
            for Queued { outgoing, pending } in batch.drain(..) {
                // What cannot be written is taken all the same, so that nobody waits for room.
                is_open = is_open && self.gather(outgoing).await.is_ok();
                counted.push(pending);
            }
            is_open = is_open && self.flush().await.is_ok();
            counted.clear();
            if (is_last || !is_open) && !std::mem::replace(&mut is_shut, true) {
                // It may not be the client that is gone: then it hears that nothing more comes.
                let _ = self.way.shutdown().await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn gather(&mut self, outgoing: Outgoing) -> io::Result<()> {
        match outgoing {
            Outgoing::Frame(frame, _room) if frame.len() >= GATHERED_BYTES => {
                self.flush().await?;
                self.way.write_all(&frame).await
            }
            Outgoing::Frame(frame, _room) => {
                self.gathered.extend_from_slice(&frame);
                match self.gathered.len() {
                    ..GATHERED_BYTES => Ok(()),
                    _ => self.flush().await,
                }
            }
            Outgoing::Mapped(id, value) => self.map(id, value).await,
            Outgoing::Staging(id, staging) => self.stage(id, &staging).await,
            Outgoing::Last(frames) => {
                self.gathered.extend_from_slice(&frames);
                Ok(())
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let written = self.way.write_all(&self.gathered).await;
        self.gathered.clear();
        written
    }

    async fn stage(&mut self, id: u64, staging: &Staging) -> io::Result<()> {
        self.flush().await?;
        let staged = frame(id, Response::Staging(staging.size_bytes()));
        let staged = staged.ok_or(io::ErrorKind::InvalidData)?;
        if let Some(socket) = self.way.socket() {
            let send = || wasmrun_store::send_beside(socket, &staged, staging.as_fd());
            if let Ok(sent) = socket.async_io(Interest::WRITABLE, send).await {
                return self.way.write_all(&staged[sent..]).await;
            }
        }
        let without = frame(id, Response::Continue);
        self.gathered.extend(without.into_iter().flatten());
        Ok(())
    }

    async fn map(&mut self, id: u64, value: ToMap) -> io::Result<()> {
        let place = value.view.place();
        let place = place.expect("what is mapped has pages of its own");
        let known = self.known.iter().position(|(it, _)| *it == place.segment);
        let mut mapped = Box::new(Mapped {
            form: value.form,
            ty: value.ty,
            segment: place.segment.0,
            segment_bytes: place.segment_bytes,
            offset_bytes: place.offset_bytes,
            len_bytes: place.len_bytes,
            has_descriptor: known.is_none(),
        });
        let with_descriptor = frame(id, Response::Mapped(mapped.clone()));
        let with_descriptor = with_descriptor.ok_or(io::ErrorKind::InvalidData)?;
        if let Some(at) = known {
            let used = self.known.remove(at);
            self.known.extend(used);
            self.gathered.extend_from_slice(&with_descriptor);
            return Ok(());
        }
        if self.known.len() >= MAX_SEGMENTS
            && let Some((oldest, _)) = self.known.front()
        {
            self.forget(*oldest);
        }
        self.flush().await?;
        let closing = self.closing.clone();
        let watch = value.view.watch_segment(move || {
            // The connection may have ended.
            let _ = closing.send(place.segment);
        });
        if let Some(socket) = self.way.socket() {
            let send = || wasmrun_store::send(socket, &with_descriptor, &value.view);
            if let Ok(sent) = socket.async_io(Interest::WRITABLE, send).await {
                self.known.push_back((place.segment, watch));
                return self.way.write_all(&with_descriptor[sent..]).await;
            }
        }
        // We have too many files open, or too many are on their way. A client that is told of a segment
        // that it does not have unpins the value and asks for its bytes.
        mapped.has_descriptor = false;
        let without = frame(id, Response::Mapped(mapped));
        self.gathered.extend(without.into_iter().flatten());
        Ok(())
    }

    /// Tells the client that it need not keep a segment, if it has it.
    fn forget(&mut self, segment: SegmentNumber) {
        let Some(at) = self.known.iter().position(|(it, _)| *it == segment) else {
            return;
        };
        self.known.remove(at);
        let told = frame(0, Response::Forget(segment.0));
        self.gathered.extend(told.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn what_is_never_written_does_not_count() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (_, writing_half) = ours.into_split();
        let pending = Arc::<AtomicUsize>::default();
        let count = || pending.load(Ordering::Acquire);
        let (out, writing) = Out::new(Way::Socket(writing_half), pending.clone());
        assert!(out.send(1, Response::Done).await.is_ok());
        assert_eq!(count(), 1);
        // As when a client vanishes.
        drop(writing);
        assert_eq!(count(), 0);
        assert!(out.send(2, Response::Done).await.is_err());
        assert_eq!(count(), 0);
    }
}
