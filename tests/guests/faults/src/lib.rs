//! Work that goes on while nodes, links and disks fail. What it gives says what became of each task, so that a
//! test sees one that was lost or counted twice.

/// Everything that others call.
#[wasmrun_guest::module(cpus = "0.25", memory = "48MiB")]
mod app {
    use std::time::{Duration, Instant};

    use wasmrun_guest::prelude::*;

    /// Keeps a CPU busy for so long.
    fn work(busy_ms: u32) {
        let end = Instant::now() + Duration::from_millis(u64::from(busy_ms));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    /// Says which attempt this is, and gives its number so often.
    #[task]
    pub fn leaf(number: u32, copies: u32, busy_ms: u32) -> Vec<f64> {
        println!(
            "leaf {number} attempt {} at {}",
            context::attempt(),
            context::node()
        );
        work(busy_ms);
        vec![f64::from(number); copies as usize]
    }

    /// Gives numbers the first time, and fails when it is to make them again.
    #[task]
    pub fn once(count: u32) -> Vec<f64> {
        assert!(context::attempt() == 0, "this can be made once");
        vec![1.0; count as usize]
    }

    /// All of both.
    #[task]
    pub fn join(left: Vec<f64>, right: Vec<f64>, busy_ms: u32) -> Vec<f64> {
        work(busy_ms);
        [left, right].concat()
    }

    /// How many of the numbers below `leaves` are there exactly so often, and how many others are.
    #[task]
    pub fn count(numbers: Vec<f64>, leaves: u32, copies: u32) -> Vec<u32> {
        let mut times = vec![0; leaves as usize];
        let mut others = 0;
        for number in numbers {
            match times.get_mut(number as usize) {
                Some(times) => *times += 1,
                None => others += 1,
            }
        }
        let right = times.iter().filter(|times| **times == copies).count();
        vec![right as u32, others]
    }

    /// A tree of tasks over all nodes: each leaf's number, joined two by two, and counted at the end.
    #[task]
    pub fn tree(leaves: u32, copies: u32, busy_ms: u32) -> Result<Vec<u32>, Error> {
        let leaf = |number| {
            leaf::options()
                .strategy("spread")
                .remote(number, copies, busy_ms)
        };
        let layer = (0..leaves).map(leaf).collect();
        println!("begun");
        count::remote(joined(layer, busy_ms), leaves, copies).get()
    }

    /// One list of all, joined two by two.
    fn joined(mut layer: Vec<Future<Vec<f64>>>, busy_ms: u32) -> Future<Vec<f64>> {
        while layer.len() > 1 {
            let pairs = layer.chunks(2).map(|pair| match pair {
                [left, right] => join::options()
                    .strategy("spread")
                    .remote(left, right, busy_ms),
                rest => rest[0].clone(),
            });
            layer = pairs.collect();
        }
        layer.remove(0)
    }

    /// The same of leaves that are all made at one node, and read some time after that.
    #[task]
    pub fn tree_of(
        node: String,
        leaves: u32,
        copies: u32,
        later_ms: u32,
    ) -> Result<Vec<u32>, Error> {
        let leaf = |number| {
            leaf::options()
                .strategy(format!("node:{node}:soft"))
                .remote(number, copies, 0)
        };
        let made: Vec<Future<Vec<f64>>> = (0..leaves).map(leaf).collect();
        wait(made.clone(), made.len(), None)?;
        println!("made");
        work(later_ms);
        count::remote(joined(made, 0), leaves, copies).get()
    }

    /// Starts tasks on this node that start others, and so on, and never end.
    #[task]
    pub fn grow(depth: u32, nodes: Vec<String>) -> Result<u32, Error> {
        println!("grown {depth} at {}", context::node());
        let on = |node: &String| {
            grow::options()
                .strategy(format!("node:{node}"))
                .remote(depth - 1, &nodes)
        };
        if depth > 0 {
            let grown = get_all(nodes.iter().map(on).collect::<Vec<_>>())?;
            return Ok(grown.iter().sum());
        }
        loop {
            std::hint::spin_loop();
        }
    }

    /// Runs for ever.
    #[task]
    pub fn spin(name: String) {
        println!("spins {name} at {}", context::node());
        loop {
            std::hint::spin_loop();
        }
    }

    /// Starts a task on one node and gives its future away, and does not wait for it.
    #[task]
    pub fn start(node: String) -> Future<()> {
        spin::options()
            .strategy(format!("node:{node}"))
            .remote("given".to_owned())
    }

    /// Cancels what it was given.
    #[task]
    pub fn stop(given: Vec<Future<()>>) {
        for future in &given {
            cancel(future);
        }
    }

    /// A task of `owner`'s that runs at `runner` is cancelled at `canceller`.
    #[task]
    pub fn cancelled(owner: String, runner: String, canceller: String) -> Result<bool, Error> {
        let on = |node: &str| format!("node:{node}");
        let given = start::options().strategy(on(&owner)).remote(runner).get()?;
        let stopped = stop::options()
            .strategy(on(&canceller))
            .remote(vec![given.clone()]);
        stopped.get()?;
        Ok(given.get().is_err())
    }

    /// Leaves a task behind that runs for ever, and ends.
    #[task]
    pub fn leave(node: String) -> u32 {
        drop(
            spin::options()
                .strategy(format!("node:{node}"))
                .remote("left".to_owned()),
        );
        1
    }

    fn leave_at(nodes: &[String]) -> Result<Vec<u32>, Error> {
        let on = |node: &String| {
            leave::options()
                .strategy(format!("node:{node}"))
                .remote(node.clone())
        };
        get_all(nodes.iter().map(on).collect::<Vec<_>>())
    }

    /// Starts tasks at other nodes which start such as never end, and ends itself when they have begun.
    #[task]
    pub fn orphans(nodes: Vec<String>) -> Result<u32, Error> {
        println!("left {}", leave_at(&nodes)?.len());
        loop {
            std::hint::spin_loop();
        }
    }

    /// As [`orphans`], and ends.
    #[task]
    pub fn leave_all(nodes: Vec<String>) -> Result<u32, Error> {
        Ok(leave_at(&nodes)?.iter().sum())
    }

    /// As [`orphans`], with a task at another node between.
    #[task]
    pub fn ancestor(via: String, nodes: Vec<String>) -> Result<u32, Error> {
        let between = leave_all::options().strategy(format!("node:{via}"));
        let left = between.remote(&nodes).get()?;
        println!("left {left}");
        loop {
            std::hint::spin_loop();
        }
    }

    /// Numbers made at one node and summed at another, again and again.
    #[task]
    pub fn shuttle(nodes: Vec<String>, count: u32, rounds: u32) -> Result<f64, Error> {
        let mut total = 0.0;
        for round in 0..rounds {
            let at = |step: usize| {
                let node = &nodes[(round as usize + step) % nodes.len()];
                format!("node:{node}")
            };
            let made = leaf::options().strategy(at(0)).remote(1, count, 0);
            let both = join::options().strategy(at(1)).remote(&made, &made, 0);
            let sum = sum::options().strategy(at(2)).remote(&both);
            total += sum.get()?;
            println!("round {round}");
        }
        Ok(total)
    }

    /// Has numbers made here and gives their future away.
    #[task]
    pub fn give(count: u32) -> Future<Vec<f64>> {
        let here = format!("node:{}", context::node());
        leaf::options().strategy(here).remote(1, count, 0)
    }

    /// Waits until what it was given is there, and reads it a while later.
    #[task]
    pub fn late(given: Vec<Future<Vec<f64>>>) -> Result<f64, Error> {
        wait(given.clone(), given.len(), None)?;
        println!("ready");
        work(4000);
        let numbers = get_all(given)?;
        Ok(numbers.iter().flatten().sum())
    }

    /// Numbers that one node owns, and another reads late.
    #[task]
    pub fn lately(owner: String, reader: String, count: u32) -> Result<f64, Error> {
        let on = |node: &str| format!("node:{node}");
        let given = give::options().strategy(on(&owner)).remote(count).get()?;
        late::options()
            .strategy(on(&reader))
            .remote(vec![given])
            .get()
    }

    /// The sum of the numbers of so many objects, each made here and summed by a task of its own at one node, all
    /// of them at a time.
    #[task(memory = "256MiB")]
    pub fn pressed(node: String, objects: u32, count: u32) -> Result<f64, Error> {
        let here = format!("node:{}", context::node());
        let sum = |_| {
            let made = leaf::options()
                .strategy(&here)
                .memory("256MiB")
                .remote(1, count, 0);
            slow_sum::options()
                .strategy(format!("node:{node}"))
                .remote(&made)
        };
        let sums: Vec<_> = (0..objects).map(sum).collect();
        Ok(get_all(sums)?.iter().sum())
    }

    /// The sum of so many lists, each an argument of a task of its own at one node, all of them at a time.
    #[task]
    pub fn sent(node: String, lists: u32, count: u32) -> Result<f64, Error> {
        let at = format!("node:{node}");
        let sum = |_| {
            slow_sum::options()
                .strategy(&at)
                .remote(vec![1.0; count as usize])
        };
        let sums: Vec<_> = (0..lists).map(sum).collect();
        Ok(get_all(sums)?.iter().sum())
    }

    /// What a task at a node reads back that is given numbers and stores the double of each.
    #[task]
    pub fn stored_beside(node: String, count: u32) -> Result<f64, Error> {
        let there = doubled::options().strategy(format!("node:{node}"));
        there.remote(vec![1.0; count as usize]).get()
    }

    /// The sum of the doubles of all, as they come back from the store.
    #[task]
    pub fn doubled(numbers: Vec<f64>) -> Result<f64, Error> {
        let twice: Vec<f64> = numbers.iter().map(|it| 2.0 * it).collect();
        Ok(put(twice)?.get()?.iter().sum())
    }

    /// The sum of all, after a while.
    #[task(memory = "256MiB")]
    pub fn slow_sum(numbers: Vec<f64>) -> f64 {
        work(300);
        numbers.iter().sum()
    }

    /// Adds. At this node it never ends, elsewhere it tells the sum.
    fn hang(n: &mut u32, by: u32, at: &str) -> u32 {
        println!("hangs {by} at {}", context::node());
        *n += by;
        while context::node() == at {
            std::hint::spin_loop();
        }
        *n
    }

    /// Counts. A call may hang in the middle.
    #[actor(cpus = 0, memory = "32MiB")]
    pub struct Tally {
        n: u32,
    }

    #[actor]
    impl Tally {
        pub fn new() -> Self {
            Self { n: 0 }
        }

        /// Adds, and tells the sum.
        pub fn add(&mut self, by: u32) -> u32 {
            self.n += by;
            self.n
        }

        /// Adds. At this node it never ends, elsewhere it tells the sum.
        pub fn hang(&mut self, by: u32, at: String) -> u32 {
            hang(&mut self.n, by, &at)
        }
    }

    /// The same with states.
    #[actor(cpus = 0, memory = "32MiB")]
    pub struct Kept {
        n: u32,
    }

    #[actor]
    impl Kept {
        pub fn new() -> Self {
            Self { n: 0 }
        }

        pub fn add(&mut self, by: u32) -> u32 {
            self.n += by;
            self.n
        }

        /// As that of [`Tally`].
        pub fn hang(&mut self, by: u32, at: String) -> u32 {
            hang(&mut self.n, by, &at)
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            self.n.to_le_bytes().to_vec()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            let bytes = state.try_into().expect("a state has four bytes");
            Self {
                n: u32::from_le_bytes(bytes),
            }
        }
    }

    fn said<T: ToString>(call: Result<T, Error>) -> String {
        call.map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    /// What comes of calls of an actor that lives at a node when that is lost: of two that are under way, of which one has
    /// begun, and of one that is made afterwards.
    #[task]
    pub fn call_tally(tally: TallyHandle, node: String) -> Result<Vec<String>, Error> {
        tally.add(1).get()?;
        let under_way = tally.hang(10, node);
        let waits = tally.add(100);
        let first = [said(under_way.get()), said(waits.get())];
        Ok([&first[..], &[said(tally.add(1000).get())]].concat())
    }

    #[task]
    pub fn call_kept(kept: KeptHandle, node: String) -> Result<Vec<String>, Error> {
        kept.add(1).get()?;
        let under_way = kept.hang(10, node);
        let waits = kept.add(100);
        let first = [said(under_way.get()), said(waits.get())];
        Ok([&first[..], &[said(kept.add(1000).get())]].concat())
    }

    /// See [`call_tally`]: the actor is this node's, calls may be made again so often, and another node makes them.
    #[task]
    pub fn retried(
        caller: String,
        node: String,
        retries: u32,
        has_states: bool,
    ) -> Result<Vec<String>, Error> {
        let at = format!("node:{node}:soft");
        let by = format!("node:{caller}");
        if has_states {
            let kept = Kept::options().strategy(at).restarts(1);
            let kept = kept.call_retries(retries).create()?;
            return call_kept::options().strategy(by).remote(&kept, node).get();
        }
        let tally = Tally::options().strategy(at).restarts(1);
        let tally = tally.call_retries(retries).create()?;
        call_tally::options()
            .strategy(by)
            .remote(&tally, node)
            .get()
    }

    /// Stores so many numbers, and gives them away.
    #[task]
    pub fn store(count: u32) -> Result<Future<Vec<f64>>, Error> {
        put(vec![0.5; count as usize])
    }

    #[task]
    pub fn here() {}

    /// What is said of numbers that were stored at a node when that is gone: of some that were known to be there, and of
    /// others of which nobody had asked.
    #[task]
    pub fn lost_puts(node: String, count: u32) -> Result<Vec<String>, Error> {
        let there = || format!("node:{node}");
        let stored = || store::options().strategy(there()).remote(count).get();
        let (known, unknown) = (stored()?, stored()?);
        wait([known.clone()], 1, None)?;
        println!("stored");
        while here::options().strategy(there()).remote().get().is_ok() {}
        let read = |numbers: Future<Vec<f64>>| {
            let sum = numbers.get().map(|it| it.iter().sum::<f64>());
            said(sum)
        };
        // Another task that needs it hears the same.
        let passed = sum::remote(&known).get();
        Ok(vec![read(known), read(unknown), said(passed)])
    }

    /// The sum of all.
    #[task]
    pub fn sum(numbers: Vec<f64>) -> f64 {
        numbers.iter().sum()
    }
}
