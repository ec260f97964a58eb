//! Learns to balance a pole on a cart, by trying.
//!
//! ```text
//! wasmrun submit target/guests/reinforce.wasm --invoke 'train(6, 4, 100)'
//! ```
//!
//! Trains, simulates and serves: the three of the Ray paper in one program. Where there is an actor `policy`, it has each policy
//! as soon as that is made, and routes of HTTP call it meanwhile:
//!
//! ```text
//! wasmrun actor create target/guests/reinforce.wasm policy-server --name policy
//! wasmrun serve target/guests/reinforce.wasm --route 'GET /act=actor:policy.act'
//! curl 'http://127.0.0.1:8080/act?position=0&speed=0&angle=0.05&spin=0'
//! ```
//!
//! The loop of the Ray paper (Moritz et al., 2018, figure 3): simulators are actors that play with the
//! policy they are given, updates are tasks. Here the update takes the rollouts of the fastest simulators,
//! `wait` tells which those are, and nobody stands still: rollouts with the next policy are called for
//! before there is one, as its future. A rollout that comes late counts in a later update, weighted by how
//! likely the newer policy would have done the same.
//!
//! `pole` is the world, `policy` decides and learns. Neither knows of tasks. A policy's path depends on
//! which simulators are the fastest, so no two runs are the same, unless all are waited for.

mod pole;
mod policy;

/// What can be called.
#[wasmrun_guest::module(memory = "64MiB")]
mod app {
    use wasmrun_guest::prelude::*;

    use crate::pole::{Pole, Random};
    use crate::policy;

    /// So many games make a rollout.
    const GAMES: u32 = 8;
    /// A policy that lasts so many steps on average has learned it (the bar of Gym's CartPole-v1)…
    const SOLVED_STEPS: f64 = 475.0;
    /// … unless it was lucky: so many updates in a row must find it so.
    const SOLVED_UPDATES: u32 = 3;
    /// The name of the actor that serves.
    const SERVER: &str = "policy";

