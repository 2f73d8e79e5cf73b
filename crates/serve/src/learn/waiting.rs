//! Examples that wait for an update of their adapter.

use std::collections::{BTreeMap, VecDeque};

use distill_loss::Example;

/// The examples of one adapter that no update has learnt from.
#[derive(Default)]
struct Adapter {
    /// The oldest first, with the number of each arrival.
    examples: VecDeque<(u64, Example)>,
    /// Number of the arrival since which there are enough of them, or no room for more.
    due: Option<u64>,
}

/// The examples of all adapters that no update has learnt from.
#[derive(Default)]
pub(super) struct Waiting {
    /// Number of examples of an update.
    every: usize,
    /// Bytes above which the oldest of other adapters leave for a new one.
    limit: usize,
    bytes: usize,
    arrivals: u64,
    adapters: BTreeMap<String, Adapter>,
}

impl Waiting {
    pub(super) fn new(every: usize, limit: usize) -> Self {
        Self {
            every,
            limit,
            ..Self::default()
        }
    }

    /// Adds an example. Returns those that it displaces, with the names of their adapters: its own
    /// adapter's oldest one if an update needs fewer, and above `limit` the oldest ones of other
    /// adapters, so that users who ask seldom do not fill the room for good.
    pub(super) fn push(&mut self, name: &str, example: Example) -> Vec<(String, Example)> {
        self.arrivals += 1;
        self.bytes += example.bytes();
        let (number, every) = (self.arrivals, self.every);
        let own = self.adapters.entry(name.to_owned()).or_default();
        own.examples.push_back((number, example));
        let mut left = Vec::new();
        if own.examples.len() > every
            && let Some((_, oldest)) = own.examples.pop_front()
        {
            // If updates are limited, the latest answers are learnt from.
            self.bytes -= oldest.bytes();
            left.push((name.to_owned(), oldest));
        }
        let enough = own.examples.len() >= every;
        while self.bytes > self.limit
            && let Some((other, oldest)) = self.oldest_but(name)
        {
            self.bytes -= oldest.bytes();
            left.push((other, oldest));
        }
        // Where its own examples fill the room, there would never be enough of them: the queue
        // takes no more.
        if (enough || self.bytes > self.limit)
            && let Some(own) = self.adapters.get_mut(name)
        {
            own.due = own.due.or(Some(number));
        }
        left
    }

    /// Takes out the oldest example of all adapters but `name`, with the name of its adapter.
    fn oldest_but(&mut self, name: &str) -> Option<(String, Example)> {
        let others = self.adapters.iter().filter(|(other, _)| *other != name);
        let ages = others.filter_map(|(other, own)| Some((own.examples.front()?.0, other)));
        let oldest = ages.min()?.1.clone();
        let adapter = self.adapters.get_mut(&oldest)?;
        let (_, example) = adapter.examples.pop_front()?;
        if adapter.examples.is_empty() {
            self.adapters.remove(&oldest);
        }
        Some((oldest, example))
    }

    /// True if an adapter is to be updated: it has enough examples, or they fill the room.
    pub(super) fn is_due(&self, name: &str) -> bool {
        let known = self.adapters.get(name);
        known.is_some_and(|own| own.due.is_some())
    }

    /// Name of the adapter that has been due for longest.
    pub(super) fn due(&self) -> Option<String> {
        let adapters = self.adapters.iter();
        let due = adapters.filter_map(|(name, own)| Some((own.due?, name)));
        due.min().map(|(_, name)| name.clone())
    }

