//! A real Slurm of one node, which a script of the repository starts.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable that makes tests fail instead of skip if Slurm is missing.
const REQUIRED: &str = "OMNIDRAFT_REQUIRE_SLURM";

/// True if Slurm's programs are installed. If they are not, says that a test is skipped.
pub fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    let found = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
    let mut programs = ["sbatch", "slurmctld", "slurmd", "munged"].into_iter();
    if programs.all(found) {
        return true;
    }
    let required = env::var_os(REQUIRED).is_some_and(|value| value == "1");
    assert!(
        !required,
        "{REQUIRED}=1, but slurm-wlm and munge are not installed"
    );
    // println! would not be shown for a test that passes.
    let text = "skipped: 1 test, Slurm is not installed (Debian: slurm-wlm, munge)";
    drop(writeln!(std::io::stderr(), "{text}"));
    false
}

/// A Slurm that ends with the test.
pub struct Cluster(PathBuf);

impl Cluster {
    /// Starts a Slurm with all its files in `folder`.
    pub fn start(folder: PathBuf) -> Self {
        let cluster = Self(folder);
        let mut command = cluster.script("start");
        command.env("SLURM_NODE_CPUS", "2").stdout(Stdio::null());
        assert!(command.status().unwrap().success(), "Slurm did not start");
        cluster
    }

    /// The file that `SLURM_CONF` names for Slurm's programs.
    pub fn conf(&self) -> PathBuf {
        self.0.join("slurm.conf")
    }

    fn script(&self, what: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm_one_node.sh");
        let mut command = Command::new(script);
        command.arg(what).arg(&self.0);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.script("stop").status();
    }
}
