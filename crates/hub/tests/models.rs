//! `hf:owner/name`: the files of a model that are fetched, from a hub that the test runs itself.

use crate::hub_support;

use std::path::Path;

use hub::{FileFault, Hub, ModelId};
use hub_support::{FakeHub, Repository, TOKEN, commit};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A model whose files contain their own names. It has its weights in a second format too.
fn model() -> Repository {
    let files = [
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "pytorch_model.bin",
    ];
    let named = |all: Repository, name: &&str| all.with(name, *name);
    // Long enough to be cut in the middle.
    files
        .iter()
        .fold(Repository::default(), named)
        .with(WEIGHTS, "weights ".repeat(4096))
}

fn without(file: &str) -> Repository {
    let mut files = model();
    files.files.remove(file);
    files
}

/// The same model with its weights in files that an index names.
fn sharded(shards: &[&str]) -> Repository {
    let map = shards.iter().enumerate();
    let map: serde_json::Map<_, _> = map
        .map(|(i, shard)| (format!("tensor.{i}"), (*shard).into()))
        .collect();
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    without(WEIGHTS).with(INDEX, index.to_string())
}

fn id(text: &str) -> Result<ModelId> {
    Ok(text.parse()?)
}

fn asked_for(requests: &[String], part: &str) -> bool {
    requests.iter().any(|request| request.contains(part))
}

#[test]
fn the_files_of_a_model_are_fetched_once() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    fake.add("models/tiny/L", model());
    let hub = Hub::new(&fake.endpoint, home.path());
    let folder = hub.model(&id("hf:tiny/L")?)?;
    for name in ["config.json", "tokenizer.json", "chat_template.jinja"] {
        assert_eq!(std::fs::read_to_string(folder.join(name))?, name);
    }
    assert!(folder.join(WEIGHTS).is_file());
    let requests = fake.requests();
    assert!(!asked_for(&requests, "pytorch_model.bin"), "{requests:?}");
    // A complete model needs no hub.
    assert_eq!(hub.model(&id("hf:tiny/L")?)?, folder);
    let nowhere = Hub::new("http://127.0.0.1:9", home.path());
    assert_eq!(nowhere.model(&id("hf:tiny/L")?)?, folder);
    assert!(fake.requests().is_empty());
    // Other programs find the model where the hub's own client would have put it.
    let cache = home.path().join("hub/models--tiny--L");
    assert_eq!(
        std::fs::read_to_string(cache.join("refs/main"))?,
        commit("models/tiny/L")
    );
    Ok(())
}

#[test]
fn weights_in_several_files_are_found_by_their_index() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    let shards = ["model-1-of-2.safetensors", "model-2-of-2.safetensors"];
    let repository = shards.iter().fold(sharded(&shards), |all, name| {
        all.with(name, format!("{name} of a model"))
    });
    fake.add("models/tiny/shards", repository);
    let hub = Hub::new(&fake.endpoint, home.path());
    let folder = hub.model(&id("hf:tiny/shards@refs/pr/1")?)?;
    for name in [INDEX, shards[0], shards[1]] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    assert!(asked_for(&fake.requests(), "refs%2Fpr%2F1"));
    // Another revision is asked for, even where it turns out to be the same commit.
    hub.model(&id("hf:tiny/shards")?)?;
    assert!(asked_for(&fake.requests(), "/api/"));
    Ok(())
}

#[test]
fn a_download_that_broke_off_is_taken_up_by_the_next_call() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    fake.add("models/tiny/L", model());
    fake.cut(WEIGHTS, 3);
    let hub = Hub::new(&fake.endpoint, home.path());
    let error = hub.model(&id("hf:tiny/L")?).unwrap_err();
    let fault = error.fault();
    assert!(matches!(fault, Some(FileFault::Interrupted(_))), "{error}");
    let message = error.to_string();
    let expected = "tiny/L: model.safetensors: the download broke off";
    assert!(message.starts_with(expected), "{message}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.starts_with("run the command again"), "{hint}");
    fake.requests();
    hub.model(&id("hf:tiny/L")?)?;
    let requests = fake.requests();
    assert!(!asked_for(&requests, "/tokenizer.json"), "{requests:?}");
    assert!(
        requests.iter().all(|r| !r.ends_with("bytes=0-")),
        "{requests:?}"
    );
    Ok(())
}

#[test]
fn a_tokenizer_is_fetched_without_its_weights() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    fake.add("models/tiny/L", model());
    let hub = Hub::new(&fake.endpoint, home.path());
    for _ in 0..2 {
        let path = hub.tokenizer(&id("hf:tiny/L")?)?;
        assert_eq!(std::fs::read_to_string(&path)?, "tokenizer.json");
        // What says how to use it is there, whatever else the cache holds.
        for file in ["config.json", "chat_template.jinja"] {
            assert!(path.with_file_name(file).is_file(), "{file}");
        }
    }
    let requests = fake.requests();
    assert!(!asked_for(&requests, "safetensors"), "{requests:?}");
    assert_eq!(requests.iter().filter(|r| r.contains("/api/")).count(), 1);
    // Fetching the tokenizer does not make the model complete.
    let folder = hub.model(&id("hf:tiny/L")?)?;
    assert!(folder.join(WEIGHTS).is_file());
    Ok(())
}

