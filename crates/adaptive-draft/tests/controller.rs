//! The controller in simulated streams with known costs: it is never far below plain decoding, and
//! it keeps most of the possible gain.

use adaptive_draft::{Agreed, Answer, Controller, ControllerConfig, Ledger, RoundCost, Way};
use spec_decode::{Dice, Purpose, StreamName};

/// Number of answers of a stream, and of a window.
const ANSWERS: usize = 400;
const STRETCH: usize = 32;
const FIRST: usize = 8;

/// Acceptance of draft tokens as a function of the index of the answer, the amount of learning,
/// true if the learner drafts, and a uniform number in 0..1 for this answer.
type Acceptance = fn(usize, f64, bool, f64) -> f64;

/// A drafter beside a target, with costs in plain steps.
#[derive(Clone, Copy)]
struct World {
    /// Cost of a drafted token, and of reading a prompt.
    draft: f64,
    prefill: f64,
    /// Additional cost of each position of a forward.
    position: f64,
    /// Number of draft tokens.
    k: usize,
    acceptance: Acceptance,
    /// Cost of an update.
    update: f64,
    /// Largest relative error of times, independent for each round.
    noise: f64,
    /// True if the learner is compared with the frozen weights on the same text.
    compares: bool,
    /// Factor on the time of the rounds in the last third of every 16th answer, from the second on,
    /// when other work occupies the machine.
    busy: f64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            draft: 0.1,
            prefill: 2.0,
            position: 0.04,
            k: 4,
            acceptance: |_, _, _, _| 0.6,
            update: 1.3,
            noise: 0.2,
            compares: false,
            busy: 1.0,
        }
    }
}

/// Decision maker.
enum By<'a> {
    Controller(&'a mut Controller),
    /// Always this way, learning from every answer or from none.
    Fixed(Way, bool),
}

/// Seconds of each answer, learning included, and its number of tokens, which are the seconds of
/// plain decoding.
type Stream = Vec<(f64, f64)>;

struct Noisy {
    dice: Dice,
    most: f64,
}

impl Noisy {
    fn time(&mut self, seconds: f64) -> f64 {
        seconds * (1.0 + self.most * (2.0 * self.dice.uniform() - 1.0))
    }
}

impl World {
    /// Number of emitted tokens of a round with a draft.
    fn emitted(&self, p: f64, dice: &mut Dice) -> usize {
        1 + (0..self.k).take_while(|_| dice.uniform() < p).count()
    }

    /// Agreement of both drafters with an answer of 100 tokens; on most tokens both agree or
    /// neither does.
    fn agreed(&self, i: usize, learnt: f64, drawn: f64, dice: &mut Dice) -> Agreed {
        const TOKENS: usize = 100;
        let [learner, frozen] = [true, false].map(|who| (self.acceptance)(i, learnt, who, drawn));
        let (mut by_learner, mut by_frozen) = (0, 0);
        for _ in 0..TOKENS {
            let both = dice.uniform();
            let own = if dice.uniform() < 0.2 {
                dice.uniform()
            } else {
                both
            };
            by_learner += usize::from(both < learner);
            by_frozen += usize::from(own < frozen);
        }
        let [learner, frozen] = [by_learner, by_frozen].map(|n| n as f64 / TOKENS as f64);
        Agreed {
            learner,
            frozen,
            positions: TOKENS as f64,
        }
    }

