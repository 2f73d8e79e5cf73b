//! A Python with torch, or the reason why there is none.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::process::Command;

use torch_engine::{Dtype, Interpreter, Torch, TorchOptions};

/// The usual Python, if it has torch and transformers. Without them the calling test is skipped,
/// unless OMNIDRAFT_REQUIRE_TORCH is 1.
pub fn python() -> Option<Interpreter> {
    let interpreter = Interpreter {
        worker: None,
        ..Interpreter::from_env()
    };
    let mut command = Command::new(&interpreter.python);
    let found = command.args(["-c", "import torch, transformers"]).output();
    let fault = match found {
        Ok(output) if output.status.success() => return Some(interpreter),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let required = std::env::var_os("OMNIDRAFT_REQUIRE_TORCH").is_some_and(|x| x == "1");
    assert!(!required, "{fault}");
    let reason = fault.trim().lines().last().unwrap_or_default();
    println!("skipped: no torch and transformers: {reason}");
    None
}

pub fn options(folder: &Path) -> TorchOptions {
    TorchOptions {
        dtype: Dtype::F32,
        ..TorchOptions::new(folder.to_str().unwrap())
    }
}

/// A worker with the model of a folder, in f32.
pub fn torch(interpreter: &Interpreter, folder: &Path, max_len: usize) -> Torch {
    let options = TorchOptions {
        max_len: Some(max_len),
        ..options(folder)
    };
    Torch::load_with(interpreter, &options).unwrap_or_else(|error| panic!("{error}"))
}
