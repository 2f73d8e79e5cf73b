//! Prompts in their chat templates against transformers' ids.

use std::path::{Path, PathBuf};

use models::ModelText;
use vocab_align::{TargetId, TokenId};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Number of prompts of a folder's `prompt_ids.jsonl` with different ids, and the number of all.
fn compare(folder: &Path) -> Result<(usize, usize)> {
    let model: ModelText<TargetId> = ModelText::load(folder)?;
    let (mut wrong, mut compared) = (0, 0);
    for line in std::fs::read_to_string(folder.join("prompt_ids.jsonl"))?.lines() {
        let row: serde_json::Value = serde_json::from_str(line)?;
        let prompt = row["prompt"].as_str().ok_or("no prompt")?;
        let expected: Vec<u32> = serde_json::from_value(row["ids"].clone())?;
        if expected.is_empty() {
            // An empty prompt is an error here.
            continue;
        }
        let found = model.encode(&model.template.render(prompt)?)?;
        let found: Vec<u32> = found.iter().map(|id| id.get()).collect();
        if found != expected && wrong == 0 {
            let at = found
                .iter()
                .zip(&expected)
                .take_while(|(a, b)| a == b)
                .count();
            println!("{}: {prompt:?} from token {at}", folder.display());
        }
        wrong += usize::from(found != expected);
        compared += 1;
    }
    Ok((wrong, compared))
}

/// Every folder that `scripts/prompt_ids.py` wrote below the one named by the environment.
#[test]
fn prompts_have_transformers_ids() -> Result {
    let Some(parent) = std::env::var_os("OMNIDRAFT_PROMPT_IDS").map(PathBuf::from) else {
        println!("skipped: OMNIDRAFT_PROMPT_IDS is not set");
        return Ok(());
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(parent)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    folders.sort();
    let mut all = 0;
    for folder in folders
        .iter()
        .filter(|f| f.join("prompt_ids.jsonl").is_file())
    {
        let (wrong, compared) = compare(folder)?;
        println!("{}: {wrong} of {compared} wrong", folder.display());
        all += wrong;
    }
    assert_eq!(all, 0);
    Ok(())
}
