//! Notes what the program is built from, for the manifests of its runs.

use std::process::Command;

/// The workspace, from the folder of this package.
const ROOT: &str = "../..";

fn main() {
    // Asked when it runs, in the package's folder: this program may have been copied with a target folder.
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        output(command.args(["-C", ROOT]).args(arguments))
    };
    // Whatever the program is made of: a change there may change commit or state of the tree.
    for watched in ["crates", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={ROOT}/{watched}");
    }
    for watched in ["HEAD", "refs/heads", "packed-refs"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", watched]);
        if let Some(path) = path.filter(|path| std::fs::exists(path).unwrap_or(false)) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
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
    let features = std::env::var("CARGO_CFG_FEATURE").unwrap_or_default();
    println!("cargo::rustc-env=OMNIDRAFT_FEATURES={features}");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version")).unwrap_or_default();
    println!("cargo::rustc-env=OMNIDRAFT_RUSTC={version}");
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
