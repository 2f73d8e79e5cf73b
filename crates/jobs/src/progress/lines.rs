//! Progress as lines, without a terminal.

use std::time::Duration;

use super::tracker::{Tracker, duration_text};
use crate::Event;

/// The line for an event, if it has one.
pub(super) fn line(event: &Event, tracker: &Tracker, now: Duration) -> Option<String> {
    let text = match event {
        Event::Started { id } => format!("started {id}"),
        Event::Resumed { id, done } => {
            format!("{id} goes on from its checkpoint, after {done} prompts")
        }
        Event::Waiting { id, what } => format!("{id} waits for {what}"),
        Event::Finished { id, seconds } => {
            let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
            format!("finished {id} in {}", duration_text(took))
        }
        Event::Failed { id, message } => format!("failed {id}: {message}"),
        Event::Blocked { id, reason } => format!("blocked {id}: {reason}"),
        Event::Planned { .. } | Event::Skipped { .. } | Event::Progress { .. } => return None,
    };
    Some(format!("[{}] {text}", tracker.total_line(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::{id, job};

    #[test]
    fn every_start_and_every_end_has_a_line() {
        let mut tracker = Tracker::new(1);
        let [a, b, c] = ["stream/a", "stream/b", "stream/c"];
        let planned = [a, b, c].map(|name| {
            let job = job(name, None);
            (0, Event::Planned { job })
        });
        let started = |name| Event::Started { id: id(name) };
        let finished = |name, seconds| Event::Finished {
            id: id(name),
            seconds,
        };
        let resumed = Event::Resumed {
            id: id(a),
            done: 10,
        };
        let failed = Event::Failed {
            id: id(b),
            message: "no such model".to_owned(),
        };
        let then = [
            (0, started(a)),
            (0, resumed),
            (1, finished(a, 1.0)),
            (1, started(b)),
            (2, failed),
            (2, started(c)),
            (130, finished(c, 128.0)),
        ];
        let mut text = String::new();
        for (second, event) in planned.into_iter().chain(then) {
            let now = Duration::from_secs(second);
            tracker.apply(&event, now);
            text.extend(line(&event, &tracker, now).map(|line| line + "\n"));
        }
        text += &tracker.last_line(Duration::from_secs(131));
        assert_eq!(
            text,
            "[0/3 jobs, 1 running] started stream/a\n\
             [0/3 jobs, 1 running] stream/a goes on from its checkpoint, after 10 prompts\n\
             [1/3 jobs] finished stream/a in 1 s\n\
             [1/3 jobs, 1 running] started stream/b\n\
             [1/3 jobs, 1 failed] failed stream/b: no such model\n\
             [1/3 jobs, 1 running, 1 failed] started stream/c\n\
             [2/3 jobs, 1 failed] finished stream/c in 2 min\n\
             2/3 jobs, 1 failed in 2 min"
        );
    }
}
