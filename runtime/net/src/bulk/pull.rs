//! The receiving side of bulk streams: a range of bytes from a peer, over several streams, into memory
//! that the caller has.
//!
//! Owns the splitting, the checking, and trying again. Invariant: what is not reported missing is in place, and has the
//! checksum that its sender gives.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::{BulkRefusal, Range};
use crate::peer::{Core, Peer, PeerCore};
use crate::wire::frame::{self, FrameError};
use crate::wire::{ConnectError, Lost, Protocol, TooNew};

/// How a range is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullOptions {
    /// How many streams at a time, from 1 to what the peer allows.
    pub streams: usize,
    /// How much on one stream, in bytes, from 64 KiB: what is checked at once, and lost with a stream.
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

impl PullOptions {
    /// For an object of this length: a short one is spread over the streams, too, in pieces that are worth one. All who
    /// pull an object whole get the same pieces, so that their checksums are the same.
    pub fn for_len(len: u64) -> Self {
        let options = Self::default();
        let spread = usize::try_from(len.div_ceil(options.streams as u64)).unwrap_or(usize::MAX);
        Self {
            piece_bytes: spread.clamp(64 << 10, options.piece_bytes),
            ..options
        }
    }
}

/// A piece that is in place, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Which bytes.
    pub range: Range,
    /// Their CRC-32 (ISO-HDLC).
    pub sum: u32,
}

/// A range that did not arrive whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} bytes did not arrive: {why}", missing.iter().map(|range| range.len).sum::<u64>())]
pub struct PullError {
    /// What is missing, in order. All else is in place.
    pub missing: Vec<Range>,
    /// The pieces that are in place, in order.
    pub arrived: Vec<Arrived>,
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
    /// These are not the bytes that they ought to be.
    #[error("the peer sent bytes that have changed since they were made: ask another holder")]
    Changed,
    /// Nothing came.
    #[error("nothing came for {}s: ask another holder", after.as_secs())]
    Stalled {
        /// For how long.
        after: Duration,
    },
    /// The request cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Message(#[from] FrameError),
    /// The peer would not understand the request.
    #[error("the request is not for this peer: {0}")]
    TooNew(#[from] TooNew),
}

/// A part of the range that is fetched on one stream.
struct Piece<'a> {
    range: Range,
    bytes: &'a mut [u8],
    /// Its checksum, once it is in place.
    sum: &'a OnceLock<u32>,
    tries: u32,
}

impl<P: Protocol> Peer<P> {
    /// Fetches the bytes from `offset` on, as many as `to` has, straight into it, in pieces of
    /// [`PullOptions::piece_bytes`], the last one shorter. Each is checked. Dropping the future stops it.
    ///
    /// # Errors
    /// Which ranges are missing, and why.
    pub async fn pull(
        &self,
        request: &P::Bulk,
        offset: u64,
        to: &mut [u8],
        options: &PullOptions,
    ) -> Result<Vec<Arrived>, PullError> {
        let whole = Range {
            offset,
            len: to.len() as u64,
        };
        let nothing = |why| PullError {
            missing: vec![whole],
            arrived: Vec::new(),
            why,
        };
        self.knows(P::bulk_since(request))
            .map_err(|error| nothing(error.into()))?;
        let body = frame::encode(request, self.core().max_message_bytes() - frame::HEAD_ROOM)
            .map_err(|error| nothing(error.into()))?;
        let core = self.core().core.upgrade();
        let core = core.ok_or_else(|| nothing(ConnectError::Closed.into()))?;
        if to.is_empty() {
            return Ok(Vec::new());
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
) -> Result<Vec<Arrived>, PullError> {
    let streams = options.streams.max(1);
    let piece_bytes = options.piece_bytes.max(64 << 10);
    let total = to.len();
    let range_of = |n: usize| Range {
        offset: offset + (n * piece_bytes) as u64,
        len: (total - n * piece_bytes).min(piece_bytes) as u64,
    };
    let sums = vec![OnceLock::new(); total.div_ceil(piece_bytes)];
    let pieces = to.chunks_mut(piece_bytes).zip(&sums).enumerate();
    let mut waiting: VecDeque<Piece<'_>> = pieces
        .map(|(n, (bytes, sum))| Piece {
            range: range_of(n),
            bytes,
            sum,
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
    let arrived = sums.iter().enumerate().filter_map(|(n, sum)| {
        let range = range_of(n);
        sum.get().map(|sum| Arrived { range, sum: *sum })
    });
    let arrived = arrived.collect();
    match failed {
        None => Ok(arrived),
        Some(why) => Err(PullError {
            missing: missing(
                (0..sums.len())
                    .filter(|n| sums[*n].get().is_none())
                    .map(range_of),
            ),
            arrived,
            why,
        }),
    }
}

/// Ranges in order, neighbours joined.
fn missing(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut missing: Vec<Range> = Vec::new();
    for range in ranges {
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
    let fetched = match peer.bulk.get(core, peer).await {
        Ok(connection) => fill(core, &connection, body, &mut piece).await,
        Err(error) => Err(error.into()),
    };
    (piece, fetched)
}

/// A stream, once the peer lets us have one more. Others of ours may come before it, and take long: there is no reason to
/// give up for as long as bytes come on any of them.
async fn open(
    connection: &Connection,
    stall: Duration,
) -> Result<Result<(SendStream, RecvStream), ConnectionError>, Elapsed> {
    let mut opening = pin!(connection.open_bi());
    let came = || connection.stats().frame_rx.stream;
    loop {
        let before = came();
        match timeout(stall, &mut opening).await {
            Err(_) if came() != before => {}
            opened => return opened,
        }
    }
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
    let opened = open(connection, stall).await.map_err(stalled)?;
    let (mut writer, mut reader) = opened.map_err(|_| lost())?;
    let mut payload = postcard::to_stdvec(&piece.range).expect("a range can be encoded");
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
    let (mut at, mut hasher) = (0, crc32fast::Hasher::new());
    let mut sum = [0; 4];
    let mut sum_bytes = 0;
    while at < piece.bytes.len() || sum_bytes < sum.len() {
        let is_of_piece = at < piece.bytes.len();
        let rest = match is_of_piece {
            true => &mut piece.bytes[at..],
            false => &mut sum[sum_bytes..],
        };
        let read = timeout(stall, reader.read(rest)).await.map_err(stalled)?;
        match read {
            Ok(Some(count)) if is_of_piece => {
                // While they are in the cache.
                hasher.update(&piece.bytes[at..at + count]);
                at += count;
            }
            Ok(Some(count)) => sum_bytes += count,
            Ok(None) => return Err(PullWhy::Broken),
            Err(_) => return Err(lost()),
        }
    }
    // The end of the stream tells the other side that all has arrived.
    let _ = timeout(stall, reader.read(&mut [0])).await;
    let found = hasher.finalize();
    if found != u32::from_le_bytes(sum) {
        return Err(PullWhy::Changed);
    }
    // A piece is filled by one stream at a time, and not again once it is in place.
    let _ = piece.sum.set(found);
    Ok(())
}
