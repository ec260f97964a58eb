//! Tasks that run on other nodes than the one that starts them, and what they give each other.

/// Everything that others call.
#[wasmrun_guest::module(cpus = "0.1", memory = "64MiB")]
mod app {
    use wasmrun_guest::prelude::*;

    /// The node that this runs on.
    #[task]
    pub fn place() -> String {
        context::node()
    }

    /// Where tasks ran that were to run on these nodes, one after the other.
    #[task]
    pub fn places(nodes: Vec<String>) -> Result<Vec<String>, Error> {
        let on = |node: &String| place::options().strategy(format!("node:{node}")).remote();
        get_all(nodes.iter().map(on).collect::<Vec<_>>())
    }

    /// `0.0`, `1.0` … below `count`.
    #[task]
    pub fn ramp(count: u32) -> Vec<f64> {
        (0..count).map(f64::from).collect()
    }

    /// Each number and one more.
    #[task]
    pub fn more(numbers: Vec<f64>) -> Vec<f64> {
        numbers.into_iter().map(|number| number + 1.0).collect()
    }

    /// The sum of all.
    #[task]
    pub fn sum(numbers: Vec<f64>) -> f64 {
        numbers.iter().sum()
    }

    /// Numbers that are made on one node and summed on another, and here.
    #[task]
    pub fn there_and_back(one: String, other: String, count: u32) -> Result<Vec<f64>, Error> {
        let on = |node: &str| format!("node:{node}");
        let numbers = ramp::options().strategy(on(&one)).remote(count);
        let there = sum::options().strategy(on(&other)).remote(&numbers);
        let here = sum::options()
            .strategy(on(&context::node()))
            .remote(&numbers);
        let given: f64 = sum::options()
            .strategy(on(&other))
            .remote(numbers.get()?)
            .get()?;
        Ok(vec![there.get()?, here.get()?, given])
    }

    /// Starts a task and gives its future away.
    #[task]
    pub fn hand_out(count: u32) -> Future<Vec<f64>> {
        ramp::remote(count)
    }

    /// The sum of numbers of which only a future came.
    #[task]
    pub fn sum_of(numbers: Vec<Future<Vec<f64>>>) -> Result<f64, Error> {
        let all = get_all(numbers)?;
        Ok(all.iter().flatten().sum())
    }

    /// Futures that a task on one node gives away, and a task on another one gets.
    #[task]
    pub fn handed_on(one: String, other: String, count: u32) -> Result<f64, Error> {
        let made = hand_out::options()
            .strategy(format!("node:{one}"))
            .remote(count);
        let made = made.get()?;
        let stored = put(vec![0.5; 100_000])?;
        let there = sum_of::options().strategy(format!("node:{other}"));
        there.remote(vec![made, stored]).get()
    }

    /// Says something.
    #[task]
    pub fn say(lines: u32) {
        for line in 0..lines {
            println!("{line} at {}", context::node());
        }
    }

    /// Fails.
    #[task]
    pub fn fail() -> u32 {
        panic!("as it was told to")
    }

    /// Runs for ever.
    #[task]
    pub fn spin() {
        loop {
            std::hint::spin_loop();
        }
    }

    /// The sum of what a chain of tasks made that liked one node best, read when that node is gone.
    #[task]
    pub fn recovered(node: String, steps: u32) -> Result<f64, Error> {
        let there = || format!("node:{node}:soft");
        let mut numbers = ramp::options().strategy(there()).remote(100_000);
        for _ in 0..steps {
            numbers = more::options().strategy(there()).remote(&numbers);
        }
        wait(vec![numbers.clone()], 1, None)?;
        println!("made");
        // Until nothing can run there any more.
        while place::options()
            .strategy(format!("node:{node}"))
            .remote()
            .get()
            .is_ok()
        {}
        sum::remote(&numbers).get()
    }
}
