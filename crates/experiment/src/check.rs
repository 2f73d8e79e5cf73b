//! Checks of combinations: of an arm's settings, and of the arms of a cell.

use spec_decode::VerifyMode;

use crate::arm::ArmConfig;
use crate::settings::{
    CacheUse, DraftSource, HeadLabels, HeadTraining, Lookup, ModelsConfig, ObjectiveName,
    PolicyName, TraceConfig, Wrong, wrong,
};

/// Settings that a recorded target does not support; `target` is its name.
pub(crate) fn replayed(arm: &ArmConfig, target: &str) -> Vec<Wrong> {
    let name = &arm.name;
    let mut wrongs = Vec::new();
    let mut check = |bad: bool, key: &str, message: &str| {
        if bad {
            let message = format!("arm `{name}`: target `{target}` is recorded: {message}");
            wrongs.push(wrong(key, message));
        }
    };
    let message = "above 0 an answer is one of many, and which one it is depends on what was drafted, \
                   so only greedy answers can be replayed; must be 0";
    check(arm.decode.temperature != 0.0, "decode.temperature", message);
    let message = "the answer was recorded without a penalty; must be 1";
    let penalised = arm.decode.repetition_penalty != 1.0;
    check(penalised, "decode.repetition_penalty", message);
    let message = "nothing was recorded after the end of an answer; must be false";
    check(arm.decode.ignore_eos, "decode.ignore_eos", message);
    let message = "what it takes to replay says nothing of a target; must be false";
    check(arm.decode.controller, "decode.controller", message);
    wrongs
}

/// Settings of learning that the job's drafter does not allow.
pub(crate) fn drafter_learns(arm: &ArmConfig, models: &ModelsConfig) -> Vec<Wrong> {
    if !arm.learns() {
        return Vec::new();
    }
    let (name, drafter, learn) = (&arm.name, &models.drafter, &arm.learn);
    let mut wrongs = Vec::new();
    let mut check = |bad: bool, key: &str, value: usize, message: &str| {
        if bad && value > 0 {
            let message = format!("arm `{name}`: {message}; must be 0 instead of {value}");
            wrongs.push(wrong(key, message));
        }
    };
    let padded = drafter.pad_width > 0;
    let message = "the drafter is padded, and padding takes all its weights, not the last blocks";
    check(padded, "learn.blocks", learn.blocks, message);
    let message = "a graphics device does not keep what enters a block";
    let device = models.device_of(drafter);
    check(!device.is_cpu(), "learn.blocks", learn.blocks, message);
    let message =
        "the drafter is padded on the stream, and its weights change between answers only";
    let on_stream = padded && models.pad_stream;
    check(on_stream, "learn.within", learn.within, message);
    wrongs
}

/// Advice for the fault that [`untimed`] reports.
pub(crate) const UNTIMED_HINT: &str =
    "write exclusive = true in the stage, or leave decode.controller out";

/// The fault of an arm with a controller, which needs times, in a stage that is not timed.
pub(crate) fn untimed(arm: &ArmConfig, stage: &str) -> Option<Wrong> {
    let message = format!(
        "arm `{}`: a controller decides by seconds, and stage `{stage}` is not timed",
        arm.name
    );
    let wants = arm.decode.controller;
    wants.then(|| wrong("decode.controller", message))
}

/// The recorded targets.
pub(crate) fn recorded(models: &ModelsConfig) -> impl Iterator<Item = (&str, &TraceConfig)> {
    let targets = models.targets.iter();
    targets.filter_map(|(name, target)| Some((name.as_str(), target.trace.as_ref()?)))
}

/// Faults of the models of a job.
pub(crate) fn models(models: &ModelsConfig) -> Option<Wrong> {
    let drafter = &models.drafter;
    let message = match (&drafter.trace, &drafter.torch) {
        (Some(_), _) => "a drafter cannot be a recording",
        (_, Some(_)) => {
            "a drafter cannot be a worker's: it learns, and takes a step a token, in this program; \
             name its folder alone"
        }
        _ => return None,
    };
    Some(wrong("models.drafter", message))
}

/// Keys of `decode` that all arms of a cell must share.
pub(crate) const SHARED: [&str; 10] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "max_new_tokens",
    "ignore_eos",
    "weights",
    "kv",
    "threads",
];

