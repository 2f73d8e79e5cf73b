//! `omnidraft run` and `job`: experiments and their folders.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bench::args::{DataArgs, ExperimentArgs, print};
use clap::{Args, ValueEnum};
use experiment::{Job, JobConfig, LauncherConfig, Plan};
use jobs::{
    Batch, CellState, Checks, JobCommand, JobContext, JobId, JobSpec, LocalOptions, ProgressView,
    RootRecord, RunRoot, Slurm, SlurmOptions, Summary, exit, print_jobs, run_local,
};
use report::{ReportError, check_metrics};
use streams::DataSource;

use super::edited::explained;
use super::failure;
use super::plan::{dry_run, record, specs};
use super::preflight::{Found, Models, open};
use crate::{build, execute};

/// The program that runs the jobs.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LauncherName {
    /// This process.
    Local,
    /// Slurm, by `sbatch`: an array a stage, chained cell by cell.
    Slurm,
}

/// Exit status after an interrupt, by custom.
const INTERRUPTED: i32 = 130;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft run experiments/quickstart.toml
  omnidraft run experiments/quickstart.toml --set decode.k=3 --set decode.temperature=0 --out runs/greedy
  omnidraft run experiments/quickstart.toml --device gpu --out runs/gpu
  omnidraft run experiments/table1.toml --data-dir DATA --jobs 2
  omnidraft run experiments/table1.toml --data-dir hub --only target=L --stage stream
  omnidraft run experiments/table1.toml --data-dir DATA --include experiments/models/paper.toml
  omnidraft run experiments/table1.toml --data-dir DATA --dry-run
  omnidraft run experiments/table1.toml --data-dir DATA --launcher slurm
  omnidraft run experiments/quickstart.toml --print-jobs
  omnidraft run results/quickstart/stream/seed=1/manifest.json --out runs/again

A job is a cell of a stage and has a folder of its own. The same command again does what is missing,
also after an interrupt: jobs that are complete are left alone, others start anew or from their last
checkpoint; where only [report] was changed, the page is made again.

Paths of models are relative to the working directory, those of `include` to the file.")]
pub struct RunArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Results folder [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of jobs at a time; timed ones always run alone.
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    /// Check all requirements, print the jobs and an estimate of the time; run and download
    /// nothing.
    #[arg(long)]
    dry_run: bool,
    /// Program that runs the jobs.
    #[arg(long, value_enum, default_value_t = LauncherName::Local)]
    launcher: LauncherName,
    /// Print a command line for each job, for another scheduler, and run nothing.
    #[arg(long)]
    print_jobs: bool,
    /// Start no further jobs after a failure.
    #[arg(long)]
    stop_on_failure: bool,
    #[command(flatten)]
    going_on: GoingOn,
    #[command(flatten)]
    data: DataArgs,
}

/// Use of earlier results.
#[derive(Debug, Clone, Copy, Args)]
struct GoingOn {
    /// Continue in a folder whose complete jobs were run by another build of this version.
    #[arg(long)]
    accept_other_build: bool,
}

impl GoingOn {
    fn checks(self) -> Checks {
        Checks {
            build: build::info(),
            accept_other_build: self.accept_other_build,
            hash_of: |config| Some(JobConfig::from_json(config).ok()?.hash()),
        }
    }
}

