//! Generation settings of a model's owner: used, without effect, set by a flag, or reported.

use std::error::Error;

use models::Generation;
use serde_json::{Value, json};

fn read(files: &[(&str, Value)]) -> Result<Generation, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in files {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    Generation::read(folder.path()).map_err(|error| error.to_string())
}

fn own(value: Value) -> Generation {
    read(&[("generation_config.json", value)]).unwrap()
}

fn keys(settings: &[models::Setting]) -> Vec<&str> {
    settings.iter().map(|own| own.key.as_str()).collect()
}

/// Every key by which transformers 5.24 changes the tokens of an answer, with a value that does.
#[test]
fn what_changes_answers_is_named() {
    for (key, value) in [
        ("bad_words_ids", json!([[7]])),
        ("begin_suppress_tokens", json!([7])),
        ("constraints", json!(["x"])),
        ("diversity_penalty", json!(0.5)),
        ("dola_layers", json!("high")),
        ("encoder_no_repeat_ngram_size", json!(2)),
        ("encoder_repetition_penalty", json!(1.5)),
        ("epsilon_cutoff", json!(0.1)),
        ("eta_cutoff", json!(0.1)),
        ("exponential_decay_length_penalty", json!([1, 5.0])),
        ("force_words_ids", json!([[7]])),
        // The id 0 is a token.
        ("forced_bos_token_id", json!(0)),
        ("forced_decoder_ids", json!([[1, 7]])),
        ("forced_eos_token_id", json!([0, 7])),
        ("guidance_scale", json!(1.5)),
        ("max_time", json!(5)),
        ("min_length", json!(6)),
        ("min_new_tokens", json!(4)),
        ("no_repeat_ngram_size", json!(3)),
        ("num_beam_groups", json!(2)),
        ("num_beams", json!(3)),
        ("penalty_alpha", json!(0.6)),
        ("repetition_penalty", json!(1.1)),
        ("sequence_bias", json!([[[7], -50.0]])),
        ("stop_strings", json!(["T"])),
        ("suppress_tokens", json!([7])),
        ("token_healing", json!(true)),
        ("top_h", json!(0.4)),
        ("typical_p", json!(0.9)),
        ("watermarking_config", json!({"greenlist_ratio": 0.25})),
    ] {
        let found = own(json!({ key: value, "eos_token_id": 7 }));
        assert_eq!(keys(&found.left_out), [key]);
        assert!(
            found.by_flag.is_empty() && found.unknown.is_empty(),
            "{key}"
        );
        let note = found.note(&[]).unwrap();
        let said = format!("generation_config.json asks for {key} {value}, which is not done");
        assert!(note.starts_with(&said), "{note}");
        assert_eq!(found.note(&[key]), None);
        // As in transformers, config.json is used if there is no other file, and only then.
        let config = ("config.json", json!({ key: value, "model_type": "llama" }));
        let older = read(std::slice::from_ref(&config)).unwrap();
        assert!(older.note(&[]).unwrap().starts_with("config.json asks for"));
        assert!(older.unknown.is_empty());
        let both = read(&[config, ("generation_config.json", json!({}))]).unwrap();
        assert_eq!(both.note(&[]), None, "{key}");
    }
    let found = own(json!({"repetition_penalty": 1.1, "num_beams": 2, "suppress_tokens": [1]}));
    let note = found.note(&["repetition_penalty"]).unwrap();
    assert!(note.contains("num_beams 2, suppress_tokens [1]"), "{note}");
    assert!(
        !note.contains("repetition_penalty") && note.ends_with("without them"),
        "{note}"
    );
    // A long list is displayed by its beginning.
    let many: Vec<u32> = (0..5000).collect();
    let note = own(json!({ "suppress_tokens": many })).note(&[]).unwrap();
    assert!(note.len() < 200 && note.contains("..."), "{note}");
    let nested = json!({"text_config": {"repetition_penalty": 1.2}});
    let found = read(&[("config.json", nested)]).unwrap();
    assert_eq!(keys(&found.left_out), ["repetition_penalty"]);
}

#[test]
fn what_asks_for_nothing_is_not_named() {
    let found = own(json!({
        "repetition_penalty": 1.0, "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0,
        "suppress_tokens": null, "bad_words_ids": [], "min_new_tokens": 0, "min_length": 0,
        "forced_eos_token_id": null, "num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0,
        "typical_p": 1.0, "epsilon_cutoff": 0.0, "penalty_alpha": null, "guidance_scale": null,
        "sequence_bias": {}, "token_healing": false, "do_sample": false, "temperature": 1.0,
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_length": 20, "max_new_tokens": null,
        "eos_token_id": 7, "pad_token_id": 0, "bos_token_id": 1, "use_cache": true,
        "cache_implementation": "hybrid", "transformers_version": "4.40.0",
        "_from_model_config": true, "length_penalty": 2.0,
    }));
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    assert!(found.by_flag.is_empty(), "{:?}", found.by_flag);
    assert!(found.unknown.is_empty(), "{:?}", found.unknown);
    assert_eq!(found.note(&[]), None);
    assert_eq!(read(&[]).unwrap(), Generation::default());
}

/// The settings published with Qwen2.5's instruction models, and an unknown key.
#[test]
fn what_a_flag_sets_and_what_nobody_knows_is_listed() {
    let found = own(json!({
        "bos_token_id": 5, "do_sample": true, "eos_token_id": [6, 5], "pad_token_id": 5,
        "repetition_penalty": 1.05, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
        "max_new_tokens": 2048, "presence": 1,
    }));
    let by_flag: Vec<String> = found.by_flag.iter().map(ToString::to_string).collect();
    assert_eq!(
        by_flag.join(", "),
        "do_sample true, max_new_tokens 2048, temperature 0.7, top_k 20, top_p 0.8"
    );
    assert!(found.by_flag.iter().all(|own| own.flag.is_some()));
    assert_eq!(keys(&found.left_out), ["repetition_penalty"]);
    assert_eq!(found.unknown, ["presence"]);
}

#[test]
fn what_is_no_object_is_refused_by_its_file() {
    for wrong in [json!(null), json!([1]), json!("x")] {
        let error = read(&[("generation_config.json", wrong)]).unwrap_err();
        assert!(
            error.contains("generation_config.json: must be an object"),
            "{error}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("generation_config.json");
    std::fs::write(&path, "\u{feff}{\"num_beams\": 2}").unwrap();
    assert_eq!(
        keys(&Generation::read(folder.path()).unwrap().left_out),
        ["num_beams"]
    );
    std::fs::write(&path, "{").unwrap();
    let error = Generation::read(folder.path()).unwrap_err();
    assert!(
        error.to_string().ends_with("generation_config.json"),
        "{error}"
    );
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("EOF"), "{cause}");
}
