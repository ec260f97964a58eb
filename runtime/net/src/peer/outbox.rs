//! One-way messages to a peer: from `send` until the peer has accepted them.
//!
//! Owns their order and their memory. Must not: know connections; a link asks for what it has not
//! written yet. Invariants: messages are numbered from 1, in order, without gaps; each is kept until
//! the peer says that it has accepted it, so a lost connection loses none; what is kept, in bytes, never
//! exceeds the limit by more than one message; all that is kept is for one incarnation of the peer.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use wasmrun_model::id::Incarnation;

use crate::wire::SendError;
use crate::wire::frame::{HEADER_BYTES, put_frame};

/// A piece of this length is closed, and the next one begun, in bytes.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// A permit for each byte that may still be kept.
    room: Semaphore,
    limit: usize,
    /// Something is to be written.
    ready: Notify,
    /// Something was accepted.
    accepted: Notify,
}

#[derive(Debug)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// The last piece, which still grows.
    open: BytesMut,
    open_count: u64,
    /// The permits that the open piece has.
    open_room: usize,
    /// The number of the next message.
    next: u64,
    /// Which incarnation of the peer it is for, once that is known.
    incarnation: Incarnation,
}

/// Frames that are written together.
#[derive(Debug)]
struct Piece {
    first: u64,
    count: u64,
    bytes: Bytes,
    room: usize,
}

impl Outbox {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                pieces: VecDeque::new(),
                open: BytesMut::new(),
                open_count: 0,
                open_room: 0,
                next: 1,
                incarnation: Incarnation::default(),
            }),
            room: Semaphore::new(limit),
            limit,
            ready: Notify::new(),
            accepted: Notify::new(),
        }
    }

    /// Takes a message when there is room: for whatever incarnation of the peer there is then, or for this one only.
    /// Order among concurrent calls is that of their first polls.
    pub(crate) async fn send(
        &self,
        payload: &[u8],
        incarnation: Option<Incarnation>,
    ) -> Result<(), SendError> {
        let room = self.room_for(payload);
        let permit = self.room.acquire_many(room).await;
        permit.map_err(|_| SendError::Closed)?.forget();
        self.push(payload, room, incarnation)
    }

    /// Takes a message if there is room.
    pub(crate) fn try_send(&self, payload: &[u8]) -> Result<(), SendError> {
        let room = self.room_for(payload);
        match self.room.try_acquire_many(room) {
            Ok(permit) => permit.forget(),
            Err(tokio::sync::TryAcquireError::Closed) => return Err(SendError::Closed),
            Err(tokio::sync::TryAcquireError::NoPermits) => return Err(SendError::Full),
        }
        self.push(payload, room, None)
    }

    /// What a link has to write that has written everything before `next`: the pieces, the number of
    /// their first message, and the `next` after them. Where that message was accepted already, the
    /// first number is a later one.
    pub(crate) fn take_from(&self, next: u64, pieces: &mut Vec<Bytes>) -> Option<(u64, u64)> {
        let mut queue = self.queue.lock();
        queue.close_piece();
        let at = queue
            .pieces
            .partition_point(|piece| piece.first + piece.count <= next);
        let first = queue.pieces.get(at)?.first;
        pieces.extend(queue.pieces.range(at..).map(|piece| piece.bytes.clone()));
        Some((first, queue.next))
    }

    /// How many messages it has taken since it was last cleared.
    pub(crate) fn taken(&self) -> u64 {
        self.queue.lock().next - 1
    }

    /// Waits until there may be something to write. Made before looking, so that nothing is missed.
    pub(crate) fn ready(&self) -> tokio::sync::futures::Notified<'_> {
        self.ready.notified()
    }

    /// A link has ended. It may have been the one that heard of what the next one has to write.
    pub(crate) fn look_again(&self) {
        self.ready.notify_one();
    }

    /// The peer has accepted messages up to this one.
    pub(crate) fn accept(&self, through: u64) {
        let mut freed = 0;
        {
            let mut queue = self.queue.lock();
            while let Some(piece) = queue.pieces.front()
                && piece.first + piece.count <= through.saturating_add(1)
            {
                freed += piece.room;
                queue.pieces.pop_front();
            }
        }
        self.room.add_permits(freed);
        self.accepted.notify_waiters();
    }

    /// Which incarnation of the peer there is. What waits was for it before it was known.
    pub(crate) fn is_for(&self, incarnation: Incarnation) {
        self.queue.lock().incarnation = incarnation;
    }

    /// The incarnation of the peer that they were for is over, and this one follows.
    pub(crate) fn begin_anew(&self, incarnation: Incarnation) {
        let mut queue = self.queue.lock();
        queue.incarnation = incarnation;
        queue.close_piece();
        let freed = queue.pieces.drain(..).map(|piece| piece.room).sum();
        drop(queue);
        self.room.add_permits(freed);
        self.accepted.notify_waiters();
    }

    /// Waits until the peer has accepted everything.
    pub(crate) async fn flushed(&self) {
        loop {
            let mut accepted = std::pin::pin!(self.accepted.notified());
            accepted.as_mut().enable();
            if self.is_empty() {
                return;
            }
            accepted.await;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let queue = self.queue.lock();
        queue.pieces.is_empty() && queue.open_count == 0
    }

    /// Nothing more is taken, and nobody waits any more.
    pub(crate) fn close(&self) {
        self.room.close();
        let incarnation = self.queue.lock().incarnation;
        self.begin_anew(incarnation);
    }

    /// The permits for a message: its bytes, but never more than there are.
    fn room_for(&self, payload: &[u8]) -> u32 {
        let bytes = (payload.len() + HEADER_BYTES).min(self.limit);
        u32::try_from(bytes).expect("messages and queues are below 4 GiB")
    }

    fn push(
        &self,
        payload: &[u8],
        room: u32,
        incarnation: Option<Incarnation>,
    ) -> Result<(), SendError> {
        let was_empty = {
            let mut queue = self.queue.lock();
            if incarnation.is_some_and(|incarnation| incarnation != queue.incarnation) {
                drop(queue);
                self.room.add_permits(room as usize);
                return Err(SendError::OtherIncarnation);
            }
            let was_empty = queue.open_count == 0;
            put_frame(&mut queue.open, payload);
            queue.open_count += 1;
            queue.open_room += room as usize;
            queue.next += 1;
            if queue.open.len() >= PIECE_BYTES {
                queue.close_piece();
            }
            was_empty
        };
        if was_empty {
            self.ready.notify_one();
        }
        Ok(())
    }
}

