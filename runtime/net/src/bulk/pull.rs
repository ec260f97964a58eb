//! The receiving side of bulk streams: a range of bytes from a peer, over several streams, into memory
//! that the caller has.
//!
//! Owns the splitting, and trying again. Invariant: what is not reported missing is in place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quinn::Connection;
use tokio::time::timeout;

use super::{BulkPool, BulkRefusal, Range};
use crate::core::Core;
use crate::error::{ConnectError, Lost};
use crate::frame::{self, FrameError};
use crate::peer::{Peer, PeerCore};
use crate::service::Protocol;

/// How a range is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullOptions {
    /// How many streams at a time, from 1 to what the peer allows.
    pub streams: usize,
    /// How much on one stream, in bytes. What is lost with a stream is at most asked for again.
    pub piece_bytes: usize,
    /// How often a piece is asked for again after a broken connection or stream.
    pub retries: u32,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            streams: 4,
            piece_bytes: 8 << 20,
            retries: 2,
        }
    }
}

/// A range that did not arrive whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} bytes did not arrive: {why}", missing.iter().map(|range| range.len).sum::<u64>())]
pub struct PullError {
    /// What is missing, in order. All else is in place.
    pub missing: Vec<Range>,
    /// The first reason.
    pub why: PullWhy,
}

/// Why a range did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PullWhy {
    /// The peer does not send it.
    #[error("{0}")]
    Refused(#[from] BulkRefusal),
    /// There is no connection.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("{0}")]
    Lost(Lost),
    /// The peer stopped in the middle.
    #[error("the peer stopped in the middle: ask another holder")]
    Broken,
    /// Nothing came.
    #[error("nothing came for {} s: ask another holder", after.as_secs())]
    Stalled {
        /// For how long.
        after: Duration,
    },
    /// The request cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Message(#[from] FrameError),
}

/// A part of the range that is fetched on one stream.
struct Piece<'a> {
    range: Range,
    /// What is still to be filled, from the front.
    rest: &'a mut [u8],
    done: &'a AtomicU64,
    tries: u32,
}

impl<P: Protocol> Peer<P> {
    /// Fetches the bytes from `offset` on, as many as `to` has, straight into it. Dropping the future
    /// stops it; what has arrived until then is in `to`.
    ///
    /// # Errors
    /// Which ranges are missing, and why.
    pub async fn pull(
        &self,
        request: &P::Bulk,
        offset: u64,
        to: &mut [u8],
        options: &PullOptions,
    ) -> Result<(), PullError> {
        let whole = Range {
            offset,
            len: to.len() as u64,
        };
        let nothing = |why| PullError {
            missing: vec![whole],
            why,
        };
        let body = frame::encode(request, self.core().max_message_bytes() - frame::HEAD_ROOM)
            .map_err(|error| nothing(error.into()))?;
        let core = self.core().core.upgrade();
        let core = core.ok_or_else(|| nothing(ConnectError::Closed.into()))?;
        if to.is_empty() {
            return Ok(());
        }
        pull(&core, self.core(), &body, offset, to, options).await
    }
}

async fn pull(
    core: &Arc<Core>,
    peer: &Arc<PeerCore>,
    body: &[u8],
    offset: u64,
    to: &mut [u8],
    options: &PullOptions,
) -> Result<(), PullError> {
    let streams = options.streams.max(1);
    // A short range is spread over the streams too, in pieces that are worth one.
    let piece_bytes =
        (to.len().div_ceil(streams)).clamp(64 << 10, options.piece_bytes.max(64 << 10));
    let total = to.len();
    let done: Vec<AtomicU64> = (0..total.div_ceil(piece_bytes))
        .map(|_| AtomicU64::new(0))
        .collect();
    let mut waiting: VecDeque<Piece<'_>> = to
        .chunks_mut(piece_bytes)
        .zip(&done)
        .enumerate()
        .map(|(n, (rest, done))| Piece {
            range: Range {
                offset: offset + (n * piece_bytes) as u64,
                len: rest.len() as u64,
            },
            rest,
            done,
            tries: 0,
        })
        .collect();
    let mut running = FuturesUnordered::new();
    let mut failed = None;
    loop {
        while failed.is_none()
            && running.len() < streams
            && let Some(piece) = waiting.pop_front()
        {
            running.push(fetch(core, peer, body, piece));
        }
        let Some((mut piece, fetched)) = running.next().await else {
            break;
        };
        let Err(why) = fetched else { continue };
        let is_final = matches!(why, PullWhy::Refused(_) | PullWhy::Connect(_));
        if is_final || piece.tries >= options.retries {
            failed.get_or_insert(why);
            if is_final {
                // The others would hear the same, or go on for nothing.
                break;
            }
        } else {
            piece.tries += 1;
            waiting.push_back(piece);
        }
    }
    drop((running, waiting));
    match failed {
        None => Ok(()),
        Some(why) => Err(PullError {
            missing: missing(&done, offset, total, piece_bytes),
            why,
        }),
    }
}