    /// What to do in which state, and how it came about.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Policy {
        pub weights: Vec<f64>,
        /// How many updates made it.
        pub generation: u32,
        /// How many steps the games lasted, on average, from which it learned last.
        pub mean_steps: f64,
        /// How many of them were played with an older policy than the last.
        pub late: u32,
    }

    /// A game: what was seen, what was done, and how likely that was.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Game {
        /// Four numbers for each step.
        pub states: Vec<f64>,
        /// Whether the cart was pushed to the right.
        pub pushes: Vec<bool>,
        /// How likely the policy was to push as it did.
        pub chances: Vec<f64>,
    }

    /// Some games with one policy.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Rollout {
        pub generation: u32,
        pub games: Vec<Game>,
    }

    /// What came of it.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Learned {
        pub updates: u32,
        /// Steps per game in the first update.
        pub first_steps: f64,
        /// Steps per game of the last policy, in games of its own.
        pub last_steps: f64,
        pub weights: Vec<f64>,
    }

    /// A world with its own chance. It holds no CPU while nobody asks it to play.
    #[actor(cpus = 0, memory = "16MiB")]
    pub struct Simulator {
        random: Random,
    }

    #[actor]
    impl Simulator {
        pub fn new(seed: u64) -> Self {
            Simulator {
                random: Random::new(seed),
            }
        }

        /// Plays.
        pub fn rollout(&mut self, policy: Policy, games: u32) -> Rollout {
            let game = |_| play(&policy.weights, &mut self.random);
            Rollout {
                generation: policy.generation,
                games: (0..games).map(game).collect(),
            }
        }
    }

    /// What to do.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Action {
        /// Whether to push the cart to the right; else to the left.
        pub right: bool,
        /// How likely the policy is to push to the right.
        pub chance: f64,
        /// How many updates made the policy.
        pub generation: u32,
    }

    /// Says what to do, by the newest policy that it knows. It holds no CPU while nobody asks.
    #[actor(cpus = 0, memory = "16MiB")]
    pub struct PolicyServer {
        weights: Vec<f64>,
        generation: u32,
    }

    #[actor]
    impl PolicyServer {
        pub fn new() -> Self {
            PolicyServer {
                weights: policy::first(),
                generation: 0,
            }
        }

        /// Has this policy from now on.
        pub fn take(&mut self, policy: Policy) {
            self.weights = policy.weights;
            self.generation = policy.generation;
        }

        /// What to do with a cart and a pole that are so.
        pub fn act(&mut self, position: f64, speed: f64, angle: f64, spin: f64) -> Action {
            let chance = policy::chance(&self.weights, &[position, speed, angle, spin]);
            Action {
                right: chance > 0.5,
                chance,
                generation: self.generation,
            }
        }
    }

    /// The policy that knows nothing. A result, so that its future is one of `update`.
    #[task]
    pub fn first() -> Result<Policy, Error> {
        Ok(Policy {
            weights: policy::first(),
            generation: 0,
            mean_steps: 0.0,
            late: 0,
        })
    }

    /// A better policy, from what came of this one or of those before it.
    #[task(retries = 2)]
    pub fn update(policy: Policy, rollouts: Vec<Future<Rollout>>) -> Result<Policy, Error> {
        let rollouts = get_all(&rollouts)?;
        let is_late = |rollout: &&Rollout| rollout.generation < policy.generation;
        let late = rollouts.iter().filter(is_late).count() as u32;
        let games: Vec<Game> = rollouts
            .into_iter()
            .flat_map(|rollout| rollout.games)
            .collect();
        Ok(Policy {
            weights: policy::improved(&policy.weights, &games, policy.generation),
            generation: policy.generation + 1,
            mean_steps: mean_steps(&games),
            late,
        })
    }

    /// Trains with so many simulators, of which each update waits for the `fastest`, until the pole stands
    /// or `updates` were made.
    #[task]
    pub fn train(simulators: u32, fastest: u32, updates: u32) -> Result<Learned, String> {
        if fastest == 0 || fastest > simulators || updates == 0 {
            return Err(format!(
                "cannot make {updates} updates with the fastest {fastest} of {simulators} simulators: \
                 at least one of each, and no more than there are"
            ));
        }
        // Nobody has to be served.
        let server = PolicyServer::find(SERVER).ok();
        let mut policy = first::remote();
        let mut running = Vec::new();
        for seed in 0..simulators {
            running.push(Run::start(Simulator::create(u64::from(seed))?, &policy));
        }
        let mut first_steps = None;
        let mut solved_updates = 0;
        loop {
            let (ready, rest) = Run::wait(running, fastest)?;
            let rollouts: Vec<Future<Rollout>> =
                ready.iter().map(|run| run.rollout.clone()).collect();
            policy = update::remote(&policy, rollouts);
            // Ready for the next: they wait for the policy, we do not.
            running = rest;
            running.extend(
                ready
                    .into_iter()
                    .map(|run| Run::start(run.simulator, &policy)),
            );

            let now = policy.get()?;
            if let Some(server) = &server
                && let Err(error) = server.take(&policy).get()
            {
                eprintln!("the policy is not served: {error}");
            }
            first_steps.get_or_insert(now.mean_steps);
            let bar = "█".repeat((now.mean_steps / 10.0) as usize);
            let (update, steps) = (now.generation, now.mean_steps);
            eprintln!(
                "update {update:>3}: {steps:>5.1} steps, {} late {bar}",
                now.late
            );
            solved_updates = if now.mean_steps >= SOLVED_STEPS {
                solved_updates + 1
            } else {
                0
            };
            if now.generation == updates || solved_updates == SOLVED_UPDATES {
                break;
            }
        }
        let last = policy.get()?;
        let judge = Simulator::create(u64::MAX)?;
        let last_steps = mean_steps(&judge.rollout(&last, 25).get()?.games);
        println!(
            "\nafter {} updates the pole stands for {last_steps:.1} steps of 500",
            last.generation
        );
        Ok(Learned {
            updates: last.generation,
            first_steps: first_steps.unwrap_or_default(),
            last_steps,
            weights: last.weights,
        })
    }

    /// A simulator at work.
    struct Run {
        simulator: SimulatorHandle,
        rollout: Future<Rollout>,
    }

    impl Run {
        fn start(simulator: SimulatorHandle, policy: &Future<Result<Policy, Error>>) -> Self {
            let rollout = simulator.rollout(policy, GAMES);
            Run { simulator, rollout }
        }

        /// Those that are ready, as soon as so many are, and the rest.
        fn wait(runs: Vec<Run>, count: u32) -> Result<(Vec<Run>, Vec<Run>), Error> {
            let rollouts: Vec<Future<Rollout>> =
                runs.iter().map(|run| run.rollout.clone()).collect();
            let (ready, _) = wait(rollouts, count as usize, None)?;
            let ready: Vec<Option<String>> = ready.iter().map(Future::id).collect();
            Ok(runs
                .into_iter()
                .partition(|run| ready.contains(&run.rollout.id())))
        }
    }

    fn play(weights: &[f64], random: &mut Random) -> Game {
        let mut pole = Pole::new(random);
        let mut game = Game {
            states: Vec::new(),
            pushes: Vec::new(),
            chances: Vec::new(),
        };
        while pole.is_up() {
            let state = pole.state();
            let right = policy::chance(weights, &state);
            let push = random.unit() < right;
            game.states.extend(state);
            game.pushes.push(push);
            game.chances.push(if push { right } else { 1.0 - right });
            pole.push(push);
        }
        game
    }

    fn mean_steps(games: &[Game]) -> f64 {
        games
            .iter()
            .map(|game| game.pushes.len() as f64)
            .sum::<f64>()
            / games.len().max(1) as f64
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn it_learns_to_balance() {
            let learned = train::remote(4, 4, 60).get().unwrap();
            assert!(learned.first_steps < 60.0, "{learned:?}");
            assert!(learned.last_steps > 400.0, "{learned:?}");
        }

        #[test]
        fn the_server_has_the_last_policy() {
            let server = PolicyServer::options().name(SERVER).create().unwrap();
            let act = || server.act(0.0, 0.0, 0.1, 0.0).get().unwrap();
            assert_eq!((act().generation, act().chance), (0, 0.5));
            let learned = train::remote(4, 4, 20).get().unwrap();
            assert_eq!(act().generation, learned.updates);
            // It leans to the right, and so does the cart.
            assert!(act().right, "{learned:?}");
        }

        #[test]
        fn the_same_seeds_learn_the_same() {
            let [one, two] = [(); 2].map(|()| train::remote(2, 2, 3).get().unwrap());
            assert_eq!(one, two);
        }

        #[test]
        fn nonsense_is_refused() {
            let error = train::remote(2, 3, 1).get().unwrap_err();
            assert!(error.to_string().contains("fastest 3 of 2"), "{error}");
        }
    }
}
