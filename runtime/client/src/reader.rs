//! What the node says: frames, and the descriptors beside them.
//!
//! Owns the reading half of a connection and the segments that are mapped for it. Must not: trust a
//! length. Invariant: what arrives is handled in its order; a descriptor belongs to the frame that says
//! so, in the order in which both came.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, Interest};
use wasmrun_model::wire::{self, Frame, HEADER_BYTES, MAX_SEGMENTS, Mapped, Response};
use wasmrun_store::{Beside, Place, SegmentNumber, Segments, StagingWriter};

use crate::line::LineReader;
use crate::routes::{Answer, End, Routes, View};

/// How many bytes are read at once, unless a frame is longer.
const READ_BYTES: usize = 256 << 10;

pub(crate) struct Reader {
    line: LineReader,
    buffer: Vec<u8>,
    /// What of the buffer has come and is not handled yet.
    start: usize,
    end: usize,
    /// Descriptors that came before the rest of their frames; `None` for one that was lost.
    descriptors: VecDeque<Option<OwnedFd>>,
    segments: Segments,
    routes: Arc<Routes>,
    /// Why the node ends the session, if it has said so.
    last_words: Option<String>,
}

impl Drop for Reader {
    /// Whatever it was that ended the connection, the end of the runtime included, whoever waits hears of it.
    fn drop(&mut self) {
        let last_words = self.last_words.take().or_else(|| self.line.close_reason());
        self.routes.close(last_words.map_or(End::Lost, End::Told));
    }
}

impl Reader {
    pub(crate) fn new(line: LineReader, routes: Arc<Routes>) -> Self {
        Self {
            line,
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            descriptors: VecDeque::new(),
            segments: Segments::default(),
            routes,
            last_words: None,
        }
    }

    /// Brings answers to whoever waits for them, until the node is gone or talks nonsense.
    pub(crate) async fn run(mut self) {
        let _ = self.read().await;
    }

    async fn read(&mut self) -> io::Result<()> {
        loop {
            while let Some(frame) = self.next_frame()? {
                self.handle(frame).await?;
            }
            self.receive().await?;
        }
    }

    /// The next frame, if all of it has come.
    fn next_frame(&mut self) -> io::Result<Option<Frame<Response>>> {
        let come = &self.buffer[self.start..self.end];
        let Some((header, rest)) = come.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = wire::frame_len(*header).map_err(io::Error::other)?;
        let Some(bytes) = rest.get(..len) else {
            return Ok(None);
        };
        let frame = wire::decode(bytes).map_err(io::Error::other)?;
        self.start += HEADER_BYTES + len;
        Ok(Some(frame))
    }

    /// Receives more, and makes room for it before.
    async fn receive(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if let Some(header) = self.buffer[..self.end].first_chunk::<HEADER_BYTES>() {
            let len = wire::frame_len(*header).map_err(io::Error::other)?;
            let wanted = (HEADER_BYTES + len).max(READ_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
        let room = &mut self.buffer[self.end..];
        let (len, beside) = match &mut self.line {
            LineReader::Socket(socket) => {
                let socket = (*socket).as_ref();
                let receive = || wasmrun_store::receive(socket, room);
                socket.async_io(Interest::READABLE, receive).await?
            }
            LineReader::Network(session) => (session.read(room).await?, Beside::Nothing),
        };
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end += len;
        match beside {
            Beside::Nothing => {}
            Beside::Descriptor(descriptor) => self.descriptors.push_back(Some(descriptor)),
            Beside::Lost => self.descriptors.push_back(None),
        }
        if self.descriptors.len() > MAX_SEGMENTS {
            return Err(io::Error::other("descriptors come without their frames"));
        }
        Ok(())
    }

    async fn handle(&mut self, frame: Frame<Response>) -> io::Result<()> {
        let answer = match frame.message {
            Response::Mapped(mapped) => self.map(frame.id, mapped)?,
            Response::Staging(len) => self.stage(len)?,
            Response::Forget(segment) => {
                self.segments.forget(SegmentNumber(segment));
                return Ok(());
            }
            // Of no request: of all.
            Response::Refused(why) if frame.id == 0 => {
                self.last_words = Some(why.message);
                return Ok(());
            }
            response => Answer::Said(response),
        };
        self.routes.deliver(frame.id, answer).await;
        Ok(())
    }

    /// Memory for the bytes of a value. Where it cannot be mapped, they go over the socket.
    fn stage(&mut self, len: u64) -> io::Result<Answer> {
        let descriptor = self.descriptors.pop_front();
        let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData)?;
        let mapped = descriptor.and_then(|it| StagingWriter::new(it, len).ok());
        Ok(mapped.map_or(Answer::Said(Response::Continue), Answer::Staging))
    }

    fn map(&mut self, request: u64, mapped: Box<Mapped>) -> io::Result<Answer> {
        // From here on the node hears when we do not need it any more, or do not get it.
        let pin = self.routes.pin(request);
        let place = Place {
            segment: SegmentNumber(mapped.segment),
            segment_bytes: mapped.segment_bytes,
            offset_bytes: mapped.offset_bytes,
            len_bytes: mapped.len_bytes,
        };
        if mapped.has_descriptor {
            let descriptor = self.descriptors.pop_front();
            let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData)?;
            let added = descriptor.is_some_and(|it| self.segments.add(&place, it).is_ok());
            // If there is no address space, or are too many open files, the bytes come in another way.
            if !added {
                return Ok(Answer::Unmappable);
            }
            if self.segments.len() > MAX_SEGMENTS {
                return Err(io::Error::other("the node sends too many descriptors"));
            }
        }
        Ok(match self.segments.view(&place) {
            Ok(bytes) => Answer::Mapped(mapped, View { bytes, _pin: pin }),
            Err(_) => Answer::Unmappable,
        })
    }
}
