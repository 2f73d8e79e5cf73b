//! `omnidraft new`: a commented experiment to begin with.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bench::args::print;
use clap::Args;
use streams::{DataSource, Prompt, Split};

use super::DataArgs;

/// The file that is written, with names between @ signs for what differs.
const TEMPLATE: &str = include_str!("new.toml");
/// Models of the repository, and the inner columns that make both cost what large ones do.
const OWN: [(&str, usize); 2] = [("models/D", 3072), ("models/L", 12288)];
/// The task if none is named.
const EMBEDDED: &str = "mini-math";
/// Numbers of prompts that are streamed and held out, if the task has as many.
const PROMPTS: [usize; 2] = [60, 20];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft new mine
  omnidraft new mine --task mini-code
  omnidraft new mine --data-dir DATA --task tickets
  omnidraft new mine --target hf:Qwen/Qwen2.5-0.5B-Instruct --drafter hf:HuggingFaceTB/SmolLM2-135M-Instruct

Writes NAME.toml, which runs as it is, and never over another file. Your own prompts are lines of JSON in
DATA/tickets/train.jsonl and DATA/tickets/test.jsonl: {\"id\": \"1\", \"prompt\": \"...\"}.")]
pub struct NewArgs {
    /// Name of the experiment; folders before it say where the file goes.
    #[arg(value_name = "NAME")]
    name: PathBuf,
    /// The task: a folder of --data-dir, or an embedded stream [default: mini-math]
    #[arg(long)]
    task: Option<String>,
    /// Model folder of the target, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR", default_value = OWN[1].0)]
    target: PathBuf,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR", default_value = OWN[0].0)]
    drafter: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

impl NewArgs {
    /// Writes the file and says what to type next.
    pub fn execute(self) -> Result<()> {
        let name = self.name.file_name().and_then(|name| name.to_str());
        let name = name.map(|name| name.strip_suffix(".toml").unwrap_or(name));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        let Some(name) = name
            .filter(|name| !name.is_empty() && name.chars().all(plain) && !name.starts_with('.'))
        else {
            bail!(
                "`{}` is no name: a name has letters, digits, `.`, `_`, `+` and `-`",
                self.name.display()
            );
        };
        let path = self.name.with_file_name(format!("{name}.toml"));
        let data = self.data_option()?;
        let task = match (&self.task, data.is_empty()) {
            (Some(task), _) => task.clone(),
            (None, true) => EMBEDDED.to_owned(),
            (None, false) => {
                bail!("--data-dir holds tasks: say which one\nhint: --task NAME, a folder in it")
            }
        };
        let text = self.text(name, &task, &path, &data)?;
        write(&path, &text)?;
        let file = path.display().to_string();
        let next = jobs::quote(&file);
        print(&format!(
            "wrote {file}\nnext: omnidraft run {next}{data} --dry-run\n"
        ))
    }

    /// `--data-dir` as it was given, with a space before it; empty for embedded streams.
    fn data_option(&self) -> Result<String> {
        let words = self.data.words()?;
        let words = words.iter().map(|word| format!(" {}", jobs::quote(word)));
        Ok(words.collect())
    }

    fn text(&self, name: &str, task: &str, path: &Path, data: &str) -> Result<String> {
        let target = target_name(&self.target);
        let prompts = Prompts::of(&self.data.source()?, task)?;
        let own = [&self.drafter, &self.target]
            .iter()
            .zip(OWN)
            .all(|(path, (own, _))| path.as_path() == Path::new(own));
        let file = path.display().to_string();
        let values = [
            ("@NAME@", name.to_owned()),
            ("@NAME_TEXT@", quoted(name)),
            ("@TITLE_TEXT@", quoted(&format!("{name}: does it pay to learn on {task}?"))),
            ("@FILE@", jobs::quote(&file)),
            ("@DATA@", data.to_owned()),
            ("@MODELS@", self.models(&target, own)?),
            ("@TARGET_TEXT@", quoted(&target)),
            ("@TASK_TEXT@", quoted(task)),
            (
                "@TASK_SAYS@",
                match data.is_empty() {
                    true => "Embedded: mini-math, mini-code, mini-chat, mini-news. Your own: a folder of --data-dir.",
                    false => "A folder of --data-dir with its prompts.",
                }
                .to_owned(),
            ),
            ("@STAGES@", prompts.stages()),
            (
                "@LR@",
                if own { "2e-3" } else { "1e-5" }.to_owned(),
            ),
            (
                "@LR_SAYS@",
                match own {
                    true => "Large drafters want about 1e-5.",
                    false => "Small drafters, of a few million parameters, want about 2e-3.",
                }
                .to_owned(),
            ),
        ];
        let filled = |text: String, (key, value): &(&str, String)| text.replace(key, value);
        Ok(values.iter().fold(TEMPLATE.to_owned(), filled))
    }

