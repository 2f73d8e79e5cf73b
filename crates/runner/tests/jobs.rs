//! The rows and pages of an experiment do not depend on how its jobs are run: one at a time, two at
//! a time, by two processes, killed and started again, as single commands, through Slurm.
#![cfg(unix)]

use crate::cluster::{Cluster, is_installed};

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use results::{CellReader, CellStatus, Manifest, RoundRow};

/// Environment variable with the number of kills of a run.
const KILLS: &str = "OMNIDRAFT_KILLS";
/// Two tasks and two seeds, each in both stages.
const JOBS: usize = 8;
/// Longer than any run takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Three values of a sweep, two tasks, two seeds, two stages.
fn experiment(folder: &Path) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let models = models.canonicalize().unwrap();
    let text = format!(
        r#"
name = "jobs"
[models]
drafter = "{models}/D"
targets.small = "{models}/L-small"
[grid]
task = ["mini-math", "mini-chat"]
seed = [1, 2]
[stage.stream]
prompts = {{ train = 6 }}
[stage.held-out]
from = "stream"
prompts = {{ test = 3 }}
[decode]
temperature = 0.0
max_new_tokens = 12
[learn]
every = 3
[sweep]
"decode.k" = [1, 2, 4]
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "L_DM+L_N-gram"
[report]
rows = ["task", "arm"]
cell = ["acceptance", "tokens_per_round", "hits_per_response"]
figures = ["losses", "cache", "hits"]
formats = ["md", "csv", "tex", "html"]
"#,
        models = models.display()
    );
    let path = folder.join("jobs.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn omnidraft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("OMNIDRAFT_SHARED")
        .arg("--no-progress")
        .stdin(Stdio::null());
    command
}

fn run(file: &Path, out: &Path, extra: &[&str]) -> Command {
    let mut command = omnidraft();
    command.arg("run").arg(file).arg("--out").arg(out);
    command.args(extra);
    command
}

/// Standard output of a command that succeeds.
fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_succeeded(&output);
    String::from_utf8(output.stdout).unwrap()
}

fn assert_succeeded(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{errors}", output.status);
}

fn spawn(mut command: Command) -> Child {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().unwrap()
}

/// The results of a run without its times.
#[derive(PartialEq)]
struct Facts {
    /// The record of the experiment and the files of its report. They have no machine, date or
    /// times, since no stage is timed, and are compared whole.
    pages: BTreeMap<String, Vec<u8>>,
    /// By job: rows as JSON, where NaN equals NaN, without their seconds; its inputs, including the
    /// state that it started from.
    cells: BTreeMap<String, String>,
}

impl Facts {
    fn of(root: &Path) -> Self {
        let mut pages = BTreeMap::new();
        for entry in std::fs::read_dir(root.join("report")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // A leftover of a killed process.
            if !name.ends_with(".part") {
                pages.insert(name, std::fs::read(&path).unwrap());
            }
        }
        let record = std::fs::read(root.join("experiment.json")).unwrap();
        pages.insert("experiment.json".to_owned(), record);
        let cells = folders(root).into_iter();
        let cells = cells.map(|(name, folder)| (name, cell(&folder)));
        let facts = Self {
            pages,
            cells: cells.collect(),
        };
        assert_eq!(facts.cells.len(), JOBS);
        for page in ["report.md", "report.csv", "report.tex", "report.html"] {
            assert!(facts.pages.contains_key(page), "{page} is missing");
        }
        facts
    }

    #[track_caller]
    fn assert_same(&self, other: &Self) {
        let differs = |name: &str, same: bool| assert!(same, "{name} differs");
        let names = |facts: &Self| {
            let pages = facts.pages.keys().chain(facts.cells.keys());
            pages.cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(self), names(other));
        for (name, rows) in &self.cells {
            differs(name, other.cells[name] == *rows);
        }
        for (name, page) in &self.pages {
            differs(name, other.pages[name] == *page);
        }
    }
}

/// Folders of jobs by `STAGE/CELL`.
fn folders(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for stage in ["stream", "held-out"] {
        for entry in std::fs::read_dir(root.join(stage)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let cell = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((format!("{stage}/{cell}"), path));
        }
    }
    found.sort();
    found
}

