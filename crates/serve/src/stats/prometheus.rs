//! The text format of Prometheus.

use std::fmt::Write as _;

use adaptive_draft::{Standing, Way};

use super::{Stats, TargetSums};
use crate::http::About;

impl Stats {
    /// The text format of Prometheus.
    pub(crate) fn prometheus(&self, about: &About) -> String {
        let counters = self.counters();
        let mut page = Page(String::new());
        page.about(about);
        let c = &*counters;
        let traffic = c.traffic.values().fold([0.0; 4], |sums, own| {
            std::array::from_fn(|i| sums[i] + own[i])
        });
        for (name, help, value) in [
            (
                "steps_total",
                "Rounds of all sequences together.",
                c.steps as f64,
            ),
            (
                "target_forwards_total",
                "Forwards of a target, each for all its sequences.",
                c.forwards as f64,
            ),
            ("step_seconds_total", "Seconds of steps.", c.step_seconds),
            (
                "draft_seconds_total",
                "Seconds of drafting, and of reading prompts.",
                c.draft_seconds,
            ),
            (
                "target_seconds_total",
                "Seconds of forwards of targets.",
                c.target_seconds,
            ),
            ("tokens_total", "Tokens of answers.", c.tokens as f64),
            (
                "plain_answers_total",
                "Answers without the drafter.",
                c.plain_answers as f64,
            ),
            (
                "plain_tokens_total",
                "Tokens of such answers.",
                c.plain_tokens as f64,
            ),
            (
                "cancelled_total",
                "Answers whose client hung up, or that took too long.",
                c.cancelled as f64,
            ),
            ("failed_total", "Answers that failed.", c.failed as f64),
            (
                "examples_total",
                "Answers that the drafter learns from.",
                c.examples as f64,
            ),
            (
                "examples_dropped_total",
                "Answers that it had no time for.",
                c.dropped as f64,
            ),
            (
                "update_seconds_total",
                "Seconds of updates of the drafter.",
                c.update_seconds,
            ),
            (
                "update_failures_total",
                "Updates that failed.",
                c.update_failures as f64,
            ),
            (
                "remote_calls_total",
                "Round trips to targets elsewhere.",
                traffic[0],
            ),
            ("remote_sent_bytes_total", "Bytes sent to them.", traffic[1]),
            (
                "remote_received_bytes_total",
                "Bytes that came back.",
                traffic[2],
            ),
            (
                "remote_seconds_total",
                "Seconds of these round trips.",
                traffic[3],
            ),
            ("saves_total", "Savings of the state.", c.saves as f64),
            (
                "save_failures_total",
                "Savings that failed.",
                c.save_failures as f64,
            ),
        ] {
            page.head(name, "counter", help);
            page.value(name, "", value);
        }
        for (name, help, value) in [
            ("running", "Answers in the making.", c.running as f64),
            (
                "waiting",
                "Requests that wait for a place.",
                c.waiting as f64,
            ),
            (
                "remote_sessions",
                "KV caches for drafts that are made elsewhere.",
                c.sessions as f64,
            ),
            ("loss", "Loss of the last update.", c.loss),
            (
                "replay_bytes",
                "Answers that are kept to be learnt from again.",
                c.replayed.values().sum::<usize>() as f64,
            ),
            (
                "state_bytes",
                "Size of the last saved state.",
                c.saved_bytes as f64,
            ),
            (
                "uptime_seconds",
                "Seconds since the start.",
                self.started.elapsed().as_secs_f64(),
            ),
        ] {
            page.head(name, "gauge", help);
            page.value(name, "", value);
        }
        if let Some(speedup) = Self::speedup(c) {
            page.head(
                "speedup_estimate",
                "gauge",
                "Speed of answers made alone, of late, over plain steps that are measured in between.",
            );
            page.value("speedup_estimate", "", speedup);
        }
        page.head("requests_total", "counter", "Requests by status.");
        for (status, count) in &c.requests {
            page.value(
                "requests_total",
                &format!("status=\"{status}\""),
                *count as f64,
            );
        }
        type Of = fn(&TargetSums) -> u64;
        let by_target: [(&str, &str, Of); 8] = [
            (
                "answers_total",
                "Answers with the drafter, since the state was new.",
                |s| s.answers,
            ),
            ("rounds_total", "Their rounds.", |s| s.rounds),
            ("answer_tokens_total", "Their tokens.", |s| s.tokens),
            ("proposed_total", "Proposed tokens.", |s| s.proposed),
            ("accepted_total", "Accepted ones.", |s| s.accepted),
            ("ngrams_accepted_total", "Of those, merged n-grams.", |s| {
                s.ngrams
            }),
            ("updates_total", "Updates of the drafter.", |s| s.updates),
            ("head_steps_total", "Steps of its acceptance heads.", |s| {
                s.head_steps
            }),
        ];
        for (name, help, sum) in by_target {
            page.head(name, "counter", help);
            for (target, sums) in &c.sums.targets {
                page.value(name, &of(target), sum(sums) as f64);
            }
        }
        type OfStanding = fn(&Standing) -> f64;
        let controlled: [(&str, &str, &str, OfStanding); 5] = [
            (
                "saved_seconds",
                "gauge",
                "Seconds saved so far against plain decoding, learning paid for.",
                |s| s.ledger.saved(),
            ),
            (
                "learning_seconds_total",
                "counter",
                "Seconds of learning that are counted in it.",
                |s| s.ledger.learning,
            ),
            (
                "rested_answers_total",
                "counter",
                "Answers in which the drafter rested.",
                |s| s.ledger.rested as f64,
            ),
            (
                "speculates",
                "gauge",
                "Whether the drafter drafts, or text is copied.",
                |s| f64::from(u8::from(s.way != Way::Plain)),
            ),
            ("learns", "gauge", "Whether the drafter learns.", |s| {
                f64::from(u8::from(s.learns))
            }),
        ];
        for (name, kind, help, value) in controlled {
            page.head(name, kind, help);
            for target in c.sums.targets.keys() {
                if let Some(standing) = c.standing(target) {
                    page.value(name, &of(target), value(&standing));
                }
            }
        }
        page.head(
            "head_in_use",
            "gauge",
            "Whether drafts end by an acceptance head.",
        );
        for (target, by_head) in &c.by_head {
            page.value("head_in_use", &of(target), f64::from(u8::from(*by_head)));
        }
        page.head(
            "head_calibration_error",
            "gauge",
            "Mean distance between predicted and true acceptance of fresh tokens.",
        );
        for (target, error) in &c.calibration {
            page.value("head_calibration_error", &of(target), *error);
        }
        page.0
    }
}

/// The label of a target.
fn of(target: &str) -> String {
    format!("target=\"{}\"", escaped(target))
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP omnidraft_{name} {help}\n# TYPE omnidraft_{name} {kind}"
        );
    }

    /// Writes program and machine as labels of a constant.
    fn about(&mut self, about: &About) {
        let labels = [
            ("version", &about.version),
            ("commit", &about.commit),
            ("machine", &about.machine),
        ]
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        self.head("build_info", "gauge", "The program and the machine.");
        self.value("build_info", &labels.join(","), 1.0);
    }

    fn value(&mut self, name: &str, labels: &str, value: f64) {
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.0, "omnidraft_{name}{labels} {value}");
    }
}
