//! Conversations turn by turn: the words of the template, the budget, and which answers are asked for.

use std::path::{Path, PathBuf};

use lm::{EngineSettings, WeightType};
use models::{Exchange, ModelFolder, ModelText, Talk};
use serde_json::json;
use vocab_align::{DraftId, TargetId};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models")
        .join(name)
}

fn said(exchanges: &[(&str, &str)]) -> Vec<Exchange> {
    let exchange = |(asked, answered): &(&str, &str)| Exchange {
        asked: (*asked).to_owned(),
        answered: (*answered).to_owned(),
    };
    exchanges.iter().map(exchange).collect()
}

#[test]
fn a_turn_holds_what_was_said_before_it() {
    let text = ModelText::<TargetId>::load(&model("L")).unwrap();
    let drafter = ModelText::<DraftId>::load(&model("D")).unwrap();
    let before = said(&[("One?", "Two."), ("Three?", "Four.")]);
    let fitted = text.fit_turn(&before, "Five?").unwrap();
    assert_eq!((fitted.kept, &*fitted.said), (2, "Five?"));
    let places: Vec<usize> = ["One?", "Two.", "Three?", "Four.", "Five?"]
        .iter()
        .map(|word| fitted.text.find(word).unwrap())
        .collect();
    assert!(places.is_sorted(), "{}", fitted.text);
    let (shown, _) = drafter.turn(&before, "Five?").unwrap();
    assert!(shown.contains("Two.") && shown.contains("Five?"), "{shown}");
    // Alone it is what a prompt always was.
    let alone = text.fit_turn(&[], "Five?").unwrap();
    let rendered = text.template.render("Five?").unwrap();
    assert_eq!(alone.text, rendered.text);
    assert_eq!(alone.ids, text.encode(&rendered).unwrap());
}

#[test]
fn the_oldest_turns_make_room() {
    let text = ModelText::<TargetId>::load(&model("L")).unwrap();
    let long = "word ".repeat(100);
    let before = said(&[("One?", &long), ("Two?", "Short."), ("Three?", "Shorter.")]);
    let stop = text.stop_tokens();
    let fits = |budget: usize| {
        let text = text.clone().with_ends(stop.clone(), budget);
        let fitted = text.fit_turn(&before, "Four?").unwrap();
        assert!(fitted.ids.len() <= budget);
        fitted.kept
    };
    assert_eq!(fits(1000), 3);
    assert_eq!(fits(80), 2);
    assert_eq!(fits(12), 0);
    let whole = text.turn(&before[1..], "Four?").unwrap().1.len();
    assert_eq!((fits(whole), fits(whole - 1)), (2, 1));
}

/// Neither plain text nor a template that says a prompt twice has words around an empty prompt, and
/// this tokenizer adds none.
#[test]
fn long_prompts_are_shortened_where_nothing_stands_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let file = json!({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2}, "merges": []},
    });
    write("tokenizer.json", &file.to_string());
    let twice = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}";
    for (template, said, text) in [
        (None, "ab ab ab", "ab ab ab"),
        (Some(twice), "ab ab", "ab abab ab"),
    ] {
        if let Some(template) = template {
            write("chat_template.jinja", template);
        }
        // Half of the context is a prompt's.
        let model = ModelText::<TargetId>::of_tokenizer(folder.path(), 20).unwrap();
        let fitted = model.fit_turn(&[], "ab ab ab abab").unwrap();
        assert_eq!((&*fitted.said, &*fitted.text), (said, text));
        assert_eq!(fitted.ids.len(), text.len());
        let empty = model.template.render("").unwrap();
        assert_eq!(model.count(&empty).unwrap(), 0);
        assert!(model.encode(&empty).is_err());
    }
}

#[test]
fn answers_are_asked_for_once() {
    let target = ModelFolder::<TargetId>::load(&model("L")).unwrap();
    let settings = EngineSettings::new(WeightType::F32, 1);
    let mut engine = target.engine(settings).unwrap();
    let questions = ["Tom has 3 apples. How many?", "And with 2 more?"].map(str::to_owned);
    let mut talk = Talk::default();
    let first = talk.before(&questions[..1], &target, &mut engine, (6, false));
    let first = first.unwrap().to_vec();
    assert_eq!(first.len(), 1);
    assert!(!first[0].answered.is_empty());
    let fed = models_len(&engine);
    let again = talk.before(&questions[..1], &target, &mut engine, (6, false));
    assert_eq!(again.unwrap(), first);
    assert_eq!(models_len(&engine), fed, "nothing was asked");
    let both = talk.before(&questions, &target, &mut engine, (6, false));
    let both = both.unwrap().to_vec();
    assert_eq!(both[0], first[0]);
    // From nothing it is the same.
    let fresh = Talk::default()
        .before(&questions, &target, &mut engine, (6, false))
        .map(<[_]>::to_vec);
    assert_eq!(fresh.unwrap(), both);
    // Another conversation begins anew.
    let other = ["Name a colour.".to_owned()];
    let said = talk
        .before(&other, &target, &mut engine, (6, false))
        .unwrap();
    assert_eq!((said.len(), &*said[0].asked), (1, "Name a colour."));
    assert!(
        talk.before(&[], &target, &mut engine, (6, false))
            .unwrap()
            .is_empty()
    );
}

/// Tokens that an engine holds.
fn models_len(engine: &models::Engine) -> usize {
    spec_decode::LanguageModel::len(engine)
}
