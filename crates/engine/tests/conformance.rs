//! A correct engine passes, and for every clause an engine that breaks it does not.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use engine::conformance::{Broken, Clause, check, check_on};
use engine::{DeviceLogits, LanguageModel, ModelError, check_call};

const VOCAB: usize = 17;

/// A fault of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    Nothing,
    /// The vocabulary is empty.
    NoVocabulary,
    /// The rows of a batch depend on the last token alone.
    BatchSeesItsEnd,
    /// One row too few.
    ShortRows,
    /// Counts a token twice.
    WrongLength,
    /// Tokens that were cut off still count.
    RemembersCut,
    /// Cutting at a length beyond the cache empties it.
    CutsTooMuch,
    /// A prefilled token is forgotten.
    ForgetsPrefilled,
    /// The state is that of the first token of a forward.
    StateOfTheFirst,
    /// Abstains where a batch was read.
    AbstainsAfterBatches,
    /// All engines share one cache.
    SharedCache,
    /// The device names the highest of the largest columns.
    HighestColumn,
    /// The device returns the rows before.
    RowsBefore,
    /// The device has rows for anything.
    RowsBeyond,
    /// Ids count modulo the vocabulary.
    TakesAnyId,
    /// Keeps the ids before the one that is refused.
    KeepsRefused,
    /// Accepts more tokens than there is room for.
    NoEnd,
    /// Refuses with an error of its own.
    OwnError,
    /// Fails from the fourth token on.
    Fails,
}

/// An engine whose rows are a function of all tokens before, and are kept as a device would keep
/// them.
struct Toy {
    fault: Fault,
    read: Rc<RefCell<Vec<u32>>>,
    /// Number of cuts, on which rows depend.
    remembered: u32,
    rows: Vec<f32>,
    state: Vec<f32>,
    abstains: bool,
}

impl Toy {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            read: Rc::default(),
            remembered: 0,
            rows: Vec::new(),
            state: Vec::new(),
            abstains: false,
        }
    }

    fn row(&self, ids: &[u32]) -> Vec<f32> {
        let sum = ids.iter().fold(self.remembered, |sum, id| {
            sum.wrapping_mul(31).wrapping_add(id + 1)
        });
        // Several columns are the largest.
        (0..VOCAB as u32)
            .map(|column| ((sum.wrapping_add(column)) % 5) as f32)
            .collect()
    }

    fn refuse(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        let len = self.len();
        match self.fault {
            Fault::TakesAnyId if len + ids.len() <= self.max_len() => Ok(()),
            Fault::NoEnd if ids.iter().all(|id| (*id as usize) < VOCAB) => Ok(()),
            Fault::Fails if len >= 4 => Err(ModelError::new("tired")),
            _ => {
                let checked = check_call(ids, len, self.max_len(), VOCAB);
                if checked.is_err() && self.fault == Fault::KeepsRefused {
                    self.read.borrow_mut().push(ids[0]);
                }
                match (checked, self.fault) {
                    (Err(error), Fault::OwnError) => Err(ModelError::new(error.to_string())),
                    (checked, _) => checked,
                }
            }
        }
    }

    fn read_in(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.refuse(ids)?;
        self.rows.clear();
        let mut states = Vec::new();
        for (i, id) in ids.iter().enumerate() {
            self.read.borrow_mut().push(id % VOCAB as u32);
            let mut seen = self.read.borrow().clone();
            if self.fault == Fault::BatchSeesItsEnd {
                seen.extend_from_slice(&ids[i + 1..]);
            }
            let row = self.row(&seen);
            states.push(row[..3].to_vec());
            self.rows.extend(row);
        }
        self.state = match self.fault {
            Fault::StateOfTheFirst => states.first().cloned(),
            _ => states.last().cloned(),
        }
        .unwrap_or_default();
        self.abstains = self.fault == Fault::AbstainsAfterBatches && ids.len() > 1;
        Ok(())
    }
}

impl LanguageModel for Toy {
    fn vocab_size(&self) -> usize {
        match self.fault {
            Fault::NoVocabulary => 0,
            _ => VOCAB,
        }
    }

    fn len(&self) -> usize {
        let len = self.read.borrow().len();
        match self.fault {
            Fault::WrongLength if len > 2 => len + 1,
            _ => len,
        }
    }

    fn max_len(&self) -> usize {
        40
    }

    fn truncate(&mut self, len: usize) {
        let held = self.read.borrow().len();
        if self.fault == Fault::CutsTooMuch && len > held {
            return self.read.borrow_mut().clear();
        }
        if self.fault == Fault::RemembersCut && len < held {
            self.remembered += 1;
        }
        self.read.borrow_mut().truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.read_in(ids)?;
        logits.clone_from(&self.rows);
        if self.fault == Fault::ShortRows && ids.len() > 1 {
            logits.truncate(VOCAB);
        }
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.read_in(ids)?;
        if self.fault == Fault::ForgetsPrefilled && ids.len() > 1 {
            let last = self.read.borrow_mut().pop();
            if let Some(first) = self.read.borrow_mut().first_mut() {
                *first = last.unwrap_or_default();
            }
            self.read.borrow_mut().extend(last);
        }
        Ok(())
    }

