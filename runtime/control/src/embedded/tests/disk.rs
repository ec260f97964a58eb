//! A disk in memory that can be full, break and lose what was not synced.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;
use wasmrun_model::random::Random;

use crate::embedded::disk::Disk;

#[derive(Debug, Default)]
pub struct State {
    /// As whoever reads sees it.
    now: Vec<u8>,
    /// As it surely is after a crash, but for its length.
    synced: Vec<u8>,
    /// Writes since then: where and what.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// How many more writes and syncs work.
    pub writes_left: Option<u64>,
    /// How long the file may be.
    pub room: Option<usize>,
    /// Syncs so far.
    pub syncs: u64,
}

impl State {
    fn write_one(&mut self) -> io::Result<()> {
        match &mut self.writes_left {
            Some(0) => Err(io::Error::other("the disk is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(pub Arc<Mutex<State>>);

impl MemoryDisk {
    /// What a machine finds that lost its power: of each unsynced write all, nothing or its beginning.
    pub fn after_crash(&self, random: &mut Random) -> Self {
        let state = self.0.lock();
        let mut bytes = state.synced.clone();
        bytes.resize(state.now.len(), 0);
        for (offset, data) in &state.unsynced {
            let len = match random.below(3) {
                0 => 0,
                1 => data.len(),
                // Sectors are whole.
                _ => random.below(data.len()) / 512 * 512,
            };
            if offset + len <= bytes.len() {
                bytes[*offset..][..len].copy_from_slice(&data[..len]);
            }
        }
        Self(Arc::new(Mutex::new(State {
            now: bytes.clone(),
            synced: bytes,
            ..State::default()
        })))
    }
}

impl Disk for MemoryDisk {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

impl StorageBackend for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let at = usize::try_from(offset).unwrap();
        let bytes = state.now.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let len = usize::try_from(len).unwrap();
        if state.room.is_some_and(|room| len > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.write_one()?;
        state.now.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.write_one()?;
        state.syncs += 1;
        state.synced = state.now.clone();
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.write_one()?;
        let at = usize::try_from(offset).unwrap();
        state.now[at..at + data.len()].copy_from_slice(data);
        state.unsynced.push((at, data.to_vec()));
        Ok(())
    }
}
