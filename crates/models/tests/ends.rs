//! Stop tokens, and the files that name them.

use std::path::Path;

use lm::LmConfig;
use models::{ModelText, ends};
use serde_json::{Value, json};
use vocab_align::{TargetId, Vocabulary};

fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join(name), value.to_string()).unwrap();
}

/// A folder with four tokens of text and five special ones, without weights.
fn folder(config: Value, generation: Option<Value>, tokenizer: Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut model = json!({
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 8, "max_position_embeddings": 64,
    });
    model
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    write(folder.path(), "config.json", &model);
    let names = ["<first>", "<halt>", "<|im_end|>", "<last>", "<far>"];
    let added: Vec<Value> = (4..)
        .zip(names)
        .map(|(id, name)| json!({"id": id, "content": name, "special": true}))
        .collect();
    let file = json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3}, "merges": []},
    });
    write(folder.path(), "tokenizer.json", &file);
    write(folder.path(), "tokenizer_config.json", &tokenizer);
    if let Some(generation) = generation {
        write(folder.path(), "generation_config.json", &generation);
    }
    folder
}

fn found(folder: &Path) -> Result<Vec<(u32, String)>, String> {
    let config = LmConfig::from_file(&folder.join("config.json")).map_err(|e| e.to_string())?;
    let file = folder.join("tokenizer.json");
    let vocabulary: Vocabulary<TargetId> =
        Vocabulary::from_file_for(&file, config.vocab_size).unwrap();
    let ends = ends(
        folder,
        &config.eos_token_ids,
        config.vocab_size,
        &vocabulary,
    )
    .map_err(|e| e.to_string())?;
    let text: ModelText<TargetId> = ModelText::load(folder).unwrap();
    let ids: Vec<u32> = ends.iter().map(|end| end.id.0).collect();
    let stop: Vec<u32> = text.stop_tokens().iter().map(|id| id.0).collect();
    assert_eq!(ids, stop);
    Ok(ends
        .iter()
        .map(|end| (end.id.0, end.from.join(", ")))
        .collect())
}

#[test]
fn ends_come_from_every_file() {
    let by_name = (6, "its name".to_owned());
    let generation = "generation_config.json".to_owned();
    for (config, generation_config, tokenizer, expected) in [
        (json!({}), None, json!({}), vec![by_name.clone()]),
        (
            json!({"eos_token_id": 7}),
            Some(json!({"eos_token_id": [7, 5], "bos_token_id": 4, "temperature": 0.6})),
            json!({}),
            vec![
                (5, generation.clone()),
                by_name.clone(),
                (7, format!("config.json, {generation}")),
            ],
        ),
        (
            json!({"eos_token_id": [5, 7]}),
            Some(json!({})),
            json!({}),
            vec![
                (5, "config.json".into()),
                by_name.clone(),
                (7, "config.json".into()),
            ],
        ),
        (
            json!({}),
            Some(json!({"eos_token_id": 5})),
            json!({}),
            vec![(5, generation), by_name.clone()],
        ),
        (
            json!({}),
            None,
            json!({"eos_token": "<last>"}),
            vec![by_name.clone(), (7, "the tokenizer".into())],
        ),
        // Ids outside of the vocabulary are left out.
        (
            json!({"eos_token_id": -1}),
            Some(json!({"eos_token_id": [8, 900, -1]})),
            json!({"eos_token": "<far>"}),
            vec![by_name],
        ),
    ] {
        let folder = folder(config.clone(), generation_config, tokenizer);
        assert_eq!(found(folder.path()), Ok(expected), "{config}");
    }
}

#[test]
fn what_is_no_end_is_refused_by_name() {
    for (generation, what) in [
        (json!({"eos_token_id": "x"}), "eos_token_id"),
        (json!({"eos_token_id": [5, 1.5]}), "1.5 is no token id"),
    ] {
        let folder = folder(json!({}), Some(generation), json!({}));
        let config = LmConfig::from_file(&folder.path().join("config.json")).unwrap();
        let vocabulary: Vocabulary<TargetId> =
            Vocabulary::from_file(&folder.path().join("tokenizer.json")).unwrap();
        let error = ends(
            folder.path(),
            &config.eos_token_ids,
            config.vocab_size,
            &vocabulary,
        )
        .unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("generation_config.json") && error.contains(what),
            "{error}"
        );
    }
}

/// A fine-tune may end its turns with a token of its own beside that of the model that it began as.
#[test]
fn every_token_of_a_role_ends_an_answer() {
    let folder = folder(json!({}), None, json!({"eos_token": "<|im_end|>"}));
    let file = folder.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("<halt>", "<|eot_id|>")).unwrap();
    let by_name = |id: u32| (id, "its name".to_owned());
    assert_eq!(found(folder.path()), Ok(vec![by_name(5), by_name(6)]));
    let text = ModelText::<TargetId>::of_tokenizer(folder.path(), 64).unwrap();
    let stop: Vec<u32> = text.stop_tokens().iter().map(|id| id.0).collect();
    assert_eq!(stop, [5, 6]);
}
