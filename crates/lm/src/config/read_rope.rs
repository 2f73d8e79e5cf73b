//! The rotations of a configuration.

use super::families::Family;
use super::keys::{Keys, MOST};
use super::{Rope, RopeScaling};
use crate::LmError;

/// Numbers of the model that a rotation depends on.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) head_dim: usize,
    pub(super) max_positions: usize,
}

/// Reads the global rotation and, if some layers have another one, the local one.
pub(super) fn read_ropes(
    keys: &Keys<'_>,
    family: &Family,
    span: Span,
) -> Result<(Rope, Option<Rope>), LmError> {
    let scaling = keys.object("rope_scaling")?;
    let parameters = keys.object("rope_parameters")?;
    let theta = keys.get("rope_theta")?.unwrap_or(family.theta);
    let local = family.local_rope();
    let Some(local_key) = local else {
        let dict = scaling.or(parameters);
        return Ok((read_rope(keys, dict.as_ref(), family, span, theta)?, None));
    };
    let local_theta = keys.get(local_key)?.unwrap_or(LOCAL_THETA);
    let (mut global, mut windowed) = (scaling, None);
    if let Some(parameters) = parameters {
        windowed = parameters.object("sliding_attention")?;
        global = global.or(parameters.object("full_attention")?);
        parameters.finish(&[])?;
    }
    Ok((
        read_rope(keys, global.as_ref(), family, span, theta)?,
        Some(read_rope(
            keys,
            windowed.as_ref(),
            family,
            span,
            local_theta,
        )?),
    ))
}

/// Default base of the local rotation.
const LOCAL_THETA: f64 = 10_000.0;

/// Reads a rotation from `dict`, which has its type and numbers. `theta` is the base if `dict` has
/// none.
fn read_rope(
    keys: &Keys<'_>,
    dict: Option<&Keys<'_>>,
    family: &Family,
    span: Span,
    theta: f64,
) -> Result<Rope, LmError> {
    let none = serde_json::Map::new();
    let empty = keys.inside("rope_scaling", &none);
    let dict = dict.unwrap_or(&empty);
    let theta = dict.get("rope_theta")?.unwrap_or(theta);
    if !(theta.is_finite() && theta > 1.0) {
        return Err(keys.error("rope_theta", format!("{theta} is not a number above 1")));
    }
    let part = keys.positive("partial_rotary_factor")?;
    let own = dict.positive("partial_rotary_factor")?;
    let part = own.or(part).unwrap_or(1.0);
    // Rounded down to whole dimensions, as in transformers.
    let dims = (span.head_dim as f64 * part + 1e-9) as usize;
    let wrong = if part != 1.0 && !family.partial_rotary {
        Some(format!("is not supported for {}", family.model_type))
    } else if dims == 0 || dims > span.head_dim || !dims.is_multiple_of(2) {
        let of = span.head_dim;
        Some(format!(
            "{part} rotates {dims} of {of} dimensions; pairs are needed"
        ))
    } else {
        None
    };
    if let Some(message) = wrong {
        return Err(keys.error("partial_rotary_factor", message));
    }
    let scaling = read_scaling(keys, dict, family, span, dims)?;
    dict.finish(&["finetuned"])?;
    Ok(Rope {
        theta,
        dims,
        scaling,
    })
}

