//! The `omnidraft` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use runner::cli::{Cli, report_failure};
use tracing_subscriber::EnvFilter;

// Training constantly allocates and frees large tensors; this allocator keeps their pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status of a failure; clap uses the same for bad arguments.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // RUST_LOG=info prints more, such as the kernels that decode; downloads are always reported.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,hub=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(coloured())
        .init();
    match cli.execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", report_failure(&error));
            ExitCode::from(FAILED)
        }
    }
}

/// True if messages may be coloured: at a terminal, unless the user has disabled colours.
fn coloured() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !plain
}
