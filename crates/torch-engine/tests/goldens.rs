//! The engine compared with the results of Hugging Face transformers that the other engines are
//! compared with, for every architecture, rotation and window.

use crate::golden_support;
use crate::support;

use golden_support::goldens;
use torch_engine::{Torch, TorchOptions};

#[test]
fn logits_and_greedy_continuations_are_those_of_the_other_engines() {
    let Some(python) = support::python() else {
        return;
    };
    let mut torch: Option<Torch> = None;
    for golden in goldens() {
        // Its configuration has a tower for images, whose weights are not in the file.
        if golden.name == "gemma3-nested" {
            continue;
        }
        let files = tempfile::tempdir().unwrap();
        golden_support::write_files(&golden.folder, "", files.path());
        let options = TorchOptions {
            max_len: Some(golden.context),
            ..support::options(files.path())
        };
        let loaded = match torch.take() {
            Some(torch) => torch.load_another(&options),
            None => Torch::load_with(&python, &options),
        };
        let loaded = loaded.unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        let facts = loaded.facts();
        assert_eq!(facts.vocab_size, golden.checkpoint.config.vocab_size);
        assert_eq!(facts.max_len, golden.context);
        let mut engine = loaded.sequence(usize::MAX).unwrap();
        let (_, error) = golden.check_close(&mut engine, &facts.architecture);
        println!("{} {}: {error:.1e}", golden.name, facts.architecture);
        drop(engine);
        torch = Some(loaded);
    }
}
