//! What `tests/conformance/guests.json` asks of guests, by the guest SDK. Each of its rows is a task of the same name.

use wasmrun_guest::prelude::*;

/// How something failed, in the table's words.
fn word(error: &Error) -> String {
    let word = match error {
        Error::Failed(failure) => match failure.kind {
            FailureKind::Guest => "guest",
            FailureKind::Trap | FailureKind::Exit => "ended",
            FailureKind::Limit => "limit",
            FailureKind::Arguments => "arguments",
            FailureKind::Cancelled => "cancelled",
            FailureKind::Dependency => "dependency",
            FailureKind::ActorDied => "actor-died",
            FailureKind::System => "system",
        },
        Error::TimedOut => "timed-out",
        Error::Deadlock(_) => "deadlock",
        Error::Refused(_) => "refused",
    };
    word.to_owned()
}

/// The rows, and what they start.
#[wasmrun_guest::module(cpus = "0.1", memory = "16MiB")]
mod app {
    use std::hint::black_box;

    use wasmrun_guest::prelude::*;

    use crate::word;

    #[task]
    pub fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    #[task]
    pub fn sum(numbers: Vec<u64>) -> u64 {
        numbers.iter().sum()
    }

    #[task]
    pub fn gather(futures: Vec<Future<u64>>) -> Result<u64, Error> {
        Ok(get_all(futures)?.into_iter().sum())
    }

    #[task]
    pub fn fail(why: String) -> Result<u64, String> {
        Err(why)
    }

    #[task]
    pub fn end() -> u64 {
        panic!("as it was told to");
    }

    /// The limit is for a test that goes wrong.
    #[task(time_limit = "60s")]
    pub fn spin() -> u64 {
        loop {
            black_box(0);
        }
    }

    #[task]
    pub fn whoami() -> String {
        context::task_id()
    }

    #[task]
    pub fn spawn(a: u64, b: u64) -> Result<u64, Error> {
        add::remote(a, b).get()
    }

    #[task]
    pub fn futures(times: u32) -> Result<u64, Error> {
        let mut last = put(0_u64)?;
        for _ in 0..times {
            last = add::remote(last, 1_u64);
        }
        last.get()
    }

    #[task]
    pub fn put_and_get(numbers: Vec<u64>) -> Result<Vec<u64>, Error> {
        put(numbers)?.get()
    }

    #[task]
    pub fn share(numbers: Vec<u64>) -> Result<Vec<u64>, Error> {
        let stored = put(numbers)?;
        get_all([sum::remote(&stored), sum::remote(&stored)])
    }

    #[task]
    pub fn pass_handles(count: u64) -> Result<u64, Error> {
        let futures: Vec<Future<u64>> = (0..count).map(|n| add::remote(n, 1_u64)).collect();
        gather::remote(futures).get()
    }

    #[task]
    pub fn wait_for_one() -> Result<Vec<u64>, Error> {
        let both = [spin::remote(), add::remote(1_u64, 2_u64)];
        let (ready, rest) = wait(both, 1, None)?;
        let value = ready[0].get()?;
        for it in &rest {
            cancel(it);
        }
        Ok(vec![ready.len() as u64, rest.len() as u64, value])
    }

    #[task]
    pub fn error_of(what: String) -> Result<String, String> {
        let got = match &what[..] {
            "fail" => fail::remote("why".to_owned()).get(),
            "end" => end::remote().get(),
            "limit" => {
                let limited = spin::options().time_limit(Duration::from_millis(50));
                limited.remote().get()
            }
            "cancel" => {
                let future = spin::remote();
                cancel(&future);
                future.get()
            }
            "argument" => add::remote(fail::remote("why".to_owned()), 1_u64).get(),
            "timeout" => {
                let future = spin::remote();
                let got = future.get_timeout(Duration::from_millis(10));
                cancel(&future);
                got
            }
            "resources" => add::options().cpus(100_000).remote(1_u64, 2_u64).get(),
            other => return Err(format!("there is no error '{other}'")),
        };
        Ok(got.map_or_else(|error| word(&error), |n| n.to_string()))
    }

