//! The throughput rule compared with brute force over constant lengths, and on simulated drafts.

use std::sync::Arc;

use adaptive_draft::{Chain, Costs, LabelRecorder, Plan, Score, Throughput};
use ngram_cache::Kind;
use spec_decode::{
    ConstantLength, Dice, DraftPolicy, DraftStep, Proposal, Purpose, RoundOutcome, Score as Judged,
    StreamName,
};
use vocab_align::{DraftId, TargetId};

const LONGEST: usize = 8;

/// A process of drafts. A text is easy or hard and stays so with some probability; tokens of easy
/// text are accepted often, and their scores are slightly informative about it.
struct Process {
    dice: Dice,
    easy: f64,
    hard: f64,
    longest: usize,
}

/// The longest possible draft: scores, and for each token true if it would be accepted.
type Imagined = Vec<(f64, bool)>;

impl Process {
    fn new(easy: f64, hard: f64, seed: u64) -> Self {
        let dice = StreamName::new(seed, 5).dice(Purpose::Plain);
        Self {
            dice,
            easy,
            hard,
            longest: LONGEST,
        }
    }

    fn draft(&mut self) -> Imagined {
        let mut is_easy = self.dice.uniform() < 0.5;
        let mut draft = Vec::new();
        for _ in 0..self.longest {
            if self.dice.uniform() < 0.2 {
                is_easy = !is_easy;
            }
            let score = match (is_easy, self.dice.uniform() < 0.8) {
                (true, true) | (false, false) => 0.97,
                _ => 0.25,
            };
            let acceptance = if is_easy { self.easy } else { self.hard };
            draft.push((score, self.dice.uniform() < acceptance));
        }
        draft
    }
}

/// Plays one round with a policy. Returns the numbers of drafted and accepted tokens.
fn play(policy: &mut dyn DraftPolicy, imagined: &Imagined) -> (usize, usize) {
    let most = policy.next_len().min(imagined.len());
    let mut drafted = 0;
    for (position, (score, _)) in imagined.iter().take(most).enumerate() {
        // Two logits make any probability of the first token.
        let logits = [(score / (1.0 - score)).ln() as f32, 0.0];
        drafted += 1;
        let step = DraftStep {
            position,
            token: DraftId(0),
            probability: 1.0,
            logits: &logits,
            state: &[],
            open: false,
        };
        if policy.stop_after(&step) {
            break;
        }
    }
    let accepted = imagined[..drafted].iter().take_while(|(_, y)| *y).count();
    policy.observe(&outcome(drafted, accepted));
    (drafted, accepted)
}

fn outcome(drafted: usize, accepted: usize) -> RoundOutcome {
    let proposal = |i: usize| Proposal {
        target: TargetId(0),
        span: i..i + 1,
        kind: Kind::Direct,
    };
    let score = |i: usize| Judged::new(if i < accepted { 1.0 } else { 0.0 }, 1.0);
    RoundOutcome {
        draft: vec![DraftId(0); drafted],
        proposals: (0..drafted).map(proposal).collect(),
        accepted,
        scores: (0..drafted.min(accepted + 1)).map(score).collect(),
        ..RoundOutcome::default()
    }
}

/// Tokens per cost of a policy over many rounds of the process.
fn rate(policy: &mut dyn DraftPolicy, costs: &Costs, easy: f64, hard: f64) -> f64 {
    rate_of(policy, costs, Process::new(easy, hard, 9), 30_000)
}

fn rate_of(
    policy: &mut dyn DraftPolicy,
    costs: &Costs,
    mut process: Process,
    rounds: usize,
) -> f64 {
    let (mut tokens, mut cost) = (0.0, 0.0);
    for _ in 0..rounds {
        let (drafted, accepted) = play(policy, &process.draft());
        tokens += 1.0 + accepted as f64;
        cost += costs.round + costs.verify(drafted + 1) + costs.draft(drafted);
    }
    tokens / cost
}

fn learnt(score: Score, easy: f64, hard: f64) -> Chain {
    learnt_of(score, Process::new(easy, hard, 4))
}

