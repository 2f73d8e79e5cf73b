//! Notes what the program is built from, for the manifests of its runs.

use std::path::Path;
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Whatever the program is made of: a change there may change commit or state of the tree.
    for watched in [
        "crates",
        "Cargo.toml",
        "Cargo.lock",
        ".git/HEAD",
        ".git/refs/heads",
    ] {
        let path = root.join(watched);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        output(command.arg("-C").arg(&root).args(arguments))
    };
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    println!("cargo::rustc-env=OMNIDRAFT_GIT_COMMIT={commit}");
    // Only what is compiled counts: results and pages may change while a binary stays what it is.
    let sources = [
        "status",
        "--porcelain",
        "--",
        "crates",
        "Cargo.toml",
        "Cargo.lock",
    ];
    let dirty = git(&sources).map_or("unknown", |changes| match changes.is_empty() {
        true => "false",
        false => "true",
    });
    println!("cargo::rustc-env=OMNIDRAFT_GIT_DIRTY={dirty}");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version")).unwrap_or_default();
    println!("cargo::rustc-env=OMNIDRAFT_RUSTC={version}");
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