    #[task]
    pub fn payload(why: String) -> Option<String> {
        let error = fail::remote(why).get().err()?;
        error.payload()
    }

    #[task]
    pub fn pass_on(why: String) -> Result<u64, Error> {
        fail::remote(why).get()
    }

    /// Begins anew when it is started again.
    #[actor]
    pub struct Counter {
        n: u64,
    }

    #[actor]
    impl Counter {
        pub fn new(start: u64) -> Self {
            Counter { n: start }
        }

        pub fn add(&mut self, n: u64) -> u64 {
            self.n += n;
            self.n
        }

        pub fn end(&mut self) {
            panic!("as it was told to");
        }
    }

    /// Goes on from its checkpoint.
    #[actor]
    pub struct Keeper {
        n: u64,
    }

    #[actor]
    impl Keeper {
        pub fn new(start: u64) -> Self {
            Keeper { n: start }
        }

        pub fn add(&mut self, n: u64) -> u64 {
            self.n += n;
            self.n
        }

        pub fn end(&mut self) {
            panic!("as it was told to");
        }

        pub fn checkpoint(&self) -> Vec<u8> {
            self.n.to_le_bytes().to_vec()
        }

        pub fn restore(state: Vec<u8>) -> Self {
            let bytes = state.try_into().expect("a checkpoint has eight bytes");
            Keeper {
                n: u64::from_le_bytes(bytes),
            }
        }
    }

    #[task]
    pub fn count(times: u32) -> Result<Vec<u64>, Error> {
        let counter = Counter::create(0_u64)?;
        let counts: Vec<Future<u64>> = (0..times).map(|_| counter.add(1_u64)).collect();
        get_all(&counts)
    }

    #[task]
    pub fn count_by_future(a: u64, b: u64) -> Result<u64, Error> {
        Counter::create(0_u64)?.add(add::remote(a, b)).get()
    }

    #[task]
    pub fn count_for(counter: CounterHandle, times: u32) -> Result<(), Error> {
        let counts: Vec<Future<u64>> = (0..times).map(|_| counter.add(1_u64)).collect();
        get_all(&counts).map(|_| ())
    }

    #[task]
    pub fn count_together(times: u32) -> Result<u64, Error> {
        let counter = Counter::create(0_u64)?;
        let both = [
            count_for::remote(&counter, times),
            count_for::remote(&counter, times),
        ];
        get_all(both)?;
        counter.add(0_u64).get()
    }

    #[task]
    pub fn named(name: String) -> Result<Vec<String>, Error> {
        let counter = Counter::options().name(&*name).create(1_u64)?;
        let count = Counter::find(&name)?.add(1_u64).get()?;
        let nobody = Counter::find(&format!("{name}-nobody"));
        let again = Counter::options().name(&*name).create(1_u64);
        counter.kill();
        let said = |result: Result<CounterHandle, Error>| match result {
            Ok(_) => "there".to_owned(),
            Err(error) => word(&error),
        };
        Ok(vec![count.to_string(), said(nobody), said(again)])
    }

    #[task]
    pub fn killed() -> Result<String, Error> {
        let counter = Counter::create(0_u64)?;
        counter.kill();
        let said = counter.add(1_u64).get();
        Ok(said.map_or_else(|error| word(&error), |n| n.to_string()))
    }

    #[task]
    pub fn begin_anew() -> Result<Vec<u64>, Error> {
        let counter = Counter::options().restarts(1).create(10_u64)?;
        let before = counter.add(1_u64).get()?;
        let _ = counter.end().get();
        Ok(vec![before, counter.add(1_u64).get()?])
    }

    #[task]
    pub fn go_on() -> Result<Vec<u64>, Error> {
        let keeper = Keeper::options().restarts(1).create(10_u64)?;
        let before = keeper.add(1_u64).get()?;
        let _ = keeper.end().get();
        Ok(vec![before, keeper.add(1_u64).get()?])
    }

    #[task]
    pub fn identity() -> Result<Vec<bool>, Error> {
        let (own, other) = (context::task_id(), whoami::remote().get()?);
        let is_named = !context::node().is_empty();
        Ok(vec![own.len() == 32, own != other, is_named])
    }
}
