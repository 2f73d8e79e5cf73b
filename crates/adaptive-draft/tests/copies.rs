//! Copies among the ways of a controller.

use adaptive_draft::{
    Agreed, Controlled, Controller, ControllerConfig, CopyOrDraft, CopyRecord, Costs, Replay,
    RoundCost, Way,
};
use spec_decode::testkit::{FakeModel, ToyVocab, text_rows};
use spec_decode::{
    ConstantLength, CopySource, DraftPolicy, History, NoSink, Pair, Prompt, PromptLookup,
    RoundOutcome, Sampling, Session, SessionConfig, StreamName, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

/// Number of first answers, in which every way may be tried.
const FIRST: usize = 8;

fn ids(raw: impl IntoIterator<Item = u32>) -> Vec<TargetId> {
    raw.into_iter().map(TargetId).collect()
}

/// Positions cost little, so that copies pay.
fn costs() -> Costs {
    Costs {
        draft: vec![0.1],
        verify: vec![1.0, 1.05, 1.1],
        round: 0.0,
    }
}

/// `answer` to `prompt` as copies alone would have made it.
fn replayed(prompt: &[TargetId], answer: &[TargetId]) -> Replay {
    let mut source = CopySource::from(History::default());
    source.start(prompt);
    CopyRecord::default().replay(&mut source, &costs(), answer)
}

/// An answer in which nothing can be copied, and one that repeats itself.
fn new_text() -> Replay {
    replayed(&ids([900]), &ids(0..60))
}

fn repeated_text() -> Replay {
    replayed(&ids([900]), &ids((0..60).map(|i| i % 10)))
}

fn rounds(replay: &Replay) -> usize {
    replay.rounds().map(|(_, count)| count).sum()
}

#[test]
fn a_replay_has_the_rounds_of_copies_alone() {
    // Without a match every round is a plain step.
    assert_eq!(new_text().rounds().collect::<Vec<_>>(), [(1, 60)]);
    // Behind the first ten tokens, which are new, every copy is accepted; the record learns that
    // within the answer and copies more and more.
    let repeated = repeated_text();
    assert!(rounds(&repeated) < 30, "{repeated:?}");
    let longest = repeated.rounds().map(|(positions, _)| positions).max();
    assert!(longest > Some(8), "{repeated:?}");
    // Copies that are never accepted are given up.
    let wrong = (0..120).flat_map(|i| [7, 100 + i]);
    let wrong = replayed(&ids([7, 50, 7]), &ids(wrong));
    let plain = wrong.rounds().find(|(positions, _)| *positions == 1);
    assert_eq!(rounds(&wrong), 240);
    assert!(plain.is_some_and(|(_, count)| count > 200), "{wrong:?}");
}

/// Copies alone answer five prompts of a stream. The replay of each answer has the same rounds, at
/// any temperature: a rejected copy is never the next token.
#[test]
fn a_replay_has_the_rounds_that_copies_made() {
    let toy = ToyVocab {
        merges: &[("a", "b"), ("b", "c")],
        added: &[],
    };
    let vocabulary = toy.load::<TargetId>().unwrap();
    let active: Vec<u32> = (b'a'..=b'f').map(u32::from).chain([256, 257]).collect();
    let sampled = Sampling::new(1.0).unwrap();
    let mut copied = [0, 0];
    for (seed, sampling) in (0..20).flat_map(|seed| [(seed, Sampling::GREEDY), (seed, sampled)]) {
        let rows = text_rows(seed, vocabulary.clone(), active.clone(), 0.5);
        let target = FakeModel::<TargetId>::new(toy.len(), rows);
        let pair = Pair::shared(vocabulary.clone());
        let config = SessionConfig {
            sampling,
            ..SessionConfig::new(VerifyMode::Tli, 40)
        };
        let drafter = PromptLookup::new(toy.len());
        let mut session = Session::new(drafter, target, pair, config).unwrap();
        let (mut record, mut again) = (CopyRecord::default(), CopyRecord::default());
        let mut texts = CopySource::from(History::default());
        for prompt in 0..5 {
            let mut before = texts.clone();
            session.look_up_in(texts);
            let none = ConstantLength(0);
            let mut policy = CopyOrDraft::new(none, &mut record, costs(), 0, true, None);
            let ids = [97 + prompt, 98, 97 + prompt];
            let target = ids.map(TargetId);
            let prompt = Prompt {
                draft: &ids.map(DraftId),
                target: &target,
            };
            let name = StreamName::new(seed, u64::from(ids[0]));
            let done = session
                .generate(prompt, name, None, &mut policy, &mut NoSink)
                .unwrap();
            texts = session.take_history().unwrap();
            before.start(&target);
            let replay = again.replay(&mut before, &costs(), &done.tokens);
            let mut made = Vec::new();
            for round in &done.rounds {
                made.resize(made.len().max(2 + round.proposed()), 0);
                made[1 + round.proposed()] += 1;
                copied[usize::from(sampling == sampled)] += round.accepted;
            }
            let made = made.into_iter().enumerate().filter(|(_, count)| *count > 0);
            assert_eq!(
                replay.rounds().collect::<Vec<_>>(),
                made.collect::<Vec<_>>()
            );
            assert_eq!(replay.tokens(), done.tokens.len());
        }
    }
    assert!(copied.iter().all(|copied| *copied > 200), "{copied:?}");
}

#[test]
fn no_answer_has_no_rounds() {
    assert_eq!(replayed(&ids([1]), &[]), Replay::default());
}

/// Drafts that make three tokens in about one and a half plain steps.
fn drafted(k: usize) -> RoundCost {
    RoundCost {
        positions: 1 + k,
        drafted: k,
        tokens: if k > 0 { 3 } else { 1 },
        draft: 0.1 * k as f64,
        rest: 1.0 + 0.025 * k as f64,
    }
}

fn controller(learns: bool) -> Controller {
    let mut controller = Controller::new(ControllerConfig {
        copies: true,
        learns,
        frozen: learns,
        ..ControllerConfig::default()
    });
    controller.turn_to("target", "task");
    controller
}

/// Copies that cannot be made any more are no measure for the drafter.
#[test]
fn copies_that_are_switched_off_do_not_stop_learning() {
    let recorded = |copies: bool| {
        let mut controller = controller(true);
        for _ in 0..3 {
            let mut answer = controller.open();
            (0..20).for_each(|_| answer.observe(&drafted(0)));
            answer.would_copy(repeated_text);
            controller.close(answer, 1);
        }
        controller.reconfigure(ControllerConfig {
            copies,
            ..controller.config()
        });
        let (mut first, mut recorded) = (None, 0);
        for _ in 0..5 {
            let mut answer = controller.open();
            for _ in 0..40 {
                let k = if answer.speculates() { 4 } else { 0 };
                answer.observe(&drafted(k));
            }
            first = first.or(Some(answer.way()));
            recorded += usize::from(answer.records());
            controller.close(answer, 1);
        }
        (first, recorded > 0)
    };
    assert_eq!(recorded(true), (Some(Way::Copies), false));
    assert_eq!(recorded(false), (Some(Way::Learner), true));
}

/// A learner that got worse is compared with the first weights only where these can draft.
#[test]
fn without_first_weights_a_worse_learner_still_drafts() {
    let mut controller = controller(true);
    let worse = Agreed {
        learner: 0.4,
        frozen: 0.6,
        positions: 128.0,
    };
    controller.learnt("target", 1.0, Some(worse));
    assert_eq!(controller.open_held_out().way(), Way::Frozen);
    for (learns, frozen, way) in [(true, false, Way::Learner), (false, true, Way::Frozen)] {
        controller.reconfigure(ControllerConfig {
            learns,
            frozen,
            ..controller.config()
        });
        assert_eq!(controller.open_held_out().way(), way, "{learns}, {frozen}");
    }
}

/// Answers that shared their time are learnt from all the same: an update is theirs together.
#[test]
fn an_answer_that_is_left_but_learnt_from_is_counted() {
    let mut controller = controller(true);
    for _ in 0..4 {
        let answer = controller.open();
        assert!(answer.records());
        controller.leave(&answer, true);
    }
    controller.learnt("target", 4.0, None);
    let saved = serde_json::to_value(&controller).unwrap();
    let costs = &saved["known"]["target"]["learning"]["costs"];
    assert_eq!(costs, &serde_json::json!([4.0, 4.0]));
}

#[test]
fn copies_that_save_less_than_drafts_are_never_made() {
    let mut controller = controller(false);
    for _ in 0..4 * FIRST {
        let mut answer = controller.open();
        assert_ne!(answer.way(), Way::Copies);
        for _ in 0..40 {
            let k = if answer.speculates() { 4 } else { 0 };
            answer.observe(&drafted(k));
        }
        answer.would_copy(new_text);
        controller.close(answer, 1);
    }
}

#[test]
fn without_a_replay_copies_are_tried_once_at_first() {
    let mut controller = controller(false);
    let mut tried = 0;
    for _ in 0..4 * FIRST {
        let mut answer = controller.open();
        let copies = answer.way() == Way::Copies;
        tried += usize::from(copies);
        for _ in 0..40 {
            let k = if answer.speculates() && !copies { 4 } else { 0 };
            answer.observe(&drafted(k));
        }
        controller.close(answer, 1);
    }
    assert_eq!(tried, 1);
}

/// Short answers to long prompts: a drafter that reads them loses as much as an answer takes, and
/// copies make three tokens in two rounds. Neither another draft nor an update is worth its time.
#[test]
fn one_answer_tells_that_copies_save_more_than_drafts() {
    for learns in [false, true] {
        let mut controller = controller(learns);
        let (mut ways, mut updates) = (Vec::new(), 0);
        for _ in 0..4 * FIRST {
            let mut answer = controller.open();
            let way = answer.way();
            ways.push(way);
            let drafts = matches!(way, Way::Learner | Way::Frozen);
            if drafts {
                answer.read(30.0);
            }
            for round in 0..20 {
                let k = if answer.speculates() { 2 } else { 0 };
                answer.observe(&RoundCost {
                    positions: 1 + k,
                    drafted: if drafts { k } else { 0 },
                    tokens: if k > 0 { 1 + round % 2 } else { 1 },
                    draft: if drafts { 0.3 * k as f64 } else { 0.0 },
                    rest: 1.0 + 0.05 * k as f64,
                });
            }
            answer.would_copy(repeated_text);
            if controller.close(answer, 1) {
                updates += 1;
                controller.learnt("target", 25.0, None);
            }
        }
        assert_eq!(ways[0], Way::Learner);
        assert!(ways[1..].iter().all(|way| *way == Way::Copies), "{ways:?}");
        assert_eq!(updates, 0);
    }
}

/// A policy that counts the rounds that it observes.
#[derive(Default)]
struct Watcher(usize);

impl DraftPolicy for Watcher {
    fn next_len(&mut self) -> usize {
        4
    }

    fn observe(&mut self, _: &RoundOutcome) {
        self.0 += 1;
    }
}

/// Copies are worth what they save in all rounds, not in those with a match alone.
#[test]
fn copies_observe_rounds_without_a_match() {
    let mut controller = controller(false);
    let mut answer = controller.open();
    answer.read(30.0);
    (0..20).for_each(|_| answer.observe(&drafted(0)));
    answer.would_copy(repeated_text);
    controller.close(answer, 1);
    let answer = controller.open_held_out();
    assert_eq!(answer.way(), Way::Copies);

    let plain_step = RoundOutcome {
        emitted: ids([1]),
        ..RoundOutcome::default()
    };
    let mut policy = Controlled::new(Watcher::default(), Some(answer));
    assert_eq!(policy.next_len(), 0);
    policy.observe(&plain_step);
    assert!(policy.last_asked().is_some());
    // It has no part in a round for which it was not asked.
    policy.observe(&plain_step);
    assert!(policy.last_asked().is_none());
    assert_eq!(policy.inner_mut().0, 1);
}
