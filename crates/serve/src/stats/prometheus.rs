//! The text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use adaptive_draft::{Standing, Way};
use online::AnswerSums;

use super::Stats;

/// The program of a server and its machine, which tell measurements apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// Commit it was built from, with a `+` if the sources differed from it.
    pub commit: String,
    /// Processor, memory and operating system, in a line without personal names.
    pub machine: String,
}

/// Writes metrics without labels: each with its name, its value and its help.
macro_rules! metrics {
    ($page:ident: $($name:ident = $value:expr, $help:literal;)+) => {
        $($page.metric(stringify!($name), $help, $value);)+
    };
}

impl Stats {
    /// The text format of Prometheus.
    pub(crate) fn prometheus(&self, about: &About) -> String {
        let counters = self.counters();
        let c = &*counters;
        let mut page = Page(String::new());
        page.about(about);
        let [calls, sent, received, micros] = c.traffic;
        let replayed: usize = c.replayed.values().sum();
        let uptime = self.started.elapsed().as_secs_f64();
        metrics! { page:
            steps_total = c.steps, "Rounds of all sequences together.";
            target_forwards_total = c.forwards, "Forwards of a target, each for all its sequences.";
            step_seconds_total = c.step_seconds, "Seconds of steps.";
            draft_seconds_total = c.draft_seconds, "Seconds of drafting, and of reading prompts.";
            target_seconds_total = c.target_seconds, "Seconds of forwards of targets.";
            tokens_total = c.tokens, "Tokens of answers.";
            plain_answers_total = c.plain_answers, "Answers without the drafter.";
            plain_tokens_total = c.plain_tokens, "Tokens of such answers.";
            cancelled_total = c.cancelled, "Answers whose client hung up, or that took too long.";
            failed_total = c.failed, "Answers that failed.";
            examples_total = c.examples, "Answers that the drafter learns from.";
            examples_dropped_total = c.dropped, "Answers that it had no time for.";
            update_seconds_total = c.update_seconds, "Seconds of updates of the drafter.";
            update_failures_total = c.update_failures, "Updates that failed.";
            remote_calls_total = calls, "Round trips to targets elsewhere.";
            remote_sent_bytes_total = sent, "Bytes sent to them.";
            remote_received_bytes_total = received, "Bytes that came back.";
            remote_seconds_total = micros as f64 / 1e6, "Seconds of these round trips.";
            saves_total = c.saves, "Savings of the state.";
            save_failures_total = c.save_failures, "Savings that failed.";
            running = c.running, "Answers in the making.";
            waiting = c.waiting, "Requests that wait for a place.";
            remote_sessions = c.sessions, "KV caches for drafts that are made elsewhere.";
            loss = c.loss, "Loss of the last update.";
            replay_bytes = replayed, "Answers that are kept to be learnt from again.";
            state_bytes = c.saved_bytes, "Size of the last saved state.";
            uptime_seconds = uptime, "Seconds since the start.";
        }
        if let Some(speedup) = Self::speedup(c) {
            let help = "Speed of answers made alone, of late, over plain steps that are measured in between.";
            page.metric("speedup_estimate", help, speedup);
        }
        page.head("requests_total", "Requests by status.");
        for (status, count) in &c.requests {
            page.value("requests_total", &format!("status=\"{status}\""), count);
        }

        let mut sums = |name, help, sum: fn(&AnswerSums) -> u64| {
            page.by_target(name, help, &c.targets, |_, own| Some(sum(own)));
        };
        let help = "Answers with the drafter, since the state was new.";
        sums("answers_total", help, |s| s.answers);
        sums("rounds_total", "Their rounds.", |s| s.rounds);
        sums("answer_tokens_total", "Their tokens.", |s| s.tokens);
        sums("proposed_total", "Proposed tokens.", |s| s.proposed);
        sums("accepted_total", "Accepted ones.", |s| s.accepted);
        sums("ngrams_accepted_total", "Of those, merged n-grams.", |s| {
            s.ngrams
        });
        sums("updates_total", "Updates of the drafter.", |s| s.updates);
        sums("head_steps_total", "Steps of its acceptance heads.", |s| {
            s.head_steps
        });

        let mut standing = |name, help, value: fn(&Standing) -> f64| {
            page.by_target(name, help, &c.targets, |target, _| {
                Some(value(&c.standing(target)?))
            });
        };
        let help = "Seconds saved so far against plain decoding, learning paid for.";
        standing("saved_seconds", help, |s| s.ledger.saved());
        let help = "Seconds of learning that are counted in it.";
        standing("learning_seconds_total", help, |s| s.ledger.learning);
        let help = "Answers in which the drafter rested.";
        standing("rested_answers_total", help, |s| s.ledger.rested as f64);
        let help = "Whether the drafter drafts, or text is copied.";
        standing("speculates", help, |s| {
            f64::from(u8::from(s.way != Way::Plain))
        });
        let help = "Whether the drafter learns.";
        standing("learns", help, |s| f64::from(u8::from(s.learns)));

        let help = "Whether drafts end by an acceptance head.";
        page.by_target("head_in_use", help, &c.by_head, |_, by_head| {
            Some(u8::from(*by_head))
        });
        let help = "Mean distance between predicted and true acceptance of fresh tokens.";
        page.by_target("head_calibration_error", help, &c.calibration, |_, own| {
            Some(*own)
        });
        page.0
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Page(String);

impl Page {
    /// Writes program and machine as labels of a constant.
    fn about(&mut self, about: &About) {
        let labels = [
            ("version", &about.version),
            ("commit", &about.commit),
            ("machine", &about.machine),
        ]
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        self.head("build_info", "The program and the machine.");
        self.value("build_info", &labels.join(","), 1);
    }

    fn metric(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help);
        self.value(name, "", value);
    }

    /// A metric with the value of every target that has one.
    fn by_target<T, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        targets: &BTreeMap<String, T>,
        value: impl Fn(&str, &T) -> Option<V>,
    ) {
        self.head(name, help);
        for (target, own) in targets {
            if let Some(value) = value(target, own) {
                self.value(name, &format!("target=\"{}\"", escaped(target)), value);
            }
        }
    }

    /// Writes the head of a metric, which is a counter if its name says so.
    fn head(&mut self, name: &str, help: &str) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        let _ = writeln!(
            self.0,
            "# HELP omnidraft_{name} {help}\n# TYPE omnidraft_{name} {kind}"
        );
    }

    fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.0, "omnidraft_{name}{labels} {value}");
    }
}
