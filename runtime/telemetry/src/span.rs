//! An attempt that has ended as a span: in the trace that a client has given, else in that of its job. Its parent is the attempt
//! that started it, else the client's span.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use wasmrun_model::id;
use wasmrun_model::trace::{Span, TraceContext};
use wasmrun_model::wire::{Run, TaskRow};

/// The span of an attempt: from when it had what it asked for to its end.
pub(crate) fn of(row: &TaskRow, scope: &InstrumentationScope) -> SpanData {
    let (start_us, end_us) = match &row.run {
        Some(run) => {
            let ran_us = run.ran_us.unwrap_or(0);
            (run.ended_us.saturating_sub(ran_us), run.ended_us)
        }
        None => (row.submitted_us, row.submitted_us),
    };
    let run = row.run.as_ref().filter(|run| run.ran_us.is_some());
    let mut events = SpanEvents::default();
    events.events = run.map(|run| phases(run, start_us)).unwrap_or_default();
    let trace = row.trace.as_ref();
    let span = Span::of(trace, row.job, &row.id, row.attempt);
    let state = trace.and_then(TraceContext::state);
    let attempt = row.parent_attempt.max(1);
    let starter = row.parent.map(|parent| id::SpanId::of(&parent, attempt));
    let parent = starter.or(trace.map(|trace| trace.parent().id()));
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(*span.trace().as_bytes()),
            span_id(span.id()),
            TraceFlags::new(span.flags()),
            false,
            state.and_then(|it| it.parse().ok()).unwrap_or_default(),
        ),
        parent_span_id: parent.map_or(SpanId::INVALID, span_id),
        parent_span_is_remote: starter.is_none() && trace.is_some(),
        span_kind: SpanKind::Internal,
        name: row.name.clone().into(),
        start_time: time(start_us),
        end_time: time(end_us),
        attributes: attributes(row, run),
        dropped_attributes_count: 0,
        events,
        links: SpanLinks::default(),
        status: match (&row.error, &*row.state) {
            (Some(error), _) => Status::error(error.clone()),
            (None, "finished") => Status::Unset,
            (None, state) => Status::error(state.to_owned()),
        },
        instrumentation_scope: scope.clone(),
    }
}

/// Whether it is to be exported: not where the client does not record its trace.
pub(crate) fn is_sampled(row: &TaskRow) -> bool {
    let trace = row.trace.as_ref();
    trace.is_none_or(|trace| trace.parent().is_sampled())
}

fn span_id(id: id::SpanId) -> SpanId {
    SpanId::from_bytes(*id.as_bytes())
}

fn attributes(row: &TaskRow, run: Option<&Run>) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("wasmrun.task.id", row.id.to_string()),
        KeyValue::new("wasmrun.job.id", row.job.to_string()),
        KeyValue::new("wasmrun.tenant", row.tenant.to_string()),
        KeyValue::new("wasmrun.node", row.node.clone()),
        KeyValue::new("wasmrun.attempt", i64::from(row.attempt)),
        KeyValue::new("wasmrun.state", row.state.clone()),
    ];
    if let Some(actor) = row.actor {
        all.push(KeyValue::new("wasmrun.actor.id", actor.to_string()));
    }
    if let Some(index) = row.array_index {
        all.push(KeyValue::new("wasmrun.array_index", integer(index)));
    }
    if let Some(run) = run {
        let phases = &run.phases;
        all.extend([
            KeyValue::new("wasmrun.waited_us", integer(run.waited_us)),
            KeyValue::new("wasmrun.blocked_us", i64::from(phases.blocked_us)),
            KeyValue::new("wasmrun.paused_us", i64::from(phases.paused_us)),
            KeyValue::new("wasmrun.memory_peak_bytes", integer(run.memory_peak_bytes)),
            KeyValue::new("thread.id", i64::from(phases.thread)),
        ]);
    }
    all
}

