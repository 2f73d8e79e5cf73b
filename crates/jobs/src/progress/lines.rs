//! Progress as lines, without a terminal.

use std::time::Duration;

use super::tracker::{Tracker, duration_text};
use crate::{Event, EventKind};

/// The line for an event, if it has one.
pub(super) fn line(event: &Event, tracker: &Tracker, now: Duration) -> Option<String> {
    let id = &event.id;
    let text = match &event.kind {
        EventKind::Started => format!("started {id}"),
        EventKind::Resumed(done) => {
            format!("{id} goes on from its checkpoint, after {done} prompts")
        }
        EventKind::Waiting(what) => format!("{id} waits for {what}"),
        EventKind::Finished(seconds) => {
            let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
            format!("finished {id} in {}", duration_text(took))
        }
        EventKind::Failed(message) => format!("failed {id}: {message}"),
        EventKind::Blocked(reason) => format!("blocked {id}: {reason}"),
        EventKind::Planned { .. } | EventKind::Skipped | EventKind::Progress(_) => return None,
    };
    Some(format!("[{}] {text}", tracker.total_line(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::id;

    #[test]
    fn every_start_and_every_end_has_a_line() {
        let mut tracker = Tracker::new(1);
        let [a, b, c] = ["stream/a", "stream/b", "stream/c"];
        let planned = EventKind::Planned {
            exclusive: false,
            prompts: None,
        };
        let events = [
            (0, a, planned.clone()),
            (0, b, planned.clone()),
            (0, c, planned),
            (0, a, EventKind::Started),
            (0, a, EventKind::Resumed(10)),
            (1, a, EventKind::Finished(1.0)),
            (1, b, EventKind::Started),
            (2, b, EventKind::Failed("no such model".to_owned())),
            (2, c, EventKind::Started),
            (130, c, EventKind::Finished(128.0)),
        ];
        let mut text = String::new();
        for (second, name, kind) in events {
            let (event, now) = (Event::new(&id(name), kind), Duration::from_secs(second));
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