/// Faults of an arm among the others of its cell, by key.
pub(crate) fn arm(arm: &ArmConfig, all: &[ArmConfig]) -> Vec<Wrong> {
    let mut wrongs = arm.decode.wrongs();
    wrongs.extend(arm.learn.wrongs());
    wrongs.extend(arm.head.wrongs());
    let mut relations = match arm.is_plain() {
        true => of_plain(arm),
        false => {
            let mut relations = of_drafting(arm, all);
            relations.extend(of_learning(arm));
            relations
        }
    };
    relations.extend(of_borrowing(arm, all));
    let named = |(key, message)| (key, format!("arm `{}`: {message}", arm.name));
    wrongs.extend(relations.into_iter().map(named));
    wrongs
}

/// Faults of plain decoding, which has no part that could learn.
fn of_plain(arm: &ArmConfig) -> Vec<Wrong> {
    let parts = [
        ("cache.use", arm.cache.source != CacheUse::None),
        (
            "learn.objective",
            arm.learn.objective != ObjectiveName::None,
        ),
        ("head.training", arm.head.training != HeadTraining::None),
    ];
    let controlled = arm.decode.controller.then(|| {
        let message = "decode.verify = \"none\" is plain decoding, whose drafter always rests: must \
                       be false";
        wrong("decode.controller", message)
    });
    let used = parts.into_iter().filter(|(_, used)| *used);
    let message =
        "decode.verify = \"none\" is plain decoding, which drafts nothing: must be \"none\"";
    let used = used.map(|(key, _)| wrong(key, message));
    used.chain(controlled).collect()
}

fn of_learning(arm: &ArmConfig) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    let mut check = |bad: bool, key: &str, message: &str| {
        if bad {
            wrongs.push(wrong(key, message));
        }
    };
    let mode = arm.decode.verify;
    let merges = mode.is_some_and(VerifyMode::uses_cache);
    let name = mode.map_or("none", VerifyMode::name);
    let of_cache = format!("verify = \"{name}\" does not merge n-grams; must be \"none\"");
    check(arm.uses_cache() && !merges, "cache.use", &of_cache);
    let lookup = arm.decode.draft == DraftSource::PromptLookup;
    if arm.learns() {
        let slem = mode == Some(VerifyMode::Slem) && arm.learn.objective != ObjectiveName::Alm;
        let message = "slem has no direct positions to learn from";
        check(slem, "learn.objective", message);
        let message = "prompt-lookup has no drafter that could learn";
        check(lookup, "learn.objective", message);
        let hybrid = arm.learn.objective == ObjectiveName::Hybrid;
        let nothing = hybrid && arm.learn.direct.is_none() && arm.learn.ngram.is_none();
        let message = "learn.direct and learn.ngram are both \"none\": nothing to learn from";
        check(nothing, "learn.direct", message);
    }
    let message = "prompt-lookup has no drafter that could rest; must be false";
    check(
        lookup && arm.decode.controller,
        "decode.controller",
        message,
    );
    let message = "prompt-lookup has no n-grams to merge; must be \"none\"";
    check(lookup && arm.uses_cache(), "cache.use", message);
    wrongs
}

/// Faults of the draft length settings.
fn of_drafting(arm: &ArmConfig, all: &[ArmConfig]) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    let training = arm.head.training;
    let lender = arm.learnt_by.as_ref();
    let lender = lender.and_then(|name| all.iter().find(|other| other.name == *name));
    let head = lender.map_or(training, |lender| lender.head.training);
    if arm.decode.reads_head() && head == HeadTraining::None {
        let message = "the policy reads an acceptance head, and head.training is \"none\"";
        wrongs.push(wrong("decode.policy", message));
    }
    if training == HeadTraining::Offline && arm.head.path.is_none() {
        wrongs.push(wrong("head.training", "\"offline\" needs head.path"));
    }
    if training == HeadTraining::Interleaved && arm.learns() && arm.learn.every < 2 {
        let message = "\"interleaved\" needs learn.every = 2 or more";
        wrongs.push(wrong("head.training", message));
    }
    let again = training.is_online() && arm.head.labels == HeadLabels::Current;
    if again && arm.decode.verify == Some(VerifyMode::Slem) {
        let message = "slem drafts without a mask: \"recorded\" is what it can do";
        wrongs.push(wrong("head.labels", message));
    }
    let reads = matches!(arm.decode.policy, PolicyName::Head | PolicyName::Throughput);
    if arm.looks_up() && (training != HeadTraining::None || reads) {
        let key = if reads {
            "decode.policy"
        } else {
            "head.training"
        };
        let message = "prompt-lookup has no drafter whose state a policy could read";
        wrongs.push(wrong(key, message));
    }
    wrongs
}

