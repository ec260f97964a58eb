//! When an attempt ran, and when each of its phases began.
//!
//! Times are in microseconds since 1970, by the clock of the node where the task was submitted.

use crate::wire::Run;

/// The phases of an attempt, in their order.
pub const PHASES: [&str; 6] = ["arguments", "sandbox", "run", "blocked", "paused", "result"];

/// When an attempt began; one that did not run, when it ended.
pub fn start_us(run: &Run) -> u64 {
    run.ended_us.saturating_sub(run.ran_us.unwrap_or(0))
}

/// When each of [`PHASES`] began, and when the last ended. What does not fit into the attempt is cut. Only the sums of
/// all times that it was blocked and paused are known: they stand behind the run.
pub fn phases(run: &Run) -> [u64; 7] {
    let (start, end, phases) = (start_us(run), run.ended_us, &run.phases);
    let sandbox = end.min(start.saturating_add(phases.arguments_us.into()));
    let itself = end.min(sandbox.saturating_add(phases.sandbox_us.into()));
    let result = itself.max(end.saturating_sub(phases.result_us.into()));
    let paused = itself.max(result.saturating_sub(phases.paused_us.into()));
    let blocked = itself.max(paused.saturating_sub(phases.blocked_us.into()));
    [start, sandbox, itself, blocked, paused, result, end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Phases;

    #[test]
    fn phases_follow_each_other_and_what_does_not_fit_is_cut() {
        let run = |ran_us: u64| Run {
            waited_us: 1,
            ran_us: Some(ran_us),
            ended_us: 1000 + ran_us,
            phases: Phases {
                thread: 1,
                arguments_us: 5,
                sandbox_us: 10,
                blocked_us: 10,
                paused_us: 20,
                result_us: 10,
            },
            memory_peak_bytes: 7,
        };
        assert_eq!(
            phases(&run(100)),
            [1000, 1005, 1015, 1060, 1070, 1090, 1100]
        );
        assert_eq!(phases(&run(8)), [1000, 1005, 1008, 1008, 1008, 1008, 1008]);
    }
}
