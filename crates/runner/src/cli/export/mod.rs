//! `omnidraft export`: a drafter with its learnt state, as a model for other programs.

mod card;
mod found;
mod of_run;
mod of_state;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bench::args::print;
use clap::{Args, ValueEnum};
use lm::{
    Checkpoint, GgufType, LmConfig, LoraConfig, StoredCheckpoint, StoredType, adapted, check_gguf,
    write_gguf, write_model,
};
use models::{ModelFolder, copy_text, gguf_text};
use online::{Names, SavedDrafter, SavedState};
use serde_json::Value;
use vocab_align::DraftId;
use weights::{Encoding, GgufEntry};

use card::Card;
use found::Found;

/// Maximum bytes of a file of weights, as in transformers.
const SHARD: u64 = 5_000_000_000;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft export runs/chats --to hf --out runs/models/learnt
  omnidraft export runs/chats --to gguf --type q8_0 --out runs/models/learnt.gguf
  omnidraft export runs/lora --target qwen05 --arm L_DM --to hf --adapter --out runs/models/adapter
  omnidraft export runs/mine/stream/seed=1,target=L,task=mini-math --arm L_DM --to state --out runs/from-mine
  omnidraft generate --target models/L --drafter runs/models/learnt --prompt 'Write a haiku.'

A run keeps what its drafters learnt in stages that a later stage starts from (from = \"stream\").")]
pub struct ExportArgs {
    /// The state folder of `serve` or `chat`, the folder of a run, or of one of its cells.
    #[arg(value_name = "STATE|RUN")]
    source: PathBuf,
    /// Output: a model folder for transformers, a file for llama.cpp, or a state for `serve`.
    #[arg(long, value_enum)]
    to: Form,
    /// The folder to create, or for gguf the file.
    #[arg(long)]
    out: PathBuf,
    /// The drafter that learnt [default: the one that the state or the run names].
    #[arg(long, value_name = "DIR")]
    drafter: Option<PathBuf>,
    /// Target for which it learnt, if it learnt for several.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Task on which it learnt, if a run has several.
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Arm of a run that learnt, if several did.
    #[arg(long, value_name = "NAME")]
    arm: Option<String>,
    /// Type of the written weights [default: that of the drafter for hf, f16 for gguf].
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    stored: Option<Stored>,
    /// Export the adapter by itself, in the files of PEFT, not merged.
    #[arg(long)]
    adapter: bool,
}

/// Kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A folder: configuration, safetensors, tokenizer, card.
    Hf,
    /// A file with all of it.
    Gguf,
    /// Knowledge of one target's drafter, for `--state` of `serve`, `chat` and `learn`.
    State,
}

/// Types of weights in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Stored {
    /// 32 bits; hf only.
    F32,
    /// 16 bits, of which 8 for the fraction; hf only.
    Bf16,
    /// 16 bits, of which 11 for the fraction.
    F16,
    /// 8 bits and a scale for 32 of them; gguf only.
    #[value(name = "q8_0")]
    Q8_0,
}

impl ExportArgs {
    /// Writes the model and prints its description.
    pub fn execute(self) -> Result<()> {
        if self.out.exists() {
            bail!(
                "{}: is there already\nhint: name another place with --out, or remove this one",
                self.out.display()
            );
        }
        let form = self.form()?;
        let found = self.find()?;
        let path = self.drafter.as_deref().unwrap_or(found.saved.drafter());
        let drafter = ModelFolder::<DraftId>::load(path)?;
        found.saved.check(&drafter.path, None)?;
        if form == Written::State {
            return self.write_state(&found);
        }
        if self.to == Form::Gguf {
            check_gguf(drafter.config()).with_context(|| path.display().to_string())?;
        }
        let saved = SavedDrafter::read(&found.saved, &found.name, drafter.checkpoint()?)
            .with_context(|| format!("what {} learnt", drafter.path.display()))?;
        saved.check_finite()?;
        let card = Card {
            found: &found,
            base: path,
            saved: &saved,
        };
        let said = match form {
            Written::Adapter => self.write_adapter(drafter.config(), &card)?,
            Written::Folder(stored) => self.write_folder(&drafter, stored, &card)?,
            Written::File(stored) => self.write_file(&drafter, stored, &card)?,
            Written::State => String::new(),
        };
        print(&format!("{}: {}\n{said}", self.out.display(), card.line()))
    }

