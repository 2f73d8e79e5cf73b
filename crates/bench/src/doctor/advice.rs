//! Advice, each sentence with the figure that it is based on.

use super::{Diagnosis, Row};

/// Lower limit of an interval of speedups up to which it is no gain.
const NO_GAIN: f64 = 1.0;
/// Share of a round's time from which a part is mentioned.
const LARGE_SHARE: f64 = 0.4;
/// Factor of speed from which an alternative is mentioned.
const WORTH: f64 = 1.05;

/// Sentences of advice, the most useful first.
pub fn sentences(found: &Diagnosis) -> Vec<String> {
    let mut all = Vec::new();
    let Some(best) = found.best() else {
        return all;
    };
    all.push(verdict(found, best));
    if found.lookup.speed > best.speed * WORTH && found.lookup.speed > NO_GAIN {
        all.push(format!(
            "Text from the prompt and the answer itself drafts better than the drafter: {:.2}x against {:.2}x, without \
             any model. Use `--verify prompt-lookup`.",
            found.lookup.speed, best.speed
        ));
    }
    let [drafting, _, host] = best.shares;
    if drafting > LARGE_SHARE {
        all.push(format!(
            "Drafting takes {:.0}% of a round at k = {}: a drafter step costs {:.2} of a target step. A smaller drafter, \
             or one stored narrower (`--draft-weights int8`, `int4`), moves the break-even down.",
            100.0 * drafting,
            best.k,
            found.step_ratio,
        ));
    }
    if host > LARGE_SHARE {
        all.push(format!(
            "{:.0}% of a round is neither model: the target is so small that sampling and translation count. The same \
             pair gains more with a larger target.",
            100.0 * host
        ));
    }
    if found.verify_cost > 1.5 {
        all.push(format!(
            "Five tokens at once cost the target {:.2} plain steps, so long drafts do not pay: its forward is bound by \
             arithmetic. More threads (`--threads`) or narrower weights help.",
            found.verify_cost
        ));
    }
    if found.threads < found.cores {
        all.push(format!(
            "{} of {} cores are used; `--threads {}` may help.",
            found.threads, found.cores, found.cores
        ));
    }
    if found.weights == "f32" {
        all.push(
            "Weights are read as f32; `--weights bf16` halves what a forward reads, and changes nothing where the files \
             store bf16. int8 and int4 read less still, and round."
                .to_owned(),
        );
    }
    all
}

fn verdict(found: &Diagnosis, best: &Row) -> String {
    let needed = match found.break_even {
        Some(needed) => format!("it pays from an acceptance rate of {needed:.2} on"),
        None => "on this machine no acceptance rate makes it pay".to_owned(),
    };
    let now = format!("acceptance is {:.2} now, {needed}", best.acceptance);
    match (best.low > NO_GAIN, best.high < NO_GAIN, found.break_even) {
        (true, _, _) => format!("Use it, with k = {}: {now}.", best.k),
        (false, false, _) => {
            format!("Too close to tell with these prompts ({now}): try more of them (`--prompts`).")
        }
        (false, true, None) => format!("Do not use this pair here: {now}."),
        (false, true, Some(_)) => format!(
            "Not yet: {now}. Learning online (`omnidraft run`, arm `L_DM+L_N-gram`) is what raises it."
        ),
    }
}
