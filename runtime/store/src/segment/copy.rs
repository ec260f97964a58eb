//! Copying into a segment, as fast as memory is.
//!
//! Owns how bytes are copied. Must not: know where they go.
//!
//! One core does not use all the bandwidth that a machine's memory has, so large copies are done by
//! several threads, in pieces that each takes when it is done with the one before: a thread that does
//! not get a core holds up nobody for longer than a piece.

use std::num::NonZero;
use std::sync::{Mutex, OnceLock};
use std::thread;

/// From here on other threads help: they take some 50 us to start.
const SHARED_FROM_BYTES: usize = 32 << 20;
/// What a thread takes at a time.
const PIECE_BYTES: usize = 4 << 20;
/// More do not make it faster on the usual machine.
const MOST_THREADS: usize = 4;

/// Copies all bytes of `from` to `to`, which is as long.
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    let helpers = match from.len() {
        SHARED_FROM_BYTES.. => helpers(),
        _ => 0,
    };
    let pieces = from.chunks(PIECE_BYTES).zip(to.chunks_mut(PIECE_BYTES));
    if helpers == 0 {
        pieces.for_each(|(from, to)| copy_piece(from, to));
        return;
    }
    let pieces = Mutex::new(pieces);
    let work = || {
        loop {
            let next = pieces.lock().expect("taking a piece does not panic").next();
            let Some((from, to)) = next else { return };
            copy_piece(from, to);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            // Without threads it takes longer.
            let _ = thread::Builder::new()
                .name("wasmrun-copy".into())
                .spawn_scoped(scope, work);
        }
        work();
    });
}

/// How many threads besides this one.
fn helpers() -> usize {
    static HELPERS: OnceLock<usize> = OnceLock::new();
    *HELPERS.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        cores.min(MOST_THREADS) - 1
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_piece(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

/// By the processor's own instruction where that is fast: it does not read what it is about to
/// overwrite. The C library has other ways for large copies, which were 10 to 15 % slower.
#[cfg(target_arch = "x86_64")]
fn copy_piece(from: &[u8], to: &mut [u8]) {
    const BY_INSTRUCTION_FROM_BYTES: usize = 1 << 20;
    if from.len() < BY_INSTRUCTION_FROM_BYTES || !std::is_x86_feature_detected!("ermsb") {
        return to.copy_from_slice(from);
    }
    assert_eq!(from.len(), to.len(), "pieces are made in pairs");
    // SAFETY: both slices are so long, and cannot overlap. The direction flag is clear, as the ABI says.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") from.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_gets_there() {
        let sizes = [
            0,
            1,
            PIECE_BYTES - 1,
            PIECE_BYTES + 1,
            SHARED_FROM_BYTES + 4097,
        ];
        for len in sizes {
            let from: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut to = vec![0; len];
            copy(&from, &mut to);
            assert!(from == to, "{len} bytes");
        }
    }
}