fn cell(folder: &Path) -> String {
    let reader = CellReader::open(folder).unwrap();
    let manifest = reader.manifest();
    assert_eq!(manifest.status, CellStatus::Complete);
    let inputs: Vec<_> = manifest
        .inputs
        .iter()
        .map(|input| (&input.role, &input.name, &input.sha256))
        .collect();
    let mut prompts = reader.prompts().unwrap();
    for row in &mut prompts {
        (row.seconds, row.prefill_s, row.learn_s) = (0.0, 0.0, 0.0);
    }
    let rounds: Vec<RoundRow> = reader.rounds().unwrap();
    let mut updates = reader.updates().unwrap();
    updates.iter_mut().for_each(|row| row.seconds = 0.0);
    let (learnt, ngrams) = (!updates.is_empty(), reader.ngrams().unwrap());
    let streamed = manifest.cell.stage == "stream";
    assert_eq!((learnt, !prompts.is_empty()), (streamed, true));
    let rows = (prompts, rounds, updates, ngrams);
    serde_json::to_string(&(&manifest.config_sha256, inputs, rows)).unwrap()
}

/// The reference run, with one job at a time and without interruption, and its duration.
fn reference() -> &'static (Facts, Duration) {
    static REFERENCE: OnceLock<(Facts, Duration)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (file, out) = (experiment(folder.path()), folder.path().join("out"));
        let began = Instant::now();
        let table = stdout(&mut run(&file, &out, &["--jobs", "1"]));
        assert!(table.contains("L_DM+L_N-gram (k = 4)"), "{table}");
        (Facts::of(&out), began.elapsed())
    })
}

#[test]
fn two_jobs_at_a_time_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    stdout(&mut run(&file, &out, &["--jobs", "2"]));
    Facts::of(&out).assert_same(&reference().0);
    // Running stage by stage and cell by cell gives the same; pages are those of all existing
    // cells.
    let out = folder.path().join("parts");
    let some = ["--only", "task=mini-chat"];
    let stage = [&some[..], &["--stage", "stream"]].concat();
    let first = run(&file, &out, &stage).output().unwrap();
    assert_succeeded(&first);
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(said.contains("no report yet"), "{said}");
    stdout(&mut run(&file, &out, &["--only", "seed=2"]));
    let page = std::fs::read_to_string(out.join("report/report.md")).unwrap();
    assert!(page.contains("not run"), "{page}");
    stdout(&mut run(&file, &out, &[]));
    Facts::of(&out).assert_same(&reference().0);
}

/// A fixed sequence of pauses, so that the test is repeatable.
struct Pauses(u64);

impl Pauses {
    fn next(&mut self, longest: Duration) -> Duration {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        longest.mul_f64((self.0 >> 40) as f64 / (1u64 << 24) as f64)
    }
}

#[test]
fn killed_runs_that_are_started_again_change_nothing() {
    let kills = std::env::var(KILLS).map_or(4, |number| number.parse().unwrap());
    let (expected, took) = reference();
    let folder = tempfile::tempdir().unwrap();
    let file = experiment(folder.path());
    let mut pauses = Pauses(7);
    let (mut done, mut round) = (0, 0);
    while done < kills {
        let out = folder.path().join(format!("out-{round}"));
        round += 1;
        loop {
            let jobs = ["1", "2"][done % 2];
            let mut child = spawn(run(&file, &out, &["--jobs", jobs]));
            std::thread::sleep(pauses.next(took.div_f64(2.0)));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            done += 1;
            // No job is running then, and no incomplete job looks complete.
            if out.join("experiment.json").exists() {
                let status = stdout(omnidraft().arg("status").arg(&out));
                assert!(!status.contains("prompts ("), "{status}");
            }
            if done == kills {
                break;
            }
        }
        stdout(&mut run(&file, &out, &["--jobs", "2"]));
        Facts::of(&out).assert_same(expected);
    }
}