    fn stream(&self, mut by: By<'_>, seed: u64) -> Stream {
        let mut text = StreamName::new(seed, 7).dice(Purpose::Plain);
        let mut noisy = Noisy {
            dice: StreamName::new(seed, 8).dice(Purpose::Plain),
            most: self.noise,
        };
        let mut learnt = 0.0;
        let mut stream = Stream::new();
        for i in 0..ANSWERS {
            let length = 40 + (text.uniform() * 160.0) as usize;
            let drawn = text.uniform();
            let mut answer = match &mut by {
                By::Controller(controller) => Some(controller.open()),
                By::Fixed(..) => None,
            };
            let (way, learns) = match (&by, &answer) {
                (By::Fixed(way, learns), _) => (*way, *learns),
                (_, Some(answer)) => (answer.way(), answer.records()),
                _ => (Way::Plain, false),
            };
            let p = (self.acceptance)(i, learnt, way == Way::Learner, drawn);
            let (mut seconds, mut tokens, mut rejected) = (0.0, 0, 0);
            if matches!(way, Way::Learner | Way::Frozen) {
                let prefill = noisy.time(self.prefill);
                seconds += self.prefill;
                answer.iter_mut().for_each(|answer| answer.read(prefill));
            }
            while tokens < length {
                let drafts = match &answer {
                    Some(answer) => answer.speculates(),
                    None => way != Way::Plain,
                };
                let k = if drafts { self.k } else { 0 };
                let busy = match i % 16 == 1 && 3 * tokens > 2 * length {
                    true => self.busy,
                    false => 1.0,
                };
                let round = RoundCost {
                    positions: 1 + k,
                    drafted: k,
                    tokens: match drafts {
                        true => self.emitted(p, &mut text).min(length - tokens),
                        false => 1,
                    },
                    draft: busy * noisy.time(self.draft * k as f64),
                    rest: busy * noisy.time(1.0 + self.position * k as f64),
                };
                rejected += usize::from(round.tokens < round.positions);
                tokens += round.tokens;
                seconds += 1.0 + (self.draft + self.position) * k as f64;
                answer.iter_mut().for_each(|answer| answer.observe(&round));
            }
            let update = match (&mut by, answer) {
                (By::Controller(controller), Some(answer)) => {
                    let learns = controller.close(answer, rejected);
                    let update = noisy.time(self.update);
                    if learns {
                        let agreed = self
                            .compares
                            .then(|| self.agreed(i, learnt, drawn, &mut text));
                        controller.learnt("target", update, agreed);
                    }
                    learns.then_some(self.update)
                }
                _ => learns.then_some(self.update),
            };
            learnt += f64::from(u8::from(update.is_some()));
            stream.push((seconds + update.unwrap_or(0.0), tokens as f64));
        }
        stream
    }

    /// The stream under a controller, and the controller at its end.
    fn controlled(&self, seed: u64) -> (Stream, Controller) {
        let mut controller = Controller::new(ControllerConfig::default());
        controller.turn_to("target", "task");
        let stream = self.stream(By::Controller(&mut controller), seed);
        (stream, controller)
    }
}

/// Speed of some answers, relative to plain decoding.
fn speed(answers: &[(f64, f64)]) -> f64 {
    let sum = |of: fn(&(f64, f64)) -> f64| answers.iter().map(of).sum::<f64>();
    sum(|a| a.1) / sum(|a| a.0)
}

/// Speed of the slowest window after the first answers.
fn slowest(stream: &Stream) -> f64 {
    let stretches = stream[FIRST..].windows(STRETCH);
    stretches.map(speed).fold(f64::INFINITY, f64::min)
}

/// Results of ten streams, as speeds relative to plain decoding.
struct Found {
    /// Speed of the slowest window of all.
    slowest: f64,
    /// Mean speed of all streams, and of their last quarters.
    speed: f64,
    end: f64,
    /// The same for a fixed way.
    fixed: f64,
    fixed_end: f64,
    ledger: Ledger,
}