/// PyTorch's files are fetched if there are no safetensors, and left alone if there are.
#[test]
fn weights_of_pytorch_are_taken_where_there_are_no_others() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    let (file, index) = ("pytorch_model.bin", "pytorch_model.bin.index.json");
    let map = serde_json::json!({ "weight_map": { "a": "part-1.bin" } }).to_string();
    fake.add("models/tiny/bin", without(WEIGHTS).with(file, "weights"));
    fake.add("models/tiny/both", model().with(file, "weights"));
    let mut parts = without(WEIGHTS)
        .with(index, map)
        .with("part-1.bin", "weights");
    parts.files.remove(file);
    fake.add("models/tiny/parts", parts);
    let hub = Hub::new(&fake.endpoint, home.path());
    for (name, there, absent) in [
        ("hf:tiny/bin", file, WEIGHTS),
        ("hf:tiny/both", WEIGHTS, file),
        ("hf:tiny/parts", "part-1.bin", file),
    ] {
        let folder = hub.model(&id(name)?)?;
        assert!(folder.join(there).is_file(), "{name}");
        assert!(!folder.join(absent).exists(), "{name}");
    }
    Ok(())
}

#[test]
fn what_a_model_lacks_is_told() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    fake.add("models/tiny/gated", model().gated());
    let mut bare = without(WEIGHTS);
    bare.files.remove("pytorch_model.bin");
    fake.add("models/tiny/bin", bare);
    fake.add("models/tiny/words", without("tokenizer.json"));
    let strange = sharded(&["../../../escaped.safetensors"]);
    fake.add("models/tiny/strange", strange);
    fake.add("models/tiny/index", without(WEIGHTS).with(INDEX, "{"));
    let hub = Hub::new(&fake.endpoint, home.path());
    for (name, first, hint) in [
        (
            "hf:tiny/gated",
            "tiny/gated: config.json: the hub answers with status 401",
            "the name",
        ),
        (
            "hf:tiny/none",
            "tiny/none: list of files: the hub answers with status 401",
            "the name",
        ),
        (
            "hf:tiny/bin",
            "tiny/bin: has no model.safetensors",
            "weights are read from",
        ),
        (
            "hf:tiny/words",
            "tiny/words: has no tokenizer.json",
            "a model needs",
        ),
        (
            "hf:tiny/strange",
            "tiny/strange: has no ../../../escaped.safetensors",
            "",
        ),
        (
            "hf:tiny/index",
            "tiny/index: model.safetensors.index.json: not the answer of a hub",
            "",
        ),
    ] {
        let error = hub.model(&id(name)?).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(first), "{message}");
        let told = error.hint().unwrap_or_default();
        assert!(told.starts_with(hint), "{name}: {told}");
    }
    let nowhere = Hub::new("http://127.0.0.1:9", home.path());
    let error = nowhere.model(&id("hf:tiny/L")?).unwrap_err();
    let fault = error.fault();
    assert!(matches!(fault, Some(FileFault::Unreachable(_))), "{error}");
    let nonsense = Hub::new("not an address", home.path());
    assert!(nonsense.model(&id("hf:tiny/L")?).is_err());
    Ok(())
}

#[test]
fn a_token_opens_what_is_gated_and_stays_out_of_logs() -> Result {
    let (fake, home) = (FakeHub::start(), tempfile::tempdir()?);
    fake.add("models/tiny/gated", model().gated());
    let hub = |token: &str| Hub::new(&fake.endpoint, home.path()).with_token(token);
    let error = hub("another").model(&id("hf:tiny/gated")?).unwrap_err();
    assert!(
        matches!(error.fault(), Some(FileFault::Status(401))),
        "{error}"
    );
    let hub = hub(TOKEN);
    assert!(!format!("{hub:?}").contains(TOKEN));
    hub.model(&id("hf:tiny/gated")?)?;
    Ok(())
}

#[test]
fn names_that_leave_the_cache_are_refused() {
    for name in [
        "hf:",
        "hf:../L",
        "hf:a/b/c",
        "hf:a/..",
        "hf:a/b@",
        "hf:a/b@../main",
        "hf:a b",
        "hf:a\\b",
        "models/L",
    ] {
        let error = name.parse::<ModelId>().unwrap_err();
        let expected = format!("`{name}` does not name a model of the hub");
        assert_eq!(error.to_string(), expected);
        assert!(
            error
                .hint()
                .is_some_and(|h| h.starts_with("a model is written"))
        );
    }
}

#[test]
fn a_folder_is_left_as_it_is() -> Result {
    let folder = Path::new("models/L");
    assert_eq!(hub::local_folder(folder)?, folder);
    assert_eq!(hub::local_tokenizer(folder)?, None);
    Ok(())
}
