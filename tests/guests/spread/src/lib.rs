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

    /// Where tasks ran that were started by these strategies, one after the other.
    #[task]
    pub fn places_by(strategies: Vec<String>) -> Result<Vec<String>, Error> {
        let by = |strategy: &String| place::options().strategy(strategy.clone()).remote();
        get_all(strategies.iter().map(by).collect::<Vec<_>>())
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

    /// The node where somebody got these.
    #[task]
    pub fn place_of(numbers: Vec<f64>) -> String {
        assert!(!numbers.is_empty(), "they are what it is about");
        context::node()
    }

    /// Where a task ran that got numbers which one node made, and nobody said where. If that node is to be full, an actor
    /// has its CPU meanwhile.
    #[task]
    pub fn follows(maker: String, count: u32, is_full: bool) -> Result<String, Error> {
        let there = format!("node:{maker}");
        let made = ramp::options().strategy(&there).remote(count);
        wait([made.clone()], 1, None)?;
        let mut taken = None;
        if is_full {
            let tally = Tally::options().cpus("1").strategy(&there).create(0)?;
            tally.next().get()?;
            taken = Some(tally);
        }
        let place = place_of::remote(&made).get();
        drop(taken);
        place
    }

    /// Says which GPUs it has at which node, and keeps them.
    #[task]
    pub fn hold() {
        let held = context::resources();
        let units = held.iter().filter(|held| held.name == "GPU");
        for unit in units.flat_map(|held| &held.units) {
            println!(
                "{} {} {}",
                context::node(),
                unit.id,
                unit.amount.ten_thousandths()
            );
        }
        println!("holds");
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }

    /// Runs until there is an actor of this name, and says where.
    #[task]
    pub fn stay(until: String) -> String {
        println!("stays at {}", context::node());
        while Tally::find(&until).is_err() {}
        context::node()
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

    /// Says what it holds, and can be told to give its state in an odd way.
    #[actor(cpus = 0, memory = "32MiB", restarts = 1)]
    pub struct Holder {
        state: u64,
    }

    #[actor]
    impl Holder {
        pub fn new() -> Self {
            Holder { state: 0 }
        }

        /// How much it holds of this, in 1/10,000, and its units.
        pub fn held(&self, name: String) -> Option<(u64, Vec<u32>)> {
            let held = context::resource(&name)?;
            let units = held.units.iter().map(|unit| unit.id).collect();
            Some((held.amount.ten_thousandths(), units))
        }

        /// From now on its state has so many bytes; the highest number is a state that it never finishes.
        pub fn grow(&mut self, state: u64) {
            self.state = state;
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            if self.state == u64::MAX {
                loop {
                    std::hint::spin_loop();
                }
            }
            vec![1; self.state as usize]
        }

        pub fn restore(state: Vec<u8>) -> Self {
            Holder {
                state: state.len() as u64,
            }
        }
    }

    /// Counts, and remembers where.
    #[actor(cpus = 0, memory = "32MiB")]
    pub struct Tally {
        n: u64,
        ballast: Vec<u8>,
    }

    #[actor]
    impl Tally {
        /// One whose state has so many bytes more than it needs.
        pub fn new(ballast: u32) -> Self {
            Tally {
                n: 0,
                ballast: vec![7; ballast as usize],
            }
        }

        /// The node where it lives.
        pub fn place(&self) -> String {
            context::node()
        }

        /// Which number this is, from 1.
        pub fn next(&mut self) -> u64 {
            self.n += 1;
            self.n
        }

        /// `0.0`, `1.0` … below `count`.
        pub fn ramp(&self, count: u32) -> Vec<f64> {
            (0..count).map(f64::from).collect()
        }

        /// The sum of these, and how many calls there were before.
        pub fn sum(&mut self, numbers: Vec<f64>) -> f64 {
            self.n += 1;
            println!("sums at {}", context::node());
            numbers.iter().sum()
        }

        /// Dies.
        pub fn fail(&self) -> u64 {
            panic!("as it was told to")
        }

        /// Never ends.
        pub fn spin(&self) -> u64 {
            loop {
                std::hint::spin_loop();
            }
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            let n = self.n.to_le_bytes();
            n.into_iter().chain(self.ballast.iter().copied()).collect()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            let (n, ballast) = state.split_at(8);
            assert!(ballast.iter().all(|byte| *byte == 7), "it is as it was");
            Tally {
                n: u64::from_le_bytes(n.try_into().expect("eight bytes")),
                ballast: ballast.to_vec(),
            }
        }
    }

    fn tally_at(node: &str) -> Result<TallyHandle, Error> {
        Tally::options().strategy(format!("node:{node}")).create(0)
    }

    /// Calls an actor so often, and says whether its answers came in order.
    #[task]
    pub fn counted(tally: TallyHandle, calls: u32) -> Result<bool, Error> {
        let calls: Vec<_> = (0..calls).map(|_| tally.next()).collect();
        let answers = get_all(calls)?;
        Ok(answers.windows(2).all(|pair| pair[0] < pair[1]))
    }

    /// An actor on one node, called from here and by a task on another: where it is, whether all was in order,
    /// and how many calls there were.
    #[task]
    pub fn tallied(node: String, other: String, calls: u32) -> Result<(String, bool, u64), Error> {
        let tally = tally_at(&node)?;
        let here: Vec<_> = (0..calls).map(|_| tally.next()).collect();
        let there = counted::options()
            .strategy(format!("node:{other}"))
            .remote(&tally, calls);
        let numbers = put(vec![0.5; 100_000])?;
        let of_object = tally.sum(&numbers).get()?;
        let of_value = tally.sum(vec![1.0; 100_000]).get()?;
        assert!(of_object == 50_000.0 && of_value == 100_000.0);
        let answers = get_all(here)?;
        let in_order = answers.windows(2).all(|pair| pair[0] < pair[1]) && there.get()?;
        Ok((tally.place().get()?, in_order, tally.next().get()?))
    }

    /// Creates an actor on a node, and gives it away.
    #[task]
    pub fn make_tally(node: String) -> Result<TallyHandle, Error> {
        tally_at(&node)
    }

    /// An actor that a task on one node creates on another, called from here.
    #[task]
    pub fn adopted(one: String, other: String) -> Result<(String, u64), Error> {
        let made = make_tally::options().strategy(format!("node:{one}"));
        let tally = made.remote(other).get()?;
        Ok((tally.place().get()?, tally.next().get()?))
    }

    /// What is said of an actor that a task on one node created on another, when that one node is gone: between
    /// calls, or in the middle of one.
    #[task]
    pub fn keep_tally(one: String, other: String, is_busy: bool) -> Result<String, Error> {
        let made = make_tally::options().strategy(format!("node:{one}"));
        let tally = made.remote(other).get()?;
        tally.next().get()?;
        let _busy = is_busy.then(|| tally.spin());
        println!("made");
        loop {
            if let Err(error) = tally.next().get() {
                return Ok(error.to_string());
            }
        }
    }

    /// What is said of an actor on a node that dies and lives again, dies and lives no more, and is killed.
    #[task]
    pub fn generations(node: String) -> Result<Vec<String>, Error> {
        let on = || Tally::options().strategy(format!("node:{node}"));
        let said = |it: Result<u64, Error>| it.map_or_else(|e| e.to_string(), |n| n.to_string());
        let tally = on().restarts(1).create(0)?;
        let mut all = Vec::new();
        for call in [
            tally.next(),
            tally.fail(),
            tally.next(),
            tally.fail(),
            tally.next(),
        ] {
            all.push(said(call.get()));
        }
        let other = on().create(0)?;
        all.push(said(other.next().get()));
        let spinning = other.spin();
        other.kill();
        all.push(said(spinning.get()));
        all.push(said(other.next().get()));
        Ok(all)
    }

    /// An actor that likes a node best, used after that node is gone: its count before and after.
    #[task]
    pub fn moved(node: String, ballast: u32) -> Result<(u64, u64, bool), Error> {
        let tally = Tally::options()
            .strategy(format!("node:{node}:soft"))
            .restarts(1)
            .create(ballast)?;
        for _ in 0..9 {
            tally.next().get()?;
        }
        let before = tally.next().get()?;
        assert!(tally.place().get()? == node, "it is where it likes to be");
        let under_way = tally.spin();
        println!("counted");
        let is_failed = under_way.get().is_err();
        let after = tally.next().get()?;
        assert!(tally.place().get()? != node, "it is elsewhere");
        Ok((before, after, is_failed))
    }

    /// Calls the actor that has this name.
    #[task]
    pub fn found(name: String) -> Result<u64, Error> {
        Tally::find(&name)?.next().get()
    }

    /// Creates an actor with this name and calls it; the first attempt fails after that.
    #[task(retries = 1)]
    pub fn named_twice(name: String) -> Result<u64, Error> {
        let tally = Tally::options().name(&*name).create(0)?;
        let count = tally.next().get()?;
        assert!(context::attempt() > 0, "as it was told to");
        Ok(count)
    }

    /// Creates an actor with this name, calls it, and waits for ever.
    #[task]
    pub fn keep_named(name: String) -> Result<u64, Error> {
        let tally = Tally::options().name(&*name).create(0)?;
        tally.sum(vec![1.0]).get()?;
        println!("made at {}", context::node());
        tally.spin().get()
    }

    fn is_there(node: &str) -> bool {
        let strategy = format!("node:{node}");
        place::options().strategy(strategy).remote().get().is_ok()
    }

    /// What an actor on a node made, read when there is an actor named "go": first for a moment.
    #[task]
    pub fn read_late(node: String) -> Result<f64, Error> {
        let tally = tally_at(&node)?;
        let made = tally.ramp(100_000);
        wait(vec![made.clone()], 1, None)?;
        println!("made");
        while Tally::find("go").is_err() {}
        let late = made.get_timeout(std::time::Duration::from_millis(100));
        println!(
            "{}",
            late.map_or_else(|e| e.to_string(), |_| "early".to_owned())
        );
        Ok(made.get()?.iter().sum())
    }

    /// What is said of what an actor on a node made, when that node is gone.
    #[task]
    pub fn read_lost(node: String) -> Result<String, Error> {
        let tally = tally_at(&node)?;
        let made = tally.ramp(100_000);
        wait(vec![made.clone()], 1, None)?;
        println!("made");
        while is_there(&node) {}
        Ok(made
            .get()
            .map_or_else(|e| e.to_string(), |_| "it is there".to_owned()))
    }

    /// Stores so many numbers, and gives them away.
    #[task]
    pub fn store(count: u32) -> Result<Future<Vec<f64>>, Error> {
        put(vec![0.5; count as usize])
    }

    /// The sums of what is on a node when that is gone: what an actor made there, what a task made and gave away
    /// there, and what was stored there, large and small.
    #[task]
    pub fn left_behind(node: String) -> Result<Vec<f64>, Error> {
        let there = || format!("node:{node}");
        let tally = tally_at(&node)?;
        let made = tally.ramp(100_000);
        let given = hand_out::options().strategy(there()).remote(50_000).get()?;
        let mut all = vec![made, given];
        wait(all.clone(), all.len(), None)?;
        // Of these nothing has been asked.
        for count in [80_000, 8] {
            all.push(store::options().strategy(there()).remote(count).get()?);
        }
        println!("made");
        while is_there(&node) {}
        let all = get_all(all)?;
        Ok(all.iter().map(|numbers| numbers.iter().sum()).collect())
    }

    /// Asks others of its kind, and waits.
    #[actor(cpus = 0, memory = "32MiB")]
    pub struct Asker {
        other: Option<AskerHandle>,
    }

    #[actor]
    impl Asker {
        pub fn new() -> Self {
            Asker { other: None }
        }

        /// Gets to know the other.
        pub fn meet(&mut self, other: AskerHandle) {
            self.other = Some(other);
        }

        /// Asks the other to ask on, so often, and waits.
        pub fn ask(&mut self, depth: u32) -> Result<u32, Error> {
            match &self.other {
                Some(other) if depth > 0 => Ok(other.ask(depth - 1).get()? + 1),
                _ => Ok(0),
            }
        }

        /// Waits for the first of two: for the other, which asks back, and for a task that takes so long; for the other
        /// once more instead of that if it is 0.
        pub fn ask_either(&mut self, ms: u64) -> Result<u32, Error> {
            let Some(other) = &self.other else {
                return Ok(0);
            };
            let asked = other.ask(1);
            let second = match ms {
                0 => other.ask(0),
                ms => late::remote(ms),
            };
            let (ready, _) = wait([asked.clone(), second], 1, None)?;
            match ms {
                // That the circle was told to is what counts.
                0 => asked.get(),
                _ => ready[0].get(),
            }
        }
    }

    /// 7, after a while.
    #[task]
    pub fn late(ms: u64) -> Result<u32, Error> {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        Ok(7)
    }

    /// How many tasks wait for each other, the one that is deepest first. Each may have an actor on
    /// its node, which does nothing, for as long as it waits.
    #[task]
    pub fn nest(depth: u32, has_actor: bool) -> Result<u32, Error> {
        let mut tally = None;
        if has_actor {
            let here = format!("node:{}", context::node());
            let made = Tally::options().memory("64MiB").strategy(here);
            let made = made.create(0)?;
            made.next().get()?;
            tally = Some(made);
        }
        let waited = match depth {
            0 => 0,
            _ => nest::remote(depth - 1, has_actor).get()? + 1,
        };
        drop(tally);
        Ok(waited)
    }

    /// The same on one node.
    #[task]
    pub fn nest_at(node: String, depth: u32) -> Result<u32, Error> {
        if depth == 0 {
            return Ok(0);
        }
        let there = nest_at::options().strategy(format!("node:{node}"));
        Ok(there.remote(node, depth - 1).get()? + 1)
    }

    /// Askers, each at one of these nodes, or wherever, of which each knows the next, and the last the first.
    fn ring(nodes: &[String]) -> Result<Vec<AskerHandle>, Error> {
        let made = nodes.iter().map(|node| match &node[..] {
            "" => Asker::create(),
            node => Asker::options().strategy(format!("node:{node}")).create(),
        });
        let ring = made.collect::<Result<Vec<_>, _>>()?;
        for (asker, next) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            asker.meet(next).get()?;
        }
        Ok(ring)
    }

    /// Has the first of some askers ask on, so often: as often as they are, and more, they wait for each other.
    #[task(cpus = 0)]
    pub fn ring_ask(nodes: Vec<String>, depth: u32) -> Result<u32, Error> {
        ring(&nodes)?[0].ask(depth).get()
    }

    /// Has the first of some askers wait for one of two.
    #[task(cpus = 0)]
    pub fn ring_either(nodes: Vec<String>, ms: u64) -> Result<u32, Error> {
        ring(&nodes)?[0].ask_either(ms).get()
    }

    /// Numbers that follow from those before.
    #[actor(cpus = 0, memory = "64MiB", restarts = 1, deterministic)]
    pub struct Series {
        last: f64,
    }

    #[actor]
    impl Series {
        /// What comes after this.
        pub fn new(last: f64) -> Self {
            Series { last }
        }

        /// The next ones.
        pub fn more(&mut self, count: u32) -> Vec<f64> {
            let next = |_| {
                self.last += 1.0;
                self.last
            };
            (0..count).map(next).collect()
        }

        /// Skips so many as these are in all.
        pub fn skip(&mut self, numbers: Vec<f64>) -> f64 {
            self.last += numbers.iter().sum::<f64>();
            self.last
        }

        /// Skips a half, and fails.
        pub fn refuse(&mut self) -> Result<f64, String> {
            self.last += 0.5;
            Err("as it was told to".to_owned())
        }
    }

    /// The same, with a state that can be had.
    #[actor(cpus = 0, memory = "64MiB", restarts = 1, deterministic)]
    pub struct Marked {
        series: Series,
    }

    #[actor]
    impl Marked {
        /// What comes after this.
        pub fn new(last: f64) -> Self {
            Marked {
                series: Series { last },
            }
        }

        /// The next ones.
        pub fn more(&mut self, count: u32) -> Vec<f64> {
            self.series.more(count)
        }

        /// Skips so many as these are in all.
        pub fn skip(&mut self, numbers: Vec<f64>) -> f64 {
            self.series.skip(numbers)
        }

        /// Skips a half, and fails.
        pub fn refuse(&mut self) -> Result<f64, String> {
            self.series.refuse()
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            self.series.last.to_le_bytes().to_vec()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            Marked::new(f64::from_le_bytes(state.try_into().expect("eight bytes")))
        }
    }

    #[task]
    pub fn make_series(node: String) -> Result<SeriesHandle, Error> {
        let on = Series::options().strategy(format!("node:{node}:soft"));
        on.create(10.0)
    }

    #[task]
    pub fn make_marked(node: String) -> Result<MarkedHandle, Error> {
        let on = Marked::options().strategy(format!("node:{node}:soft"));
        on.create(10.0)
    }

    /// The last of what calls made, the last call first, when the node is gone where they were made; and what the actor
    /// gives then.
    fn read_again(
        node: &str,
        made: Vec<Future<Vec<f64>>>,
        next: impl Fn() -> Future<Vec<f64>>,
    ) -> Result<Vec<f64>, Error> {
        wait(made.clone(), made.len(), None)?;
        println!("made");
        while is_there(node) {}
        let last = |numbers: Vec<f64>| numbers.last().copied().unwrap_or_default();
        let mut all = Vec::new();
        for made in made.iter().rev() {
            all.push(last(made.get()?));
        }
        all.push(last(next().get()?));
        Ok(all)
    }

    /// See `read_again`, of an actor on this node that another one owns.
    #[task]
    pub fn series_again(owner: String, node: String) -> Result<Vec<f64>, Error> {
        let make = make_series::options().strategy(format!("node:{owner}"));
        let series = make.remote(node.clone()).get()?;
        let first = series.more(20_000);
        let skipped = series.skip(put(vec![1.0; 50_000])?);
        // It needs what an earlier one made, for which that is made again as well.
        let far = series.skip(&first);
        assert!(series.refuse().get().is_err());
        let made = vec![first, series.more(20_000), series.more(20_000)];
        drop((skipped, far));
        read_again(&node, made, || series.more(1))
    }

    /// The same, of one that gives its state.
    #[task]
    pub fn marked_again(owner: String, node: String) -> Result<Vec<f64>, Error> {
        let make = make_marked::options().strategy(format!("node:{owner}"));
        let series = make.remote(node.clone()).get()?;
        let first = series.more(20_000);
        let skipped = series.skip(put(vec![1.0; 50_000])?);
        // It needs what an earlier one made, for which that is made again as well.
        let far = series.skip(&first);
        assert!(series.refuse().get().is_err());
        let made = vec![first, series.more(20_000), series.more(20_000)];
        drop((skipped, far));
        read_again(&node, made, || series.more(1))
    }

    /// The first and the last of what tasks on a node made of objects that are large for this one, when that node is
    /// gone.
    #[task]
    pub fn much_lost(node: String) -> Result<(String, f64), Error> {
        let there = more::options().strategy(format!("node:{node}:soft"));
        let mut made = Vec::new();
        for number in 0..4 {
            let given = put(vec![f64::from(number); 250_000])?;
            made.push(there.clone().remote(&given));
            wait(made.clone(), made.len(), None)?;
        }
        println!("made");
        while is_there(&node) {}
        let last = made[3].get()?;
        let first = made[0]
            .get()
            .map_or_else(|e| e.to_string(), |_| "it is there".to_owned());
        Ok((first, last.iter().sum()))
    }
}
