//! What this machine has: CPUs, memory, GPUs.
//!
//! Within the limits that somebody has put this process under: CPU affinity, cgroups.

use std::fs;
use std::path::Path;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Logical CPUs that this process may use, within its affinity and CPU quota.
    pub cpus: u64,
    /// Memory that this process may use, in bytes: the smallest of RAM and cgroup limits.
    pub memory_bytes: u64,
    /// GPUs that the NVIDIA driver lists.
    pub gpus: u64,
    /// What the driver calls the first of them.
    pub gpu_model: Option<String>,
    /// The host's name.
    pub name: String,
}

/// Memory left to everything else on the machine: a tenth, at least 256 MiB, at most 4 GiB.
const RESERVE_LEAST: u64 = 256 << 20;
const RESERVE_MOST: u64 = 4 << 30;

impl Machine {
    /// Looks around. What cannot be found out is taken to be the least: 1 CPU, 1 GiB, no GPU.
    pub fn detect() -> Self {
        let driver = Path::new("/proc/driver/nvidia/gpus");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            memory_bytes: memory(),
            gpus: gpus(driver),
            gpu_model: gpu_model(driver),
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// The memory that objects may take, in bytes: 30 % of what there is.
    pub fn object_memory_bytes(&self) -> u64 {
        (self.memory_bytes / 10 * 3) >> 20 << 20
    }

    /// The memory to offer to tasks, in bytes.
    pub fn task_memory_bytes(&self) -> u64 {
        let reserve = (self.memory_bytes / 10).clamp(RESERVE_LEAST, RESERVE_MOST);
        let offered = self
            .memory_bytes
            .saturating_sub(reserve)
            .max(self.memory_bytes / 2);
        // Whole MiB read better wherever the amount is shown.
        (offered >> 20 << 20).max(offered.min(1 << 20))
    }
}

fn memory() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let ram = read(Path::new("/proc/meminfo")).and_then(|text| meminfo_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = cgroup_limit_files(&groups).into_iter();
    let limits = limits.filter_map(|path| read(path.as_ref())?.trim().parse::<u64>().ok());
    limits.chain(ram).min().unwrap_or(1 << 30)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The files that hold memory limits of our group and those above it, for both versions of
/// cgroups.
fn cgroup_limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
    }
    files
}

fn gpus(driver: &Path) -> u64 {
    fs::read_dir(driver).map_or(0, |entries| entries.flatten().count() as u64)
}

/// The model of the GPU whose address on the bus is the lowest.
fn gpu_model(driver: &Path) -> Option<String> {
    let entries = fs::read_dir(driver).ok()?;
    let first = entries.flatten().map(|entry| entry.path()).min()?;
    let about = fs::read_to_string(first.join("information")).ok()?;
    let model = about.lines().find_map(|line| line.strip_prefix("Model:"))?;
    let model = model.trim();
    // The driver does not know those that it cannot use.
    (!model.is_empty() && model != "Unknown").then(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something() {
        let machine = Machine::detect();
        assert!(machine.cpus > 0);
        assert!(machine.task_memory_bytes() > 0);
        assert!(machine.task_memory_bytes() <= machine.memory_bytes);
    }

    #[test]
    fn objects_get_three_tenths_and_tasks_all_but_a_reserve() {
        let with = |memory_bytes| Machine {
            memory_bytes,
            ..Machine::detect()
        };
        let shares = |bytes| {
            let machine = with(bytes);
            (machine.object_memory_bytes(), machine.task_memory_bytes())
        };
        // In whole MiB, downwards.
        assert_eq!(shares(1000 << 20), (300 << 20, 744 << 20));
        assert_eq!(shares((1000 << 20) - 1), (299 << 20, 743 << 20));
        assert_eq!(shares(10 << 30), (3 << 30, 9 << 30));
        assert_eq!(shares(100 << 30), (30 << 30, 96 << 30));
        assert_eq!(shares(256 << 20), (76 << 20, 128 << 20));
    }

    #[test]
    fn limits_of_all_groups_above_count() {
        let files = cgroup_limit_files("0::/user.slice/app\n");
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/user.slice/app/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        let files = cgroup_limit_files("5:cpu,memory:/docker/x\n4:pids:/y");
        assert_eq!(files.len(), 3);
        assert_eq!(
            files[0],
            "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"
        );
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(
            meminfo_total("MemTotal:       16 kB\nMemFree: 1 kB"),
            Some(16384)
        );
        assert_eq!(meminfo_total("garbage"), None);
    }

    #[test]
    fn gpus_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(gpus(&dir.path().join("none")), 0);
        for bus in ["0000:01:00.0", "0000:02:00.0"] {
            fs::create_dir(dir.path().join(bus)).unwrap();
        }
        assert_eq!(gpus(dir.path()), 2);
    }

    #[test]
    fn the_first_gpu_has_a_model() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(gpu_model(&dir.path().join("none")), None);
        assert_eq!(gpu_model(dir.path()), None);
        let say = |bus: &str, about: &str| {
            let folder = dir.path().join(bus);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("information"), about).unwrap();
        };
        say("0000:02:00.0", "Model: \t\t Tesla T4\nIRQ:   \t\t 12\n");
        assert_eq!(gpu_model(dir.path()).as_deref(), Some("Tesla T4"));
        say(
            "0000:01:00.0",
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 11\n",
        );
        let model = gpu_model(dir.path());
        assert_eq!(model.as_deref(), Some("NVIDIA H100 80GB HBM3"));
        for nothing in ["", "IRQ: 11\n", "Model: \n", "Model: \t\t Unknown\n"] {
            say("0000:01:00.0", nothing);
            assert_eq!(gpu_model(dir.path()), None, "{nothing:?}");
        }
    }
}
