//! The build of this program.

use results::BuildInfo;

/// Version, commit, compiler and features of this program at build time.
pub fn info() -> BuildInfo {
    let known = |text: &str| match text {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    };
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_commit: known(env!("OMNIDRAFT_GIT_COMMIT")),
        git_dirty: match env!("OMNIDRAFT_GIT_DIRTY") {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        rustc: known(env!("OMNIDRAFT_RUSTC")),
        features: env!("OMNIDRAFT_FEATURES")
            .split(',')
            .filter(|feature| !matches!(*feature, "" | "default"))
            .map(str::to_owned)
            .collect(),
    }
}