    /// The section of the models. Those of the repository are so small that a draft costs nearly
    /// what it may save, so they are padded.
    fn models(&self, target: &str, own: bool) -> Result<String> {
        let text = |path: &Path| {
            let text = path.to_str();
            text.map(quoted)
                .ok_or_else(|| anyhow!("{}: not UTF-8", path.display()))
        };
        let [drafter, large] = [text(&self.drafter)?, text(&self.target)?];
        let key = quoted(target);
        if !own {
            return Ok(format!(
                "[models]\ndrafter = {drafter}\ntargets.{key} = {large}"
            ));
        }
        let [(_, of_drafter), (_, of_target)] = OWN;
        Ok(format!(
            "# These two are small: `pad_width` adds inner columns that change no output, so that a step costs what one of\n\
             # large models does. Leave it out for your own.\n\
             [models]\n\
             drafter = {{ path = {drafter}, pad_width = {of_drafter} }}\n\
             targets.{key} = {{ path = {large}, pad_width = {of_target} }}"
        ))
    }
}

/// The name of a target: the last part of its path, as far as it can be a name.
fn target_name(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text.trim_start_matches(models::TORCH_PREFIX);
    let text = match text.starts_with("hf:") {
        true => text.split('@').next().unwrap_or_default(),
        false => text,
    };
    let last = text.trim_end_matches('/').rsplit(['/', ':']).next();
    let kept = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = last.unwrap_or_default().chars().filter(kept).collect();
    match name.trim_start_matches('.') {
        "" => "target".to_owned(),
        name => name.to_owned(),
    }
}

/// A text in TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The numbers of prompts that the halves of a task give.
enum Prompts {
    /// Streamed ones, and others that are held out.
    Both([usize; 2]),
    /// Streamed ones alone: some of the records are in both halves.
    Streamed(usize),
}

impl Prompts {
    fn of(data: &DataSource, task: &str) -> Result<Self> {
        if !data.is_here(task) {
            return Ok(Self::Both(PROMPTS));
        }
        let train = data.load(task, Split::Train)?;
        let test = data.load(task, Split::Test)?;
        let of = |prompts: &[Prompt], most: usize| prompts.len().min(most);
        let held_out: HashSet<&str> = test.iter().map(|prompt| &*prompt.prompt).collect();
        Ok(
            match train.iter().any(|own| held_out.contains(&*own.prompt)) {
                true => Self::Streamed(of(&train, PROMPTS[0])),
                false => Self::Both([of(&train, PROMPTS[0]), of(&test, PROMPTS[1])]),
            },
        )
    }

    fn stages(&self) -> String {
        match self {
            Self::Both([train, test]) => format!(
                "# First the stream: arms that learn do so on these prompts. \"all\" takes every one that the task has.\n\
                 [stage.stream]\n\
                 prompts = {{ train = {train} }}\n\
                 \n\
                 # Then prompts that nobody learnt from, with drafters and n-grams as the stream left them. `exclusive`: a job\n\
                 # has the machine for itself, so that its times mean something.\n\
                 [stage.held-out]\n\
                 from = \"stream\"\n\
                 exclusive = true\n\
                 prompts = {{ test = {test} }}\n"
            ),
            Self::Streamed(train) => format!(
                "# The stream: every arm answers these prompts, and arms that learn do so on the way. \"all\" takes every one\n\
                 # that the task has. `exclusive`: a job has the machine for itself, so that its times mean something.\n\
                 [stage.stream]\n\
                 exclusive = true\n\
                 on_stream = \"all\"\n\
                 prompts = {{ train = {train} }}\n"
            ),
        }
    }
}

/// Writes a file that is not there yet.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| folder.display().to_string())?;
    }
    let mut file = match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "{}: is there already\nhint: nothing is overwritten; choose another name",
            path.display()
        ),
        file => file.with_context(|| path.display().to_string())?,
    };
    let written = file.write_all(text.as_bytes());
    written.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::target_name;

    #[test]
    fn a_target_is_called_by_its_last_part() {
        for (path, name) in [
            ("models/L", "L"),
            ("torch:models/L/", "L"),
            ("runs@home/L", "L"),
            ("models/L 2", "L2"),
            ("hf:owner/name@main", "name"),
            ("..", "target"),
        ] {
            assert_eq!(target_name(path.as_ref()), name, "{path}");
        }
    }
}
