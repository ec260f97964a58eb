//! What detached tasks were given, so that they can be submitted again.
//!
//! The node that takes a task over from a lost one finds that in its record, and has it here from then on: see `durable`.
//!
//! Owns which of that is kept ([`Submissions`]), and handing it to those who may have it. Must not: submit anything.
//! Invariant: nothing here keeps an object or an actor: what names one is not kept.

use std::collections::{BTreeMap, VecDeque};

use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::wire::{self, Refusal, RefusalKind, Response};

use super::Inner;
use super::merge::best_of;
use super::session::{Session, refusal};
use super::stored::encoded;
use super::views::{self, Asker};
use crate::peers::ask::{Answer, Question};
use crate::records::job::Argument;
use crate::records::object::Reference;
use crate::records::task::Work;

/// How many bytes are kept, of the tasks that were submitted last.
const MOST_BYTES: usize = 64 << 20;
/// What a task counts beside its arguments.
const OVERHEAD: usize = 1 << 10;

/// Why nothing is kept of a task.
type Why = &'static str;

/// What a task was submitted with, encoded, or why that is not kept.
pub(super) type Submitted = Result<Vec<u8>, Why>;

const NAMED: Why = "its arguments are objects, actors, or values of more than 64 KiB";
const STREAM: Why = "it reads a stream that its client brings";
const LET_GO: Why =
    "tasks that were submitted later needed the room: a node keeps 64 MiB of arguments";
const LOST: Why = "the node where it was submitted is lost";
/// Of what was taken over from a lost node.
pub(super) const NO_MODULE: Why =
    "the node where it was submitted is lost, and no other has its module";
pub(super) const LARGE: Why = "the node where it was submitted is lost, and when a task has ended its record in the control store keeps \
     up to 4 KiB of what it was given";

/// Whether what a client has submitted is kept, with these values.
pub(super) fn snapshot(submit: &wire::Submit, values: &[Argument]) -> Submitted {
    let is_plain = |it: &Argument| match it {
        Argument::Value(value) => value.references().is_empty(),
        Argument::Object(_) => false,
    };
    match submit.input {
        wire::Input::Stream => Err(STREAM),
        // Of a program nobody has looked at values.
        _ if values.len() != submit.values.len() || !values.iter().all(is_plain) => Err(NAMED),
        _ => Ok(encoded(submit)),
    }
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Submissions {
    all: BTreeMap<TaskId, Submitted>,
    /// Those of which something is kept, the oldest first.
    order: VecDeque<TaskId>,
    bytes: usize,
}

impl Submissions {
    pub(super) fn add(&mut self, task: TaskId, submitted: Submitted) {
        self.remove(&task);
        if let Ok(submit) = &submitted {
            self.bytes += size_of(submit);
            self.order.push_back(task);
        }
        self.all.insert(task, submitted);
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(Ok(submit)) = self.all.insert(oldest, Err(LET_GO)) {
                self.bytes -= size_of(&submit);
            }
        }
    }

    pub(super) fn remove(&mut self, task: &TaskId) {
        if let Some(Ok(submit)) = self.all.remove(task) {
            self.bytes -= size_of(&submit);
            // Mostly one of the oldest.
            if let Some(at) = self.order.iter().position(|it| it == task) {
                self.order.remove(at);
            }
        }
    }

    fn get(&self, task: &TaskId) -> Option<&Submitted> {
        self.all.get(task)
    }
}

/// How many bytes it counts.
fn size_of(submit: &[u8]) -> usize {
    OVERHEAD + submit.len()
}

fn not_kept(task: &TaskId, why: impl std::fmt::Display) -> Refusal {
    let why = format_args!(
        "nothing is kept of what task {task} was given: {why}; submit it as it was submitted first"
    );
    refusal(RefusalKind::Usage, why)
}

/// What a task of the asker's was submitted with at this node. Its module is loaded from then on.
pub(super) fn submission(
    inner: &Inner,
    asker: Asker<'_>,
    task: &TaskId,
) -> Result<Answer, Refusal> {
    let mut registry = inner.registry();
    let record = registry.task(task);
    let record = record.filter(|it| asker.owns(&it.tenant, it.driver));
    let Some(record) = record.cloned() else {
        drop(registry);
        // To be told that nothing is kept of it, it must be the asker's.
        views::describe(inner, asker, task)
            .map_err(|_| views::missing(asker.tenant, "task", task))?;
        return Err(not_kept(task, "it was not submitted with --detach"));
    };
    let Some(detached) = record.detached else {
        let why = match registry.submissions.get(task) {
            Some(Err(why)) => why,
            _ => "it was deleted with what the task has made",
        };
        return Err(not_kept(task, why));
    };
    let mut submit: Box<wire::Submit> = match registry.submissions.get(task) {
        Some(Ok(bytes)) => postcard::from_bytes(bytes).expect("it was written by `encoded`"),
        Some(Err(why)) => return Err(not_kept(task, why)),
        None => return Err(not_kept(task, LOST)),
    };
    // A new submission has a trace of its own.
    submit.trace = None;
    if let Reference::Task(cell) = &detached.object.0
        && let Work::Task(job) = &cell.work
    {
        registry.modules.add(job.module.clone());
    }
    drop(registry);
    let exchange = inner.exchange();
    let module_bytes = exchange.and_then(|it| it.modules().len(&submit.module));
    Ok(Answer::Given {
        submit,
        module_bytes,
    })
}

