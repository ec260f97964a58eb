//! Learns to read handwritten digits: workers share the weights of a parameter server.
//!
//! ```text
//! wasmrun submit target/guests/parameter-server.wasm --invoke 'train(4, 20)'
//! ```
//!
//! The server is an actor that has the weights of a small neural network. Workers are tasks: each goes
//! through its share of the digits, pulls the weights, and pushes a gradient, batch after batch. They do
//! not wait for each other (asynchronous SGD: Dean et al. 2012, Li et al. 2014), so a gradient may
//! have been made for weights that others have changed since. The server counts how often.
//!
//! The digits are real: `data/README.md` says whose. They are part of the module, and are put in the
//! store once; workers map them. Pulls and pushes are plain lists of numbers, which cross as they lie in
//! memory.
//!
//! `net` is the network with its gradient, `digits` the data. Neither knows of tasks.

mod digits;
mod net;

/// What can be called.
#[wasmrun_guest::module(memory = "32MiB")]
mod app {
    use std::collections::BTreeMap;

    use wasmrun_guest::prelude::*;

    use crate::digits::Digits;
    use crate::net;

    /// So many digits make a gradient.
    const BATCH: usize = 16;
    /// How far the weights follow a gradient that is not stale.
    const RATE: f32 = 0.3;

    /// What was learned.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Learned {
        /// How many gradients were pushed.
        pub pushes: u32,
        /// How many gradients others had pushed, on average, while one was made.
        pub staleness: f64,
        /// The mean loss after the first pass over the digits, and after the last.
        pub first_loss: f64,
        pub last_loss: f64,
        /// How many of 100 digits by people it never saw it reads right.
        pub right_percent: f64,
    }

    /// The weights, and who pulled which.
    ///
    /// It is started again from its checkpoint where that is lost: workers then go on as if nothing had
    /// been.
    #[actor(cpus = 0, memory = "16MiB", restarts = 2)]
    pub struct Server {
        weights: Vec<f32>,
        pushes: u32,
        /// Pushes of others between a pull and its push, all together.
        stale: u64,
        /// How many pushes there had been when a worker pulled last.
        pulled: BTreeMap<u32, u32>,
    }

    #[actor]
    impl Server {
        pub fn new(seed: u64) -> Self {
            Server::with(net::random(seed), 0)
        }

        /// The weights, for this worker.
        pub fn pull(&mut self, worker: u32) -> Vec<f32> {
            self.pulled.insert(worker, self.pushes);
            self.weights.clone()
        }

        /// A worker's gradient for what it pulled last. Returns how many pushes there were.
        pub fn push(&mut self, worker: u32, gradient: Vec<f32>) -> Result<u32, String> {
            if gradient.len() != self.weights.len() {
                return Err(format!(
                    "worker {worker} pushed {} numbers, but there are {} weights",
                    gradient.len(),
                    self.weights.len()
                ));
            }
            let pulled = self.pulled.get(&worker).copied();
            let stale = self.pushes - pulled.unwrap_or(self.pushes);
            self.stale += u64::from(stale);
            // The staler, the shorter the step, or many workers overshoot (Zhang et al. 2016).
            let rate = RATE / (1 + stale) as f32;
            for (weight, slope) in self.weights.iter_mut().zip(&gradient) {
                *weight -= rate * slope;
            }
            self.pushes += 1;
            Ok(self.pushes)
        }

        /// How many pushes there were, and how stale they were on average.
        pub fn pushes(&self) -> (u32, f64) {
            (
                self.pushes,
                self.stale as f64 / f64::from(self.pushes.max(1)),
            )
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            let pushes = self.pushes.to_le_bytes();
            let weights = self.weights.iter().flat_map(|weight| weight.to_le_bytes());
            pushes.into_iter().chain(weights).collect()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            let (words, _) = state.as_chunks::<4>();
            let (pushes, weights) = words.split_first().expect("a checkpoint has the pushes");
            let weights = weights.iter().map(|word| f32::from_le_bytes(*word));
            Server::with(weights.collect(), u32::from_le_bytes(*pushes))
        }

        fn with(weights: Vec<f32>, pushes: u32) -> Self {
            Server {
                weights,
                pushes,
                stale: 0,
                pulled: BTreeMap::new(),
            }
        }
    }

    /// Which digits are a worker's: every so many-th, from one on.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Share {
        pub worker: u32,
        pub workers: u32,
    }

    /// Takes a worker's digits once, batch by batch. Returns their mean loss on the way.
    #[task]
    pub fn work(
        server: ServerHandle,
        pixels: Mapped<u8>,
        labels: Mapped<u8>,
        share: Share,
    ) -> Result<f64, Error> {
        let digits = Digits::new(&pixels, &labels);
        let mine: Vec<usize> = digits.indices(share.worker, share.workers).collect();
        let (mut loss, mut pushed) = (0.0, None);
        for batch in mine.chunks(BATCH) {
            let weights = server.pull(share.worker).get()?;
            let (batch_loss, gradient) = net::gradient(&weights, &digits, batch);
            loss += batch_loss * batch.len() as f64;
            // Not waited for: calls of one caller keep their order, so the next pull comes after it.
            pushed = Some(server.push(share.worker, gradient));
        }
        if let Some(last) = pushed {
            last.get()?;
        }
        Ok(loss / mine.len().max(1) as f64)
    }

    /// Trains with so many workers, going through the digits so many times.
    #[task(memory = "64MiB")]
    pub fn train(workers: u32, passes: u32) -> Result<Learned, String> {
        if workers == 0 || passes == 0 {
            return Err("nothing is learned without a worker and a pass".to_owned());
        }
        let server = Server::create(1)?;
        let (known, unknown) = Digits::all();
        let pixels = put(known.pixels().to_vec())?;
        let labels = put(known.labels().to_vec())?;
        let mut losses = Vec::new();
        let mut right_percent = 0.0;
        for pass in 1..=passes {
            let start = |worker| {
                let share = Share { worker, workers };
                work::remote(&server, &pixels, &labels, share)
            };
            let working: Vec<_> = (0..workers).map(start).collect();
            let loss = get_all(&working)?.iter().sum::<f64>() / f64::from(workers);
            losses.push(loss);
            let weights = server.pull(workers).get()?;
            right_percent = 100.0 * net::right(&weights, &unknown);
            let (pushes, staleness) = server.pushes().get()?;
            eprintln!(
                "pass {pass:>2}: loss {loss:.4}, {right_percent:.1} % of unknown digits right \
                 ({pushes} pushes, stale by {staleness:.2})"
            );
        }
        let weights = server.pull(workers).get()?;
        print_some(&weights, &unknown);
        let (pushes, staleness) = server.pushes().get()?;
        Ok(Learned {
            pushes,
            staleness,
            first_loss: losses[0],
            last_loss: losses[losses.len() - 1],
            right_percent,
        })
    }

    /// Shows some digits and what they are read as.
    fn print_some(weights: &[f32], digits: &Digits<'_>) {
        let shown: Vec<usize> = (0..digits.len())
            .step_by(digits.len().div_ceil(8))
            .collect();
        println!();
        for row in 0..8 {
            let line = |&at: &usize| digits.row(at, row);
            println!("{}", shown.iter().map(line).collect::<Vec<_>>().join("   "));
        }
        let said = |&at: &usize| format!("{:^16}", net::read(weights, digits.digit(at).0));
        println!("{}", shown.iter().map(said).collect::<Vec<_>>().join("   "));
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn it_learns_to_read() {
            let learned = train::remote(3, 4).get().unwrap();
            assert!(learned.last_loss < learned.first_loss / 4.0, "{learned:?}");
            assert!(learned.right_percent > 85.0, "{learned:?}");
            // In one process tasks run one after the other.
            assert_eq!(learned.staleness, 0.0);
        }

        #[test]
        fn a_server_goes_on_from_its_checkpoint() {
            let mut server = Server::new(7);
            let weights = server.pull(0);
            server.push(0, vec![1.0; weights.len()]).unwrap();
            let mut again = Server::restore(server.checkpoint());
            assert_eq!(again.pull(0), server.pull(0));
            assert_eq!(again.pushes().0, 1);
            assert_ne!(again.pull(0), weights);
        }

        #[test]
        fn a_gradient_for_another_net_is_refused() {
            let server = Server::create(1).unwrap();
            let error = server.push(0, vec![1.0]).get().unwrap_err();
            assert!(error.to_string().contains("1 numbers"), "{error}");
        }
    }
}
