//! `hf:owner/name` and `--data-dir hub` on the command line, against a hub that the test runs.

mod hub_support;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use hub_support::{FakeHub, Repository, TOKEN, commit, parquet};
use polars::prelude::df;
use predicates::prelude::*;
use predicates::str::contains;
use safetensors::SafeTensors;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn omnidraft(endpoint: &str, home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .current_dir(repository())
        .env_remove("OMNIDRAFT_SHARED")
        .env_remove("HF_TOKEN")
        .env_remove("HF_HUB_CACHE")
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint)
        .arg("--no-progress");
    command
}

fn generate(endpoint: &str, home: &Path, target: &str) -> Command {
    let mut command = omnidraft(endpoint, home);
    command.args([
        "generate",
        "--prompt",
        "Hello",
        "--max-tokens",
        "4",
        "--target",
        target,
    ]);
    command
}

/// A shipped model as a repository, with a file that is none of ours.
fn shipped(model: &str) -> Result<Repository> {
    let mut files = Repository::default().with("pytorch_model.bin", "never asked for");
    for file in std::fs::read_dir(repository().join("models").join(model))? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files = files.with(&name, std::fs::read(&path)?);
    }
    Ok(files)
}

/// The same with its weights in two files and an index.
fn sharded(model: &str) -> Result<Repository> {
    let mut files = shipped(model)?;
    let whole = files
        .files
        .remove("model.safetensors")
        .ok_or("no weights")?;
    let tensors = SafeTensors::deserialize(&whole)?;
    let mut map = BTreeMap::new();
    let mut shards: [Vec<_>; 2] = Default::default();
    for (index, (name, view)) in tensors.tensors().into_iter().enumerate() {
        map.insert(
            name.clone(),
            format!("model-0000{}-of-00002.safetensors", 1 + index % 2),
        );
        shards[index % 2].push((name, view));
    }
    for (index, shard) in shards.into_iter().enumerate() {
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let name = format!("model-0000{}-of-00002.safetensors", 1 + index);
        files = files.with(&name, safetensors::serialize(shard, Some(metadata))?);
    }
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    Ok(files.with("model.safetensors.index.json", index.to_string()))
}

#[test]
fn a_model_of_the_hub_answers_as_its_folder_does() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/L", shipped("L")?);
    hub.add("models/tiny/shards", sharded("L")?);
    let answer = |target: &str| -> String {
        let done = generate(&hub.endpoint, home.path(), target)
            .assert()
            .success();
        String::from_utf8_lossy(&done.get_output().stdout).into_owned()
    };
    let local = answer("models/L");
    assert!(hub.requests().is_empty());
    assert_eq!(answer("hf:tiny/L"), local);
    let requests = hub.requests();
    assert!(requests.iter().any(|r| r.contains("chat_template.jinja")));
    assert!(
        requests.iter().all(|r| !r.contains("pytorch_model.bin")),
        "{requests:?}"
    );
    assert_eq!(answer("hf:tiny/shards@refs/pr/1"), local);
    assert!(hub.requests().iter().any(|r| r.contains("refs%2Fpr%2F1")));
    // Complete models need no hub.
    assert_eq!(answer("hf:tiny/L"), local);
    generate(
        "http://127.0.0.1:9",
        home.path(),
        "hf:tiny/shards@refs/pr/1",
    )
    .assert()
    .success()
    .stdout(local);
    assert!(hub.requests().is_empty());
    // Other programs find the model where the hub's own client would have put it.
    let cache = home.path().join("hub/models--tiny--L");
    assert_eq!(
        std::fs::read_to_string(cache.join("refs/main"))?,
        commit("models/tiny/L")
    );
    Ok(())
}

#[test]
fn a_download_that_broke_off_is_taken_up_by_the_next_command() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/L", shipped("L")?);
    hub.cut("model.safetensors", 3);
    generate(&hub.endpoint, home.path(), "hf:tiny/L")
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains(
            "tiny/L: model.safetensors: the download broke off",
        ))
        .stderr(contains("hint: run the command again"));
    hub.requests();
    generate(&hub.endpoint, home.path(), "hf:tiny/L")
        .assert()
        .success();
    let requests = hub.requests();
    assert!(
        requests.iter().all(|r| !r.contains("/tokenizer.json")),
        "{requests:?}"
    );
    assert!(
        requests.iter().all(|r| !r.ends_with("bytes=0-")),
        "{requests:?}"
    );
    Ok(())
}