    /// The output that the arguments request.
    fn form(&self) -> Result<Written> {
        Ok(match (self.to, self.adapter, self.stored) {
            (Form::State, false, None) => Written::State,
            (Form::State, _, _) => bail!("--to state takes neither --type nor --adapter"),
            (Form::Gguf, true, _) => {
                bail!("--adapter: adapters are written with --to hf, in the files of PEFT")
            }
            (Form::Hf, true, None) => Written::Adapter,
            (Form::Hf, true, Some(_)) => bail!("--type: adapters are written in f32"),
            (Form::Hf, false, None) => Written::Folder(None),
            (Form::Hf, false, Some(Stored::F32)) => Written::Folder(Some(StoredType::F32)),
            (Form::Hf, false, Some(Stored::Bf16)) => Written::Folder(Some(StoredType::Bf16)),
            (Form::Hf, false, Some(Stored::F16)) => Written::Folder(Some(StoredType::F16)),
            (Form::Gguf, false, None | Some(Stored::F16)) => Written::File(GgufType::F16),
            (Form::Gguf, false, Some(Stored::Q8_0)) => Written::File(GgufType::Q8_0),
            (_, false, Some(_)) => {
                bail!("--type: hf takes f32, bf16 and f16, gguf takes f16 and q8_0")
            }
        })
    }

    /// The learnt state, depending on the kind of source.
    fn find(&self) -> Result<Found> {
        let source = &self.source;
        if !source.is_dir() {
            bail!("{}: no such folder", source.display());
        }
        let chosen = found::Chosen {
            target: self.target.as_deref(),
            task: self.task.as_deref(),
            arm: self.arm.as_deref(),
        };
        if let Some(state) = SavedState::open(source)? {
            return of_state::find(source, state, chosen);
        }
        match of_run::find(source, chosen)? {
            Some(found) => Ok(found),
            None => bail!(
                "{}: nothing that a drafter learnt is in it\nhint: the --state folder of serve or chat holds it once they have learnt and saved, and the folder of a run with a stage that another one starts from (from = \"stream\")",
                source.display()
            ),
        }
    }

    /// Writes a state for one target, which is served under the name that it has here.
    fn write_state(&self, found: &Found) -> Result<()> {
        let target = found::one(
            &found.targets,
            self.target.as_deref(),
            ("target", "--target"),
            &self.source,
        )?;
        let head = match found.heads.as_slice() {
            [] => None,
            heads => Some(found::one(heads, None, ("head", "--task"), &self.source)?.clone()),
        };
        let names = Names {
            target: target.split('/').next().unwrap_or_default().to_owned(),
            learnt: found.name.clone(),
            head,
        };
        in_place(&self.out, |folder| {
            Ok(found.saved.hand_over(folder, &names)?)
        })?;
        let part = found.saved.part();
        let quoted = |path: &Path| jobs::quote(&path.display().to_string());
        print(&format!(
            "{}: what {} knows for {}: {part}\n\
             omnidraft serve --target {}=DIR --drafter {} --adapter-rank {} --learn-blocks {} --state {}\n",
            self.out.display(),
            found.place,
            names.target,
            names.target,
            quoted(found.saved.drafter()),
            part.rank,
            part.blocks,
            quoted(&self.out),
        ))
    }

    fn write_adapter(&self, config: &LmConfig, card: &Card<'_>) -> Result<String> {
        let Some(adapter) = &card.saved.adapter else {
            bail!(
                "--adapter: {} learnt, not an adapter\nhint: without --adapter a whole model is written",
                card.saved.part
            );
        };
        check_modules(config, &adapter.config)?;
        in_place(&self.out, |folder| {
            adapter.save(folder, &card.base.display().to_string())?;
            write(&folder.join("README.md"), &card.of_adapter())
        })?;
        Ok(match card.saved.mean {
            true => "the adapter is as it was last; what decodes here is a running mean of merged weights, which is no adapter\n".to_owned(),
            false => String::new(),
        })
    }

    fn write_folder(
        &self,
        drafter: &ModelFolder<DraftId>,
        wanted: Option<StoredType>,
        card: &Card<'_>,
    ) -> Result<String> {
        let (own, plain) = stored_as(drafter.weights());
        let stored = wanted.unwrap_or(own);
        let said = rounding(drafter, stored, card.saved)?;
        in_place(&self.out, |folder| {
            write_model(&card.saved.weights, folder, stored, SHARD)?;
            copy_text(&drafter.path, folder)?;
            keep_keys(&drafter.path, folder, stored)?;
            let stored = format!("{}{said}", stored.torch_name());
            write(
                &folder.join("README.md"),
                &card.of_folder(&self.out, &stored),
            )
        })?;
        let why = match (wanted, plain) {
            (None, true) => " as the drafter's own",
            (None, false) => ", for the drafter's own are quantised",
            _ => "",
        };
        Ok(format!("weights in {}{why}{said}\n", stored.torch_name()))
    }

