//! Time that passes only when nothing else is left to do.
//!
//! Owns the hands of all clocks and the order in which those who wait are woken: one by one, and then all that follows
//! from that first. Must not: draw anything at random; of two that wait for the same moment that one is first whose
//! number is lower.
//!
//! tokio has such a clock too, behind a feature that would have all that is built on tokio built a second time for
//! tests, and which wakes all that are due at once, in an order that the seed does not decide.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use wasmrun_model::time::Instant;

use crate::clock::Clock;

/// Something that can be stopped for a while, and for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u64);

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// Somebody who waits: until when, by which hand, and the how manieth of that hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    deadline: Instant,
    hand: u64,
    number: u64,
}

#[derive(Debug, Default)]
struct State {
    now: Instant,
    waiting: BTreeMap<Waiting, (Process, oneshot::Sender<()>)>,
    /// How many have waited by each hand.
    counts: BTreeMap<u64, u64>,
    stopped: BTreeSet<Process>,
}

/// Time that passes only when nothing else is left to do.
#[derive(Debug)]
pub struct Time {
    state: Mutex<State>,
    end: Instant,
}

impl Time {
    /// Time that begins at zero and must not come to its end.
    pub fn new(end: Duration) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            end: Instant::ZERO + end,
        })
    }

    /// What it is now.
    pub fn now(&self) -> Instant {
        self.state.lock().now
    }

    /// A clock of a process. The number decides who is first of two that wait for the same moment; each part of the
    /// world that may wait at the same time as others has its own.
    pub fn hand(self: &Arc<Self>, process: Process, number: u64) -> Hand {
        Hand {
            time: self.clone(),
            process,
            number,
        }
    }

    /// Stops a process: nobody who waits by its clocks is woken until it goes on.
    pub fn stop(&self, process: Process) {
        self.state.lock().stopped.insert(process);
    }

    /// A process that was stopped goes on.
    pub fn go_on(&self, process: Process) {
        self.state.lock().stopped.remove(&process);
    }

    /// Whether a process is stopped.
    pub fn is_stopped(&self, process: Process) -> bool {
        self.state.lock().stopped.contains(&process)
    }

    /// Runs a world to its end, on this thread.
    ///
    /// # Panics
    /// As the world does; when it comes to the end of time; and when all wait for each other.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        world: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let time = self.clone();
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || time.wake_next())
            .build();
        let runtime = runtime.expect("a runtime without I/O needs nothing");
        match runtime.block_on(async { tokio::spawn(world).await }) {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Nothing is left to do at this moment: on to the next one.
    fn wake_next(&self) {
        let mut state = self.state.lock();
        let may_go_on =
            |(_, (process, _)): &(&Waiting, &(Process, _))| !state.stopped.contains(process);
        let next = state.waiting.iter().find(may_go_on).map(|(it, _)| *it);
        let Some(next) = next else {
            panic!("all wait for each other, and nothing is left that could happen");
        };
        assert!(
            next.deadline < self.end,
            "the world has not come to rest by {}",
            self.end
        );
        let waiting = state.waiting.remove(&next);
        // Who was stopped is late.
        state.now = state.now.max(next.deadline);
        drop(state);
        if let Some((_, wake)) = waiting {
            let _ = wake.send(());
        }
    }
}

/// A clock of a process, as [`Time`] has it.
#[derive(Debug, Clone)]
pub struct Hand {
    time: Arc<Time>,
    process: Process,
    number: u64,
}

impl Hand {
    /// Whose clock it is.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The time that it shows.
    pub fn time(&self) -> &Arc<Time> {
        &self.time
    }
}

/// Takes somebody out who no longer waits: time must not pass for that one.
struct Place<'t> {
    time: &'t Time,
    at: Waiting,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.time.state.lock().waiting.remove(&self.at);
    }
}

#[async_trait]
impl Clock for Hand {
    fn now(&self) -> Instant {
        self.time.now()
    }

    /// As all clocks do, and at least until all is done that could be done before: a process that is stopped does not get
    /// past here.
    async fn sleep_until(&self, deadline: Instant) {
        let (wake, woken) = oneshot::channel();
        let at = {
            let mut state = self.time.state.lock();
            let count = state.counts.entry(self.number).or_default();
            *count += 1;
            let at = Waiting {
                number: *count,
                deadline: deadline.max(state.now),
                hand: self.number,
            };
            state.waiting.insert(at, (self.process, wake));
            at
        };
        let _place = Place {
            time: &self.time,
            at,
        };
        // Its other end is dropped by us only.
        let _ = woken.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_woken_in_order_and_who_is_stopped_later() {
        let time = Time::new(Duration::from_secs(100));
        let woken = time.run({
            let time = time.clone();
            async move {
                let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
                // By hand, process and seconds.
                for (number, process, s) in [(3, 1, 5), (1, 1, 5), (2, 2, 1), (4, 1, 2)] {
                    let (hand, sender) = (time.hand(Process(process), number), sender.clone());
                    tokio::spawn(async move {
                        hand.sleep(Duration::from_secs(s)).await;
                        let _ = sender.send((number, hand.now().as_micros() / 1_000_000));
                    });
                }
                drop(sender);
                time.stop(Process(2));
                let own = time.hand(Process(9), 9);
                own.sleep(Duration::from_secs(4)).await;
                let given_up = own.sleep(Duration::from_secs(90));
                tokio::select! {
                    biased;
                    () = given_up => panic!("it is not due"),
                    () = own.sleep(Duration::from_secs(3)) => {}
                }
                time.go_on(Process(2));
                let mut order = Vec::new();
                while let Some(it) = woken.recv().await {
                    order.push(it);
                }
                order
            }
        });
        assert_eq!(woken, [(4, 2), (1, 5), (3, 5), (2, 7)]);
        assert_eq!(time.now(), Instant::from_micros(7_000_000));
    }

    #[test]
    #[should_panic(expected = "wait for each other")]
    fn that_nothing_can_happen_is_said() {
        Time::new(Duration::from_secs(1)).run(std::future::pending::<()>());
    }

    #[test]
    #[should_panic(expected = "has not come to rest by 1.000000s")]
    fn that_it_does_not_end_is_said() {
        let time = Time::new(Duration::from_secs(1));
        let hand = time.hand(Process(0), 0);
        time.run(async move {
            loop {
                hand.sleep(Duration::from_millis(1)).await;
            }
        });
    }
}
