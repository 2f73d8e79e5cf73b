//! Models and data from the Hugging Face hub, for users without local copies.
//!
//! A download happens only on request: by `hf:owner/name` where a model folder is expected
//! ([`local_folder`]), or by `--data-dir hub` ([`datasets::Datasets`]). Downloaded files are used
//! again without the network.
//!
//! Files lie in the hub's own cache, which other programs share: `HF_HOME` (default
//! `~/.cache/huggingface`) or `HF_HUB_CACHE`. Beside it, `$HF_HOME/omnidraft` holds the converted
//! tasks and a note of every model that is complete. `HF_ENDPOINT` names another hub. `HF_TOKEN`,
//! or the `token` file in `HF_HOME`, holds the access token.

mod client;
pub mod datasets;
mod error;
mod model;
mod parquet;
mod progress;

pub use client::Hub;
pub use error::{FileFault, HubError};
pub use model::{ModelId, Offer, is_model_name, local_copy, local_folder, local_tokenizer, offer};
pub use progress::show_progress;