/// An interrupt prints how to continue, and the same command continues from the last checkpoint.
#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let extra = [
        "--only=task=mini-math",
        "--only=seed=1",
        "--stage=stream",
        "--set=stage.stream.prompts.train=60",
        "--set=stage.stream.checkpoint=2",
    ];
    let started = |mut command: Command| {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::piped());
        quiet.spawn().unwrap()
    };
    let child = started(run(&file, &out, &extra));
    let checkpoint = out.join("stream/task=mini-math,seed=1/checkpoint.json");
    let began = Instant::now();
    while !checkpoint.exists() {
        assert!(began.elapsed() < PATIENCE, "no checkpoint was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(told.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    for part in [
        "stopped: 0/1 jobs",
        "the same command goes on: ",
        "--set=stage.stream.checkpoint=2",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let output = run(&file, &out, &extra).output().unwrap();
    assert_succeeded(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("goes on from its checkpoint, after "),
        "{said}"
    );
    let whole = folder.path().join("whole");
    stdout(&mut run(&file, &whole, &extra));
    let of = |root: &Path| cell(&root.join("stream/task=mini-math,seed=1"));
    assert!(of(&out) == of(&whole), "the rows differ");
}

#[test]
fn printed_lines_one_by_one_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let print = |file: &Path| stdout(&mut run(file, &out, &["--print-jobs"]));
    let text = print(&file);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), JOBS, "{text}");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env_remove("OMNIDRAFT_SHARED");
        shell.output().unwrap()
    };
    // A job that others start from comes first.
    let early = shell(lines[JOBS - 1]);
    assert_eq!(early.status.code(), Some(3), "{early:?}");
    for line in &lines {
        assert_succeeded(&shell(line));
    }
    assert!(!print(&file).lines().any(|line| !line.starts_with('#')));
    let page = stdout(omnidraft().arg("report").arg(&out));
    assert!(page.contains("L_DM+L_N-gram (k = 2)"), "{page}");
    Facts::of(&out).assert_same(&reference().0);
}

