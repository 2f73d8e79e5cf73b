//! A Python with torch, or the reason why there is none.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use torch_engine::{Dtype, Interpreter, Torch, TorchError, TorchOptions};

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

/// Options for the model of a folder, in f32.
pub fn options(folder: &Path) -> TorchOptions {
    TorchOptions {
        dtype: Dtype::F32,
        ..TorchOptions::new(folder.to_str().unwrap())
    }
}

/// Time limit of a call to a toy.
pub const LIMIT: Duration = Duration::from_secs(5);

/// A worker without torch (toy_worker.py); it fails to start in the way that `fault` names.
pub struct Toy {
    interpreter: Interpreter,
    _folder: tempfile::TempDir,
}

impl Toy {
    /// `None`, and the calling test is skipped, without a Python.
    pub fn new(fault: &str) -> Option<Self> {
        let interpreter = Interpreter::from_env();
        if let Err(error) = Command::new(&interpreter.python).arg("--version").output() {
            println!("skipped: no Python: {error}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toy_worker.py");
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/torch_worker.py");
        let source = real.to_str().unwrap();
        let text = format!(
            "SOURCE = {source:?}\nFAULT = {fault:?}\n{}",
            include_str!("toy_worker.py")
        );
        std::fs::write(&file, text).unwrap();
        let interpreter = Interpreter {
            worker: Some(file),
            ..interpreter
        };
        Some(Self {
            interpreter,
            _folder: folder,
        })
    }

    pub fn options(&self, name: &str) -> TorchOptions {
        TorchOptions {
            timeout: LIMIT,
            ..TorchOptions::new(name)
        }
    }

    pub fn load(&self, name: &str) -> Result<Torch, TorchError> {
        Torch::load_with(&self.interpreter, &self.options(name))
    }
}
