use super::*;
use crate::spec::tests::{self, id};

fn job(name: &str, needs: Option<&str>) -> JobSpec {
    JobSpec {
        exclusive: name.starts_with("held-out"),
        ..tests::job(name, needs)
    }
}

fn plan_of(jobs: &[JobSpec], queued: &[(&str, &str, u32)], complete: &[&str], limit: u32) -> Plan {
    let queued = queued.iter().map(|(name, job, task)| {
        let job = (*job).to_owned();
        (id(name), TaskRef { job, task: *task })
    });
    let complete = complete.iter().map(|name| (id(name), CellState::Complete));
    let jobs: Vec<&JobSpec> = jobs.iter().collect();
    plan(&jobs, &queued.collect(), limit, &complete.collect())
}

/// `STAGE task:cell ... after ...`
fn show(plan: &Plan) -> Vec<String> {
    let array = |a: &Array| {
        let tasks = a
            .tasks
            .iter()
            .map(|(task, id)| format!(" {task}:{}", id.cell()));
        format!(
            "{}{} after {:?}",
            a.stage,
            tasks.collect::<String>(),
            a.twin
        )
    };
    plan.arrays.iter().map(array).collect()
}

#[test]
fn stages_are_twins() {
    let jobs = [
        job("stream/a", None),
        job("stream/b", None),
        job("held-out/a", Some("stream/a")),
        job("held-out/b", Some("stream/b")),
        job("again/a", Some("held-out/a")),
    ];
    assert_eq!(
        show(&plan_of(&jobs, &[], &[], 1000)),
        [
            "stream 0:a 1:b after None",
            "held-out 0:a 1:b after Some(New(0))",
            "again 0:a after Some(New(1))",
        ]
    );
}

#[test]
fn a_rerun_mixes_what_is_complete_queued_and_new() {
    let jobs = [
        job("stream/c", None),
        job("held-out/a", Some("stream/a")),
        job("held-out/b", Some("stream/b")),
        job("held-out/c", Some("stream/c")),
        job("held-out/d", Some("stream/d")),
    ];
    let plan = plan_of(&jobs, &[("stream/b", "7", 5)], &["stream/a"], 1000);
    assert_eq!(
        show(&plan),
        [
            "stream 0:c after None",
            "held-out 0:a after None",
            "held-out 5:b after Some(Queued(\"7\"))",
            "held-out 0:c after Some(New(0))",
        ]
    );
    let (blocked, reason) = &plan.blocked[0];
    assert_eq!(blocked.to_string(), "held-out/d");
    assert!(reason.contains("submit the stage `stream` too"), "{reason}");
}

#[test]
fn arrays_keep_to_the_limit() {
    let cells = ["a", "b", "c", "d", "e"];
    let mut jobs: Vec<JobSpec> = Vec::new();
    jobs.extend(cells.iter().map(|c| job(&format!("stream/{c}"), None)));
    let held = |c: &&str| job(&format!("held-out/{c}"), Some(&format!("stream/{c}")));
    jobs.extend(cells.iter().map(held));
    assert_eq!(
        show(&plan_of(&jobs, &[], &[], 2)),
        [
            "stream 0:a 1:b after None",
            "stream 0:c 1:d after None",
            "stream 0:e after None",
            "held-out 0:a 1:b after Some(New(0))",
            "held-out 0:c 1:d after Some(New(1))",
            "held-out 0:e after Some(New(2))",
        ]
    );
}

#[test]
fn two_that_start_from_one_are_in_different_arrays() {
    let jobs = [
        job("stream/a", None),
        job("test/x", Some("stream/a")),
        job("test/y", Some("stream/a")),
        job("test/z", Some("stream/a")),
    ];
    assert_eq!(
        show(&plan_of(&jobs, &[], &[], 1000)),
        [
            "stream 0:a after None",
            "test 0:x after Some(New(0))",
            "test 0:y after Some(New(0))",
            "test 0:z after Some(New(0))",
        ]
    );
}
