//! Which waiting task starts next: first come, first served among those that fit.
//!
//! Pure: it owns the node's resources and the queue, and knows nothing of threads or time. Tasks
//! of the same shape (the same request) wait in one line, so that of a shape that does not fit
//! only the first is looked at.

use std::collections::{BTreeMap, VecDeque};

use wasmrun_model::resource::{Allocation, Fit, Infeasibility, NodeResources, Request};

/// The node's resources and those who wait for them.
pub(crate) struct Admission<T> {
    resources: NodeResources,
    shapes: BTreeMap<Request, VecDeque<(u64, T)>>,
    sequence: u64,
    waiting: usize,
    running: usize,
    max_running: usize,
}

impl<T> Admission<T> {
    /// Nobody waits, nobody runs. At most `max_running` will run at a time, whatever they ask.
    pub(crate) fn new(resources: NodeResources, max_running: usize) -> Self {
        Self {
            resources,
            shapes: BTreeMap::new(),
            sequence: 0,
            waiting: 0,
            running: 0,
            max_running,
        }
    }

    pub(crate) fn resources(&self) -> &NodeResources {
        &self.resources
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Lets somebody wait for what `request` asks.
    ///
    /// # Errors
    /// When the node will never have it.
    pub(crate) fn push(&mut self, request: &Request, who: T) -> Result<(), Infeasibility> {
        if let Some(line) = self.shapes.get_mut(request).filter(|line| !line.is_empty()) {
            line.push_back((self.sequence, who));
        } else {
            if let Fit::Infeasible(why) = self.resources.judge(request) {
                return Err(why);
            }
            self.shapes
                .entry(request.clone())
                .or_default()
                .push_back((self.sequence, who));
        }
        self.sequence += 1;
        self.waiting += 1;
        Ok(())
    }

    /// The first who can start now, with what it asked for.
    pub(crate) fn next(&mut self) -> Option<(T, Allocation)> {
        if self.running >= self.max_running {
            return None;
        }
        let first = |line: &VecDeque<(u64, T)>| line.front().map(|(sequence, _)| *sequence);
        let (_, request) = self
            .shapes
            .iter()
            .filter_map(|(request, line)| Some((first(line)?, request)))
            .filter(|(_, request)| self.resources.can_acquire(request))
            .min_by_key(|(sequence, _)| *sequence)?;
        let allocation = self.resources.acquire(request).ok()?;
        let request = request.clone();
        let line = self.shapes.get_mut(&request)?;
        let (_, who) = line.pop_front()?;
        if line.is_empty() && self.shapes.len() > 64 {
            self.shapes.remove(&request);
        }
        self.running += 1;
        self.waiting -= 1;
        Some((who, allocation))
    }

    /// Takes back what somebody held.
    pub(crate) fn release(&mut self, allocation: Allocation) {
        self.resources.release(allocation);
        self.running -= 1;
    }

    /// Takes those out of the queue for whom `is_out` holds.
    pub(crate) fn take_where(&mut self, is_out: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for line in self.shapes.values_mut() {
            if line.iter().any(|(_, who)| is_out(who)) {
                let (gone, stay): (VecDeque<_>, _) =
                    line.drain(..).partition(|(_, who)| is_out(who));
                *line = stay;
                out.extend(gone.into_iter().map(|(_, who)| who));
            }
        }
        self.waiting -= out.len();
        out
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::resource::{Amount, Pool, ResourceName, ResourceSet};

    use super::*;

    fn request(cpu: &str) -> Request {
        let set = ResourceSet::new().with(ResourceName::CPU, cpu.parse().unwrap());
        Request::new(set).unwrap()
    }

    fn admission(cpus: u32, max_running: usize) -> Admission<u32> {
        let mut resources = NodeResources::new();
        let pool = Pool::for_name(&ResourceName::CPU, Amount::units(cpus)).unwrap();
        resources.add(ResourceName::CPU, pool).unwrap();
        Admission::new(resources, max_running)
    }

    fn start(admission: &mut Admission<u32>) -> Vec<(u32, Allocation)> {
        std::iter::from_fn(|| admission.next()).collect()
    }

    fn names(started: &[(u32, Allocation)]) -> Vec<u32> {
        started.iter().map(|(who, _)| *who).collect()
    }

    #[test]
    fn first_come_first_served_among_those_that_fit() {
        let mut admission = admission(2, 100);
        for (who, cpu) in [(0, "1"), (1, "2"), (2, "0.5"), (3, "1"), (4, "0.5")] {
            admission.push(&request(cpu), who).unwrap();
        }
        let started = start(&mut admission);
        // 1 needs both CPUs and is passed over; 2 and 4 share one; 3 has to wait.
        assert_eq!(names(&started), [0, 2, 4]);
        started
            .into_iter()
            .for_each(|(_, allocation)| admission.release(allocation));
        let started = start(&mut admission);
        assert_eq!(names(&started), [1]);
        started
            .into_iter()
            .for_each(|(_, allocation)| admission.release(allocation));
        let started = start(&mut admission);
        assert_eq!(names(&started), [3]);
        started
            .into_iter()
            .for_each(|(_, allocation)| admission.release(allocation));
        assert_eq!(admission.running(), 0);
        assert_eq!(
            admission.resources().available(),
            admission.resources().total()
        );
    }

    #[test]
    fn what_can_never_be_is_refused() {
        let mut admission = admission(2, 100);
        let why = admission.push(&request("3"), 0).unwrap_err();
        assert_eq!(why.to_string(), "CPU: needs 3, node has 2 in total");
        assert!(admission.next().is_none());
    }

    #[test]
    fn only_so_many_run_at_a_time() {
        let mut admission = admission(1, 3);
        for who in 0..5 {
            admission.push(&request("0.0001"), who).unwrap();
        }
        let started = start(&mut admission);
        assert_eq!(names(&started), [0, 1, 2]);
        started
            .into_iter()
            .for_each(|(_, allocation)| admission.release(allocation));
        assert_eq!(admission.take_where(|_| true), [3, 4]);
        assert_eq!(admission.waiting(), 0);
        assert!(admission.next().is_none());
    }
}