impl RunArgs {
    /// Runs the experiment, or hands it over, and writes its report.
    pub fn execute(self, progress: bool) -> Result<ExitCode> {
        let data = self.data.source()?;
        if self
            .experiment
            .file
            .extension()
            .is_some_and(|e| e == "json")
        {
            return self.again(&data, progress);
        }
        let whole = self.experiment.plan()?;
        check_metrics(&whole.experiment.report, &self.experiment.file)?;
        let name = &whole.experiment.name;
        let out = self.out.clone();
        let out = out.unwrap_or_else(|| PathBuf::from("runs").join(name));
        let wanted = self.experiment.filter(whole.clone())?;
        let here = !self.print_jobs && matches!(self.launcher, LauncherName::Local);
        if here {
            check_devices(&wanted)?;
        }
        let open = open(&wanted, &out);
        if self.dry_run {
            self.look(&wanted, &open, &data)?;
            let models = Models::of(&open)?;
            print(&dry_run(
                &wanted,
                &open,
                &models,
                &out,
                &data,
                self.jobs.get(),
            )?)?;
            return Ok(ExitCode::SUCCESS);
        }
        // Reads every used task, after downloading it if necessary.
        let record = record(&whole, specs(&whole, &whole.jobs, &data)?)?;
        let chosen = specs(&whole, &wanted.jobs, &data)?;
        self.look(&wanted, &open, &data)?;
        if here {
            let models = Models::of(&open)?;
            if !models.absent.is_empty() {
                eprintln!("downloading first: {}", models.absent.join(", "));
            }
        }
        let root = RunRoot::new(&out);
        let checks = self.going_on.checks();
        let claimed = root.claim(&record, &chosen, &checks);
        let states: Vec<CellState> = claimed.map_err(|error| explained(error, &whole))?;
        if !here {
            let batch = Batch {
                root: &root,
                name,
                jobs: &chosen,
                states: &states,
                command: &self.command()?,
                checks: &checks,
            };
            let submission = match self.print_jobs {
                true => print_jobs(&batch)?,
                false => Slurm::new(slurm_options(&whole.experiment.launcher)?).submit(&batch)?,
            };
            print(&submission.text)?;
            tell_blocked(&submission.blocked);
            let code = match submission.blocked.is_empty() {
                true => exit::COMPLETE,
                false => exit::BLOCKED,
            };
            return Ok(ExitCode::from(code));
        }
        let options = LocalOptions {
            workers: self.jobs,
            keep_going: !self.stop_on_failure,
            ..LocalOptions::new(checks)
        };
        let jobs = (&wanted.jobs[..], &chosen[..]);
        let summary = run_here(&root, &record, jobs, &data, &options, progress)?;
        finish(&root, &summary)
    }

    /// Refuses jobs that would fail, and warns of parts of the page that would be empty.
    fn look(&self, plan: &Plan, open: &[&Job], data: &DataSource) -> Result<()> {
        let found = Found::look(plan, open, data, &self.data.words()?)?;
        for warning in &found.warnings {
            eprintln!("warning: {warning}");
        }
        Ok(found.refuse(&self.experiment.file)?)
    }

    /// Runs the cell of a manifest again.
    fn again(&self, data: &DataSource, progress: bool) -> Result<ExitCode> {
        let Some(out) = &self.out else {
            bail!("a manifest is run again into a folder of its own: give --out DIR");
        };
        let elsewhere = !matches!(self.launcher, LauncherName::Local);
        let several = self.jobs.get() > 1 || self.stop_on_failure;
        if self.dry_run || self.print_jobs || several || elsewhere || self.experiment.changes() {
            bail!(
                "{}: a manifest is run as it is and here\nhint: leave out options other than --out, --data-dir and --accept-other-build, or run the experiment's own file",
                self.experiment.file.display()
            );
        }
        let file = &self.experiment.file;
        let (job, mut record) = from_manifest(file)?;
        let spec = record.jobs.iter().find(|spec| is_job(&job, spec)).cloned();
        let spec = spec.with_context(|| format!("{}: not in experiment.json", job.config))?;
        if spec.hash != job.hash {
            bail!(
                "{}: its configuration is not that of {} in experiment.json\nhint: run the experiment's own file",
                file.display(),
                job.config
            );
        }
        let root = RunRoot::new(out);
        if let Some(known) = root.read_record()? {
            // Its page counts every complete cell, so a cell of another experiment must not get in.
            let own = |own: &JobSpec| own.id == spec.id && own.hash == spec.hash;
            if known.name != record.name || !known.jobs.iter().any(own) {
                bail!(
                    "{}: is of another experiment, or of another configuration of {}\nhint: use another --out",
                    out.display(),
                    job.config
                );
            }
            record = known;
        }
        let checks = self.going_on.checks();
        let jobs = (std::slice::from_ref(&job), std::slice::from_ref(&spec));
        root.claim(&record, jobs.1, &checks)?;
        let options = LocalOptions::new(checks);
        let summary = run_here(&root, &record, jobs, data, &options, progress)?;
        finish(&root, &summary)
    }

