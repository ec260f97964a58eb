//! How large a scenario may be. What is above a limit is refused with an error that names it.

/// The largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 64 << 20;
/// The longest name of a node or task, in bytes, without the number of an instance.
pub const NAME_BYTES_MAX: usize = 63;
/// The most instances of tasks, in all.
pub const TASKS_MAX: u64 = 10_000_000;
/// The most nodes, with those that events add.
pub const NODES_MAX: u64 = 100_000;
/// The most units with ids (cores, devices, …) of all nodes and events together.
pub const IDS_MAX: u64 = 100_000_000;
/// The most events.
pub const EVENTS_MAX: u64 = 1_000_000;
/// The latest time and the longest duration, in milliseconds: 100 years of 365.25 days.
pub const TIME_MS_MAX: u64 = 36_525 * 86_400_000;
/// The latest end of everything, in milliseconds: what a [`crate::time::Instant`] holds.
pub const HORIZON_MS_MAX: u64 = u64::MAX / 1_000;
/// The most arguments of a task.
pub const ARGS_MAX: u64 = 1_000;
/// The largest argument, in bytes: 1 PiB.
pub const ARG_BYTES_MAX: u64 = 1 << 50;
/// The most alternatives of a task, besides its `resources`.
pub const ALTERNATIVES_MAX: u64 = 16;
/// The highest priority; the lowest is this, negative.
pub const PRIORITY_MAX: i64 = 1_000_000_000;
/// The most retries that can be asked for; no limit is the default.
pub const RETRIES_MAX: u64 = 1_000_000;
