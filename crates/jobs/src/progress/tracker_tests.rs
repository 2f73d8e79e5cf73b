use super::*;
use crate::JobSpec;
use crate::spec::tests;

fn id(stage: &str, cell: &str) -> JobId {
    JobId::new(stage, cell).unwrap()
}

fn plan(tracker: &mut Tracker, stage: &str, cell: &str, prompts: u64, exclusive: bool) {
    let job = JobSpec {
        exclusive,
        prompts: Some(prompts),
        ..tests::job(&format!("{stage}/{cell}"), None)
    };
    tracker.apply(&Event::Planned { job }, Duration::ZERO);
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn progress(id: JobId, done: u64, of: u64) -> Event {
    let progress = Progress {
        done,
        of,
        acceptance: Some(0.3456),
        tokens_per_s: Some(812.4),
    };
    Event::Progress { id, progress }
}

#[test]
fn a_resumed_job_is_as_fast_as_it_was_here() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 1000, false);
    let id = id("stream", "a");
    tracker.apply(&Event::Started { id: id.clone() }, seconds(0));
    let done = 500;
    tracker.apply(
        &Event::Resumed {
            id: id.clone(),
            done,
        },
        seconds(0),
    );
    tracker.apply(&progress(id.clone(), 500, 1000), seconds(5));
    assert_eq!(tracker.time_left(seconds(5)), None);
    tracker.apply(&progress(id, 510, 1000), seconds(100));
    // Ten prompts in 100 s.
    assert_eq!(tracker.time_left(seconds(100)), Some(seconds(4900)));
}

#[test]
fn time_left_weighs_prompts_by_stage() {
    let mut tracker = Tracker::new(2);
    plan(&mut tracker, "stream", "a", 100, false);
    plan(&mut tracker, "stream", "b", 100, false);
    plan(&mut tracker, "held-out", "a", 10, true);
    plan(&mut tracker, "held-out", "b", 10, true);
    assert_eq!(tracker.time_left(seconds(1)), None);
    for cell in ["a", "b"] {
        let id = id("stream", cell);
        tracker.apply(&Event::Started { id: id.clone() }, seconds(0));
        tracker.apply(&progress(id, 50, 100), seconds(50));
    }
    // 100 prompts at 1 s by 2 workers, 20 timed ones at the average pace of 1 s.
    assert_eq!(tracker.time_left(seconds(50)), Some(seconds(70)));
    assert_eq!(
        tracker.total_line(seconds(50)),
        "0/4 jobs, 2 running · 100/220 prompts · 70 s left"
    );
    assert_eq!(
        tracker.job_lines()[0],
        "stream a · 50/100 prompts · acceptance 0.35 · 812 tokens/s"
    );
    for cell in ["a", "b"] {
        let id = id("stream", cell);
        tracker.apply(&Event::Finished { id, seconds: 100.0 }, seconds(100));
    }
    let held = id("held-out", "a");
    tracker.apply(&Event::Started { id: held.clone() }, seconds(100));
    tracker.apply(&progress(held, 5, 10), seconds(115));
    // Timed prompts take 3 s each, 15 are left.
    assert_eq!(tracker.time_left(seconds(115)), Some(seconds(45)));
}

#[test]
fn what_was_done_before_is_no_measure_of_pace() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 1000, false);
    plan(&mut tracker, "stream", "b", 10, false);
    tracker.apply(
        &Event::Skipped {
            id: id("stream", "a"),
        },
        Duration::ZERO,
    );
    tracker.apply(
        &Event::Started {
            id: id("stream", "b"),
        },
        Duration::ZERO,
    );
    assert_eq!(tracker.time_left(seconds(3)), None);
    assert_eq!(
        tracker.total_line(seconds(3)),
        "1/2 jobs, 1 running · 1000/1010 prompts"
    );
    assert_eq!(tracker.job_lines(), ["stream b · loading"]);
    tracker.apply(&progress(id("stream", "b"), 2, 10), seconds(4));
    assert_eq!(tracker.time_left(seconds(4)), Some(seconds(16)));
}

#[test]
fn failed_and_blocked_jobs_cost_no_time() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 10, false);
    plan(&mut tracker, "held-out", "a", 10, false);
    plan(&mut tracker, "stream", "b", 10, false);
    tracker.apply(
        &Event::Started {
            id: id("stream", "a"),
        },
        Duration::ZERO,
    );
    let message = String::new();
    tracker.apply(
        &Event::Failed {
            id: id("stream", "a"),
            message,
        },
        seconds(1),
    );
    let reason = String::new();
    tracker.apply(
        &Event::Blocked {
            id: id("held-out", "a"),
            reason,
        },
        seconds(1),
    );
    assert_eq!(
        tracker.total_line(seconds(1)),
        "0/3 jobs, 1 failed, 1 blocked · 0/10 prompts"
    );
    // An event of a job that is not part of the run changes nothing.
    tracker.apply(
        &Event::Started {
            id: id("stream", "x"),
        },
        seconds(2),
    );
    assert_eq!(tracker.counts().running, 0);
}

#[test]
fn times_are_short() {
    let texts = [0, 99, 100, 5399, 5400, 11_100].map(|s| duration_text(seconds(s)));
    assert_eq!(
        texts,
        ["0 s", "99 s", "2 min", "90 min", "1 h 30 min", "3 h 05 min"]
    );
}
