//! Frames: how messages lie in a stream.
//!
//! Owns the bytes. Must not: know what messages mean.
//!
//! ```text
//! byte  0         4
//!       length    payload            length: u32, little-endian, of the payload
//! ```
//!
//! On the stream of one-way messages a payload is a message. On the stream of requests and answers it is
//! a [`Head`] in postcard, then the message it is about. Invariants: a length is checked before
//! anything is kept for it; memory is taken for bytes that have arrived, never for announced ones.

use bytes::{Buf, Bytes, BytesMut};
use quinn::RecvStream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How many bytes stand before a payload.
pub(crate) const HEADER_BYTES: usize = 4;

/// How many pieces of a stream are taken at once.
const PIECES: usize = 32;

/// Why bytes are no frames, or no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than allowed.
    #[error("a message has {bytes} bytes, and {max_bytes} are the most: send large data as bulk")]
    TooLong {
        /// How long.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// Not a message of this protocol.
    #[error("the bytes of a message are not of this protocol: use the same wasmrun on both sides")]
    Malformed,
}

/// Why no more frames come from a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It ended in the middle of a frame.
    #[error("a stream ended in the middle of a message")]
    Cut,
    #[error("a stream broke")]
    Stream(#[from] quinn::ReadError),
}

/// What a payload on the stream of requests and answers begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Head {
    /// The first frame of each side on each connection: what it knows of the connections before.
    Resume(Resume),
    /// A request follows.
    Request {
        /// Higher than all before, but for requests that are sent again after a lost connection.
        id: u64,
        /// The sender waits for no request with a lower id any more.
        floor: u64,
        /// How long the sender will wait from now.
        timeout_ms: u64,
    },
    /// The response to this request follows.
    Response { id: u64 },
    /// There is no response to this request.
    Failed { id: u64, why: Failure },
    /// Nobody waits for this request any more.
    Cancel { id: u64 },
    /// One-way messages up to this one have been accepted.
    Received { through: u64 },
}

/// Where messages go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resume {
    /// There was a connection between these two processes before, and the speaker remembers it.
    pub(crate) knows: bool,
    /// The last one-way message that the speaker has accepted.
    pub(crate) received: u64,
    /// How many requests the other side may have under way.
    pub(crate) max_requests: u32,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// Too much is going on.
    Busy,
    /// It took longer than the sender waits.
    Expired,
    /// It cannot be decoded.
    Malformed,
    /// It was answered, and the answer is not kept any more.
    Forgotten,
    /// The response is longer than a message may be.
    TooLong,
}

/// Whole frames, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    bytes: Bytes,
    pub(crate) count: u64,
}

impl Batch {
    /// Leaves out the first frames.
    pub(crate) fn leave_out(&mut self, count: u64) {
        for _ in 0..count.min(self.count) {
            let _ = self.next();
        }
    }

    /// How many bytes it has, lengths included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Iterator for Batch {
    type Item = Bytes;

    /// The next payload.
    fn next(&mut self) -> Option<Bytes> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        let len = self.bytes.get_u32_le() as usize;
        Some(self.bytes.split_to(len))
    }
}

/// Takes the whole frames from the front of what has arrived.
pub(crate) fn take_batch(buffer: &mut BytesMut, max_bytes: usize) -> Result<Batch, FrameError> {
    take(buffer, max_bytes, u64::MAX)
}

fn take(buffer: &mut BytesMut, max_bytes: usize, max_count: u64) -> Result<Batch, FrameError> {
    let (mut end, mut count) = (0, 0);
    while count < max_count
        && let Some((header, _)) = buffer[end..].split_first_chunk::<HEADER_BYTES>()
    {
        let bytes = u32::from_le_bytes(*header) as usize;
        if bytes > max_bytes {
            return Err(FrameError::TooLong { bytes, max_bytes });
        }
        if buffer.len() - end - HEADER_BYTES < bytes {
            break;
        }
        end += HEADER_BYTES + bytes;
        count += 1;
    }
    Ok(Batch {
        bytes: buffer.split_to(end).freeze(),
        count,
    })
}

/// Puts a frame behind what is there.
pub(crate) fn put_frame(buffer: &mut BytesMut, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("payloads are limited");
    buffer.reserve(HEADER_BYTES + payload.len());
    buffer.extend_from_slice(&len.to_le_bytes());
    buffer.extend_from_slice(payload);
}

/// A frame with a head and a message.
pub(crate) fn head_frame(head: Head, message: &[u8]) -> Bytes {
    // No head is longer, in postcard.
    let mut scratch = [0; 40];
    let head = postcard::to_slice(&head, &mut scratch).expect("heads are short");
    let len = u32::try_from(head.len() + message.len()).expect("payloads are limited");
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + head.len() + message.len());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(message);
    bytes.freeze()
}

/// A payload's head, and the message after it.
pub(crate) fn split_head(mut payload: Bytes) -> Result<(Head, Bytes), FrameError> {
    let (head, rest) =
        postcard::take_from_bytes::<Head>(&payload).map_err(|_| FrameError::Malformed)?;
    payload.advance(payload.len() - rest.len());
    Ok((head, payload))
}

/// How much longer than a message its frame may be: its head.
pub(crate) const HEAD_ROOM: usize = 64;