fn found(name: &str, world: &World, (way, learns): (Way, bool)) -> Found {
    const SEEDS: u64 = 10;
    let last = 3 * ANSWERS / 4;
    let mut found = Found {
        slowest: f64::INFINITY,
        speed: 0.0,
        end: 0.0,
        fixed: 0.0,
        fixed_end: 0.0,
        ledger: Ledger::default(),
    };
    for seed in 0..SEEDS {
        let (stream, controller) = world.controlled(seed);
        let fixed = world.stream(By::Fixed(way, learns), seed);
        found.slowest = found.slowest.min(slowest(&stream));
        for (sum, part) in [
            (&mut found.speed, &stream[..]),
            (&mut found.end, &stream[last..]),
            (&mut found.fixed, &fixed[..]),
            (&mut found.fixed_end, &fixed[last..]),
        ] {
            *sum += speed(part) / SEEDS as f64;
        }
        let ledger = controller.ledger();
        let plain: f64 = stream.iter().map(|answer| answer.1).sum();
        let saved = plain - stream.iter().map(|answer| answer.0).sum::<f64>();
        let off = (ledger.saved() - saved).abs() / plain;
        let most = 0.02 + 0.3 * world.noise;
        assert!(off < most, "{name}: the ledger is off by {off:.3}");
        found.ledger = ledger;
    }
    let Found {
        slowest,
        speed,
        end,
        fixed,
        fixed_end,
        ledger,
    } = &found;
    eprintln!(
        "{name}: slowest stretch {slowest:.3}; speed {speed:.3}, last quarter {end:.3}; fixed {fixed:.3}, \
         {fixed_end:.3}; rested {} of {}, {} updates, learning {:.3}",
        ledger.rested,
        ledger.answers,
        ledger.updates,
        ledger.share_of_learning()
    );
    found
}

/// Compares ten streams with a fixed way. No window is slower than `floor`; all streams and their
/// last quarters have at least these shares of the fixed way's speed.
fn holds(
    name: &str,
    world: World,
    fixed: (Way, bool),
    (floor, speed, end): (f64, f64, f64),
) -> Ledger {
    let found = found(name, &world, fixed);
    assert!(
        found.slowest >= floor,
        "{name}: slowest stretch {}",
        found.slowest
    );
    assert!(
        found.speed >= speed * found.fixed,
        "{name}: speed {}",
        found.speed
    );
    assert!(
        found.end >= end * found.fixed_end,
        "{name}: last quarter {}",
        found.end
    );
    found.ledger
}

const PLAIN: (Way, bool) = (Way::Plain, false);
const DRAFTS: (Way, bool) = (Way::Learner, false);
const LEARNS: (Way, bool) = (Way::Learner, true);
const FROZEN: (Way, bool) = (Way::Frozen, false);

/// Acceptance of a learner that gains by learning.
fn gains(_: usize, n: f64, learner: bool, u: f64) -> f64 {
    0.5 + 0.1 * u + curve(0.05, n, learner)
}

/// Acceptance of a learner that loses by learning.
fn loses(_: usize, n: f64, learner: bool, u: f64) -> f64 {
    0.5 + 0.2 * u - curve(0.05, n, learner)
}

/// Acceptance that pays only after much learning.
fn pays_later(_: usize, n: f64, learner: bool, _: f64) -> f64 {
    0.25 + curve(0.12, n, learner)
}

/// Acceptance for which all learning is worthless from answer 200 on, with as much to learn again.
fn falls(i: usize, n: f64, learner: bool, u: f64) -> f64 {
    let learnt = if i < 200 { n } else { (n - 60.0).max(0.0) };
    0.5 + 0.1 * u + curve(0.08, learnt, learner).min(0.12)
}

fn curve(slope: f64, learnt: f64, learner: bool) -> f64 {
    if learner {
        slope * (1.0 + learnt / 8.0).ln()
    } else {
        0.0
    }
}

#[test]
fn a_drafter_that_never_pays_costs_two_in_a_hundred_at_most() {
    let world = World::default();
    let bad = World {
        acceptance: |_, _, _, _| 0.1,
        ..world
    };
    let ledger = holds("never pays", bad, PLAIN, (0.98, 0.985, 0.985));
    assert!(ledger.rested > 300);
    let close = World {
        acceptance: |_, _, _, _| 0.33,
        ..world
    };
    holds("pays nearly", close, PLAIN, (0.98, 0.985, 0.985));
    let dear = World {
        acceptance: |_, _, _, u| 0.2 + 0.4 * u,
        draft: 0.3,
        prefill: 12.0,
        update: 25.0,
        ..world
    };
    holds("dear", dear, PLAIN, (0.98, 0.98, 0.985));
    let deaf = World {
        acceptance: |_, _, _, _| 0.0,
        draft: 0.2,
        prefill: 12.0,
        update: 25.0,
        ..world
    };
    holds("never right", deaf, PLAIN, (0.98, 0.98, 0.985));
}

