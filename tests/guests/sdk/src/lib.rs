//! A module of tasks and actors that uses all of the guest SDK.
//!
//! The end-to-end tests run it on a node; its own tests run the same code natively, in one process.
//! A test that needs something of a task or an actor that these cannot do adds it here.

mod shapes;
#[cfg(test)]
mod tests;
mod told;

/// Everything that others call.
#[wasmrun_guest::module(
    types(crate::shapes::Shape),
    cpus = "0.1",
    memory = "64MiB",
    env("WASMRUN_SDK_TEST")
)]
mod app {
    use std::hint::black_box;
    use std::iter::successors;

    use wasmrun_guest::prelude::*;

    use crate::shapes::Shape;

    // Values, there and back.

    /// A part of a sum.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Part {
        /// Where the random numbers start.
        pub seed: u64,
        /// How many there are.
        pub samples: u64,
    }

    /// How sure one is.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Trust {
        Low,
        High,
    }

    /// One field of each kind.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Everything {
        pub flag: bool,
        pub letter: char,
        pub text: String,
        pub small: i8,
        pub wide: i64,
        pub real: f32,
        pub maybe: Option<Part>,
        pub outcome: Result<u8, String>,
        pub nothing: Result<(), ()>,
        pub pair: (u16, Vec<String>),
        pub numbers: Vec<f64>,
        pub bytes: Vec<u8>,
        pub shapes: Vec<Shape>,
        pub trust: Trust,
        /// A keyword in Rust and in WIT.
        pub r#type: Money,
    }

    /// An alias is what it stands for.
    pub type Money = u64;

    /// Gives back what it was given.
    #[task]
    pub fn echo(everything: Everything) -> Everything {
        everything
    }

    /// Gives back bytes: the fast lane with nothing to decode.
    #[task]
    pub fn echo_bytes(bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    /// Gives back a result: as it came, or as a failure.
    #[task]
    pub fn echo_result(result: Result<Vec<f64>, String>) -> Result<Vec<f64>, String> {
        result
    }

    /// The area of all shapes.
    #[task]
    pub fn area(shapes: Vec<Shape>) -> f64 {
        shapes.iter().map(Shape::area).sum()
    }

    /// `0.0`, `1.0` … below `count`.
    #[task]
    pub fn ramp(count: u32) -> Vec<f64> {
        (0..count).map(f64::from).collect()
    }

    /// The sum of numbers that were copied here.
    #[task]
    pub fn sum(numbers: Vec<f64>) -> f64 {
        numbers.iter().sum()
    }

    /// The sum of numbers that stay where they are.
    #[task]
    pub fn sum_mapped(numbers: Mapped<f64>) -> f64 {
        numbers.iter().sum()
    }

    /// Reads numbers that stay where they are, says so, and keeps them mapped.
    #[task(time_limit = "60s")]
    pub fn hold_mapped(numbers: Mapped<f64>) {
        eprintln!("mapped {}", numbers.iter().sum::<f64>());
        loop {
            black_box(&numbers);
        }
    }

    /// Twice the number.
    #[task]
    pub fn double(n: u64) -> u64 {
        2 * n
    }

    /// The sum of two numbers.
    #[task]
    pub fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    // Tasks that start tasks.

    /// How many of so many random points of a square lie in its circle.
    #[task(retries = 3, time_limit = "30s")]
    pub fn sample(part: Part) -> u64 {
        let mut state = part.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let is_inside = |_: &u64| next().powi(2) + next().powi(2) <= 1.0;
        (0..part.samples).filter(is_inside).count() as u64
    }

    /// Pi, from so many tasks with so many points each, gathered as they come.
    #[task]
    pub fn pi(parts: u32, samples: u64) -> Result<f64, String> {
        if parts == 0 {
            return Err("pi needs at least one part".to_owned());
        }
        let part = |seed: u32| {
            sample::remote(Part {
                seed: seed.into(),
                samples,
            })
        };
        let mut rest: Vec<Future<u64>> = (0..parts).map(part).collect();
        let mut hits = 0;
        while !rest.is_empty() {
            let (ready, later) = wait(rest, 1, None)?;
            hits += get_all(&ready)?.iter().sum::<u64>();
            rest = later;
        }
        Ok(4.0 * hits as f64 / (f64::from(parts) * samples as f64))
    }

    /// A Fibonacci number, with a task for each step of the recursion.
    #[task]
    pub fn fib(n: u32) -> Result<u64, Error> {
        if n < 2 {
            return Ok(n.into());
        }
        let (one, two) = (fib::remote(n - 1), fib::remote(n - 2));
        Ok(one.get()? + two.get()?)
    }

    /// Fails after as many tasks, each of which passes on how the one before it failed.
    #[task]
    pub fn passes(depth: u32) -> Result<u64, Error> {
        match depth {
            0 => quotes::remote(0).get(),
            _ => passes::remote(depth - 1).get(),
        }
    }

    /// The same in words, which each quotes.
    #[task]
    pub fn quotes(depth: u32) -> Result<u64, String> {
        match depth {
            0 => Err("they said \"no\"".to_owned()),
            _ => Ok(quotes::remote(depth - 1).get()?),
        }
    }

    /// `2^steps`: tasks whose arguments are the futures of those before them.
    #[task]
    pub fn chain(steps: u32) -> Result<u64, Error> {
        let mut value = put(1_u64)?;
        for _ in 0..steps {
            value = double::remote(value);
        }
        value.get()
    }

    /// A sum whose first argument is a future of a task that may fail.
    #[task]
    pub fn pi_plus(parts: u32, more: f64) -> Result<f64, Error> {
        plus::remote(pi::remote(parts, 1000), more).get()
    }

    /// The sum of two numbers.
    #[task]
    pub fn plus(a: f64, b: f64) -> f64 {
        a + b
    }

    /// Starts a task and gives its future back: who gets it waits for `double` to run.
    #[task]
    pub fn hand_out(n: u64) -> Future<u64> {
        double::remote(n)
    }

    /// Futures that came as handles, in a list.
    #[task]
    pub fn gather(futures: Vec<Future<u64>>) -> Result<u64, Error> {
        Ok(get_all(futures)?.into_iter().sum())
    }

    /// A handle within a record.
    pub struct Order {
        pub name: String,
        pub numbers: Future<Vec<f64>>,
    }

    /// Gets what a record names.
    #[task]
    pub fn fill(order: Order) -> Result<String, Error> {
        let numbers = order.numbers.map()?;
        Ok(format!("{}: {}", order.name, numbers.len()))
    }

    /// Everything that can be done with objects: the same numbers as value, handle, future and mapped.
    #[task(memory = "256MiB")]
    pub fn objects(count: u32) -> Result<Vec<f64>, Error> {
        let numbers = ramp::remote(count);
        let made = hand_out::remote(u64::from(count)).get()?;
        let gathered = gather::remote(vec![made.clone(), double::remote(made)]);
        let order = Order {
            name: "ramp".to_owned(),
            numbers: numbers.clone(),
        };
        let filled = fill::remote(order).get()?;
        Ok(vec![
            sum::remote(&numbers).get()?,
            sum_mapped::remote(&numbers).get()?,
            sum_mapped::remote(vec![1.0, 2.0]).get()?,
            numbers.map()?.iter().sum(),
            numbers.size_bytes()? as f64,
            gathered.get()? as f64,
            filled.len() as f64,
        ])
    }

    /// Options in place of what is declared: what the tasks then hold of each resource, and where they are.
    #[task]
    pub fn with_options() -> Result<Vec<String>, Error> {
        let options = || {
            held::options()
                .cpus("0.25")
                .memory("32MiB")
                .gpus("0.5")
                .resource("probe", 2)
        };
        let of = ["CPU", "memory", "GPU", "probe", "other"];
        let mut held = get_all(of.map(|name| options().remote(name)))?;
        let there = whoami::options().label_selector("zone=a,!spot");
        held.push(there.remote().get()?.2);
        Ok(held)
    }

    /// Starts a task that only nodes with such labels can run.
    #[task]
    pub fn labelled(selector: String) -> Result<String, Error> {
        held::options().label_selector(selector).remote("CPU").get()
    }

    /// Says it.
    #[task]
    pub fn say(text: String) {
        println!("{text}");
    }

    /// Three tasks that cannot run before this one waits, and not at the same time.
    #[task]
    pub fn in_order() -> Result<(), Error> {
        let of = [("first", 0), ("urgent", 5), ("last", -1)];
        let said = of.map(|(text, priority)| {
            let one = say::options().cpus(1).priority(priority);
            one.remote(text.to_owned())
        });
        get_all(said)?;
        Ok(())
    }

    /// Stops a task that takes longer than it may.
    #[task]
    pub fn limited(limit_ms: u64) -> Result<u64, Error> {
        crate::told::limited(limit_ms)
    }

    /// Runs until it is stopped.
    #[task]
    pub fn spin_task() -> u64 {
        spin()
    }

    /// Calls an actor that dies of the call in its first generation; its call is made again so often.
    #[task]
    pub fn calling_again(times: u32) -> Result<u32, Error> {
        let options = Counter::options().restarts(2).call_retries(times);
        options.create(1)?.survive(times).get()
    }

    /// What this task holds of a resource.
    #[task]
    pub fn held(resource: String) -> String {
        match context::resource(&resource) {
            Some(held) => held.amount.to_string(),
            None => "nothing".to_owned(),
        }
    }

    /// Does nothing.
    #[task]
    pub fn noop() {}

    /// Starts so many tasks at once, and waits for all of them.
    #[task]
    pub fn spread_out(count: u32) -> Result<u32, Error> {
        let futures: Vec<Future<()>> = (0..count).map(|_| noop::remote()).collect();
        let (ready, rest) = wait(futures, count as usize, None)?;
        get_all(&ready)?;
        Ok((ready.len() + rest.len()) as u32)
    }

    /// Stores so many lists one after the other, and lets go of each: their first elements, summed up.
    #[task]
    pub fn churn(count: u32, kib: u32) -> Result<u64, Error> {
        let mut sum = 0;
        for n in 0..count {
            let stored = put(vec![u64::from(n); kib as usize * 128])?;
            sum += stored.map()?.first().copied().unwrap_or(0);
        }
        Ok(sum)
    }

    // Ways to fail.

    /// Why something was refused.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Refusal {
        Empty,
        TooLarge { most: u32 },
    }

    /// Fails with a payload above 10.
    #[task]
    pub fn check(n: u32) -> Result<u32, Refusal> {
        match n {
            0 => Err(Refusal::Empty),
            1..=10 => Ok(n),
            _ => Err(Refusal::TooLarge { most: 10 }),
        }
    }

    /// What the caller sees of a failed task: its payload.
    #[task]
    pub fn read_payload(n: u32) -> Result<Refusal, String> {
        match check::remote(n).get() {
            Ok(n) => Err(format!("{n} was fine")),
            Err(error) => error.payload().ok_or_else(|| error.to_string()),
        }
    }

    /// Panics.
    #[task]
    pub fn panic(message: String) -> u64 {
        panic!("{message}");
    }

    /// What the caller sees of a task that panicked.
    #[task]
    pub fn read_panic(message: String) -> Result<String, String> {
        match panic::remote(message).get() {
            Ok(_) => Err("it did not panic".to_owned()),
            Err(error) => Ok(format!("{:?}: {error}", error.kind())),
        }
    }

    /// What the caller sees of a task whose argument could not be made.
    #[task]
    pub fn read_dependency(message: String) -> Result<String, String> {
        match double::remote(panic::remote(message)).get() {
            Ok(_) => Err("it did not fail".to_owned()),
            Err(error) => Ok(format!("{:?}: {error}", error.kind())),
        }
    }

    /// Panics in every attempt before this one; the first is 0.
    #[task(retries = 0)]
    pub fn succeed_at(attempt: u32) -> u32 {
        assert!(context::attempt() >= attempt, "too early");
        context::attempt()
    }

    /// Returns an error in every attempt before this one.
    #[task(retries = 2, retry_on_error)]
    pub fn right_at(attempt: u32) -> Result<u32, String> {
        match context::attempt() {
            now if now < attempt => Err(format!("too early: {now}")),
            now => Ok(now),
        }
    }

    /// Whether an error counts as a failure, as declared and as asked for.
    #[task]
    pub fn right_in_the_end() -> Vec<String> {
        let asked = right_at::options().retry_on_error(false).remote(2).get();
        [right_at::remote(2).get(), right_at::remote(3).get(), asked]
            .map(|said| said.map_or_else(|error| error.to_string(), |said| format!("{said:?}")))
            .into()
    }

    /// Has a task that fails twice tried again: the attempt that succeeded.
    #[task]
    pub fn retrying() -> Result<u32, Error> {
        succeed_at::options().retries(2).remote(2).get()
    }

    /// Takes its time.
    #[task]
    pub fn slow(ms: u64) -> u64 {
        std::thread::sleep(Duration::from_millis(ms));
        ms
    }

    /// Does not wait for a slow task: whether time was up, both for `get` and for `wait`.
    #[task]
    pub fn impatient(task_ms: u64, patience_ms: u64) -> Result<(bool, bool), Error> {
        crate::told::impatient(task_ms, patience_ms)
    }

    /// Takes its time after another: one more than that.
    #[task]
    pub fn slow_after(before: u64, ms: u64) -> u64 {
        slow(ms);
        before + 1
    }

    /// The values of so many tasks that follow each other, in so much time for all of them.
    #[task]
    pub fn in_time(tasks: u32, task_ms: u64, patience_ms: u64) -> Result<Vec<u64>, Error> {
        let next = |before: &Future<u64>| Some(slow_after::remote(before, task_ms));
        let chain = successors(Some(put(0_u64)?), next).skip(1);
        // They are started in there: the time has begun.
        get_all_timeout(
            chain.take(tasks as usize),
            Duration::from_millis(patience_ms),
        )
    }

    /// Is busy for ever.
    #[task(time_limit = "60s")]
    pub fn spin() -> u64 {
        let mut x = 1_u64;
        loop {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }

    /// Cancels a task that would never end, and once more when it has ended: what comes of that, and what kind of
    /// failure its future has then.
    #[task]
    pub fn cancel_spin() -> Result<String, String> {
        crate::told::cancel_spin()
    }

    // Actors.

    /// Counts. Its state survives.
    #[actor(cpus = 0, memory = "32MiB", restarts = 2, call_retries = 0)]
    pub struct Counter {
        n: u64,
    }

    #[actor]
    impl Counter {
        /// The highest of all starts never ends.
        pub fn new(start: u64) -> Self {
            if start == u64::MAX {
                spin();
            }
            Counter { n: start }
        }

        /// Runs until it is stopped.
        pub fn spin(&self) -> u64 {
            spin()
        }

        /// Adds, and tells the sum.
        pub fn incr(&mut self, by: u64) -> u64 {
            self.n += by;
            self.n
        }

        /// Tells without adding.
        pub fn value(&self) -> u64 {
            self.n
        }

        /// Subtracts, if there is so much.
        pub fn decr(&mut self, by: u64) -> Result<u64, String> {
            match self.n.checked_sub(by) {
                Some(rest) => {
                    self.n = rest;
                    Ok(rest)
                }
                None => Err(format!("{} is less than {by}", self.n)),
            }
        }

        /// Subtracts as much as there is, and fails if that was less.
        pub fn take(&mut self, by: u64) -> Result<u64, String> {
            let had = self.n;
            self.n = had.saturating_sub(by);
            match had < by {
                true => Err(format!("there were only {had}")),
                false => Ok(self.n),
            }
        }

        /// Adds up a list, which may be large.
        pub fn incr_all(&mut self, by: Vec<u64>) -> u64 {
            self.n += by.iter().sum::<u64>();
            self.n
        }

        /// Dies.
        pub fn panic(&mut self, message: String) {
            panic!("{message}");
        }

        /// Dies of the call in as many generations.
        pub fn survive(&mut self, generations: u32) -> u32 {
            assert!(context::attempt() >= generations, "not in this generation");
            context::attempt()
        }

        /// Which attempt this is: it grows when the actor is started again.
        pub fn attempt(&self) -> u32 {
            context::attempt()
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            self.n.to_le_bytes().to_vec()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            let bytes = state.try_into().expect("a checkpoint has eight bytes");
            Counter {
                n: u64::from_le_bytes(bytes),
            }
        }
    }

    /// Dies of calls, which are made again: it says so itself.
    #[actor(restarts = 1, call_retries = 1)]
    pub struct Stubborn {
        generations: u32,
    }

    #[actor]
    impl Stubborn {
        pub fn new() -> Self {
            Stubborn {
                generations: context::attempt(),
            }
        }

        /// Dies of the call in as many generations.
        pub fn survive(&mut self, generations: u32) -> u32 {
            assert!(self.generations >= generations, "not in this generation");
            self.generations
        }
    }

    /// Calls an actor that dies of the call in its first generation, without saying what is to come of that.
    #[task]
    pub fn calling_again_as_declared() -> Result<u32, Error> {
        Stubborn::create()?.survive(1).get()
    }

    /// Calls another of its kind.
    #[actor]
    pub struct Caller {
        other: Option<CallerHandle>,
    }

    #[actor]
    impl Caller {
        pub fn new() -> Self {
            Caller { other: None }
        }

        /// Gets to know the other.
        pub fn meet(&mut self, other: CallerHandle) {
            self.other = Some(other);
        }

        /// Asks the other to ask back, `depth` times, and waits: with a depth above 1 they wait for each
        /// other.
        pub fn ask(&mut self, depth: u32) -> Result<u32, Error> {
            match &self.other {
                Some(other) if depth > 0 => Ok(other.ask(depth - 1).get()? + 1),
                _ => Ok(0),
            }
        }
    }

    /// Keeps a future between calls.
    #[actor]
    pub struct Keeper {
        kept: Option<Future<Vec<f64>>>,
    }

    #[actor]
    impl Keeper {
        pub fn new() -> Self {
            Keeper { kept: None }
        }

        /// Keeps it, in place of what was kept.
        pub fn keep(&mut self, numbers: Future<Vec<f64>>) {
            self.kept = Some(numbers);
        }

        /// Gives it out.
        pub fn kept(&self) -> Option<Future<Vec<f64>>> {
            self.kept.clone()
        }

        /// The sum of what is kept.
        pub fn sum(&self) -> Result<f64, Error> {
            match &self.kept {
                Some(kept) => Ok(kept.map()?.iter().sum()),
                None => Ok(0.0),
            }
        }
    }

    /// Leaves an object with an actor, lets go of it, and gets it back.
    #[task]
    pub fn lend(count: u32) -> Result<(f64, u32), Error> {
        let keeper = Keeper::create()?;
        keeper.keep(&put(ramp(count))?).get()?;
        let sum = keeper.sum().get()?;
        let back = keeper.kept().get()?;
        let length = match back {
            Some(numbers) => numbers.get()?.len() as u32,
            None => 0,
        };
        Ok((sum, length))
    }

    /// A number, so many times.
    #[task]
    pub fn repeat(number: f64, count: u32) -> Vec<f64> {
        vec![number; count as usize]
    }

    /// Stores numbers that say which attempt it is, or has them made. The first leaves them with an actor, and fails; the
    /// second tells what it reads back, and what the actor has.
    #[task(retries = 1)]
    pub fn make_twice(count: u32, are_stored: bool) -> Result<(f64, f64), Error> {
        let attempt = context::attempt();
        let number = f64::from(attempt + 1);
        let stored = match are_stored {
            true => put(vec![number; count as usize])?,
            false => repeat::remote(number, count),
        };
        if attempt == 0 {
            let keeper = Keeper::options().name("two-attempts");
            keeper.create()?.keep(&stored).get()?;
            panic!("once");
        }
        let keeper = Keeper::find("two-attempts")?;
        let kept = keeper.sum().get()?;
        keeper.kill();
        Ok((stored.get()?.iter().sum(), kept))
    }

    /// Creates a counter, counts to `n` in steps of one, and tells the last.
    #[task]
    pub fn count(n: u64) -> Result<u64, Error> {
        let counter = Counter::create(0)?;
        let mut last = counter.value();
        for _ in 0..n {
            last = counter.incr(1);
        }
        let last = last.get()?;
        counter.kill();
        Ok(last)
    }

    /// A counter that others may go on with.
    #[task]
    pub fn make_counter(start: u64) -> Result<CounterHandle, Error> {
        Counter::create(start)
    }

    /// Adds with a counter from elsewhere.
    #[task]
    pub fn use_counter(counter: CounterHandle, by: u64) -> Result<u64, Error> {
        counter.incr(by).get()
    }

    /// Handles within a record, an option and a list.
    pub struct Visit {
        pub counter: Option<CounterHandle>,
        pub by: Vec<Future<u64>>,
    }

    /// Has the counter count by each, and gives it and the last count back.
    #[task]
    pub fn go_round(visit: Visit) -> Result<(Option<CounterHandle>, Future<u64>), Error> {
        let Some(counter) = visit.counter else {
            return Ok((None, put(0)?));
        };
        let counts = visit.by.into_iter().map(|by| counter.incr(by));
        let last = counts.last().unwrap_or_else(|| counter.value());
        Ok((Some(counter), last))
    }

    /// Stores a record that names a counter and two futures, and leaves it to the record to keep them.
    #[task]
    pub fn stored_visit(start: u64) -> Result<Future<Visit>, Error> {
        let counter = Some(Counter::create(start)?);
        let by = vec![double::remote(1), put(3_u64)?];
        put(Visit { counter, by })
    }

    /// Stores a list that names so many futures, of 0, 1 … each plus 1; a long list is a large object.
    #[task]
    pub fn stored_list(count: u32) -> Result<Future<Vec<Future<u64>>>, Error> {
        let few: Vec<Future<u64>> = (0..4).map(|n| add::remote(n, 1_u64)).collect();
        put(few.into_iter().cycle().take(count as usize).collect())
    }

    /// Reads stored values that name others when the tasks that stored them at a node have ended: passes them on,
    /// and reads them itself. What it gets is counted on, summed up twice, and counted on once more.
    #[task]
    pub fn use_stored(count: u32, node: String) -> Result<Vec<u64>, Error> {
        let there = format!("node:{node}");
        let visit = stored_visit::options().strategy(&*there).remote(10);
        let list = stored_list::options().strategy(&*there).remote(count);
        let (visit, list) = (visit.get()?, list.get()?);
        let (counter, last) = go_round::remote(&visit).get()?;
        let mut said = vec![last.get()?, gather::remote(&list).get()?];
        drop(counter);
        said.push(get_all(list.get()?)?.into_iter().sum());
        let again = visit.get()?;
        drop(visit);
        if let Some(counter) = again.counter {
            said.push(counter.incr(&again.by[0]).get()?);
        }
        Ok(said)
    }

    /// A counter from hand to hand: made by a task, used by two others, with a future as argument.
    #[task]
    pub fn share_counter() -> Result<u64, Error> {
        let counter = make_counter::remote(10).get()?;
        use_counter::remote(&counter, 5).get()?;
        let more = use_counter::remote(&counter, double::remote(10)).get()?;
        Ok(more + counter.incr_all(&[1_u64, 2, 3][..]).get()?)
    }

    /// Finds an actor by its name, and what is said when its name is taken or unknown.
    #[task]
    pub fn named(name: String) -> Result<Vec<String>, Error> {
        crate::told::named(&name)
    }

    /// What the caller sees of an actor that fails, then dies: the payload, the panic, and the call after.
    #[task]
    pub fn dying() -> Result<Vec<String>, String> {
        crate::told::dying()
    }

    /// What is said of a call and of a constructor that take longer than they may, and the sum afterwards.
    #[task]
    pub fn overdue(limit_ms: u64) -> Result<Vec<String>, String> {
        crate::told::overdue(limit_ms)
    }

    /// Panics an actor that is started again: the sum afterwards, which comes from its checkpoint or its
    /// constructor.
    #[task]
    pub fn reviving(start: u64) -> Result<u64, Error> {
        crate::told::reviving(start)
    }

    /// Two actors that wait for each other.
    #[task]
    pub fn circle(depth: u32) -> Result<u32, Error> {
        crate::told::circle(depth)
    }

    /// Who and where it is.
    #[task]
    pub fn whoami() -> (String, u32, String) {
        (context::task_id(), context::attempt(), context::node())
    }

    /// Its trace parent, and the trace state if there is one.
    #[task]
    pub fn traced() -> Vec<String> {
        let (parent, state) = (context::trace_parent(), context::trace_state());
        parent.into_iter().chain(state).collect()
    }

    /// The same of itself, and of a task that it starts.
    #[task]
    pub fn tracing() -> Result<Vec<Vec<String>>, Error> {
        Ok(vec![traced(), traced::remote().get()?])
    }
}
