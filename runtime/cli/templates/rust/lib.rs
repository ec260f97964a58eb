#[wasmrun_guest::module]
mod app {
    use wasmrun_guest::prelude::*;

    /// Adds up part number `index`, from 0, of so many parts of the numbers.
    #[task(memory = "64MiB")]
    pub fn sum_part(numbers: Vec<f64>, index: u32, parts: u32) -> f64 {
        let bound = |part: u32| numbers.len() * part as usize / parts as usize;
        numbers[bound(index)..bound(index + 1)].iter().sum()
    }

    /// Adds up the numbers 1 to `n`: stores them, starts a task for each part, and an actor adds up the results.
    #[task]
    pub fn sum(n: u32, parts: u32) -> Result<f64, Error> {
        let numbers = put((1..=n).map(f64::from).collect::<Vec<_>>())?;
        let tally = Tally::create()?;
        let mut total = tally.add(0.0);
        for index in 0..parts {
            let part = sum_part::remote(&numbers, index, parts);
            // Nothing has waited so far: the call runs when the task has ended, after the calls before it.
            total = tally.add(part);
        }
        total.get()
    }

    /// An actor: an instance that lives on between calls.
    #[actor(memory = "16MiB")]
    pub struct Tally {
        total: f64,
    }

    #[actor]
    impl Tally {
        pub fn new() -> Self {
            Tally { total: 0.0 }
        }

        /// Adds one more: how much it is then.
        pub fn add(&mut self, n: f64) -> f64 {
            self.total += n;
            self.total
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn parts_add_up_to_the_whole() {
        assert_eq!(super::app::sum(1000, 4).unwrap(), 500_500.0);
    }
}