#[test]
fn a_drafter_that_pays_loses_two_in_a_hundred_at_most() {
    let world = World::default();
    let pays = World {
        acceptance: |_, _, _, _| 0.7,
        ..world
    };
    let ledger = holds("pays", pays, DRAFTS, (1.5, 0.98, 0.98));
    assert_eq!(ledger.rested, 0);
    let little = World {
        acceptance: |_, _, _, _| 0.45,
        ..world
    };
    holds("pays little", little, DRAFTS, (1.0, 0.98, 0.98));
    let cheap = World {
        acceptance: |_, _, _, _| 0.3,
        draft: 0.02,
        prefill: 0.5,
        update: 0.5,
        ..world
    };
    holds("cheap", cheap, DRAFTS, (1.0, 0.98, 0.98));
    let uneven = World {
        acceptance: |_, _, _, u| 0.25 + 0.4 * u,
        ..world
    };
    holds("pays little, unevenly", uneven, DRAFTS, (0.98, 0.97, 0.96));
}

#[test]
fn a_clock_that_is_off_by_much_is_no_matter() {
    let world = World {
        noise: 0.8,
        ..World::default()
    };
    holds(
        "noise, pays",
        World {
            acceptance: |_, _, _, _| 0.6,
            ..world
        },
        DRAFTS,
        (1.3, 0.98, 0.98),
    );
    // Three times the noise for which the bound is promised.
    holds(
        "noise, pays nearly",
        World {
            acceptance: |_, _, _, _| 0.33,
            ..world
        },
        PLAIN,
        (0.96, 0.98, 0.98),
    );
}

/// A busy period that slows only rounds of one kind, because drafting has just stopped, is no
/// reason to believe that plain steps are slow.
#[test]
fn a_busy_machine_does_not_make_drafts_look_better() {
    let world = World {
        draft: 0.02,
        position: 0.06,
        acceptance: |_, _, _, _| 0.17,
        busy: 2.5,
        ..World::default()
    };
    holds("busy", world, PLAIN, (0.975, 0.98, 0.985));
}

#[test]
fn learning_that_pays_goes_on() {
    let world = World {
        acceptance: gains,
        ..World::default()
    };
    let ledger = holds("learns", world, LEARNS, (1.1, 0.98, 0.98));
    assert!(ledger.updates > 200);
    // Learning that does not pay at first takes longer than without a bound on losses.
    let world = World {
        acceptance: pays_later,
        ..World::default()
    };
    let ledger = holds("pays after learning", world, LEARNS, (0.98, 0.85, 0.9));
    assert!(ledger.updates > 100);
}

#[test]
fn learning_that_never_pays_rests() {
    let world = World {
        acceptance: |_, _, _, u| 0.5 + 0.2 * u,
        ..World::default()
    };
    let ledger = holds("learning never pays", world, DRAFTS, (1.2, 0.98, 0.98));
    assert!(ledger.updates < 200);
    let dear = World {
        update: 25.0,
        ..world
    };
    let ledger = holds("dear learning never pays", dear, DRAFTS, (1.2, 0.98, 0.98));
    assert!(ledger.updates < 20);
    // An answer without a rejection has nothing to teach.
    let perfect = World {
        acceptance: |_, _, _, _| 1.0,
        ..world
    };
    let ledger = holds("nothing to learn", perfect, DRAFTS, (2.0, 0.98, 0.98));
    assert!(ledger.updates < 200, "{}", ledger.updates);
}