impl Queue {
    fn close_piece(&mut self) {
        if self.open_count == 0 {
            return;
        }
        let piece = Piece {
            first: self.next - self.open_count,
            count: self.open_count,
            bytes: self.open.split().freeze(),
            room: self.open_room,
        };
        self.pieces.push_back(piece);
        (self.open_count, self.open_room) = (0, 0);
        // The memory belongs to the piece; the next one begins with its own.
        self.open = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::wire::frame::take_batch;

    fn read(outbox: &Outbox, next: u64) -> Option<(u64, Vec<Bytes>)> {
        let mut pieces = Vec::new();
        let (first, _) = outbox.take_from(next, &mut pieces)?;
        let mut all = BytesMut::new();
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        let batch = take_batch(&mut all, 1 << 20).expect("frames");
        Some((first, batch.collect()))
    }

    #[test]
    fn what_was_not_accepted_is_there_for_the_next_link() {
        let outbox = Outbox::new(1000);
        outbox.try_send(b"one").expect("room");
        assert_eq!(read(&outbox, 1), Some((1, vec![Bytes::from("one")])));
        assert_eq!(read(&outbox, 2), None);
        outbox.try_send(b"two").expect("room");
        assert_eq!(read(&outbox, 2), Some((2, vec![Bytes::from("two")])));
        let both = vec![Bytes::from("one"), Bytes::from("two")];
        assert_eq!(read(&outbox, 1), Some((1, both)));
        outbox.accept(1);
        assert_eq!(read(&outbox, 1), Some((2, vec![Bytes::from("two")])));
        outbox.accept(2);
        assert!(outbox.is_empty());
    }

    #[test]
    fn the_next_link_hears_of_what_the_one_before_was_told() {
        let outbox = Outbox::new(1000);
        let (mut old, mut new) = (pin!(outbox.ready()), pin!(outbox.ready()));
        assert!(old.as_mut().now_or_never().is_none() && new.as_mut().now_or_never().is_none());
        outbox.try_send(b"one").expect("room");
        assert!(old.as_mut().now_or_never().is_some() && new.as_mut().now_or_never().is_none());
        outbox.look_again();
        assert!(new.as_mut().now_or_never().is_some());
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let outbox = Outbox::new(20);
        outbox.try_send(b"0123456789").expect("room");
        assert_eq!(outbox.try_send(b"0123456789"), Err(SendError::Full));
        assert!(read(&outbox, 1).is_some());
        outbox.accept(1);
        // Longer than all the room there is: it goes alone.
        outbox.try_send(&[0; 100]).expect("room");
        assert_eq!(outbox.try_send(b""), Err(SendError::Full));
        outbox.begin_anew(Incarnation(2));
        outbox.try_send(b"").expect("room");
        outbox.close();
        assert_eq!(outbox.try_send(b""), Err(SendError::Closed));
    }
}
