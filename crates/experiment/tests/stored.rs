//! Hashes and configurations in manifests and result folders, and reading them back.

use crate::common;

use common::{Files, SMALL, plan, says, set};
use experiment::JobConfig;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn spaces_comments_and_order_of_keys_change_no_hash() {
    let one = plan(&format!("{SMALL}[decode]\nk = 3\ngamma = 0.5\n"));
    let other = plan(
        "# a comment\ninclude = [\"zoo.toml\"]\n[decode]\ngamma   = 0.5\nk=3\n\n\n\
         [stage.stream]  # another\nprompts.test = 20\nprompts.train = 100\n\
         [[arm]]\npreset = 'L_DM+L_N-gram'\n[grid]\ntarget = [\n  \"L\",\n  \"Q\",\n]\n\
         task = [\"gsm8k\", \"xsum\"]\n"
            .replacen("[decode]", "name = \"small\"\n[decode]", 1)
            .as_str(),
    );
    assert_eq!(one.experiment.hash, other.experiment.hash);
    let hashes = |plan: &experiment::Plan| {
        plan.jobs
            .iter()
            .map(|job| job.hash.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(hashes(&one), hashes(&other));
    // The folder of the file does not matter either.
    let again = plan(&format!("{SMALL}[decode]\nk = 3\ngamma = 0.5\n"));
    assert_eq!(one.experiment.hash, again.experiment.hash);
}

#[test]
fn what_changes_tokens_changes_the_job_and_what_does_not_only_the_file() {
    let base = plan(SMALL);
    let k = set(SMALL, &["decode.k=5"]);
    assert!(
        base.jobs
            .iter()
            .zip(&k.jobs)
            .all(|(a, b)| a.hash != b.hash && a.config.cell == b.config.cell)
    );
    let title = set(SMALL, &["title=x", "report.formats=[\"csv\"]"]);
    assert_ne!(base.experiment.hash, title.experiment.hash);
    assert!(
        base.jobs
            .iter()
            .zip(&title.jobs)
            .all(|(a, b)| a.hash == b.hash)
    );
    // A default that is written out gives the same job.
    let default = set(SMALL, &["decode.k=4"]);
    assert_eq!(base.jobs[0].hash, default.jobs[0].hash);
    // Another seed does not change the jobs of the first.
    let seeds = set(SMALL, &["grid.seed=[1, 2]"]);
    assert_eq!(base.jobs[0].hash, seeds.jobs[0].hash);
}

#[test]
fn a_job_is_read_back_from_its_manifest() {
    let text = format!(
        "{SMALL}[[arm]]\npreset = \"autoregressive\"\n[[arm]]\nname = \"b\"\nlearnt_by = \"L_DM+L_N-gram (k = 2)\"\n\
         sweep = {{}}\n[sweep]\n\"decode.k\" = [1, 2]\n"
    );
    for job in plan(&text).jobs {
        let stored = serde_json::to_string(&job.config.to_json()).unwrap();
        let read = JobConfig::from_json(&serde_json::from_str(&stored).unwrap()).unwrap();
        assert_eq!(read, job.config);
        assert_eq!(read.hash(), job.hash);
    }
}

#[test]
fn damaged_jobs_are_refused_with_the_key() {
    let job = plan(SMALL).jobs.remove(0).config.to_json();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut job = job.clone();
        *job.pointer_mut(pointer).unwrap() = value;
        JobConfig::from_json(&job).unwrap_err().to_string()
    };
    says(
        &with("/arms/0/decode/k", json!("x")),
        &["arms[0].decode.k: invalid type"],
    );
    says(
        &with("/arms/0/decode/k", json!(0)),
        &["decode.k: 0 is outside"],
    );
    says(&with("/arms", json!([])), &["arms: at least one"]);
    says(&with("/segments", json!([])), &["segments: at least one"]);
    says(&with("/segments/0/target", json!("X")), &["target `X`"]);
    let mut newer = job.clone();
    newer["later"] = json!(1);
    let error = JobConfig::from_json(&newer).unwrap_err();
    says(&error.to_string(), &["later: unknown field"]);
    says(&error.hint().unwrap(), &["program version"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_override_panics(key in "[a-z.\\[\\]\" 0-9]{0,24}", value in "\\PC{0,12}") {
        let files = Files::new(&[("x.toml", SMALL)]);
        // Accepted or refused, never a panic.
        drop(files.load("x.toml", &[&format!("{key}={value}")]));
    }

    #[test]
    fn numbers_survive_the_manifest(lr in 0.0_f64..10.0, seed in 0_u64..=i64::MAX as u64) {
        let plan = set(SMALL, &[&format!("learn.lr={lr:?}"), &format!("grid.seed=[{seed}]")]);
        let job = &plan.jobs[0];
        prop_assert_eq!(job.config.arms[0].learn.lr, lr);
        prop_assert_eq!(job.config.seed, seed);
        let text = job.config.to_json().to_string();
        let read = JobConfig::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(read.hash(), job.hash.clone());
    }
}

/// Keys that became constants are accepted with that value, and refused with another.
#[test]
fn older_manifests_may_name_what_is_constant_now() {
    let today = plan(SMALL).jobs.remove(0).config;
    let with = |key: &str, value: serde_json::Value| {
        let mut json = today.to_json();
        json["arms"][0]["learn"][key] = value;
        JobConfig::from_json(&json)
    };
    for (key, constant, other) in [
        ("beta", json!(0.5), json!(0.2)),
        ("columns", json!("shared"), json!("roots")),
        ("max_grad_norm", json!(1.0), json!(0.5)),
        ("normaliser", json!("tokens"), json!("terms")),
    ] {
        assert_eq!(with(key, constant).unwrap(), today);
        let error = with(key, other).unwrap_err().to_string();
        says(&error, &[&format!("learn.{key}: unknown field")]);
    }
    // Programs that did not know this key had another loss.
    let mut older = today.to_json();
    let learn = older["arms"][0]["learn"].as_object_mut().unwrap();
    assert!(learn.remove("ends").is_some());
    says(
        &JobConfig::from_json(&older).unwrap_err().to_string(),
        &["learn.ends: missing"],
    );
}