    fn abstains(&self) -> bool {
        self.abstains
    }

    fn state(&self) -> &[f32] {
        &self.state
    }

    fn device_logits(&mut self, _tokens: usize) -> Option<&mut dyn DeviceLogits> {
        Some(self)
    }
}

impl DeviceLogits for Toy {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.read_in(ids)
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        let largest = |row: &[f32]| {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut columns = (0_u32..).zip(row).filter(|(_, x)| **x == most);
            let found = match self.fault {
                Fault::HighestColumn => columns.last(),
                _ => columns.next(),
            };
            found.map(|(column, _)| column)
        };
        columns.clear();
        columns.extend(self.rows.chunks(VOCAB).map(largest));
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        logits.clear();
        for row in rows {
            let row = match self.fault {
                Fault::RowsBefore if row * VOCAB < self.rows.len() => row.saturating_sub(1),
                Fault::RowsBeyond => row.min(self.rows.len() / VOCAB - 1),
                _ => row,
            };
            let found = self.rows.chunks(VOCAB).nth(row);
            logits.extend(found.ok_or_else(|| ModelError::new("no such row"))?);
        }
        Ok(())
    }
}

/// The breach that is found in an engine with this fault.
fn found(fault: Fault) -> Broken {
    let one = Toy::new(fault);
    let made = || Toy {
        read: match fault {
            Fault::SharedCache => Rc::clone(&one.read),
            _ => Rc::default(),
        },
        ..Toy::new(fault)
    };
    check(made).expect_err(&format!("{fault:?}"))
}

#[test]
fn a_good_engine_passes() {
    check(|| Toy::new(Fault::Nothing)).unwrap();
    // After a text that was read before, and on a text of one token.
    let read = || {
        let mut toy = Toy::new(Fault::Nothing);
        toy.prefill(&[3, 1, 4]).unwrap();
        toy
    };
    check(read).unwrap();
    check_on(read, &[5]).unwrap();
    // Borrowed and boxed ones are engines too.
    check(|| -> Box<dyn LanguageModel> { Box::new(Toy::new(Fault::Nothing)) }).unwrap();
}

#[test]
fn texts_that_cannot_be_read_are_refused() {
    let made = || Toy::new(Fault::Nothing);
    assert!(matches!(check_on(made, &[]), Err(Broken::Empty { .. })));
    let long = [1; 41];
    assert!(matches!(
        check_on(made, &long),
        Err(Broken::Empty { room: 40, .. })
    ));
    let unknown = check_on(made, &[VOCAB as u32]);
    assert!(matches!(unknown, Err(Broken::Failed { .. })), "{unknown:?}");
}

#[test]
fn each_fault_is_found_where_it_is() {
    use Clause::{Device, Prefill, Refusal, Split, Truncate};
    let clause = |fault| match found(fault) {
        Broken::Failed { clause, .. }
        | Broken::Length { clause, .. }
        | Broken::Shape { clause, .. }
        | Broken::Logit { clause, .. }
        | Broken::State { clause, .. }
        | Broken::Abstains { clause, .. } => clause,
        other => panic!("{fault:?}: {other}"),
    };
    for (fault, expected) in [
        (Fault::BatchSeesItsEnd, Split),
        (Fault::ShortRows, Split),
        (Fault::WrongLength, Split),
        (Fault::StateOfTheFirst, Split),
        (Fault::AbstainsAfterBatches, Split),
        (Fault::Fails, Split),
        (Fault::RemembersCut, Truncate),
        (Fault::CutsTooMuch, Truncate),
        (Fault::ForgetsPrefilled, Prefill),
        (Fault::RowsBefore, Device),
        (Fault::KeepsRefused, Refusal),
    ] {
        assert_eq!(clause(fault), expected, "{fault:?}");
    }
}

#[test]
fn the_fault_has_a_name() {
    assert!(matches!(
        found(Fault::NoVocabulary),
        Broken::Empty { vocab_size: 0, .. }
    ));
    assert!(matches!(found(Fault::ShortRows), Broken::Shape { .. }));
    assert!(matches!(found(Fault::WrongLength), Broken::Length { .. }));
    assert!(matches!(
        found(Fault::StateOfTheFirst),
        Broken::State { .. }
    ));
    assert!(matches!(
        found(Fault::AbstainsAfterBatches),
        Broken::Abstains { .. }
    ));
    assert!(matches!(found(Fault::Fails), Broken::Failed { .. }));
    assert!(matches!(found(Fault::HighestColumn), Broken::Best { .. }));
    assert!(matches!(found(Fault::RowsBefore), Broken::Logit { .. }));
    for fault in [
        Fault::RowsBeyond,
        Fault::TakesAnyId,
        Fault::NoEnd,
        Fault::OwnError,
    ] {
        assert!(
            matches!(found(fault), Broken::NotRefused { .. }),
            "{fault:?}"
        );
    }
    let said = found(Fault::KeepsRefused).to_string();
    assert!(said.starts_with("refused calls: "), "{said}");
}

/// Two engines that share a cache fail, whichever clause finds it first.
#[test]
fn engines_that_share_a_cache_are_found() {
    assert!(matches!(found(Fault::SharedCache), Broken::Length { .. }));
}
