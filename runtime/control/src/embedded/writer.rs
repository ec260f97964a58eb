//! The one thread (or task, without a disk) that changes the embedded store.
//!
//! Owns the order of changes. Takes all that have come while it was at the disk, makes them in one
//! transaction of the database, syncs once, and only then answers (group commit). Must not: answer
//! before the sync. After a failure of the file the batch is dropped as a whole, everybody in it is told,
//! and the database is opened again: redb refuses all use of one whose file has failed once.

use std::ops::ControlFlow;
use std::sync::Arc;

use redb::{Durability, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::apply::{Answer, Batch, Failure, Mutation, Outcome};
use super::shared::{Command, Shared};
use super::tables::Meta;
use crate::error::Error;

/// The most changes that are made in one transaction of the database.
const MAX_BATCH: usize = 512;

/// A batch ends when its changes come to this many bytes.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Somebody who waits, and what to say once all is on the disk.
type Pending = (
    oneshot::Sender<Result<Answer, Error>>,
    Result<Answer, Error>,
);

pub struct Writer {
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    /// As of the last commit.
    meta: Meta,
    state: State,
}

/// What the writer knows of the file.
enum State {
    Working,
    /// The database must be opened again. Whether this last batch was committed will then be seen.
    Broken {
        doubtful: Option<Box<Outcome>>,
    },
}

/// Why a batch failed.
struct Failed {
    error: redb::Error,
    /// What it comes to, if it was being committed.
    outcome: Option<Box<Outcome>>,
}

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            outcome: None,
        }
    }
}

