//! What the kernel says of this process, under the names that Prometheus' own clients use.

use std::fs;

use super::text::Text;

/// The unit of times in `/proc`, whatever the kernel's own clock: part of the kernel's promises.
const TICKS_PER_SECOND: u64 = 100;

/// Adds what can be read; what cannot is left out.
pub(super) fn add(text: &mut Text) {
    if let Some((cpu_ticks, threads)) = stat() {
        let (seconds, rest) = (cpu_ticks / TICKS_PER_SECOND, cpu_ticks % TICKS_PER_SECOND);
        text.one(
            "process_cpu_seconds_total",
            "Processor time that the process has used.",
            format_args!("{seconds}.{rest:02}"),
        );
        text.one("process_threads", "Threads of the process.", threads);
    }
    if let Some(bytes) = resident_bytes() {
        text.one(
            "process_resident_memory_bytes",
            "Memory of the process that is in RAM, objects in its store included.",
            bytes,
        );
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        text.one(
            "process_open_fds",
            "Files and sockets that the process has open.",
            files.count(),
        );
    }
}

/// Processor time in ticks, and threads.
fn stat() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    parse_stat(&stat)
}

fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    // The program's name is in parentheses and may have any character.
    let (_, rest) = stat.rsplit_once(')')?;
    // From the third field on: user time is the 14th, system time the 15th, threads the 20th.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((field(14)?.saturating_add(field(15)?), field(20)?))
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 9 0 100 5 6\n";
        assert_eq!(parse_stat(stat), Some((300, 9)));
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert!(stat_is_there());
    }

    fn stat_is_there() -> bool {
        stat().is_some_and(|(_, threads)| threads > 0) && resident_bytes().is_some_and(|it| it > 0)
    }
}
