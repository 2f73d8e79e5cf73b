//! The order in which kernels read weights, measured on this machine and kept for the next start.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cpu_engine::{CpuEngine, Walk};
use lm::WeightType;

/// Version of the kernels; older measurements are ignored.
const KERNELS: u32 = 2;

/// Measurements of this process, made or read.
static KNOWN: Mutex<BTreeMap<String, Walk>> = Mutex::new(BTreeMap::new());

/// Chooses the fastest order in which an engine on the processor reads its weights. It is known
/// from this process, or from the file in the user's cache (`omnidraft/walks.json` in
/// `XDG_CACHE_HOME` or `~/.cache`) if it still is about the fastest; otherwise it is measured now,
/// which takes about a second, and kept there. Results do not depend on it. Weights that fit the
/// processor's caches are left alone.
pub fn tune(engine: &mut CpuEngine, weights: WeightType) {
    let holds: Holds = CpuEngine::walk_holds;
    tune_by(engine, weights, user_file().as_deref(), Some(holds));
}

/// Like [`tune`], but always measured, for a machine that was busy the first time.
pub fn tune_again(engine: &mut CpuEngine, weights: WeightType) {
    tune_by(engine, weights, user_file().as_deref(), None);
}

/// True if an earlier measurement still holds for an engine that uses it.
type Holds = fn(&CpuEngine) -> bool;

/// As [`tune`]; without `holds` as [`tune_again`].
fn tune_by(engine: &mut CpuEngine, weights: WeightType, file: Option<&Path>, holds: Option<Holds>) {
    let key = key(engine, weights);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if holds.is_some()
        && let Some(walk) = known.get(&key)
    {
        engine.set_walk(*walk);
        return;
    }
    let mut kept = file.map(read).unwrap_or_default();
    let found = holds.and_then(|holds| {
        let walk: Walk = kept.get(&key)?.parse().ok()?;
        // An earlier process measured it and may have had other work beside it.
        engine.set_walk(walk);
        holds(engine).then_some(walk)
    });
    let walk = match found {
        Some(walk) => walk,
        None => {
            let Some(walk) = engine.fastest_walk() else {
                return;
            };
            tracing::info!(%walk, "measured how weights are walked fastest");
            kept.insert(key.clone(), walk.to_string());
            if let Some(file) = file
                && let Err(error) = write(file, &kept)
            {
                tracing::debug!(file = %file.display(), %error, "the walk is not kept");
            }
            walk
        }
    };
    known.insert(key, walk);
    engine.set_walk(walk);
}

/// Key of a measurement: the conditions for which it holds.
fn key(engine: &CpuEngine, weights: WeightType) -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = processor.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find_map(|(key, value)| (key.trim() == name).then(|| value.trim()));
        value.unwrap_or("unknown").to_owned()
    };
    let processor = [
        "model name",
        "cpu family",
        "model",
        "stepping",
        "cache size",
    ]
    .map(field);
    let compact = if engine.compact() { " compact" } else { "" };
    let [kernels, threads] = [engine.kernels().to_string(), engine.threads().to_string()];
    format!(
        "{}, {kernels} {KERNELS}, {weights}{compact}, {threads} threads",
        processor.join(" / ")
    )
}

fn user_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
    Some(cache.join("omnidraft").join("walks.json"))
}

/// The content of a file; empty if it is missing or damaged.
fn read(file: &Path) -> BTreeMap<String, String> {
    let bytes = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Writes through a temporary file and a rename, since other processes may read and write at once.
/// An entry that another process adds meanwhile may be lost; it is measured again.
fn write(file: &Path, walks: &BTreeMap<String, String>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let part = folder.join(format!("walks.{}.part", std::process::id()));
    std::fs::write(&part, serde_json::to_vec_pretty(walks)?)?;
    std::fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpu_engine::{Compact, EngineOptions};
    use lm::LmConfig;

    fn engine(hidden: usize) -> CpuEngine {
        let json = format!(
            r#"{{"model_type": "llama", "hidden_size": {hidden}, "intermediate_size": {},
            "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}}"#,
            4 * hidden
        );
        let config = LmConfig::from_json(&json, "config.json".as_ref()).unwrap();
        // Compact weights, which some processors use, might fit into caches.
        let options = EngineOptions {
            threads: 1,
            compact: Compact::Off,
            ..EngineOptions::default()
        };
        CpuEngine::with_random_weights(&config, options, 1).unwrap()
    }

    const KEPT: Option<Holds> = Some(|_| true);

    #[test]
    fn a_walk_is_measured_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep").join("walks.json");
        // 42 MB in f32, so that there is something to measure.
        let mut engine = engine(576);
        let usual = engine.walk();
        tune_by(&mut engine, WeightType::F32, Some(&file), KEPT);
        let measured = engine.walk();
        let key = key(&engine, WeightType::F32);
        assert_eq!(read(&file), [(key.clone(), measured.to_string())].into());

        // A kept measurement is used: by another process from the file, by this one from memory.
        let other: Walk = "1 2 1 2 1 nothing".parse().unwrap();
        write(&file, &[(key.clone(), other.to_string())].into()).unwrap();
        tune_by(&mut engine, WeightType::F32, Some(&file), KEPT);
        assert_eq!(engine.walk(), measured);
        KNOWN.lock().unwrap().clear();
        tune_by(&mut engine, WeightType::F32, Some(&file), KEPT);
        assert_eq!(engine.walk(), other);
        engine.set_walk(usual);
        tune_by(&mut engine, WeightType::F32, None, KEPT);
        assert_eq!(engine.walk(), other);

        // One that does not hold any more is measured again.
        KNOWN.lock().unwrap().clear();
        tune_by(&mut engine, WeightType::F32, Some(&file), Some(|_| false));
        assert_eq!(read(&file)[&key], engine.walk().to_string());
        write(&file, &[(key.clone(), other.to_string())].into()).unwrap();

        // A damaged file is measured again, and so is everything on request.
        KNOWN.lock().unwrap().clear();
        std::fs::write(&file, "{").unwrap();
        tune_by(&mut engine, WeightType::F32, Some(&file), KEPT);
        assert_eq!(read(&file).len(), 1);
        write(&file, &[(key.clone(), other.to_string())].into()).unwrap();
        tune_by(&mut engine, WeightType::F32, Some(&file), None);
        assert_eq!(read(&file)[&key], engine.walk().to_string());
    }

    #[test]
    fn small_weights_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("walks.json");
        let mut engine = engine(32);
        let usual = engine.walk();
        tune_by(&mut engine, WeightType::F32, Some(&file), KEPT);
        assert_eq!(engine.walk(), usual);
        assert!(!file.exists());
    }
}
