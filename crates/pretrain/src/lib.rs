//! `omnidraft pretrain`: trains a tokenizer and a small decoder from text, and writes a Hugging
//! Face model folder.

mod answers;
mod card;
mod config;
mod corpus;
mod cut;
mod data;
mod error;
mod loops;
mod samples;
mod state;
mod tokenizer;
mod train;

use std::path::{Path, PathBuf};

use lm::StoredType;
use serde_json::json;
use trainer::Device;
use vocab_align::{TargetId, TokenId, Vocabulary};

use config::TokenizerRecipe;
pub use config::{Recipe, UnlikelihoodRecipe};
pub use corpus::{Corpus, CorpusError, CorpusSource, Document, Recorded, is_held_out};
use data::TokenData;
use error::Result;
pub use error::{PretrainError, passed_on};

use streams::DataSource;

/// Arguments of `omnidraft pretrain`.
pub struct Request {
    /// The recipe.
    pub recipe: PathBuf,
    /// A `tokenizer.json`, or a model of the hub, that replaces the recipe's.
    pub tokenizer: Option<PathBuf>,
    /// Source of the text.
    pub data: DataSource,
    /// Folder to write the model to.
    pub out: PathBuf,
    /// Device that trains.
    pub device: Device,
    /// Number of steps after which to stop. The run can be resumed.
    pub stop_after: Option<u64>,
    /// True to draw a progress bar.
    pub progress: bool,
}

pub use samples::write as write_samples;
pub use state::{Saved, load as load_state, save as save_state};

/// Trains the model of the recipe, or continues a stopped training. Returns true once training is
/// complete.
///
/// # Errors
/// Bad recipes, unreadable data, a folder that already holds a finished model.
pub fn run(request: &Request) -> Result<bool> {
    let recipe = Recipe::load(&request.recipe)?;
    let out = request.out.as_path();
    if out.join("model.safetensors").exists() {
        return Err(PretrainError::Finished(out.to_owned()));
    }
    std::fs::create_dir_all(out).map_err(PretrainError::create(out))?;
    let mut corpus = Corpus::load(
        &recipe.data.sources,
        &request.data,
        &recipe.template,
        recipe.data.held_out,
    )?;
    let given = request.tokenizer.as_ref();
    let from = given.or(recipe.tokenizer.from.as_ref());
    let vocabulary = tokenizer_for(&recipe.tokenizer, from, &corpus, out)?;
    let special = |name: &str| -> Result<u32> {
        match vocabulary.encode_with_specials(name)?.as_slice() {
            [id] => Ok(id.get()),
            _ => Err(PretrainError::NoToken(name.to_owned())),
        }
    };
    let (bos, eos) = (
        special(&recipe.tokenizer.bos)?,
        special(&recipe.tokenizer.eos)?,
    );
    let (wanted, found) = (recipe.tokenizer.vocab_size, vocabulary.len());
    if found != wanted {
        return Err(PretrainError::Fault(format!(
            "tokenizer.vocab_size is {wanted}, but the text yields {found} tokens; lower it to that"
        )));
    }
    corpus.fit_prompts(&recipe.template, |rendered| -> Result<usize> {
        Ok(vocabulary.encode_with_specials(&rendered.text)?.len())
    })?;
    let config = match &recipe.train.cut {
        Some(cut) => cut.config(&recipe, (bos, eos))?,
        None => recipe.lm_config(bos, eos)?,
    };
    let mut tokens = TokenData::new(
        &corpus,
        &vocabulary,
        bos,
        recipe.train.sequence,
        recipe.seed,
    )?;
    tracing::info!(
        parameters = config.num_params(),
        vocabulary = vocabulary.len(),
        tokens_per_epoch = tokens.tokens_per_epoch(),
        steps = recipe.steps(),
        "pretraining"
    );
    let run = train::Run {
        recipe: &recipe,
        request,
    };
    let Some(trained) = run.train(config, &mut tokens)? else {
        return Ok(false);
    };
    write_folder(&request.recipe, &recipe, &trained, &tokens, out)?;
    samples::write(out, &request.data, request.progress)?;
    state::remove(out)?;
    Ok(true)
}

/// The folder's tokenizer. It is copied or trained first if it is not there yet.
fn tokenizer_for(
    recipe: &TokenizerRecipe,
    from: Option<&PathBuf>,
    corpus: &Corpus,
    out: &Path,
) -> Result<Vocabulary<TargetId>> {
    let path = out.join("tokenizer.json");
    if path.exists() {
        // A resumed run keeps the tokenizer it began with.
    } else if let Some(from) = from {
        let file = hub::local_tokenizer(from)?;
        let file = file.as_ref().unwrap_or(from);
        std::fs::copy(file, &path).map_err(PretrainError::io_with(from, ": tokenizer.from"))?;
    } else {
        let texts: Vec<String> = corpus.training.iter().map(plain_text).collect();
        let json = tokenizer::train(recipe, texts.iter().map(String::as_str))?;
        std::fs::write(&path, format!("{json}\n")).map_err(PretrainError::io(&path))?;
    }
    write_json(
        &out.join("tokenizer_config.json"),
        &json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": recipe.bos,
            "eos_token": recipe.eos,
            "clean_up_tokenization_spaces": false,
            // Families such as qwen2 have a pipeline of their own, but the model was trained with
            // this one.
            vocab_align::OWN_PIPELINE: true,
        }),
    )?;
    Ok(Vocabulary::from_file(&path)?)
}

fn plain_text(document: &Document) -> String {
    let body = document.prompt.as_ref().map_or("", |p| p.body());
    [body, "\n", &document.content].concat()
}

fn write_folder(
    recipe_path: &Path,
    recipe: &Recipe,
    trained: &train::Trained,
    data: &TokenData,
    out: &Path,
) -> Result<()> {
    recipe.template.write(out)?;
    let eos = trained.checkpoint.config.eos_token_ids.clone();
    write_json(
        &out.join("generation_config.json"),
        &json!({"bos_token_id": trained.checkpoint.config.bos_token_id, "eos_token_id": eos, "do_sample": false}),
    )?;
    std::fs::copy(recipe_path, out.join("recipe.toml")).map_err(PretrainError::io(out))?;
    train::thin_log(out, trained.steps)?;
    let card = card::render(recipe, trained, data.tokens_per_epoch());
    std::fs::write(out.join("README.md"), card).map_err(PretrainError::io(out))?;
    // Written last: the presence of this file says that the folder is complete.
    Ok(trained.checkpoint.save(out, StoredType::Bf16)?)
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    std::fs::write(path, format!("{value:#}\n")).map_err(PretrainError::io(path))
}
