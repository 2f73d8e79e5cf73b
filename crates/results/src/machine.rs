//! The program's build and the machine of a cell. Unknown facts are `unknown`.

use serde::{Deserialize, Serialize};

const UNKNOWN: &str = "unknown";

/// The build of the program. Its build script provides these facts, so that they describe the
/// binary and not the folder in which it is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Version of the program.
    pub version: String,
    /// Git commit the binary was built from, forty hexadecimal digits, or `unknown`.
    pub git_commit: String,
    /// True if the sources differed from that commit; `None` if unknown.
    pub git_dirty: Option<bool>,
    /// `rustc --version` of the build, or `unknown`.
    pub rustc: String,
    /// Cargo features of the build.
    pub features: Vec<String>,
}

impl BuildInfo {
    /// A build of which only the version is known.
    pub fn unknown(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            git_commit: UNKNOWN.to_owned(),
            git_dirty: None,
            rustc: UNKNOWN.to_owned(),
            features: Vec::new(),
        }
    }

    /// Short commit for footers: `1a2b3c4d5e`, with `+` if the sources differed from it.
    pub fn short_commit(&self) -> String {
        let short: String = self.git_commit.chars().take(10).collect();
        let mark = if self.git_dirty == Some(true) {
            "+"
        } else {
            ""
        };
        format!("{short}{mark}")
    }
}

/// The machine of a cell, without names that identify it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Processor model, in the words of the operating system.
    pub cpu: String,
    /// Number of logical cores available to this process.
    pub cores: usize,
    /// Physical memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Operating system, kernel and architecture.
    pub os: String,
    /// Memory bandwidth measured before the start of the cell, in 10^9 bytes per second.
    #[serde(default)]
    pub bandwidth_gbs: Option<f64>,
    /// Instruction set that the engine's kernels use.
    #[serde(default)]
    pub kernels: Option<String>,
}

impl MachineInfo {
    /// Collects the facts from the operating system; the caller sets bandwidth and kernels.
    pub fn collect() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let os = format!(
            "{} {} {}",
            std::env::consts::OS,
            kernel.trim(),
            std::env::consts::ARCH
        );
        Self {
            cpu: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: proc_field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib.saturating_mul(1024)),
            os: os.split_whitespace().collect::<Vec<_>>().join(" "),
            bandwidth_gbs: None,
            kernels: None,
        }
    }

    /// A summary in one line: `2 x AMD EPYC 7B13, 24 GB at 17 GB/s, avx2, linux 6.1 x86_64`.
    pub fn summary(&self) -> String {
        let mut parts = vec![format!("{} x {}", self.cores, self.cpu)];
        let memory = match self.memory_bytes {
            0 => "memory".to_owned(),
            bytes => format!("{:.0} GB", bytes as f64 / 1e9),
        };
        match self.bandwidth_gbs {
            Some(speed) => parts.push(format!("{memory} at {speed:.0} GB/s")),
            None if self.memory_bytes > 0 => parts.push(memory),
            None => {}
        }
        parts.extend(self.kernels.clone());
        parts.push(self.os.clone());
        parts.join(", ")
    }
}

/// Name of the processor, with family and model where a virtual machine leaves nothing of it but
/// the make.
fn processor() -> String {
    let field = |key| proc_field("/proc/cpuinfo", key);
    let name = field("model name").unwrap_or_else(|| UNKNOWN.to_owned());
    let numbered = name.contains(|sign: char| sign.is_ascii_digit());
    match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) if !numbered => {
            format!("{name} (family {family}, model {model})")
        }
        _ => name,
    }
}

/// The first value of `key : value` in a file of the proc file system.
fn proc_field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The present time as RFC 3339 in UTC with whole seconds.
pub(crate) fn utc_now() -> String {
    let now = jiff::Timestamp::now();
    // A time near the end of the supported range keeps its fraction.
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_rfc_3339_in_utc() {
        let now = utc_now();
        assert_eq!(now.len(), "2026-01-02T03:04:05Z".len(), "{now}");
        assert!(now.ends_with('Z') && now.as_bytes()[10] == b'T', "{now}");
    }

    #[test]
    fn a_machine_is_one_line() {
        let mut machine = MachineInfo {
            cpu: "Synthetic CPU".into(),
            cores: 2,
            memory_bytes: 24_000_000_000,
            os: "linux 6.1 x86_64".into(),
            bandwidth_gbs: Some(17.2),
            kernels: Some("avx512".into()),
        };
        let line = "2 x Synthetic CPU, 24 GB at 17 GB/s, avx512, linux 6.1 x86_64";
        assert_eq!(machine.summary(), line);
        machine.bandwidth_gbs = None;
        machine.kernels = None;
        assert_eq!(
            machine.summary(),
            "2 x Synthetic CPU, 24 GB, linux 6.1 x86_64"
        );
    }
}