/// A message as bytes.
pub(crate) fn encode<T: Serialize>(message: &T, max_bytes: usize) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_stdvec(message).map_err(|_| FrameError::Malformed)?;
    match bytes.len() {
        len if len > max_bytes => Err(FrameError::TooLong {
            bytes: len,
            max_bytes,
        }),
        _ => Ok(bytes),
    }
}

/// The message that bytes are, all of them.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Malformed),
    }
}

/// Reads frames from a stream.
pub(crate) struct FrameReader {
    stream: RecvStream,
    buffer: BytesMut,
    max_bytes: usize,
}

impl FrameReader {
    pub(crate) fn new(stream: RecvStream, max_bytes: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            max_bytes,
        }
    }

    /// From here on frames may be this long.
    pub(crate) fn allow(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// The next frames, as many as are there; at least one. `None` at the end. May be dropped and
    /// called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Batch>, ReadError> {
        self.read(u64::MAX).await
    }

    /// The next frame by itself.
    pub(crate) async fn one(&mut self) -> Result<Bytes, ReadError> {
        let mut batch = self.read(1).await?.ok_or(ReadError::Cut)?;
        batch.next().ok_or(ReadError::Cut)
    }

    async fn read(&mut self, max_count: u64) -> Result<Option<Batch>, ReadError> {
        loop {
            let batch = take(&mut self.buffer, self.max_bytes, max_count)?;
            if batch.count > 0 {
                return Ok(Some(batch));
            }
            let mut pieces = [const { Bytes::new() }; PIECES];
            match self.stream.read_chunks(&mut pieces).await? {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(ReadError::Cut),
                Some(count) => pieces[..count]
                    .iter()
                    .for_each(|piece| self.buffer.extend_from_slice(piece)),
            }
        }
    }
}

/// For the fuzzer and a stable test: whatever arrives, in whatever pieces, gives frames or an error, the
/// same ones however it was cut, and no more than arrived.
pub(crate) fn fuzz(bytes: &[u8]) {
    const MAX: usize = 256;
    let read = |piece: usize| {
        let mut buffer = BytesMut::new();
        let mut payloads = Vec::new();
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            match take_batch(&mut buffer, MAX) {
                Ok(batch) => payloads.extend(batch),
                Err(error) => return (payloads, Some(error)),
            }
            assert!(buffer.len() <= MAX + HEADER_BYTES + piece.len());
        }
        (payloads, None)
    };
    let (whole, error) = read(bytes.len().max(1));
    let (cut, cut_error) = read(3);
    // An error ends the stream: of what came with it nothing is taken.
    assert_eq!(error, cut_error);
    if error.is_none() {
        assert_eq!(whole, cut);
    }
    for payload in cut {
        let mut again = BytesMut::new();
        put_frame(&mut again, &payload);
        let mut batch = take_batch(&mut again, MAX).expect("it was one before");
        assert_eq!(batch.next().as_ref(), Some(&payload));
        if let Ok((head, message)) = split_head(payload) {
            let frame = head_frame(head, &message);
            let again = split_head(frame.slice(HEADER_BYTES..)).expect("it was one before");
            assert_eq!(again, (head, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes as they stand on the wire, for ever in this major version.
    #[test]
    fn golden_heads() {
        let request = Head::Request {
            id: 1,
            floor: 1,
            timeout_ms: 300,
        };
        let bytes = head_frame(request, b"ask");
        assert_eq!(&bytes[..], [8, 0, 0, 0, 1, 1, 1, 0xac, 2, b'a', b's', b'k']);
        assert_eq!(
            &head_frame(Head::Response { id: 1 }, b"x")[..],
            [3, 0, 0, 0, 2, 1, b'x']
        );
        let failed = Head::Failed {
            id: 2,
            why: Failure::Forgotten,
        };
        assert_eq!(&head_frame(failed, b"")[..], [3, 0, 0, 0, 3, 2, 3]);
        assert_eq!(
            &head_frame(Head::Cancel { id: 5 }, b"")[..],
            [2, 0, 0, 0, 4, 5]
        );
        let received = Head::Received { through: 6 };
        assert_eq!(&head_frame(received, b"")[..], [2, 0, 0, 0, 5, 6]);
        let resume = Head::Resume(Resume {
            knows: true,
            received: 7,
            max_requests: 8,
        });
        assert_eq!(&head_frame(resume, b"")[..], [4, 0, 0, 0, 0, 1, 7, 8]);
        // The longest there is.
        let longest = Head::Request {
            id: u64::MAX,
            floor: u64::MAX,
            timeout_ms: u64::MAX,
        };
        assert!(head_frame(longest, b"").len() <= HEADER_BYTES + HEAD_ROOM);
    }

    #[test]
    fn a_giant_length_is_an_error_before_anything_is_kept() {
        let mut buffer = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        let error = take_batch(&mut buffer, 100);
        let (bytes, max_bytes) = (u32::MAX as usize, 100);
        assert_eq!(error, Err(FrameError::TooLong { bytes, max_bytes }));
        assert!(buffer.capacity() < 100);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            fuzz(&bytes);
        }

        #[test]
        fn frames_with_something_wrong(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..12),
            at in any::<proptest::sample::Index>(),
            flip in any::<u8>(),
        ) {
            let mut buffer = BytesMut::new();
            payloads.iter().for_each(|payload| put_frame(&mut buffer, payload));
            let mut bytes = buffer.to_vec();
            fuzz(&bytes);
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
                fuzz(&bytes);
            }
        }
    }
}
