//! The `omnidraft` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use runner::cli::{Cli, report_failure};
use tracing_subscriber::EnvFilter;

// Training allocates and frees large tensors all the time; this allocator keeps their pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status of anything that could not be done; clap uses the same for bad arguments.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // RUST_LOG=info says more, which kernels decode for example; downloads are told anyway.
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

/// True where messages may have colours: at a terminal whose user has not said otherwise.
fn coloured() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !plain
}
