//! Finds primes, with tasks and an actor.

#[wasmrun_guest::module(memory = "32MiB")]
mod primes {
    use wasmrun_guest::prelude::*;

    /// How many primes there are from `start` on and below `end`.
    #[task]
    pub fn count(start: u64, end: u64) -> u64 {
        (start..end).filter(|&n| is_prime(n)).count() as u64
    }

    fn is_prime(n: u64) -> bool {
        let mut divisors = (2..).take_while(|d| d * d <= n);
        n > 1 && divisors.all(|d| !n.is_multiple_of(d))
    }

    /// How many primes there are below `end`, counted in parts.
    #[task]
    pub fn count_all(end: u64, parts: u64) -> Result<u64, String> {
        if parts == 0 {
            return Err("nothing is counted in 0 parts".to_owned());
        }
        let part = |n| count::remote(end * n / parts, end * (n + 1) / parts);
        let mut rest: Vec<Future<u64>> = (0..parts).map(part).collect();
        let mut sum = 0;
        while !rest.is_empty() {
            let (ready, later) = wait(rest, 1, None)?;
            sum += get_all(&ready)?.iter().sum::<u64>();
            rest = later;
            eprintln!("{sum} so far, {} parts to go", rest.len());
        }
        Ok(sum)
    }

    /// The primes below `end`.
    #[task]
    pub fn list(end: u64) -> Vec<u64> {
        (0..end).filter(|&n| is_prime(n)).collect()
    }

    /// The sum of a list that is not copied.
    #[task]
    pub fn sum(numbers: Mapped<u64>) -> u64 {
        numbers.iter().sum()
    }

    /// The largest of a list that is not copied.
    #[task]
    pub fn largest(numbers: Mapped<u64>) -> Option<u64> {
        numbers.last().copied()
    }

    /// The sum of the primes below `end`, and the largest of them.
    #[task]
    pub fn describe(end: u64) -> Result<(u64, Option<u64>), Error> {
        let primes = list::remote(end);
        let (sum, largest) = (sum::remote(&primes), largest::remote(&primes));
        Ok((sum.get()?, largest.get()?))
    }

    /// Two primes with none between them.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Gap {
        pub after: u64,
        pub width: u64,
    }

    /// Knows the widest gap that it was told of.
    #[actor]
    pub struct Board {
        widest: Option<Gap>,
    }

    #[actor]
    impl Board {
        pub fn new() -> Self {
            Board { widest: None }
        }

        /// Whether this is the widest so far.
        pub fn report(&mut self, gap: Gap) -> bool {
            // Of two equally wide the first: who is the fastest must not decide.
            let is_wider = match &self.widest {
                Some(known) => (gap.width, known.after) > (known.width, gap.after),
                None => true,
            };
            if is_wider {
                self.widest = Some(gap);
            }
            is_wider
        }

        pub fn widest(&self) -> Option<Gap> {
            self.widest.clone()
        }
    }

    /// Tells the board of the gaps that begin in this part, each wider than those before.
    #[task(cpus = "0.5", memory = "16MiB", time_limit = "60s")]
    pub fn search(board: BoardHandle, start: u64, end: u64) -> Result<(), Error> {
        let mut primes = (start..).filter(|&n| is_prime(n));
        let mut after = primes.next().unwrap_or(end);
        let mut widest = 0;
        while after < end {
            let next = primes.next().unwrap_or(end);
            let width = next - after;
            if width > widest {
                widest = width;
                if board.report(Gap { after, width }).get()? {
                    println!("no primes for {width} after {after}");
                }
            }
            after = next;
        }
        Ok(())
    }

    /// The widest gap between primes that begins below `end`.
    #[task]
    pub fn widest_gap(end: u64, parts: u64) -> Result<Option<Gap>, Error> {
        let board = Board::create()?;
        let part = |n| search::remote(&board, end * n / parts, end * (n + 1) / parts);
        let searches: Vec<_> = (0..parts).map(part).collect();
        get_all(&searches)?;
        board.widest().get()
    }
}

#[cfg(test)]
mod tests {
    use super::primes::*;

    #[test]
    fn parts_add_up() {
        assert_eq!(count(0, 100), 25);
        assert_eq!(count_all::remote(100, 7).get().unwrap(), 25);
        let error = count_all::remote(100, 0).get().unwrap_err();
        let said: Option<String> = error.payload();
        assert_eq!(said.as_deref(), Some("nothing is counted in 0 parts"));
    }

    #[test]
    fn lists_are_described() {
        assert_eq!(describe::remote(12).get().unwrap(), (28, Some(11)));
        assert_eq!(describe::remote(0).get().unwrap(), (0, None));
    }

    #[test]
    fn the_board_keeps_the_widest() {
        let gap = widest_gap::remote(100, 3).get().unwrap().unwrap();
        assert_eq!((gap.after, gap.width), (89, 8));
    }
}

#[cfg(test)]
mod page;