    fn write_file(
        &self,
        drafter: &ModelFolder<DraftId>,
        stored: GgufType,
        card: &Card<'_>,
    ) -> Result<String> {
        let text = |text: String| GgufEntry::Text(text);
        let mut keys = vec![
            ("general.name".to_owned(), text(card.name())),
            ("general.description".to_owned(), text(card.line())),
        ];
        keys.extend(gguf_text(&drafter.path, drafter.config())?);
        let (said, name) = match stored {
            GgufType::F16 => (rounding(drafter, StoredType::F16, card.saved)?, "F16"),
            GgufType::Q8_0 => (String::new(), "Q8_0"),
        };
        write_gguf(&card.saved.weights, &self.out, stored, keys)?;
        Ok(format!("matrices in {name}{said}\n"))
    }
}

/// Output and type.
#[derive(PartialEq)]
enum Written {
    State,
    Adapter,
    /// In the drafter's own type by default.
    Folder(Option<StoredType>),
    File(GgufType),
}

/// The type of the weights of an exported folder: the model's own if that is f32, bf16 or f16,
/// otherwise f16. True if it is the model's own.
fn stored_as(weights: &StoredCheckpoint) -> (StoredType, bool) {
    match weights.encoding() {
        Some(Encoding::F32) => (StoredType::F32, true),
        Some(Encoding::Bf16) => (StoredType::Bf16, true),
        Some(Encoding::F16) => (StoredType::F16, true),
        _ => (StoredType::F16, false),
    }
}

/// The rounding error relative to the learnt change, as text after the type; empty if there is
/// none.
fn rounding(
    drafter: &ModelFolder<DraftId>,
    stored: StoredType,
    saved: &SavedDrafter,
) -> Result<String> {
    let base: Checkpoint = drafter.checkpoint()?;
    let Some(share) = saved.rounding(&base, stored)? else {
        return Ok("; no weight is other than the drafter's".to_owned());
    };
    let percent = 100.0 * share;
    Ok(match stored {
        StoredType::F32 => String::new(),
        _ if percent < 10.0 => format!(", rounded by {percent:.1} % of what learning changed"),
        _ => format!(
            ", rounded by {percent:.0} % of what learning changed (--to hf --type f32 rounds nothing)"
        ),
    })
}

/// Refuses an adapter of matrices that are parts of others in the drafter's files: PEFT finds no
/// modules of their names.
fn check_modules(config: &LmConfig, lora: &LoraConfig) -> Result<()> {
    for part in adapted(config, lora) {
        let whole = lm::stored(config, &part.weight);
        if whole != part.weight {
            bail!(
                "--adapter: {} is a part of {whole} in the drafter's files, and PEFT loads no adapter of a part\nhint: without --adapter a whole model is written",
                part.weight
            );
        }
    }
    Ok(())
}

/// Writes a folder, whole or not at all.
fn in_place(out: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed =
        |path: &Path, source| anyhow::Error::new(source).context(path.display().to_string());
    models::in_place(out, failed, fill)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Keeps the drafter's original configuration if it agrees with the written one: it may have keys
/// that other programs read and this one does not.
fn keep_keys(base: &Path, folder: &Path, stored: StoredType) -> Result<()> {
    let read = |path: &Path| -> Result<Option<Value>> {
        if !path.is_file() {
            return Ok(None);
        }
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(named)?;
        Ok(Some(serde_json::from_str(&text).with_context(named)?))
    };
    let path = folder.join("config.json");
    let (Some(mut own), Some(written)) = (read(&base.join("config.json"))?, read(&path)?) else {
        return Ok(());
    };
    // A multimodal model has its text model under a key.
    if own["model_type"] != written["model_type"] || !own["hidden_size"].is_number() {
        return Ok(());
    }
    let key = match own.get("dtype") {
        Some(_) => "dtype",
        None => "torch_dtype",
    };
    own[key] = stored.torch_name().into();
    own["tie_word_embeddings"] = written["tie_word_embeddings"].clone();
    write(&path, &format!("{own:#}\n"))
}

#[cfg(test)]
mod tests {
    use lm::Projections;

    use super::*;

    #[test]
    fn adapters_of_fused_matrices_are_refused() {
        let lora = |names: &str| LoraConfig {
            rank: 2,
            alpha: 4.0,
            projections: serde_json::from_str::<Projections>(names).unwrap(),
            blocks: 0,
        };
        let of = |family: &str| {
            let json = format!(
                r#"{{"model_type": "{family}", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 16}}"#
            );
            LmConfig::from_json(&json, "config.json".as_ref()).unwrap()
        };
        let all = r#"["q_proj", "v_proj", "o_proj"]"#;
        assert!(check_modules(&of("llama"), &lora(all)).is_ok());
        assert!(check_modules(&of("phi3"), &lora(r#"["o_proj", "down_proj"]"#)).is_ok());
        let refused = check_modules(&of("phi3"), &lora(all))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("q_proj.weight is a part of") && refused.contains("qkv_proj.weight"),
            "{refused}"
        );
    }
}