/// What became of a batch whose commit failed.
enum Fate {
    NotMade,
    /// It is in the file, but the disk never said so.
    Made,
    Unknown,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, commands: mpsc::Receiver<Command>, meta: Meta) -> Self {
        Self {
            shared,
            commands,
            meta,
            state: State::Working,
        }
    }

    /// Works until it is told to stop, on a thread of its own.
    pub fn run(mut self) {
        while let Some(first) = self.commands.blocking_recv() {
            if self.round(first).is_break() {
                break;
            }
        }
        self.end();
    }

    /// As [`Self::run`], as a task: for a store without a disk.
    pub async fn run_here(mut self) {
        while let Some(first) = self.commands.recv().await {
            if self.round(first).is_break() {
                break;
            }
        }
        self.end();
    }

    /// Whoever still asks is told that there is nobody: the channel closes.
    fn end(mut self) {
        self.commands.close();
        self.shared.close();
    }

    /// Does what is asked, and what has come with it. Breaks when told to stop.
    fn round(&mut self, first: Command) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Stop => {
                    flow = ControlFlow::Break(());
                    break;
                }
                Command::Heal { done } => {
                    self.heal_if_needed();
                    let _ = done.send(());
                }
                command => {
                    bytes += size(&command);
                    batch.push(command);
                }
            }
            let is_full = batch.len() >= MAX_BATCH || bytes >= MAX_BATCH_BYTES;
            next = match is_full {
                true => None,
                false => self.commands.try_recv().ok(),
            };
        }
        if !batch.is_empty() {
            self.work(batch);
        }
        flow
    }

    fn heal_if_needed(&mut self) {
        // A database whose file has failed refuses this too.
        if matches!(self.state, State::Broken { .. }) || self.shared.read_meta().is_err() {
            self.heal(None);
        }
    }

    /// Opens the database again, and learns whether the batch that failed is in it.
    fn heal(&mut self, failed: Option<Box<Outcome>>) -> Fate {
        let doubtful = match std::mem::replace(&mut self.state, State::Working) {
            State::Working => failed,
            State::Broken { doubtful } => doubtful,
        };
        let meta = self.shared.reopen().and_then(|()| self.shared.read_meta());
        match meta {
            Ok(meta) => {
                tracing::info!("the control store's file is open again");
                match doubtful {
                    Some(outcome) if outcome.meta.batches == meta.batches => {
                        self.meta = outcome.meta;
                        self.shared.committed(*outcome);
                        Fate::Made
                    }
                    _ => Fate::NotMade,
                }
            }
            Err(error) => {
                tracing::error!(%error, "the control store's file cannot be opened again");
                let fate = match doubtful {
                    Some(_) => Fate::Unknown,
                    None => Fate::NotMade,
                };
                self.state = State::Broken { doubtful };
                fate
            }
        }
    }

    fn work(&mut self, batch: Vec<Command>) {
        if matches!(self.state, State::Broken { .. }) {
            self.heal(None);
        }
        let mut waiting = Vec::with_capacity(batch.len());
        match self.commit(batch, &mut waiting) {
            Ok(outcome) => {
                self.meta = outcome.meta;
                self.shared.committed(outcome);
                for (waiter, answer) in waiting {
                    // Whoever no longer waits is told nothing.
                    let _ = waiter.send(answer);
                }
            }
            Err(Failed { error, outcome }) => {
                tracing::error!(%error, "the control store could not write");
                let was_committing = outcome.is_some();
                let said = match self.heal(outcome) {
                    Fate::Made | Fate::Unknown if was_committing => Error::uncertain(error),
                    Fate::Made | Fate::Unknown | Fate::NotMade => explain(&error),
                };
                for (waiter, _) in waiting {
                    let _ = waiter.send(Err(said.clone()));
                }
            }
        }
    }

    /// Makes the changes and syncs. `waiting` has everybody, also if it fails.
    fn commit(&self, batch: Vec<Command>, waiting: &mut Vec<Pending>) -> Result<Outcome, Failed> {
        let mut commands = batch.into_iter();
        let done = self.shared.with_database(|database| {
            let mut transaction = database.begin_write()?;
            transaction
                .set_durability(Durability::Immediate)
                .expect("there are no savepoints");
            let outcome = self.make_changes(&transaction, &mut commands, waiting)?;
            match transaction.commit() {
                Ok(()) => Ok(outcome),
                Err(error) => Err(Failed {
                    error: error.into(),
                    outcome: Some(Box::new(outcome)),
                }),
            }
        });
        // After a failure: those whose turn did not come.
        for command in commands {
            if let Command::Change { answer, .. } = command {
                waiting.push((
                    answer,
                    Err(Error::unavailable("the change before it failed")),
                ));
            }
        }
        done.unwrap_or_else(|| Err(redb::Error::DatabaseClosed.into()))
    }

    fn make_changes(
        &self,
        transaction: &WriteTransaction,
        commands: &mut impl Iterator<Item = Command>,
        waiting: &mut Vec<Pending>,
    ) -> Result<Outcome, redb::Error> {
        let disk = |failure| match failure {
            Failure::Disk(error) => error,
            Failure::Refused(error) => redb::Error::Corrupted(error.to_string()),
        };
        let mut tables = Batch::new(transaction, self.meta, self.shared.limit).map_err(disk)?;
        for command in commands {
            let (waiter, made) = match command {
                Command::Change {
                    request,
                    mutation,
                    answer,
                } => (Some(answer), tables.apply(request, mutation)),
                Command::Expire(lease) => (None, tables.apply(None, Mutation::Revoke(lease))),
                Command::Heal { .. } | Command::Stop => continue,
            };
            let (answer, failed) = match made {
                Ok(answer) => (Ok(answer), None),
                Err(Failure::Refused(error)) => (Err(error), None),
                Err(Failure::Disk(error)) => (Err(explain(&error)), Some(error)),
            };
            waiting.extend(waiter.map(|waiter| (waiter, answer)));
            if let Some(error) = failed {
                return Err(error);
            }
        }
        tables.finish().map_err(disk)
    }
}

/// How much a command counts against a batch's size.
fn size(command: &Command) -> usize {
    match command {
        Command::Change {
            mutation: Mutation::Txn(txn),
            ..
        } => txn.op_bytes(),
        Command::Change { .. } | Command::Expire(_) | Command::Heal { .. } | Command::Stop => 0,
    }
}

/// What to say about a failure of the file after which nothing was changed.
fn explain(error: &redb::Error) -> Error {
    match error {
        redb::Error::Io(io) => match io.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => Error::Full {
                why: io.to_string(),
            },
            _ => Error::unavailable(io),
        },
        redb::Error::Corrupted(why) => Error::corrupt(why),
        error => Error::unavailable(error),
    }
}
