//! Model folders with and without their weights.

use std::path::{Path, PathBuf};

use models::{ModelFolder, ModelText};
use vocab_align::TargetId;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/L")
}

fn told(path: &Path) -> String {
    let error = ModelText::<TargetId>::load(path).err();
    error.map(|error| format!("{error:#}")).unwrap_or_default()
}

#[test]
fn the_text_of_a_model_needs_no_weights() -> Result {
    let whole: ModelFolder<TargetId> = ModelFolder::load(&shipped())?;
    let folder = tempfile::tempdir()?;
    for entry in std::fs::read_dir(shipped())? {
        let path = entry?.path();
        let name = path.file_name().ok_or("no name")?;
        if name != "model.safetensors" {
            std::fs::copy(&path, folder.path().join(name))?;
        }
    }
    assert!(ModelFolder::<TargetId>::load(folder.path()).is_err());
    let text: ModelText<TargetId> = ModelText::load(folder.path())?;
    let prompt = text.template.render("What is 2 + 2?")?;
    assert_eq!(text.encode(&prompt)?, whole.encode(&prompt)?);
    assert_eq!(text.stop_tokens(), whole.stop_tokens());
    assert!(!text.stop_tokens().is_empty());
    assert_eq!(whole.path, shipped());
    assert_eq!(whole.padded(1, 8).encode(&prompt)?, text.encode(&prompt)?);
    Ok(())
}

#[test]
fn what_is_missing_or_too_large_is_told() -> Result {
    let folder = tempfile::tempdir()?;
    let nowhere = told(&folder.path().join("nowhere"));
    assert!(
        nowhere.ends_with("nowhere: no such model folder"),
        "{nowhere}"
    );
    let empty = told(folder.path());
    assert!(empty.contains("config.json"), "{empty}");
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(shipped().join("config.json"))?)?;
    let mut small = config.clone();
    small["vocab_size"] = 300.into();
    std::fs::write(folder.path().join("config.json"), small.to_string())?;
    let words = told(folder.path());
    assert!(words.contains("tokenizer.json"), "{words}");
    let tokenizer = "tokenizer.json";
    std::fs::copy(shipped().join(tokenizer), folder.path().join(tokenizer))?;
    let large = told(folder.path());
    assert!(large.contains("vocab_size = 300"), "{large}");
    Ok(())
}
