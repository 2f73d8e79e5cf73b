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

impl Stats {
    /// The text format of Prometheus.
    pub(crate) fn prometheus(&self, about: &About) -> String {
        let counters = self.counters();
        let c = &*counters;
        let mut page = Page(String::new());
        page.about(about);
        let [calls, sent, received, seconds] = c.traffic.values().fold([0.0; 4], |sums, own| {
            std::array::from_fn(|i| sums[i] + own[i])
        });
        page.counter("steps_total", "Rounds of all sequences together.", c.steps);
        let help = "Forwards of a target, each for all its sequences.";
        page.counter("target_forwards_total", help, c.forwards);
        page.counter("step_seconds_total", "Seconds of steps.", c.step_seconds);
        let help = "Seconds of drafting, and of reading prompts.";
        page.counter("draft_seconds_total", help, c.draft_seconds);
        let help = "Seconds of forwards of targets.";
        page.counter("target_seconds_total", help, c.target_seconds);
        page.counter("tokens_total", "Tokens of answers.", c.tokens);
        let help = "Answers without the drafter.";
        page.counter("plain_answers_total", help, c.plain_answers);
        page.counter(
            "plain_tokens_total",
            "Tokens of such answers.",
            c.plain_tokens,
        );
        let help = "Answers whose client hung up, or that took too long.";
        page.counter("cancelled_total", help, c.cancelled);
        page.counter("failed_total", "Answers that failed.", c.failed);
        let help = "Answers that the drafter learns from.";
        page.counter("examples_total", help, c.examples);
        page.counter(
            "examples_dropped_total",
            "Answers that it had no time for.",
            c.dropped,
        );
        let help = "Seconds of updates of the drafter.";
        page.counter("update_seconds_total", help, c.update_seconds);
        page.counter(
            "update_failures_total",
            "Updates that failed.",
            c.update_failures,
        );
        page.counter(
            "remote_calls_total",
            "Round trips to targets elsewhere.",
            calls,
        );
        page.counter("remote_sent_bytes_total", "Bytes sent to them.", sent);
        page.counter(
            "remote_received_bytes_total",
            "Bytes that came back.",
            received,
        );
        page.counter(
            "remote_seconds_total",
            "Seconds of these round trips.",
            seconds,
        );
        page.counter("saves_total", "Savings of the state.", c.saves);
        page.counter(
            "save_failures_total",
            "Savings that failed.",
            c.save_failures,
        );
        page.gauge("running", "Answers in the making.", c.running);
        page.gauge("waiting", "Requests that wait for a place.", c.waiting);
        let help = "KV caches for drafts that are made elsewhere.";
        page.gauge("remote_sessions", help, c.sessions);
        page.gauge("loss", "Loss of the last update.", c.loss);
        let help = "Answers that are kept to be learnt from again.";
        page.gauge("replay_bytes", help, c.replayed.values().sum::<usize>());
        page.gauge(
            "state_bytes",
            "Size of the last saved state.",
            c.saved_bytes,
        );
        let uptime = self.started.elapsed().as_secs_f64();
        page.gauge("uptime_seconds", "Seconds since the start.", uptime);
        if let Some(speedup) = Self::speedup(c) {
            let help = "Speed of answers made alone, of late, over plain steps that are measured in between.";
            page.gauge("speedup_estimate", help, speedup);
        }
        page.head("requests_total", "counter", "Requests by status.");
        for (status, count) in &c.requests {
            page.value("requests_total", &format!("status=\"{status}\""), count);
        }

        let mut sums = |name, help, sum: fn(&AnswerSums) -> u64| {
            page.by_target(name, "counter", help, &c.targets, |_, own| Some(sum(own)));
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

        let mut standing = |name, kind, help, value: fn(&Standing) -> f64| {
            page.by_target(name, kind, help, &c.targets, |target, _| {
                Some(value(&c.standing(target)?))
            });
        };
        let help = "Seconds saved so far against plain decoding, learning paid for.";
        standing("saved_seconds", "gauge", help, |s| s.ledger.saved());
        let help = "Seconds of learning that are counted in it.";
        standing("learning_seconds_total", "counter", help, |s| {
            s.ledger.learning
        });
        let help = "Answers in which the drafter rested.";
        standing("rested_answers_total", "counter", help, |s| {
            s.ledger.rested as f64
        });
        let help = "Whether the drafter drafts, or text is copied.";
        standing("speculates", "gauge", help, |s| {
            f64::from(u8::from(s.way != Way::Plain))
        });
        let help = "Whether the drafter learns.";
        standing("learns", "gauge", help, |s| f64::from(u8::from(s.learns)));

        let help = "Whether drafts end by an acceptance head.";
        page.by_target("head_in_use", "gauge", help, &c.by_head, |_, by_head| {
            Some(u8::from(*by_head))
        });
        let help = "Mean distance between predicted and true acceptance of fresh tokens.";
        page.by_target(
            "head_calibration_error",
            "gauge",
            help,
            &c.calibration,
            |_, error| Some(*error),
        );
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
        self.head("build_info", "gauge", "The program and the machine.");
        self.value("build_info", &labels.join(","), 1);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.value(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.value(name, "", value);
    }

    /// A metric with the value of every target that has one.
    fn by_target<T, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        targets: &BTreeMap<String, T>,
        value: impl Fn(&str, &T) -> Option<V>,
    ) {
        self.head(name, kind, help);
        for (target, own) in targets {
            if let Some(value) = value(target, own) {
                self.value(name, &format!("target=\"{}\"", escaped(target)), value);
            }
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
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