/// What the attempt did when, each as it begins.
fn phases(run: &Run, start_us: u64) -> Vec<Event> {
    let phases = &run.phases;
    let arguments = u64::from(phases.arguments_us);
    let sandbox = u64::from(phases.sandbox_us);
    let result = u64::from(phases.result_us);
    let ran_us = run.ran_us.unwrap_or(0);
    let work = ran_us.saturating_sub(arguments + sandbox + result);
    let mut at_us = start_us;
    let event = |(name, took_us): (&'static str, u64)| {
        let took = KeyValue::new("wasmrun.duration_us", integer(took_us));
        let event = Event::new(name, time(at_us), vec![took], 0);
        at_us += took_us;
        event
    };
    let all = [
        ("arguments", arguments),
        ("sandbox", sandbox),
        ("run", work),
        ("result", result),
    ];
    all.into_iter().map(event).collect()
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A time in microseconds since 1970.
fn time(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

#[cfg(test)]
pub(crate) mod tests {
    use wasmrun_model::id::DriverId;
    use wasmrun_model::wire::Phases;

    use super::*;

    const JOB: DriverId = DriverId::from_bytes([2; 16]);

    pub(crate) fn row(number: u64) -> TaskRow {
        TaskRow {
            job: JOB,
            submitted_us: 1000,
            run: Some(Run {
                waited_us: 500,
                ran_us: Some(100),
                ended_us: 1600,
                phases: Phases {
                    thread: 3,
                    arguments_us: 10,
                    sandbox_us: 20,
                    blocked_us: 5,
                    paused_us: 6,
                    result_us: 30,
                },
                memory_peak_bytes: 64,
            }),
            ..TaskRow::example(JOB.task(number))
        }
    }

    fn span(row: &TaskRow) -> SpanData {
        of(row, &InstrumentationScope::builder("test").build())
    }

    #[test]
    fn an_attempt_is_a_span_of_its_job() {
        let span = span(&row(0));
        assert_eq!(span.span_context.trace_id().to_bytes(), [2; 16]);
        assert!(span.span_context.is_valid() && span.span_context.is_sampled());
        assert_eq!(span.parent_span_id, SpanId::INVALID);
        assert_eq!((span.start_time, span.end_time), (time(1500), time(1600)));
        assert_eq!(span.status, Status::Unset);
        let has = |wanted: KeyValue| span.attributes.contains(&wanted);
        assert!(has(KeyValue::new(
            "wasmrun.task.id",
            JOB.task(0).to_string()
        )));
        assert!(has(KeyValue::new("wasmrun.memory_peak_bytes", 64_i64)));
        assert!(has(KeyValue::new("thread.id", 3_i64)));
        assert!(has(KeyValue::new("wasmrun.paused_us", 6_i64)));
        let events = span.events.iter();
        let events: Vec<_> = events.map(|it| (&*it.name, it.timestamp)).collect();
        let expected = [
            ("arguments", time(1500)),
            ("sandbox", time(1510)),
            ("run", time(1530)),
            ("result", time(1570)),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn a_task_is_below_the_attempt_that_started_it_and_attempts_are_apart() {
        let parent = TaskRow {
            attempt: 3,
            ..row(0)
        };
        let first = TaskRow {
            parent: Some(parent.id),
            parent_attempt: 3,
            state: "retried".to_owned(),
            error: Some("the guest trapped".to_owned()),
            ..row(1)
        };
        let second = TaskRow {
            attempt: 2,
            state: "cancelled".to_owned(),
            error: None,
            ..first.clone()
        };
        let [parent, first, second] = [parent, first, second].map(|row| span(&row));
        let ids = [&parent, &first, &second].map(|it| it.span_context.span_id());
        assert_eq!([first.parent_span_id, second.parent_span_id], [ids[0]; 2]);
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(first.status, Status::error("the guest trapped"));
        assert_eq!(second.status, Status::error("cancelled"));
    }

    #[test]
    fn a_trace_that_a_client_has_given_has_the_task_and_what_that_starts() {
        let given = |flags: &str| {
            let parent = format!("00-{}-{}-{flags}", "0a".repeat(16), "0b".repeat(8));
            TraceContext::new(parent.parse().unwrap(), "k=v".parse().unwrap())
        };
        let first = TaskRow {
            trace: Some(given("01")),
            ..row(0)
        };
        let nested = TaskRow {
            parent: Some(first.id),
            trace: first.trace.clone(),
            ..row(1)
        };
        assert!([row(0), first.clone()].iter().all(is_sampled));
        let own = span(&row(0)).span_context.span_id();
        let [first, nested] = [first, nested].map(|row| span(&row));
        for span in [&first, &nested] {
            assert_eq!(span.span_context.trace_id().to_bytes(), [10; 16]);
            assert_eq!(span.span_context.trace_state().header(), "k=v");
            assert!(span.span_context.is_sampled());
        }
        assert_eq!(first.parent_span_id.to_bytes(), [11; 8]);
        assert_eq!(first.span_context.span_id(), own);
        assert_eq!(nested.parent_span_id, own);
        let remote = [&first, &nested].map(|it| it.parent_span_is_remote);
        assert_eq!(remote, [true, false]);
        let unsampled = TaskRow {
            trace: Some(given("00")),
            ..row(0)
        };
        assert!(!is_sampled(&unsampled));
    }

    #[test]
    fn one_that_did_not_run_has_no_phases() {
        let mut row = row(0);
        row.run.as_mut().expect("it has ended").ran_us = None;
        let span = span(&row);
        assert_eq!((span.start_time, span.end_time), (time(1600), time(1600)));
        assert!(span.events.is_empty());
        assert!(
            span.attributes
                .iter()
                .all(|it| it.key.as_str() != "thread.id")
        );
    }
}
