//! Requests from a peer: which run, and which answers are kept in case the peer asks again.
//!
//! Owns the rule that a request is carried out once per incarnation of the peer. Must not: run anything.
//!
//! A peer's ids grow and arrive in order, and after a lost connection it repeats, in order, what it has
//! no answer to. So an id above all seen ones is new, and any other was seen before: it runs, or its
//! answer is kept, or it is not known any more, which is then what the peer is told.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::task::AbortHandle;

use crate::wire::frame::Failure;

/// What has become of a request.
pub(crate) type Answer = Result<Bytes, Failure>;

#[derive(Debug)]
pub(crate) struct Answers {
    /// How often all was forgotten. Ids begin anew each time.
    epoch: u64,
    highest: u64,
    requests: BTreeMap<u64, Request>,
    running: usize,
    running_bytes: usize,
    kept_bytes: usize,
    limits: AnswerLimits,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLimits {
    pub(crate) running: usize,
    pub(crate) running_bytes: usize,
    pub(crate) kept: usize,
    pub(crate) kept_bytes: usize,
}

#[derive(Debug)]
enum Request {
    /// `task` is set right after it was started.
    Running {
        task: Option<AbortHandle>,
        bytes: usize,
    },
    Answered(Answer),
}

/// What to do with a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Admit {
    Run,
    /// It runs, and will be answered.
    Wait,
    Say(Answer),
}

impl Answers {
    pub(crate) fn new(limits: AnswerLimits) -> Self {
        Self {
            epoch: 0,
            highest: 0,
            requests: BTreeMap::new(),
            running: 0,
            running_bytes: 0,
            kept_bytes: 0,
            limits,
        }
    }

    /// To which the ids that are admitted now belong.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A request has arrived.
    pub(crate) fn admit(&mut self, id: u64, floor: u64, bytes: usize) -> Admit {
        self.forget_below(floor);
        if id <= self.highest {
            return match self.requests.get(&id) {
                Some(Request::Running { .. }) => Admit::Wait,
                Some(Request::Answered(answer)) => Admit::Say(answer.clone()),
                None => Admit::Say(Err(Failure::Forgotten)),
            };
        }
        self.highest = id;
        let is_full = self.running >= self.limits.running
            || self.running > 0 && self.running_bytes + bytes > self.limits.running_bytes;
        if is_full {
            self.keep(id, Err(Failure::Busy));
            return Admit::Say(Err(Failure::Busy));
        }
        self.running += 1;
        self.running_bytes += bytes;
        let request = Request::Running { task: None, bytes };
        self.requests.insert(id, request);
        Admit::Run
    }

    /// The task that carries out what was admitted in this epoch, so that it can be stopped.
    pub(crate) fn started(&mut self, epoch: u64, id: u64, task: AbortHandle) {
        if epoch != self.epoch {
            return task.abort();
        }
        // It may have ended already.
        if let Some(Request::Running { task: slot, .. }) = self.requests.get_mut(&id) {
            *slot = Some(task);
        }
    }

    /// What was admitted in this epoch has ended. Whether anybody wants the answer.
    pub(crate) fn ended(&mut self, epoch: u64, id: u64, answer: Answer) -> bool {
        let request = self.requests.get(&id);
        if epoch != self.epoch || !matches!(request, Some(Request::Running { .. })) {
            return false;
        }
        self.remove(id);
        self.keep(id, answer);
        true
    }

    /// Nobody waits for it any more.
    pub(crate) fn cancel(&mut self, id: u64) {
        if let Some(Request::Running {
            task: Some(task), ..
        }) = self.remove(id)
        {
            task.abort();
        }
    }

    /// Another process took the peer's place, or it is gone.
    pub(crate) fn reset(&mut self) {
        self.forget_below(u64::MAX);
        self.epoch += 1;
        self.highest = 0;
    }

    fn forget_below(&mut self, floor: u64) {
        while let Some((&id, _)) = self.requests.first_key_value()
            && id < floor
        {
            self.cancel(id);
        }
    }

    fn keep(&mut self, id: u64, answer: Answer) {
        self.kept_bytes += answer.as_ref().map_or(0, Bytes::len);
        self.requests.insert(id, Request::Answered(answer));
        while self.requests.len() - self.running > self.limits.kept
            || self.kept_bytes > self.limits.kept_bytes
        {
            let oldest = self
                .requests
                .iter()
                .find(|(_, request)| matches!(request, Request::Answered(_)));
            let Some((&oldest, _)) = oldest else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        match &request {
            Request::Running { bytes, .. } => {
                self.running -= 1;
                self.running_bytes -= bytes;
            }
            Request::Answered(answer) => {
                self.kept_bytes -= answer.as_ref().map_or(0, Bytes::len);
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Answers {
        Answers::new(AnswerLimits {
            running: 2,
            running_bytes: 100,
            kept: 3,
            kept_bytes: 100,
        })
    }

    fn ok(text: &'static str) -> Answer {
        Ok(Bytes::from(text))
    }

    #[test]
    fn a_request_runs_once() {
        let mut answers = answers();
        assert_eq!(answers.admit(1, 1, 10), Admit::Run);
        assert_eq!(answers.admit(1, 1, 10), Admit::Wait);
        assert!(answers.ended(0, 1, ok("one")));
        assert_eq!(answers.admit(1, 1, 10), Admit::Say(ok("one")));
        assert!(!answers.ended(0, 1, ok("again")));
        // The peer has the answer.
        assert_eq!(answers.admit(2, 2, 10), Admit::Run);
        assert_eq!(answers.admit(1, 2, 10), Admit::Say(Err(Failure::Forgotten)));
    }

    #[test]
    fn limits_hold() {
        let mut answers = answers();
        assert_eq!(answers.admit(1, 1, 60), Admit::Run);
        let busy = Admit::Say(Err(Failure::Busy));
        assert_eq!(answers.admit(2, 1, 60), busy);
        assert_eq!(answers.admit(3, 1, 1), Admit::Run);
        assert_eq!(answers.admit(4, 1, 1), busy);
        // One that was never begun stays so.
        assert!(answers.ended(0, 1, ok("")));
        assert_eq!(answers.admit(4, 1, 1), busy);
        for id in 5..50 {
            assert_eq!(answers.admit(id, 1, 1), Admit::Run);
            assert!(answers.ended(0, id, Ok(Bytes::from(vec![0; 40]))));
            assert!(answers.kept_bytes <= 100 && answers.requests.len() <= 5);
        }
        assert_eq!(answers.admit(5, 1, 1), Admit::Say(Err(Failure::Forgotten)));
        answers.cancel(3);
        answers.reset();
        assert_eq!(
            (answers.running, answers.running_bytes, answers.kept_bytes),
            (0, 0, 0)
        );
        assert_eq!(answers.admit(1, 1, 1), Admit::Run);
    }

    #[test]
    fn a_request_of_a_peer_that_is_gone_says_nothing_about_its_successor() {
        let mut answers = answers();
        assert_eq!(answers.admit(1, 1, 10), Admit::Run);
        let before = answers.epoch();
        answers.reset();
        assert_eq!(answers.admit(1, 1, 10), Admit::Run);
        assert!(!answers.ended(before, 1, ok("old")));
        assert_eq!(answers.admit(1, 1, 10), Admit::Wait);
        let now = answers.epoch();
        assert!(answers.ended(now, 1, ok("new")));
        assert_eq!(answers.admit(1, 1, 10), Admit::Say(ok("new")));
    }
}
