//! Model folders with and without their weights.

use std::error::Error;
use std::path::{Path, PathBuf};

use lm::{EngineSettings, KvType, LmError, WeightType};
use models::{Engine, FolderError, ModelFolder, ModelText, ModelsError, passed_on};
use spec_decode::LanguageModel;
use vocab_align::TargetId;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/L")
}

fn told(path: &Path) -> String {
    let error = ModelText::<TargetId>::load(path).err();
    error.map(|error| error.to_string()).unwrap_or_default()
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
    assert_eq!(whole.padded(8).encode(&prompt)?, text.encode(&prompt)?);
    Ok(())
}

/// A text needs no decoder: the model may be of an architecture that this program does not know.
#[test]
fn the_text_of_an_unknown_model_is_read_alone() -> Result {
    let known: ModelText<TargetId> = ModelText::load(&shipped())?;
    let folder = tempfile::tempdir()?;
    models::copy_text(&shipped(), folder.path())?;
    let config = r#"{"model_type": "novel", "eos_token_id": 7}"#;
    std::fs::write(folder.path().join("config.json"), config)?;
    assert!(ModelText::<TargetId>::load(folder.path()).is_err());
    let alone = |path: &Path| ModelText::<TargetId>::alone(path, usize::MAX, 512);
    let (text, columns) = alone(folder.path())?;
    assert_eq!(columns, known.vocabulary.len());
    let prompt = known.template.render("What is 2 + 2?")?;
    assert_eq!(text.template.render("What is 2 + 2?")?, prompt);
    assert_eq!(text.encode(&prompt)?, known.encode(&prompt)?);
    let mut stop = known.stop_tokens();
    stop.insert(TargetId(7));
    assert_eq!(text.stop_tokens(), stop);
    // The columns of a known model are those of its configuration.
    let (text, columns) = alone(&shipped())?;
    assert_eq!((columns, text.stop_tokens()), (8192, known.stop_tokens()));
    let nowhere = alone(&folder.path().join("nowhere")).err();
    let nowhere = nowhere.ok_or("there is a model")?;
    assert!(passed_on(&nowhere).is::<FolderError>(), "{nowhere}");
    Ok(())
}

/// Engines of a folder share its weights; the context is the prompt's budget, the answer and a
/// draft, or the requested length.
#[test]
fn engines_of_a_folder_share_and_hold_what_they_need() -> Result {
    let mut folder: ModelFolder<TargetId> = ModelFolder::load(&shipped())?;
    let settings = EngineSettings::new(WeightType::Bf16, 1);
    let longest = folder.config().max_position_embeddings;
    let (mut one, mut other) = (folder.engine(settings)?, folder.engine(settings)?);
    assert_eq!(one.max_len(), longest);
    let logits = |engine: &mut Engine| -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        engine.truncate(0);
        engine.forward(&[5, 6], &mut logits)?;
        Ok(logits)
    };
    let short = EngineSettings {
        context: Some(40),
        ..settings
    };
    lm::conformance::check(|| folder.engine(short).unwrap())?;
    let (first, second) = (logits(&mut one)?, logits(&mut other)?);
    assert_eq!(first, second);
    let padded = folder.padded(8);
    let columns = |folder: &ModelFolder<TargetId>| folder.config().intermediate_size;
    assert_eq!(columns(&padded), columns(&folder) + 8);
    assert_eq!(logits(&mut padded.engine(settings)?)?, first);
    // New weights of one engine leave the other as it was.
    let mut learnt = folder.checkpoint()?;
    for tensor in learnt.tensors.values_mut() {
        tensor.data.iter_mut().for_each(|x| *x *= 1.5);
    }
    one.load_weights(&learnt)?;
    assert_ne!(logits(&mut one)?, first);
    assert_eq!(logits(&mut other)?, first);
    assert_eq!(logits(&mut folder.engine(settings)?)?, first);

    let budget = folder.template.max_prompt_tokens();
    assert_eq!(
        folder.context_for(10),
        (budget + 10 + models::DRAFT_ROOM).min(longest)
    );
    folder.text.template.limit_prompts(20);
    assert_eq!(folder.context_for(10), 30 + models::DRAFT_ROOM);
    let bounded = EngineSettings {
        context: Some(40),
        kv: KvType::F16,
        ..settings
    };
    assert_eq!(folder.engine(bounded)?.max_len(), 40);
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
    assert!(
        large.contains("300 rows") && large.contains("vocab_size"),
        "{large}"
    );
    Ok(())
}

/// Hints are found by the type of a cause: an error that is passed on keeps its own.
#[test]
fn an_error_passed_on_is_found_in_a_chain() -> Result {
    let nowhere = ModelText::<TargetId>::load("nowhere".as_ref()).err();
    let nowhere = nowhere.ok_or("there is a model")?;
    assert!(passed_on(&nowhere).is::<FolderError>());
    let error = ModelsError::Engine {
        path: "m".into(),
        source: Box::new(LmError::OtherModel.into()),
    };
    assert!(passed_on(&error).is::<ModelsError>());
    assert_eq!(error.to_string(), "m: the decode engine cannot be built");
    let cause = error.source().ok_or("no cause")?;
    assert_eq!(cause.to_string(), LmError::OtherModel.to_string());
    assert!(passed_on(cause).is::<LmError>());
    Ok(())
}