#[test]
fn two_processes_share_the_jobs_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let said = ["first.log", "second.log"].map(|name| folder.path().join(name));
    let mut children = said.each_ref().map(|said| {
        let mut command = run(&file, &out, &[]);
        let command = command.stdout(Stdio::null());
        let said = std::fs::File::create(said).unwrap();
        command.stderr(said).spawn().unwrap()
    });
    let processes: BTreeSet<String> = children.iter().map(|c| c.id().to_string()).collect();
    // Each start of a job creates a journal. A job that ran twice would have created two.
    let mut journals: BTreeMap<String, BTreeSet<(u64, SystemTime)>> = BTreeMap::new();
    let mut workers = BTreeSet::new();
    let began = Instant::now();
    while children.iter_mut().any(|c| c.try_wait().unwrap().is_none()) {
        assert!(began.elapsed() < PATIENCE, "too slow");
        for (name, folder) in folders(&out) {
            if let Ok(file) = std::fs::metadata(folder.join("prompts.jsonl")) {
                let made = (file.ino(), file.created().unwrap());
                journals.entry(name).or_default().insert(made);
            }
            let holder = std::fs::read_to_string(folder.join("lock")).unwrap_or_default();
            let mut words = holder.split(' ').skip(1);
            // The lock's text may be incomplete.
            if let (Some(process), Some("on")) = (words.next(), words.next()) {
                workers.insert(process.to_owned());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for (child, said) in children.iter_mut().zip(said) {
        let said = std::fs::read_to_string(said).unwrap();
        assert!(child.wait().unwrap().success(), "{said}");
    }
    assert_eq!(journals.len(), JOBS, "{journals:?}");
    assert!(journals.values().all(|of| of.len() == 1), "{journals:?}");
    assert_eq!(workers, processes, "both did some");
    Facts::of(&out).assert_same(&reference().0);
}

#[test]
fn a_cell_is_run_again_from_its_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let only = ["--only", "task=mini-math", "--only", "seed=2"];
    stdout(&mut run(&file, &out, &only));
    let name = "task=mini-math,seed=2";
    let published = folder.path().join("published");
    stdout(omnidraft().arg("publish").args([&out, &published]));
    // A run goes on from cells of a program that had a key which is a constant now.
    let path = out.join("stream").join(name).join("manifest.json");
    let own = std::fs::read_to_string(&path).unwrap();
    let older = |scale: f64| {
        let mut json: serde_json::Value = serde_json::from_str(&own).unwrap();
        json["config"]["arms"][0]["decode"]["entropy_scale"] = scale.into();
        json["config_sha256"] = "d".repeat(64).into();
        std::fs::write(&path, json.to_string()).unwrap();
        run(&file, &out, &only).output().unwrap()
    };
    let edited = older(0.3);
    assert_eq!(edited.status.code(), Some(2), "{edited:?}");
    assert!(String::from_utf8_lossy(&edited.stderr).contains("another configuration"));
    let goes_on = older(0.2);
    assert_eq!(goes_on.status.code(), Some(0), "{goes_on:?}");
    std::fs::write(&path, &own).unwrap();
    let again = folder.path().join("again");
    let manifest = |stage: &str| published.join(stage).join(name).join("manifest.json");
    // As a program wrote it that had a key which is a constant now.
    let edit = |file: &Path, change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(file, json.to_string()).unwrap();
    };
    let hash = |stage: &str| if stage == "stream" { "e" } else { "f" }.repeat(64);
    for stage in ["stream", "held-out"] {
        edit(&manifest(stage), &|json| {
            json["config"]["arms"][0]["decode"]["entropy_scale"] = 0.2.into();
            json["config_sha256"] = hash(stage).into();
        });
    }
    edit(&published.join("experiment.json"), &|json| {
        for job in json["jobs"].as_array_mut().unwrap() {
            let stage = job["stage"].as_str().unwrap().to_owned();
            job["hash"] = hash(&stage).into();
            if job["needs"].is_object() {
                job["needs"]["hash"] = hash("stream").into();
            }
        }
    });
    let early = run(&manifest("held-out"), &again, &[]).output().unwrap();
    assert_eq!(early.status.code(), Some(3), "{early:?}");
    for stage in ["stream", "held-out"] {
        stdout(&mut run(&manifest(stage), &again, &[]));
        let folder = |root: &Path| root.join(stage).join(name);
        let (old, new) = (folder(&out), folder(&again));
        let (cells, read) = ([&old, &new].map(|folder| cell(folder)), Manifest::read);
        let [old, new] = [old, new].map(|folder| read(&folder).unwrap());
        assert_eq!(new.config_sha256, hash(stage));
        let [first, second] = cells;
        let second = second.replace(&new.config_sha256, &old.config_sha256);
        assert!(first == second, "{stage}");
        assert_eq!(old.cell, new.cell);
        assert_eq!(old.config, new.config);
    }
    // A cell of another configuration does not get into that folder.
    let before = std::fs::read(again.join("experiment.json")).unwrap();
    std::fs::remove_dir_all(again.join("held-out")).unwrap();
    edit(&manifest("held-out"), &|json| {
        json["config_sha256"] = "d".repeat(64).into();
    });
    edit(&published.join("experiment.json"), &|json| {
        let mut jobs = json["jobs"].as_array_mut().unwrap().iter_mut();
        let own = jobs.find(|job| job["stage"] == "held-out" && job["cell"] == name);
        own.unwrap()["hash"] = "d".repeat(64).into();
    });
    let other = run(&manifest("held-out"), &again, &[]).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(told.contains("of another configuration"), "{told}");
    assert_eq!(
        std::fs::read(again.join("experiment.json")).unwrap(),
        before
    );
    assert!(!again.join("held-out").exists());

    let no_folder = omnidraft().arg("run").arg(manifest("stream")).output();
    let no_folder = no_folder.unwrap();
    assert_eq!(no_folder.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&no_folder.stderr).contains("--out"));
    // Options that another run would need are not passed over in silence.
    let elsewhere = folder.path().join("elsewhere");
    for option in [
        &["--dry-run"][..],
        &["--print-jobs"],
        &["--jobs", "2"],
        &["--stop-on-failure"],
        &["--launcher", "slurm"],
        &["--set", "decode.k=3"],
        &["--device", "cpu"],
        &["--only", "seed=1"],
        &["--stage", "stream"],
    ] {
        let refused = run(&manifest("stream"), &elsewhere, option)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{option:?}: {said}");
        assert!(said.contains("hint: leave out options"), "{said}");
        assert!(!elsewhere.exists(), "{option:?}");
    }
}

#[test]
fn a_real_slurm_changes_nothing() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let cluster = Cluster::start(folder.path().join("slurm"));
    let asked = |mut command: Command| {
        command.env("SLURM_CONF", cluster.conf());
        command
    };
    let queue = || stdout(asked(Command::new("squeue")).args(["-h", "-r"]));
    let submit = || stdout(&mut asked(run(&file, &out, &["--launcher", "slurm"])));
    let said = submit();
    assert!(!queue().is_empty(), "{said}");
    let began = Instant::now();
    while !queue().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", queue());
        std::thread::sleep(Duration::from_millis(200));
    }
    let status = stdout(omnidraft().arg("status").arg(&out));
    let logs = || {
        let logs = std::fs::read_dir(out.join("slurm/logs")).unwrap();
        let texts = logs.map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap());
        texts.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(folders(&out).len(), JOBS, "{status}\n{}", logs());
    stdout(omnidraft().arg("report").arg(&out));
    Facts::of(&out).assert_same(&reference().0);
    // All jobs are complete or submitted.
    submit();
    assert_eq!(queue(), "");
}