impl Session {
    /// What a detached task was submitted with, at whichever node, to be submitted here.
    pub(super) async fn submission(&self, task: TaskId) -> Result<Response, Refusal> {
        let asked = self.asked(Question::Given(task));
        let is_here = {
            let registry = self.inner.registry();
            registry.task(&task).is_some_and(|it| it.detached.is_some())
        };
        let own = submission(&self.inner, self.asker(), &task);
        let refused = match own {
            Ok(Answer::Given { submit, .. }) => return Ok(Response::Given(submit)),
            Ok(_) => unreachable!("it is what was asked for"),
            // Nobody knows more of it.
            Err(why) if is_here && why.kind != RefusalKind::NotFound => return Err(why),
            Err(why) => why,
        };
        let all = self.others(&asked).await;
        let mut refused = vec![refused];
        for (node, answer) in all.answers {
            match answer {
                Answer::Given {
                    submit,
                    module_bytes,
                } => return self.submission_at(node, submit, module_bytes).await,
                Answer::Refused(why) => refused.push(why),
                _ => {}
            }
        }
        Err(best_of(refused, &all.silent))
    }

    /// The same, of a task that was submitted at another node. Its module is brought here.
    async fn submission_at(
        &self,
        node: NodeId,
        submit: Box<wire::Submit>,
        module_bytes: Option<u64>,
    ) -> Result<Response, Refusal> {
        let name = self.inner.cluster().map(|it| it.name_of(node));
        let name = name.unwrap_or_else(|| node.to_string());
        if !submit.grants.dirs.is_empty() {
            let why = format_args!(
                "a task has a folder of the machine of node {name}: submit it again at that node"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        if self.loaded(&submit.module).is_none() {
            let missing = || {
                let why = format_args!(
                    "module {} is with node {name} and does not come here: submit the task again at that node",
                    submit.module
                );
                refusal(RefusalKind::NotFound, why)
            };
            let (exchange, len) = (self.inner.exchange(), module_bytes);
            let (exchange, len) = exchange.zip(len).ok_or_else(missing)?;
            let found = exchange.find_module(submit.module, len).await;
            let module = found.map_err(|_| missing())?;
            self.inner.registry().modules.add(module);
        }
        Ok(Response::Given(submit))
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::Digest;
    use wasmrun_model::value::Encoded;

    use super::*;

    fn submit(bytes: usize) -> wire::Submit {
        wire::Submit {
            values: vec![wire::Argument::Value(Encoded::Postcard(vec![0; bytes]))],
            is_detached: true,
            ..wire::Submit::new(Digest::from_bytes([9; 32]), wire::Entry::Program)
        }
    }

    #[test]
    fn what_is_kept_counts_all_that_it_takes() {
        let many = wire::Submit {
            args: vec![String::new(); 1 << 20],
            values: Vec::new(),
            ..submit(0)
        };
        let kept = snapshot(&many, &[]).unwrap();
        assert!(size_of(&kept) > 1 << 20);
        // Nobody has looked at the values of a program.
        assert_eq!(super::snapshot(&submit(0), &[]), Err(NAMED));
    }

    #[test]
    fn so_many_bytes_are_kept_of_the_last_tasks() {
        // What is not its value takes less than that.
        const PART: usize = MOST_BYTES / 4 - OVERHEAD - 256;
        let task = |number| TaskId::from_bytes([number; 16]);
        let mut submissions = Submissions::default();
        for number in 1..=4 {
            submissions.add(task(number), Ok(encoded(&submit(PART))));
        }
        assert!(submissions.bytes <= MOST_BYTES && submissions.order.len() == 4);
        submissions.remove(&task(2));
        submissions.add(task(5), Ok(encoded(&submit(PART))));
        submissions.add(task(6), Ok(encoded(&submit(1024))));
        let why = |number| {
            submissions
                .get(&task(number))
                .map(|it| it.as_ref().err().copied())
        };
        assert_eq!(why(1), Some(Some(LET_GO)));
        assert_eq!([why(2), why(3), why(6)], [None, Some(None), Some(None)]);
        // What is not kept takes no room, and what is submitted once more counts once.
        let stream = wire::Submit {
            input: wire::Input::Stream,
            ..submit(PART)
        };
        submissions.add(task(7), snapshot(&stream, &[]));
        submissions.add(task(3), Ok(encoded(&submit(PART))));
        for number in 1..=7 {
            submissions.remove(&task(number));
        }
        assert_eq!(
            (
                submissions.bytes,
                submissions.order.len(),
                submissions.all.len()
            ),
            (0, 0, 0)
        );
    }
}
