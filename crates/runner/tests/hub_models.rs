//! `hf:owner/name` and `--data-dir hub` on the command line, with a local hub of the test.

use crate::cli::support;
use crate::hub_support;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use assert_cmd::Command;
use hub_support::table::Table;
use hub_support::{FakeHub, Repository, TOKEN};
use predicates::prelude::*;
use predicates::str::contains;
use safetensors::SafeTensors;
use support::repository;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn omnidraft(endpoint: &str, home: &Path) -> Command {
    let mut command = support::omnidraft();
    command
        .env_remove("HF_TOKEN")
        .env_remove("HF_HUB_CACHE")
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint);
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

/// A shipped model as a repository, with a file that is not part of a model.
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
    // Complete models need no connection to the hub.
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
    Ok(())
}

#[test]
fn a_tokenizer_is_fetched_without_its_weights() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/L", shipped("L")?);
    for _ in 0..2 {
        omnidraft(&hub.endpoint, home.path())
            .args(["align", "--drafter", "models/D", "--target", "hf:tiny/L"])
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
fn faults_of_the_hub_are_told_with_a_hint() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/gated", shipped("L")?.gated());
    generate(&hub.endpoint, home.path(), "hf:tiny/gated")
        .env("HF_TOKEN", "another")
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains(
            "tiny/gated: config.json: the hub answers with status 401",
        ))
        .stderr(contains("hint: the name is wrong"));
    std::fs::write(home.path().join("token"), format!("{TOKEN}\n"))?;
    generate(&hub.endpoint, home.path(), "hf:tiny/gated")
        .assert()
        .success();
    let reached = "tiny/L: list of files: the hub cannot be reached";
    generate("http://127.0.0.1:9", home.path(), "hf:tiny/L")
        .assert()
        .code(2)
        .stderr(contains(reached).and(contains("HF_ENDPOINT")));
    Ok(())
}

#[test]
fn a_run_reads_models_and_streams_from_the_hub() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    hub.add("models/tiny/D", shipped("D")?);
    hub.add("models/tiny/L", shipped("L")?);
    let rows = |numbers: std::ops::Range<usize>| {
        let sums = numbers.clone().map(|i| i + 1);
        Table::default()
            .texts("question", numbers.map(|i| format!("Add {i} and 1.")))
            .texts("answer", sums.map(|i| format!("#### {i}")))
            .parquet()
    };
    let data = Repository::default()
        .with("main/train/0000.parquet", rows(0..8))
        .with("main/test/0000.parquet", rows(8..12));
    hub.add("datasets/openai/gsm8k", data);
    let config = home.path().join("run.toml");
    std::fs::write(
        &config,
        r#"
            name = "hub"
            models = { drafter = "hf:tiny/D", targets = { L = "hf:tiny/L" } }
            grid = { task = ["gsm8k"] }
            stage.stream.prompts = { train = 2, test = 2 }
            arm = [{ preset = "autoregressive" }, { preset = "N-gram_pp" }]
            decode = { max_new_tokens = 4 }
        "#,
    )?;
    let out = home.path().join("out");
    let bytes = std::fs::metadata(repository().join("models/L/model.safetensors"))?.len();
    let size = format!("a download of {:.1} MB", bytes as f64 / 1e6);
    // For a worker's target a dry run asks for sizes. It downloads nothing.
    omnidraft(&hub.endpoint, home.path())
        .arg("run")
        .arg(&config)
        .args(["--set", "models.targets.L={torch=\"hf:tiny/L\"}"])
        .args(["--dry-run", "--data-dir", "hub"])
        .assert()
        .success()
        .stdout(
            contains(size)
                .and(contains("1M parameters"))
                .and(contains("not gated")),
        );
    let requests = hub.requests();
    assert!(
        requests.iter().all(|request| request.starts_with("/api/")),
        "{requests:?}"
    );
    omnidraft(&hub.endpoint, home.path())
        .arg("run")
        .arg(&config)
        .arg("--out")
        .arg(&out)
        .args(["--data-dir", "hub"])
        .assert()
        .success()
        .stdout(contains("gsm8k"));
    let cell = out.join("stream").join("task=gsm8k,seed=1");
    let rows = results::CellReader::open(&cell)?.prompts()?;
    assert!(
        rows.iter()
            .any(|row| row.prompt_id.starts_with("gsm8k-test-"))
    );
    // Without a data directory, the hint names a way to get one.
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