#[test]
fn a_learner_that_gets_worse_leaves_the_drafts_to_the_first_weights() {
    let world = World {
        acceptance: loses,
        ..World::default()
    };
    holds("learner worse", world, FROZEN, (1.2, 0.98, 0.98));
}

#[test]
fn another_task_is_noticed_without_being_told() {
    let world = World::default();
    let ends = World {
        acceptance: |i, _, _, u| if i < 200 { 0.6 + 0.2 * u } else { 0.2 },
        ..world
    };
    holds("ends to pay", ends, DRAFTS, (0.98, 1.1, 1.0));
    let begins = World {
        acceptance: |i, _, _, u| if i > 200 { 0.6 + 0.2 * u } else { 0.2 },
        ..world
    };
    holds("begins to pay", begins, DRAFTS, (0.98, 1.1, 0.98));
    let alternates = World {
        acceptance: |i, _, _, u| {
            if (i / 50) % 2 == 0 {
                0.6 + 0.2 * u
            } else {
                0.15
            }
        },
        ..world
    };
    holds("alternates", alternates, DRAFTS, (0.975, 1.1, 1.0));
}

#[test]
fn learning_comes_back_where_acceptance_falls() {
    let world = World {
        acceptance: falls,
        ..World::default()
    };
    holds("falls", world, DRAFTS, (1.1, 1.0, 1.0));
}

#[test]
fn a_law_that_pays_on_some_prompts_is_used_on_those() {
    let some = World {
        acceptance: |_, _, _, u| if u < 0.3 { 0.85 } else { 0.15 },
        ..World::default()
    };
    holds("some prompts", some, PLAIN, (0.98, 1.05, 1.05));
}

#[test]
fn a_saved_controller_goes_on_as_if_it_had_not_been() {
    let world = World {
        acceptance: |_, _, _, u| 0.3 + 0.3 * u,
        ..World::default()
    };
    let (_, controller) = world.controlled(3);
    let text = serde_json::to_string(&controller).unwrap();
    let mut again: Controller = serde_json::from_str(&text).unwrap();
    assert_eq!(again, controller);
    let mut controller = controller;
    let more = world.stream(By::Controller(&mut controller), 4);
    assert_eq!(more, world.stream(By::Controller(&mut again), 4));
    assert_eq!(controller, again);
}

#[test]
fn every_target_has_a_floor_of_its_own() {
    let mut controller = Controller::new(ControllerConfig::default());
    let mut text = StreamName::new(1, 7).dice(Purpose::Plain);
    let mut rested = [0, 0];
    for i in 0..300 {
        let (target, p) = [("good", 0.7), ("bad", 0.05)][i % 2];
        controller.turn_to(target, "");
        let mut answer = controller.open();
        rested[i % 2] += usize::from(answer.way() == Way::Plain);
        let (world, mut tokens) = (World::default(), 0);
        if answer.way() != Way::Plain {
            answer.read(world.prefill);
        }
        while tokens < 100 {
            let k = if answer.speculates() { world.k } else { 0 };
            let emitted = if k > 0 {
                world.emitted(p, &mut text)
            } else {
                1
            };
            tokens += emitted;
            answer.observe(&RoundCost {
                positions: 1 + k,
                drafted: k,
                tokens: emitted,
                draft: world.draft * k as f64,
                rest: 1.0 + world.position * k as f64,
            });
        }
        if controller.close(answer, 1) {
            controller.learnt(target, 1.0, None);
        }
    }
    assert_eq!(rested[0], 0);
    assert!(rested[1] > 100, "{rested:?}");
    let ledger = |target| controller.standing(target).unwrap().ledger;
    let (good, bad) = (ledger("good"), ledger("bad"));
    assert_ne!(controller.standing("good").unwrap().way, Way::Plain);
    assert_eq!(controller.standing("bad").unwrap().way, Way::Plain);
    assert_eq!(controller.standing("unknown"), None);
    assert!(good.saved() > 0.3 * good.plain, "{good:?}");
    assert!(bad.saved() > -0.05 * bad.plain, "{bad:?}");
    let all = controller.ledger();
    assert!((all.saved() - good.saved() - bad.saved()).abs() < 1e-9 * all.plain);
}

