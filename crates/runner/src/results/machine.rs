//! What the run ran on and from: machine, build, clock. Everything degrades to `unknown`.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const UNKNOWN: &str = "unknown";

/// The program that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Version of the `runner` crate.
    pub version: String,
    /// Git commit, forty hexadecimal digits, or `unknown`.
    pub git_commit: String,
    /// Whether the working tree differed from the commit; absent when unknown.
    pub git_dirty: Option<bool>,
    /// `rustc --version`, or `unknown`.
    pub rustc: String,
    /// Cargo features of the build.
    pub features: Vec<String>,
}

impl BuildInfo {
    /// Asks the build's environment (`OMNIDRAFT_GIT_COMMIT`, `OMNIDRAFT_GIT_DIRTY`, `OMNIDRAFT_RUSTC` at compile
    /// time), then `git` and `rustc`.
    pub fn collect() -> Self {
        let root = source_root();
        let commit = option_env!("OMNIDRAFT_GIT_COMMIT")
            .map(str::to_owned)
            .or_else(|| git(root.as_deref()?, &["rev-parse", "HEAD"]));
        let dirty = match option_env!("OMNIDRAFT_GIT_DIRTY") {
            Some(text) => Some(text == "true"),
            None => root
                .as_deref()
                .and_then(|root| git(root, &["status", "--porcelain"]))
                .map(|changes| !changes.is_empty()),
        };
        let rustc = option_env!("OMNIDRAFT_RUSTC")
            .map(str::to_owned)
            .or_else(|| output(Command::new("rustc").arg("--version")));
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_commit: commit.unwrap_or_else(|| UNKNOWN.to_owned()),
            git_dirty: dirty,
            rustc: rustc.unwrap_or_else(|| UNKNOWN.to_owned()),
            features: if cfg!(feature = "wgpu") {
                vec!["wgpu".to_owned()]
            } else {
                Vec::new()
            },
        }
    }

    /// Short commit for footers: `1a2b3c4d5e`, with `+` when the working tree was dirty.
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

/// The repository's root, when the program is run from inside it or lies in its build folder.
fn source_root() -> Option<PathBuf> {
    let from_folder = std::env::current_dir().ok();
    let from_program = std::env::current_exe().ok();
    [from_folder, from_program]
        .into_iter()
        .flatten()
        .find_map(|start| {
            start
                .ancestors()
                .find(|dir| dir.join("crates/runner/Cargo.toml").is_file())
                .map(Path::to_path_buf)
        })
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    output(Command::new("git").arg("-C").arg(root).args(arguments))
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The machine the run was measured on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Processor model.
    pub cpu: String,
    /// Logical cores this process may use.
    pub cores: usize,
    /// Physical memory in bytes, 0 when unknown.
    pub memory_bytes: u64,
    /// Operating system and kernel.
    pub os: String,
}

impl MachineInfo {
    /// Asks the operating system.
    pub fn collect() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let os = format!(
            "{} {} {}",
            std::env::consts::OS,
            kernel.trim(),
            std::env::consts::ARCH
        );
        Self {
            cpu: proc_field("/proc/cpuinfo", "model name").unwrap_or_else(|| UNKNOWN.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: proc_field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            os: os.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// One line for footers: `2 x AMD EPYC 7B13, 23 GB, linux 6.1 x86_64`.
    pub fn summary(&self) -> String {
        let memory = match self.memory_bytes {
            0 => String::new(),
            bytes => format!(", {:.0} GB", bytes as f64 / 1e9),
        };
        format!("{} x {}{memory}, {}", self.cores, self.cpu, self.os)
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

/// Now, as RFC 3339 in UTC with seconds.
pub(super) fn utc_now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    rfc3339(seconds)
}

/// Seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
fn rfc3339(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while days >= year_length(year) {
        days -= year_length(year);
        year += 1;
    }
    let mut month = 0;
    while days >= month_length(year, month) {
        days -= month_length(year, month);
        month += 1;
    }
    format!(
        "{year:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        month + 1,
        days + 1,
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

fn is_leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

fn year_length(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn month_length(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month % 12] + u64::from(month == 1 && is_leap(year))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_hand() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(rfc3339(1_735_689_600), "2025-01-01T00:00:00Z");
    }

    #[test]
    fn a_dirty_tree_is_marked() {
        let mut build = BuildInfo {
            version: "0.1.0".into(),
            git_commit: "0123456789abcdef".into(),
            git_dirty: Some(true),
            rustc: UNKNOWN.into(),
            features: Vec::new(),
        };
        assert_eq!(build.short_commit(), "0123456789+");
        build.git_dirty = None;
        build.git_commit = UNKNOWN.into();
        assert_eq!(build.short_commit(), "unknown");
    }

    #[test]
    fn collecting_never_fails() {
        assert!(!BuildInfo::collect().git_commit.is_empty());
        assert!(MachineInfo::collect().cores >= 1);
    }
}