fn learnt_of(score: Score, mut process: Process) -> Chain {
    let mut chains = [Chain::new(score)];
    let longest = ConstantLength(process.longest);
    let mut watch = LabelRecorder::new(longest, None, &mut chains, None);
    for _ in 0..5000 {
        play(&mut watch, &process.draft());
    }
    let [chain] = chains;
    chain
}

fn shapes() -> Vec<Costs> {
    let slopes = [0.0, 0.05, 0.15, 0.5];
    let line = |slope: f64| (0..=LONGEST).map(|i| 1.0 + slope * i as f64).collect();
    let mut shapes: Vec<Costs> = slopes
        .into_iter()
        .map(|slope| Costs {
            draft: vec![0.07],
            verify: line(slope),
            round: 0.05,
        })
        .collect();
    // The second position is expensive and further ones are cheap: a rule that considers one token
    // would stop.
    shapes.push(Costs {
        draft: vec![0.05],
        verify: vec![1.0, 1.4, 1.42, 1.44, 1.46, 1.48],
        round: 0.0,
    });
    // Here the first drafter step is expensive.
    shapes.push(Costs {
        draft: vec![0.4, 0.43, 0.46],
        verify: vec![1.0, 1.02],
        round: 0.0,
    });
    shapes
}

#[test]
fn the_rule_at_least_matches_the_best_constant_length() {
    for costs in shapes() {
        for (easy, hard) in [(0.9, 0.1), (0.6, 0.5), (0.97, 0.6), (0.2, 0.05)] {
            let best = (0..=LONGEST)
                .map(|k| rate(&mut ConstantLength(k), &costs, easy, hard))
                .fold(0.0, f64::max);
            for score in [Score::Confidence, Score::Position] {
                let plan = Arc::new(Plan::new(&learnt(score, easy, hard), &costs, LONGEST));
                let mut policy = Throughput::new(plan.clone(), None, None);
                let found = rate(&mut policy, &costs, easy, hard);
                assert!(
                    found > 0.985 * best,
                    "{score:?} {costs:?} {easy} {hard}: {found} against {best}"
                );
            }
        }
    }
}

/// If drafts pay far beyond the usual lengths, the rule finds that, and the best length is not at a
/// border.
#[test]
fn drafts_of_32_tokens_are_planned() {
    let process = |seed| Process {
        longest: 32,
        ..Process::new(0.985, 0.9, seed)
    };
    let costs = Costs {
        draft: vec![0.1, 0.13],
        verify: vec![1.0, 1.015],
        round: 0.0,
    };
    let constant = |k| rate_of(&mut ConstantLength(k), &costs, process(9), 10_000);
    let best = (1..=32).max_by(|a, b| constant(*a).total_cmp(&constant(*b)));
    let best = best.expect("lengths");
    assert!((9..32).contains(&best), "{best}");
    for score in [Score::Confidence, Score::Position] {
        let plan = Arc::new(Plan::new(&learnt_of(score, process(4)), &costs, 32));
        let mut policy = Throughput::new(plan, None, None);
        let found = rate_of(&mut policy, &costs, process(9), 10_000);
        let best = constant(best);
        assert!(found > 0.985 * best, "{score:?}: {found} against {best}");
    }
}

#[test]
fn scores_that_tell_something_pay() {
    let costs = &shapes()[2];
    let found = |score| {
        let plan = Arc::new(Plan::new(&learnt(score, 0.95, 0.1), costs, LONGEST));
        let predicted = plan.rate();
        let mut policy = Throughput::new(plan, None, None);
        (rate(&mut policy, costs, 0.95, 0.1), predicted)
    };
    let (blind, _) = found(Score::Position);
    let (seeing, predicted) = found(Score::Confidence);
    assert!(seeing > 1.05 * blind, "{seeing} against {blind}");
    assert!(
        (predicted / seeing - 1.0).abs() < 0.1,
        "{predicted} and {seeing}"
    );
}