/// What has not arrived, neighbours joined.
fn missing(done: &[AtomicU64], offset: u64, total: usize, piece_bytes: usize) -> Vec<Range> {
    let mut missing: Vec<Range> = Vec::new();
    for (n, done) in done.iter().enumerate() {
        let begin = n * piece_bytes;
        let len = (total - begin).min(piece_bytes) as u64;
        let done = done.load(Ordering::Relaxed);
        if done == len {
            continue;
        }
        let range = Range {
            offset: offset + begin as u64 + done,
            len: len - done,
        };
        match missing.last_mut() {
            Some(last) if last.offset + last.len == range.offset => last.len += range.len,
            _ => missing.push(range),
        }
    }
    missing
}

async fn fetch<'a>(
    core: &Arc<Core>,
    peer: &Arc<PeerCore>,
    body: &[u8],
    mut piece: Piece<'a>,
) -> (Piece<'a>, Result<(), PullWhy>) {
    let fetched = match BulkPool::get(core, peer).await {
        Ok(connection) => fill(core, &connection, body, &mut piece).await,
        Err(error) => Err(error.into()),
    };
    (piece, fetched)
}

async fn fill(
    core: &Core,
    connection: &Connection,
    body: &[u8],
    piece: &mut Piece<'_>,
) -> Result<(), PullWhy> {
    let stall = core.timing.bulk_stall;
    let stalled = |_| PullWhy::Stalled { after: stall };
    let lost = || match connection.close_reason() {
        Some(error) => PullWhy::Lost(Lost::from_quinn(&error, stall)),
        None => PullWhy::Broken,
    };
    let opened = timeout(stall, connection.open_bi())
        .await
        .map_err(stalled)?;
    let (mut writer, mut reader) = opened.map_err(|_| lost())?;
    let done = piece.done.load(Ordering::Relaxed);
    let range = Range {
        offset: piece.range.offset + done,
        len: piece.range.len - done,
    };
    let mut payload = postcard::to_stdvec(&range).expect("a range can be encoded");
    payload.extend_from_slice(body);
    let mut request = BytesMut::new();
    frame::put_frame(&mut request, &payload);
    writer
        .write_chunk(request.freeze())
        .await
        .map_err(|_| lost())?;
    let _ = writer.finish();
    let mut status = [0];
    let read = timeout(stall, reader.read_exact(&mut status))
        .await
        .map_err(stalled)?;
    read.map_err(|_| lost())?;
    if status[0] != 0 {
        return Err(BulkRefusal::of(status[0]).into());
    }
    while !piece.rest.is_empty() {
        let read = timeout(stall, reader.read(piece.rest))
            .await
            .map_err(stalled)?;
        match read {
            Ok(Some(count)) => {
                let rest = std::mem::take(&mut piece.rest);
                piece.rest = &mut rest[count..];
                piece.done.fetch_add(count as u64, Ordering::Relaxed);
            }
            Ok(None) => return Err(PullWhy::Broken),
            Err(_) => return Err(lost()),
        }
    }
    // The end of the stream tells the other side that all has arrived. What the bytes are is checked
    // by whoever wanted them, so one that has more to say is no error.
    let _ = timeout(stall, reader.read(&mut [0])).await;
    Ok(())
}
