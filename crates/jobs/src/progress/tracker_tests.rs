use super::*;

fn apply(tracker: &mut Tracker, stage: &str, cell: &str, kind: EventKind, now: u64) {
    let id = JobId::new(stage, cell).unwrap();
    tracker.apply(&Event::new(&id, kind), seconds(now));
}

fn plan(tracker: &mut Tracker, stage: &str, cell: &str, prompts: u64, exclusive: bool) {
    let planned = EventKind::Planned {
        exclusive,
        prompts: Some(prompts),
    };
    apply(tracker, stage, cell, planned, 0);
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn progress(done: u64, of: u64) -> EventKind {
    EventKind::Progress(Progress {
        done,
        of,
        acceptance: Some(0.3456),
        tokens_per_s: Some(812.4),
    })
}

#[test]
fn a_resumed_job_is_as_fast_as_it_was_here() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 1000, false);
    apply(&mut tracker, "stream", "a", EventKind::Started, 0);
    apply(&mut tracker, "stream", "a", EventKind::Resumed(500), 0);
    apply(&mut tracker, "stream", "a", progress(500, 1000), 5);
    assert_eq!(tracker.time_left(seconds(5)), None);
    apply(&mut tracker, "stream", "a", progress(510, 1000), 100);
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
        apply(&mut tracker, "stream", cell, EventKind::Started, 0);
        apply(&mut tracker, "stream", cell, progress(50, 100), 50);
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
        let finished = EventKind::Finished(100.0);
        apply(&mut tracker, "stream", cell, finished, 100);
    }
    apply(&mut tracker, "held-out", "a", EventKind::Started, 100);
    apply(&mut tracker, "held-out", "a", progress(5, 10), 115);
    // Timed prompts take 3 s each, 15 are left.
    assert_eq!(tracker.time_left(seconds(115)), Some(seconds(45)));
}

#[test]
fn what_was_done_before_is_no_measure_of_pace() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 1000, false);
    plan(&mut tracker, "stream", "b", 10, false);
    apply(&mut tracker, "stream", "a", EventKind::Skipped, 0);
    apply(&mut tracker, "stream", "b", EventKind::Started, 0);
    assert_eq!(tracker.time_left(seconds(3)), None);
    assert_eq!(
        tracker.total_line(seconds(3)),
        "1/2 jobs, 1 running · 1000/1010 prompts"
    );
    assert_eq!(tracker.job_lines(), ["stream b · loading"]);
    apply(&mut tracker, "stream", "b", progress(2, 10), 4);
    assert_eq!(tracker.time_left(seconds(4)), Some(seconds(16)));
}

#[test]
fn failed_and_blocked_jobs_cost_no_time() {
    let mut tracker = Tracker::new(1);
    plan(&mut tracker, "stream", "a", 10, false);
    plan(&mut tracker, "held-out", "a", 10, false);
    plan(&mut tracker, "stream", "b", 10, false);
    let (failed, blocked) = (String::new(), String::new());
    apply(&mut tracker, "stream", "a", EventKind::Started, 0);
    apply(&mut tracker, "stream", "a", EventKind::Failed(failed), 1);
    apply(
        &mut tracker,
        "held-out",
        "a",
        EventKind::Blocked(blocked),
        1,
    );
    assert_eq!(
        tracker.total_line(seconds(1)),
        "0/3 jobs, 1 failed, 1 blocked · 0/10 prompts"
    );
    // An event of a job that is not part of the run changes nothing.
    apply(&mut tracker, "stream", "x", EventKind::Started, 2);
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