#[test]
fn a_tokenizer_is_fetched_without_its_weights() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/L", shipped("L")?);
    for _ in 0..2 {
        omnidraft(&hub.endpoint, home.path())
            .args(["align", "--draft", "models/D", "--target", "hf:tiny/L"])
            .assert()
            .success();
    }
    let requests = hub.requests();
    assert!(
        requests.iter().all(|r| !r.contains("safetensors")),
        "{requests:?}"
    );
    assert_eq!(requests.iter().filter(|r| r.contains("/api/")).count(), 1);
    Ok(())
}

#[test]
fn what_a_model_lacks_is_told() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    let without = |file: &str| -> Result<Repository> {
        let mut files = shipped("L")?;
        files.files.remove(file);
        Ok(files)
    };
    hub.add("models/tiny/gated", shipped("L")?.gated());
    hub.add("models/tiny/bin", without("model.safetensors")?);
    hub.add("models/tiny/words", without("tokenizer.json")?);
    let index = r#"{"weight_map": {"a": "../../../escaped.safetensors"}}"#;
    let strange = without("model.safetensors")?.with("model.safetensors.index.json", index);
    hub.add("models/tiny/strange", strange);
    let told = |target: &str, first: &str, hint: &str| {
        generate(&hub.endpoint, home.path(), target)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(first).and(contains(format!("hint: {hint}"))));
    };
    told(
        "hf:tiny/gated",
        "tiny/gated: config.json: the hub answers with status 401",
        "the name",
    );
    told(
        "hf:tiny/none",
        "tiny/none: list of files: the hub answers with status 401",
        "the name",
    );
    told(
        "hf:tiny/bin",
        "tiny/bin: has no model.safetensors",
        "weights are read from",
    );
    told(
        "hf:tiny/words",
        "tiny/words: has no tokenizer.json",
        "a model needs",
    );
    told(
        "hf:tiny/strange",
        "tiny/strange: has no ../../../escaped.safetensors",
        "",
    );
    told(
        "hf:../L",
        "`hf:../L` does not name a model",
        "a model is written",
    );
    told("hf:", "`hf:` does not name a model", "a model is written");
    let reached = "tiny/L: list of files: the hub cannot be reached";
    generate("http://127.0.0.1:9", home.path(), "hf:tiny/L")
        .assert()
        .code(2)
        .stderr(contains(reached).and(contains("HF_ENDPOINT")));
    generate("not an address", home.path(), "hf:tiny/L")
        .assert()
        .code(2);
    generate(&hub.endpoint, home.path(), "hf:tiny/gated")
        .env("HF_TOKEN", "another")
        .assert()
        .code(2);
    std::fs::write(home.path().join("token"), format!("{TOKEN}\n"))?;
    generate(&hub.endpoint, home.path(), "hf:tiny/gated")
        .assert()
        .success();
    Ok(())
}

#[test]
fn a_run_reads_models_and_streams_from_the_hub() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/D", shipped("D")?);
    hub.add("models/tiny/L", shipped("L")?);
    let rows = |count: usize| -> Result<Vec<u8>> {
        let questions: Vec<String> = (0..count).map(|i| format!("Add {i} and 1.")).collect();
        let answers: Vec<String> = (1..=count).map(|i| format!("#### {i}")).collect();
        Ok(parquet(df!("question" => questions, "answer" => answers)?))
    };
    let data = Repository::default()
        .with("main/train/0000.parquet", rows(8)?)
        .with("main/test/0000.parquet", rows(4)?);
    hub.add("datasets/openai/gsm8k", data);
    let config = home.path().join("run.toml");
    std::fs::write(
        &config,
        r#"
            name = "hub"
            arms = ["autoregressive", "N-gram_pp"]
            models = { drafter = "hf:tiny/D", targets = { L = "hf:tiny/L" } }
            segments = [{ task = "gsm8k", train = 2, test = 2 }]
            decode = { max_new_tokens = 4 }
        "#,
    )?;
    let out = home.path().join("out");
    omnidraft(&hub.endpoint, home.path())
        .arg("run")
        .arg(&config)
        .arg("--out")
        .arg(&out)
        .args(["--data-dir", "hub"])
        .assert()
        .success()
        .stdout(contains("gsm8k"));
    let rows = runner::results::RunReader::open(&out)?.prompts()?.rows;
    assert!(
        rows.iter()
            .any(|row| row.prompt_id.starts_with("gsm8k-test-"))
    );
    // Without a data directory, the hint says how to get one.
    omnidraft(&hub.endpoint, home.path())
        .arg("run")
        .arg(&config)
        .arg("--out")
        .arg(home.path().join("other"))
        .assert()
        .code(2)
        .stderr(contains("hint: --data-dir hub"));
    Ok(())
}