    /// The command for a job, with the options of this one.
    fn command(&self) -> Result<JobCommand> {
        let mut extra = Vec::new();
        for item in self.experiment.overrides() {
            extra.extend(["--set".to_owned(), item]);
        }
        for file in &self.experiment.includes {
            let file = std::path::absolute(file)?;
            extra.extend(["--include".to_owned(), file.display().to_string()]);
        }
        extra.extend(self.data.words()?);
        if self.going_on.accept_other_build {
            extra.push("--accept-other-build".to_owned());
        }
        Ok(JobCommand {
            program: std::env::current_exe().context("where this program is")?,
            file: self.experiment.file.clone(),
            folder: std::env::current_dir().context("where this program runs")?,
            extra,
        })
    }
}

/// Checks that this program supports the devices of the jobs.
fn check_devices(plan: &Plan) -> Result<()> {
    let mut seen = HashSet::new();
    for job in &plan.jobs {
        let models = &job.config.models;
        for model in models.targets.values().chain([&models.drafter]) {
            let device = models.device_of(model);
            if seen.insert(device) {
                models::check_device(device)?;
            }
        }
    }
    Ok(())
}

fn slurm_options(launcher: &LauncherConfig) -> Result<SlurmOptions> {
    let section = serde_json::to_value(&launcher.slurm)?;
    let empty = serde_json::Map::new();
    Ok(SlurmOptions::new(section.as_object().unwrap_or(&empty))?)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft job experiments/quickstart.toml --stage stream --cell seed=1 --out runs/quickstart

`omnidraft run --print-jobs` prints these lines. Exit status: 0 complete, 1 failed, 2 refused, 3 what
it starts from is not complete.")]
pub struct JobArgs {
    /// The experiment.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Stage of the job.
    #[arg(long)]
    stage: String,
    /// Cell of the job, which is the name of its folder.
    #[arg(long)]
    cell: String,
    /// Results folder of the experiment.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Override a key of the experiment; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Read this file after those that the experiment includes; may be repeated.
    #[arg(long = "include", value_name = "FILE")]
    includes: Vec<PathBuf>,
    #[command(flatten)]
    going_on: GoingOn,
    #[command(flatten)]
    data: DataArgs,
}

impl JobArgs {
    pub fn execute(self, progress: bool) -> Result<ExitCode> {
        let data = self.data.source()?;
        let plan = ExperimentArgs {
            file: self.file,
            overrides: self.overrides,
            device: None,
            includes: self.includes,
            only: Vec::new(),
            stage: None,
        }
        .plan()?;
        let all = specs(&plan, &plan.jobs, &data)?;
        let found = plan.jobs.iter().zip(&all);
        let mut found =
            found.filter(|(job, _)| job.config.stage == self.stage && job.config.cell == self.cell);
        let Some((job, spec)) = found.next() else {
            bail!(
                "the experiment has no cell `{}` of a stage `{}`",
                self.cell,
                self.stage
            );
        };
        let jobs = (std::slice::from_ref(job), std::slice::from_ref(spec));
        let record = record(&plan, all.clone())?;
        let root = RunRoot::new(&self.out);
        let checks = self.going_on.checks();
        let claimed = root.claim(&record, jobs.1, &checks);
        claimed.map_err(|error| explained(error, &plan))?;
        let options = LocalOptions::new(checks);
        let summary = run_here(&root, &record, jobs, &data, &options, progress)?;
        tell(&summary);
        Ok(ExitCode::from(summary.exit_code()))
    }
}

/// Runs the chosen ones of some jobs in this process, with one view of all of them.
fn run_here(
    root: &RunRoot,
    record: &RootRecord,
    (jobs, chosen): (&[Job], &[JobSpec]),
    data: &DataSource,
    options: &LocalOptions,
    progress: bool,
) -> Result<Summary> {
    let view = watched(ProgressView::new(options.workers.get(), progress), root)?;
    let runner = |spec: &JobSpec, context: &JobContext<'_>| {
        let found = jobs.iter().find(|job| is_job(job, spec));
        let job = found.ok_or_else(|| format!("{}: not in the plan", spec.id))?;
        run_one(job, record, data, context)
    };
    let summary = run_local(root, chosen, options, &runner, &|event| view.show(event))?;
    view.finish();
    Ok(summary)
}