/// A round of which no draft token is accepted.
fn lose(answer: &mut Answer) {
    let k = if answer.speculates() { 4 } else { 0 };
    answer.observe(&RoundCost {
        positions: 1 + k,
        drafted: k,
        tokens: 1,
        draft: 0.1 * k as f64,
        rest: 1.0,
    });
}

#[test]
fn an_answer_at_rest_is_never_speculated() {
    let world = World {
        acceptance: |_, _, _, _| 0.0,
        ..World::default()
    };
    let (_, mut controller) = world.controlled(1);
    let (mut rested, mut recorded) = (0, 0);
    for _ in 0..64 {
        let mut answer = controller.open();
        let rests = answer.way() == Way::Plain;
        rested += u32::from(rests);
        recorded += u32::from(answer.records());
        for _ in 0..50 {
            assert!(!(rests && answer.speculates()));
            lose(&mut answer);
        }
        if controller.close(answer, 1) {
            controller.learnt("target", 1.0, None);
        }
    }
    assert!(rested > 32, "{rested}");
    assert!(recorded < 40, "{recorded}");
}

/// The first trial of a drafter that lost all of plain decoding's time in the first answers, which
/// were short, and took `reading` seconds to read each prompt; `None` if there is no trial in 600
/// answers. Later answers take 100 s by plain decoding.
fn first_trial(reading: f64) -> Option<(Controller, Answer)> {
    let mut controller = Controller::new(ControllerConfig {
        learns: false,
        frozen: false,
        ..ControllerConfig::default()
    });
    controller.turn_to("target", "");
    for i in 0..600 {
        let mut answer = controller.open();
        let drafts = answer.way() != Way::Plain;
        if drafts && i >= FIRST {
            return Some((controller, answer));
        }
        if drafts {
            answer.read(reading);
        }
        let length = if i < FIRST { 10 } else { 100 };
        (0..length).for_each(|_| lose(&mut answer));
        controller.close(answer, 1);
    }
    None
}

#[test]
fn a_drafter_that_lost_everything_is_tried_again_if_a_trial_is_cheap() {
    assert!(first_trial(30.0).is_some());
    // Reading the prompt alone takes as long as three answers.
    assert!(first_trial(300.0).is_none());
}

#[test]
fn trials_that_were_not_measured_are_paid_for() {
    let (mut controller, mut answer) = first_trial(30.0).unwrap();
    let mut trials = 0;
    while answer.way() != Way::Plain {
        trials += 1;
        assert!(trials < 32);
        controller.leave(&answer, false);
        answer = controller.open();
    }
}

#[test]
fn the_same_text_tells_the_learner_from_the_first_weights() {
    let world = World {
        compares: true,
        acceptance: gains,
        ..World::default()
    };
    let ledger = holds("learns, compared", world, LEARNS, (1.1, 0.985, 0.985));
    assert!(ledger.updates > 200);
    let worse = World {
        acceptance: loses,
        ..world
    };
    holds(
        "learner worse, compared",
        worse,
        FROZEN,
        (1.2, 0.985, 0.985),
    );
    let never = World {
        acceptance: |_, _, _, u| 0.5 + 0.2 * u,
        ..world
    };
    let ledger = holds("never learns, compared", never, DRAFTS, (1.2, 0.98, 0.98));
    assert!(ledger.updates < 200);
    let falls = World {
        acceptance: falls,
        ..world
    };
    holds("falls, compared", falls, DRAFTS, (1.1, 1.0, 1.0));
    let later = World {
        acceptance: pays_later,
        ..world
    };
    holds(
        "pays after learning, compared",
        later,
        LEARNS,
        (0.98, 0.87, 0.92),
    );
}