    /// Takes out the examples of an adapter.
    pub(super) fn take(&mut self, name: &str) -> Vec<Example> {
        let own = self.adapters.remove(name).unwrap_or_default();
        let examples = own.examples.into_iter().map(|(_, example)| example);
        let examples: Vec<Example> = examples.collect();
        self.bytes -= examples.iter().map(Example::bytes).sum::<usize>();
        examples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An example of about `kib` KiB that carries a mark.
    fn example(mark: u32, kib: usize) -> Example {
        Example {
            ids: vec![mark],
            states: vec![0.0; kib * 256],
            ..Example::default()
        }
    }

    fn marks(examples: &[Example]) -> Vec<u32> {
        examples.iter().map(|example| example.ids[0]).collect()
    }

    /// The marks of displaced examples; each must have its adapter's name.
    fn displaced(left: &[(String, Example)], names: &[&str]) -> Vec<u32> {
        let found: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names);
        left.iter().map(|(_, example)| example.ids[0]).collect()
    }

    #[test]
    fn an_adapter_keeps_its_latest_examples() {
        let mut waiting = Waiting::new(2, usize::MAX);
        assert!(waiting.push("a", example(1, 1)).is_empty());
        assert!(!waiting.is_due("a") && waiting.due().is_none());
        assert!(waiting.push("a", example(2, 1)).is_empty());
        assert!(waiting.is_due("a"));
        assert_eq!(displaced(&waiting.push("a", example(3, 1)), &["a"]), [1]);
        assert_eq!(marks(&waiting.take("a")), [2, 3]);
        assert_eq!((waiting.bytes, waiting.due()), (0, None));
    }

    #[test]
    fn users_who_ask_seldom_do_not_fill_the_room() {
        let mut waiting = Waiting::new(2, 9 * example(0, 1).bytes());
        for user in 0..9 {
            assert!(waiting.push(&user.to_string(), example(user, 1)).is_empty());
        }
        // There is no room beside them: the oldest leave.
        let left = waiting.push("a", example(90, 4));
        assert_eq!(displaced(&left, &["0", "1", "2", "3"]), [0, 1, 2, 3]);
        assert!(!waiting.is_due("a"));
        assert_eq!(displaced(&waiting.push("a", example(91, 1)), &["4"]), [4]);
        assert_eq!(waiting.due().as_deref(), Some("a"));
        // Its own do not: an update learns from all of them.
        let left = waiting.push("b", example(92, 20));
        let names = ["5", "6", "7", "8", "a", "a"];
        assert_eq!(displaced(&left, &names), [5, 6, 7, 8, 90, 91]);
        assert!(waiting.push("b", example(93, 20)).is_empty());
        assert_eq!(marks(&waiting.take("b")), [92, 93]);
        assert_eq!((waiting.bytes, waiting.adapters.len()), (0, 0));
    }

    #[test]
    fn an_adapter_that_fills_the_room_is_due_with_fewer_examples() {
        let mut waiting = Waiting::new(4, 9 * example(0, 1).bytes());
        assert!(waiting.push("seldom", example(1, 1)).is_empty());
        assert!(waiting.push("a", example(2, 4)).is_empty());
        assert!(waiting.due().is_none());
        let left = waiting.push("a", example(3, 20));
        assert_eq!(displaced(&left, &["seldom"]), [1]);
        assert!(waiting.is_due("a"));
        assert_eq!(waiting.due().as_deref(), Some("a"));
        assert_eq!(marks(&waiting.take("a")), [2, 3]);
        assert_eq!((waiting.bytes, waiting.due()), (0, None));
        // With room again, enough of them are waited for.
        assert!(waiting.push("a", example(4, 1)).is_empty());
        assert!(!waiting.is_due("a"));
    }

    #[test]
    fn who_waited_longest_is_due_first() {
        let mut waiting = Waiting::new(2, usize::MAX);
        for name in ["z", "a", "z", "a", "a", "a"] {
            waiting.push(name, example(0, 1));
        }
        assert_eq!(waiting.due().as_deref(), Some("z"));
        waiting.take("z");
        assert_eq!(waiting.due().as_deref(), Some("a"));
        waiting.push("b", example(0, 1));
        waiting.push("b", example(0, 1));
        // Newer examples of an adapter do not send it back.
        waiting.push("a", example(0, 1));
        assert_eq!(waiting.due().as_deref(), Some("a"));
    }
}