/// Faults of `learnt_by`.
fn of_borrowing(arm: &ArmConfig, all: &[ArmConfig]) -> Vec<Wrong> {
    let Some(name) = &arm.learnt_by else {
        return Vec::new();
    };
    let key = "arm.learnt_by";
    let mut wrongs = Vec::new();
    match all.iter().find(|other| other.name == *name) {
        None => wrongs.push(wrong(key, format!("there is no arm `{name}`"))),
        Some(lender) if !lender.changes() => {
            wrongs.push(wrong(key, format!("`{name}` neither learns nor caches")));
        }
        Some(lender) if arm.uses_cache() && arm.cache.source != lender.cache.source => {
            let message = format!("`{name}` has no such n-grams; must be as there, or \"none\"");
            wrongs.push(wrong("cache.use", message));
        }
        Some(lender) if arm.decode.drafts_in() != lender.decode.drafts_in() => {
            let stored = lender.decode.drafts_in();
            let message =
                format!("it drafts with the engine of `{name}`; must be \"{stored}\" as there");
            wrongs.push(wrong("decode.draft_weights", message));
        }
        Some(lender) if arm.decode.costs != lender.decode.costs => {
            let message = format!("it decides by the costs of `{name}`; must be as there");
            wrongs.push(wrong("decode.costs", message));
        }
        Some(lender) if arm.decode.controller && !lender.decode.controller => {
            let message = format!("the controller is that of `{name}`, which has none");
            wrongs.push(wrong("decode.controller", message));
        }
        Some(_) => {}
    }
    if arm.is_plain() || arm.looks_up() {
        wrongs.push(wrong(key, "it has no drafter to borrow"));
    }
    if arm.learns() {
        wrongs.push(wrong(
            key,
            "it learns itself; learn.objective must be \"none\"",
        ));
    }
    if arm.head.training != HeadTraining::None {
        let message = "the head is that of the other arm; head.training must be \"none\"";
        wrongs.push(wrong(key, message));
    }
    wrongs
}

/// Keys that the arms of a cell must share and do not, with the index of the first arm that differs
/// from arm 0.
pub(crate) fn shared(arms: &[ArmConfig]) -> Vec<(usize, Wrong)> {
    let json: Vec<_> = arms
        .iter()
        .map(|arm| serde_json::to_value(&arm.decode).unwrap_or_default())
        .collect();
    let Some((first, name)) = json.first().zip(arms.first().map(|arm| &arm.name)) else {
        return Vec::new();
    };
    let mut wrongs = Vec::new();
    for (i, (own, arm)) in json.iter().zip(arms).enumerate() {
        for key in SHARED {
            if own.get(key) != first.get(key) {
                let show = |json: &serde_json::Value| {
                    let own = json.get(key).map(ToString::to_string);
                    own.unwrap_or_else(|| "its default".to_owned())
                };
                let message = format!(
                    "arm `{}` has {} and arm `{name}` {}: arms of a cell share this key; \
                     make it an axis of the grid",
                    arm.name,
                    show(own),
                    show(first)
                );
                wrongs.push((i, wrong(&format!("decode.{key}"), message)));
            }
        }
    }
    wrongs
}

/// Faults of an arm whose state cannot be taken over from the same arm of the earlier stage.
pub(crate) fn handed_over(arm: &ArmConfig, before: &ArmConfig, stage: &str) -> Vec<Wrong> {
    let begins = arm.changes() && !before.changes();
    let decode = &arm.decode;
    let parts = [
        (
            "decode.policy",
            !(begins && decode.policy == PolicyName::Throughput),
        ),
        ("decode.lookup", !(begins && decode.lookup != Lookup::Off)),
        ("decode.controller", !(begins && decode.controller)),
        ("learn.objective", arm.learns() == before.learns()),
        (
            "learn.lora",
            !arm.learns() || arm.learn.lora == before.learn.lora,
        ),
        (
            "learn.blocks",
            !arm.learns() || arm.learn.blocks == before.learn.blocks,
        ),
        ("cache.use", arm.inserts_ngrams() == before.inserts_ngrams()),
        (
            "head.training",
            (arm.head.training == HeadTraining::None)
                == (before.head.training == HeadTraining::None),
        ),
        ("head.per", arm.head.per == before.head.per),
        ("arm.learnt_by", arm.learnt_by == before.learnt_by),
    ];
    let changed = parts.into_iter().filter(|(_, same)| !same);
    changed
        .map(|(key, _)| {
            let message = format!(
                "arm `{}`: is not what it was in stage `{stage}`, whose states this stage starts from",
                arm.name
            );
            wrong(key, message)
        })
        .collect()
}