fn read_scaling(
    keys: &Keys<'_>,
    dict: &Keys<'_>,
    family: &Family,
    span: Span,
    dims: usize,
) -> Result<RopeScaling, LmError> {
    let kind = dict.get::<String>("rope_type")?.or(dict.get("type")?);
    let kind = kind.unwrap_or_else(|| "default".into());
    let key = "original_max_position_embeddings";
    let inner = dict.count(key, Some(span.max_positions))?;
    let outer = keys.get::<usize>(key)?.or(family.original_positions);
    let original = outer.unwrap_or(inner);
    if original == 0 {
        return Err(keys.error(key, "must be at least 1"));
    }
    let factor = |implied: Option<f64>| -> Result<f64, LmError> {
        let found = dict.get::<f64>("factor")?.or(implied);
        let found = found.ok_or_else(|| dict.error("factor", "is missing"))?;
        if !(found.is_finite() && found >= 1.0) {
            return Err(dict.error("factor", format!("{found} is not a number from 1 on")));
        }
        // Tables have a row a position.
        if found * original as f64 > MOST as f64 {
            let message = format!("{found} times {original} positions are more than {MOST}");
            return Err(dict.error("factor", message));
        }
        Ok(found)
    };
    let implied = span.max_positions as f64 / original as f64;
    match kind.as_str() {
        "default" => match dict.get::<f64>("factor")? {
            None | Some(1.0) => Ok(RopeScaling::Default),
            Some(factor) => Err(dict.error("factor", format!("{factor} without a rope type"))),
        },
        "linear" => Ok(RopeScaling::Linear {
            factor: factor(None)?,
        }),
        "dynamic" if dims == 2 => Err(dict.error("rope_type", "dynamic needs more than one pair")),
        "dynamic" => Ok(RopeScaling::Dynamic {
            factor: factor(None)?,
            original: span.max_positions,
        }),
        "longrope" | "su" | "yarn" if kind != "yarn" || family.yarn_is_longrope => {
            read_longrope(dict, (dims, original), implied)
        }
        "yarn" => read_yarn(dict, original, factor(Some(implied))?),
        "llama3" => read_llama3(dict, original, factor(None)?),
        other => {
            let known = "default, linear, dynamic, yarn, longrope and llama3 are";
            let message = format!("rope type `{other}` is not supported ({known})");
            Err(dict.error("rope_type", message))
        }
    }
}

fn read_yarn(dict: &Keys<'_>, original: usize, factor: f64) -> Result<RopeScaling, LmError> {
    let mscale = |by: f64| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * by * factor.ln() + 1.0
        }
    };
    let scales = (dict.positive("mscale")?, dict.positive("mscale_all_dim")?);
    let implied = match scales {
        (Some(own), Some(all)) => mscale(own) / mscale(all),
        _ => mscale(1.0),
    };
    let (beta_fast, beta_slow) = (dict.positive("beta_fast")?, dict.positive("beta_slow")?);
    let (beta_fast, beta_slow) = (beta_fast.unwrap_or(32.0), beta_slow.unwrap_or(1.0));
    if beta_fast < beta_slow {
        let message = format!("{beta_fast} is less than beta_slow = {beta_slow}");
        return Err(dict.error("beta_fast", message));
    }
    Ok(RopeScaling::Yarn {
        factor,
        original,
        beta_fast,
        beta_slow,
        truncate: dict.get("truncate")?.unwrap_or(true),
        attention_factor: dict.positive("attention_factor")?.unwrap_or(implied),
    })
}

fn read_longrope(
    dict: &Keys<'_>,
    (dims, original): (usize, usize),
    implied: f64,
) -> Result<RopeScaling, LmError> {
    let list = |key: &str| -> Result<Vec<f64>, LmError> {
        let list: Vec<f64> = dict.need(key)?;
        if list.len() != dims / 2 {
            let (found, expected) = (list.len(), dims / 2);
            let message = format!("has {found} numbers, {expected} pairs are rotated");
            return Err(dict.error(key, message));
        }
        match list.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
            Some(x) => Err(dict.error(key, format!("{x} is not a number above 0"))),
            None => Ok(list),
        }
    };
    let factor = dict.positive("factor")?.unwrap_or(implied);
    let implied = if factor <= 1.0 {
        1.0
    } else {
        (1.0 + factor.ln() / (original as f64).ln()).sqrt()
    };
    let found = dict.positive("attention_factor")?.unwrap_or(implied);
    if !found.is_finite() {
        return Err(dict.error("original_max_position_embeddings", "must be at least 2"));
    }
    Ok(RopeScaling::LongRope {
        short: list("short_factor")?,
        long: list("long_factor")?,
        original,
        attention_factor: found,
    })
}

fn read_llama3(dict: &Keys<'_>, original: usize, factor: f64) -> Result<RopeScaling, LmError> {
    let need = |key: &str| -> Result<f64, LmError> {
        let found = dict.positive(key)?;
        found.ok_or_else(|| dict.error(key, "is missing"))
    };
    let (low, high) = (need("low_freq_factor")?, need("high_freq_factor")?);
    if low >= high {
        let message = format!("{low} is not below high_freq_factor = {high}");
        return Err(dict.error("low_freq_factor", message));
    }
    Ok(RopeScaling::Llama3 {
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original,
    })
}