/// Learning on its own drafts ends where learning on whole ones does.
#[test]
fn learning_under_the_rule_itself_is_not_biased_by_what_it_leaves_out() {
    let costs = &shapes()[2];
    let (easy, hard) = (0.95, 0.1);
    let whole = Plan::new(&learnt(Score::Confidence, easy, hard), costs, LONGEST);
    let mut chains = [Chain::new(Score::Confidence)];
    let mut process = Process::new(easy, hard, 4);
    for _ in 0..500 {
        let plan = Arc::new(Plan::new(&chains[0], costs, LONGEST));
        let policy = Throughput::new(plan, None, Some(8));
        let mut watch = LabelRecorder::new(policy, None, &mut chains, None);
        for _ in 0..10 {
            play(&mut watch, &process.draft());
        }
    }
    let own = Plan::new(&chains[0], costs, LONGEST);
    let ratio = own.rate() / whole.rate();
    assert!(
        (ratio - 1.0).abs() < 0.05,
        "{} and {}",
        own.rate(),
        whole.rate()
    );
}

#[test]
fn hopeless_drafts_are_left_alone_and_looked_at_again() {
    let costs = &shapes()[2];
    let chain = learnt(Score::Confidence, 0.02, 0.01);
    let plan = Arc::new(Plan::new(&chain, costs, LONGEST));
    assert!(!plan.begins());
    assert_eq!(Throughput::new(plan.clone(), None, None).next_len(), 0);
    let mut curious = Throughput::new(plan, None, Some(4));
    let lengths: Vec<usize> = (0..8).map(|_| curious.next_len()).collect();
    assert_eq!(lengths, [1, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_curious_round_drafts_one_token_more() {
    let costs = &shapes()[2];
    let plan = Arc::new(Plan::new(
        &learnt(Score::Confidence, 0.9, 0.2),
        costs,
        LONGEST,
    ));
    let mut process = Process::new(0.9, 0.2, 6);
    let mut longer = 0;
    for _ in 0..500 {
        let draft = process.draft();
        let planned = play(&mut Throughput::new(plan.clone(), None, None), &draft).0;
        let mut curious = Throughput::new(plan.clone(), None, Some(2));
        let first = play(&mut curious, &draft).0;
        assert!(first >= (planned + 1).min(LONGEST), "{first}, {planned}");
        assert_eq!(play(&mut curious, &draft).0, planned);
        longer += first - planned;
    }
    // Here and there what came next was worth a longer draft.
    assert!((250..1000).contains(&longer), "{longer}");
}

#[test]
fn dearer_positions_never_lengthen_a_draft() {
    let chain = learnt(Score::Confidence, 0.9, 0.2);
    let mut before = usize::MAX;
    for slope in [0.0, 0.05, 0.1, 0.2, 0.4, 0.8] {
        let costs = Costs {
            draft: vec![0.05],
            verify: vec![1.0, 1.0 + slope],
            round: 0.0,
        };
        let plan = Arc::new(Plan::new(&chain, &costs, LONGEST));
        let mut policy = Throughput::new(plan, None, None);
        let mut process = Process::new(0.9, 0.2, 1);
        let drafted: usize = (0..2000)
            .map(|_| play(&mut policy, &process.draft()).0)
            .sum();
        assert!(drafted <= before, "{slope}: {drafted} after {before}");
        before = drafted;
    }
}

#[test]
fn an_alternative_is_worth_a_position_that_costs_less_than_it_brings() {
    let chain = learnt(Score::Confidence, 0.9, 0.4);
    for costs in shapes() {
        let plan = Arc::new(Plan::new(&chain, &costs, LONGEST));
        let policy = Throughput::new(Arc::clone(&plan), None, None);
        // Far beyond the longest draft, positions cost what the last known one does.
        for others in [1, 3, LONGEST, LONGEST + 9, LONGEST + 99] {
            let from = others.min(LONGEST + 16 - 3);
            let rise = costs.verify(from + 4) - costs.verify(from);
            let cost = (plan.rate() * rise / 4.0).max(0.02);
            assert!(policy.is_worth(others, cost + 1e-9), "{others}: {costs:?}");
            assert!(!policy.is_worth(others, cost - 1e-9), "{others}: {costs:?}");
        }
    }
}