fn is_job(job: &Job, spec: &JobSpec) -> bool {
    job.config.stage == spec.id.stage() && job.config.cell == spec.id.cell()
}

fn run_one(
    job: &Job,
    record: &RootRecord,
    data: &DataSource,
    context: &JobContext<'_>,
) -> Result<(), String> {
    let from = context.needed().map(jobs::JobFolder::path);
    let mut watch = |progress: online::Progress| {
        context.progress(jobs::Progress {
            done: progress.done as u64,
            of: progress.of as u64,
            acceptance: progress.acceptance,
            tokens_per_s: Some(progress.tokens_per_s),
        });
    };
    let out = context.folder().path();
    let done = execute::execute(job, &record.hash, data, out, from, &mut watch);
    done.map_err(|error| failure::told(&error))
}

/// A view that an interrupt ends with the program: complete jobs stay, and the same command
/// continues.
fn watched(view: ProgressView, root: &RunRoot) -> Result<Arc<ProgressView>> {
    let view = Arc::new(view);
    let (watched, folder) = (Arc::clone(&view), root.path().to_path_buf());
    let words = std::env::args().map(|word| jobs::quote(&word));
    let command = words.collect::<Vec<_>>().join(" ");
    ctrlc::set_handler(move || {
        watched.println(&format!(
            "stopped: {}; what is complete stays in {}\nthe same command goes on: {command}",
            watched.summary(),
            folder.display()
        ));
        std::process::exit(INTERRUPTED);
    })
    .context("interrupts cannot be watched")?;
    Ok(view)
}

/// A published cell as a job, and the record of its run.
fn from_manifest(file: &Path) -> Result<(Job, RootRecord)> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let manifest = results::Manifest::read(folder)?;
    let config = JobConfig::from_json(&manifest.config)
        .with_context(|| format!("{}: config", file.display()))?;
    let root = folder
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    let record = RunRoot::new(root).read_record()?;
    let record = record.with_context(|| {
        format!(
            "{}: no experiment.json two folders above the manifest",
            root.display()
        )
    })?;
    let job = Job {
        // Not the hash of the configuration as it was read: keys that are constants now are gone from that.
        hash: manifest.config_sha256,
        config,
        coordinates: manifest.cell.coordinates,
    };
    Ok((job, record))
}

/// Prints failures and blocked jobs on stderr.
fn tell(summary: &Summary) {
    for (id, message) in &summary.failed {
        eprintln!("failed: {id}: {message}");
    }
    tell_blocked(&summary.blocked);
    if !summary.left.is_empty() {
        eprintln!("not started after a failure: {} jobs", summary.left.len());
    }
}

/// Prints jobs that cannot run or be handed over, with the reasons.
fn tell_blocked(blocked: &[(JobId, String)]) {
    for (id, reason) in blocked {
        eprintln!("not started: {id}: {reason}");
    }
}

fn finish(root: &RunRoot, summary: &Summary) -> Result<ExitCode> {
    tell(summary);
    let mut code = summary.exit_code();
    if !summary.finished.is_empty() || code == exit::COMPLETE {
        match report::write_report(root.path()) {
            Ok(written) => {
                print(&written.markdown)?;
                let is_page = |ending: &str| {
                    let page = format!("report.{ending}");
                    written.files.iter().find(|file| file.ends_with(&page))
                };
                if let Some(page) = is_page("html").or_else(|| is_page("md")) {
                    eprintln!("page: {}", page.display());
                }
            }
            // Only some of the jobs were run, and none of the stage of the tables.
            Err(nothing @ ReportError::Empty { .. }) => eprintln!("no report yet: {nothing}"),
            // The jobs are done, and their exit status is not to be that of a refusal.
            Err(error) => {
                eprintln!("{}", failure::report(&error.into()));
                code = code.max(exit::FAILED);
            }
        }
    }
    eprintln!("results: {}", root.path().display());
    Ok(ExitCode::from(code))
}
