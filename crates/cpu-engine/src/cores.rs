//! Default number of threads for decoding.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

/// Least capacity of a core that takes part, relative to the fastest one. The threshold is high
/// because all threads wait for the slowest at the end of every product.
const FAST: f64 = 0.75;

/// Number of logical cores that this process may use. If Linux reports cores of different kinds,
/// those made to save energy are left out.
pub fn default_threads() -> usize {
    let all = std::thread::available_parallelism().map_or(1, |n| n.get());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    allowed
        .and_then(|allowed| fast_cores(Path::new("/sys/devices"), &cpus(allowed)))
        .map_or(all, |fast| fast.min(all))
}

/// Number of fast cores among `allowed`; `None` if the system does not tell cores apart, or if no
/// fast one is allowed.
fn fast_cores(devices: &Path, allowed: &BTreeSet<usize>) -> Option<usize> {
    // Hybrid x86 processors have a device for each kind of core.
    if let Ok(list) = std::fs::read_to_string(devices.join("cpu_core/cpus")) {
        let fast = cpus(&list).intersection(allowed).count();
        return (fast > 0).then_some(fast);
    }
    // Other hybrid processors report a capacity for each core.
    let capacities = allowed.iter().map(|cpu| {
        let file = devices.join(format!("system/cpu/cpu{cpu}/cpu_capacity"));
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().parse::<f64>().ok()
    });
    let capacities: Vec<f64> = capacities.collect::<Option<_>>()?;
    let most = capacities.iter().copied().fold(0.0, f64::max);
    Some(capacities.iter().filter(|&&c| c >= FAST * most).count()).filter(|&fast| fast > 0)
}

/// The numbers of a list such as `0-3,8`. Parts that cannot be read are left out.
fn cpus(list: &str) -> BTreeSet<usize> {
    let range = |part: &str| -> Option<RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(
            cpus("\t0-2,7\n").into_iter().collect::<Vec<_>>(),
            [0, 1, 2, 7]
        );
        assert!(cpus("x,3-,5-4").is_empty());
    }

    #[test]
    fn slow_cores_are_left_out() {
        let none = tempfile::tempdir().unwrap();
        assert_eq!(fast_cores(none.path(), &cpus("0-3")), None);

        let two_kinds = tempfile::tempdir().unwrap();
        write(two_kinds.path(), "cpu_core/cpus", "0-3\n");
        write(two_kinds.path(), "cpu_atom/cpus", "4-11\n");
        assert_eq!(fast_cores(two_kinds.path(), &cpus("0-11")), Some(4));
        assert_eq!(fast_cores(two_kinds.path(), &cpus("2-5")), Some(2));
        // A process that may use only slow cores uses them.
        assert_eq!(fast_cores(two_kinds.path(), &cpus("4-11")), None);

        let capacities = tempfile::tempdir().unwrap();
        for (cpu, capacity) in [446, 446, 871, 1024].into_iter().enumerate() {
            let file = format!("system/cpu/cpu{cpu}/cpu_capacity");
            write(capacities.path(), &file, &format!("{capacity}\n"));
        }
        assert_eq!(fast_cores(capacities.path(), &cpus("0-3")), Some(2));
        assert_eq!(fast_cores(capacities.path(), &cpus("0-1")), Some(2));
        assert_eq!(fast_cores(capacities.path(), &cpus("0-4")), None);
    }
}
