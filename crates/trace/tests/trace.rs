//! A trace reads back as it was written, continues where it stopped, and faults are reported.

use std::fs::File;
use std::path::{Path, PathBuf};

use half::f16;
use lm::LanguageModel;
use parquet::file::metadata::ParquetMetaDataWriter;
use parquet::file::reader::{FileReader, SerializedFileReader};
use trace::{
    FORMAT, Law, NgramModel, Record, RowFault, Source, Template, TextLaw, TraceEngine, TraceError,
    TraceFile, TraceInfo, TraceWriter, Traces, Values,
};

const VOCAB: usize = 12;
const END: u32 = 11;

fn info(top: usize) -> TraceInfo {
    TraceInfo {
        format: FORMAT,
        source: Source::Model {
            name: "toy".to_owned(),
            sha256: "ab".to_owned(),
            weights: "f32".to_owned(),
        },
        task: "toys".to_owned(),
        split: "train".to_owned(),
        tokenizer_sha256: "cd".to_owned(),
        template: Template::Plain,
        max_prompt_tokens: 8,
        vocab_size: VOCAB,
        context: 100,
        stop: vec![END],
        max_tokens: 4,
        tail: 3,
        top,
        values: if top == VOCAB {
            Values::Logits
        } else {
            Values::LogProbs
        },
        temperature: 0.0,
        program: "test".to_owned(),
    }
}

/// A model whose logits are a hash of the context. The last token is its stop token.
struct Toy {
    fed: Vec<u32>,
}

fn logits_of(context: &[u32]) -> Vec<f32> {
    let mut state = 17_u64;
    for id in context {
        state = (state ^ u64::from(*id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (0..VOCAB as u64)
        .map(|i| {
            let x = (state ^ (i << 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40;
            x as f32 / (1 << 24) as f32 * 6.0
        })
        .collect()
}

impl LanguageModel for Toy {
    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn len(&self) -> usize {
        self.fed.len()
    }

    fn max_len(&self) -> usize {
        100
    }

    fn truncate(&mut self, len: usize) {
        self.fed.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), lm::ModelError> {
        logits.clear();
        for id in ids {
            self.fed.push(*id);
            logits.extend(logits_of(&self.fed));
        }
        Ok(())
    }
}

fn records(info: &TraceInfo, count: u32) -> Vec<Record> {
    (0..count)
        .map(|i| {
            let prompt_ids = vec![1 + i % 7, 2 + i / 7, 3];
            let (id, prompt) = (format!("toy-{i}"), format!("prompt {i} ä"));
            let asked = (&*id, &*prompt, &*prompt_ids);
            trace::answer(&mut Toy { fed: vec![9] }, asked, info).unwrap()
        })
        .collect()
}

fn write(path: &Path, info: &TraceInfo, records: &[Record]) {
    let mut writer = TraceWriter::open(path, info).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Result<Vec<Record>, TraceError> {
    let mut file = TraceFile::open(path)?;
    (0..file.entries().len())
        .map(|row| file.record(row))
        .collect()
}

#[test]
fn files_come_back_and_are_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    for top in [1, 5, VOCAB] {
        let (info, path) = (info(top), folder.path().join(format!("{top}.parquet")));
        let records = records(&info, 40);
        assert!(records.iter().any(|r| r.answer.last() == Some(&END)));
        assert!(records.iter().any(|r| r.answer.last() != Some(&END)));
        for record in &records {
            let ended = record.answer.last() == Some(&END);
            let tail = record.tail.len();
            assert!(
                if ended {
                    tail == 1
                } else {
                    (1..=4).contains(&tail)
                },
                "{tail}"
            );
        }
        write(&path, &info, &records);
        assert_eq!(read(&path).unwrap(), records);
        assert_eq!(TraceFile::open(&path).unwrap().info(), &info);
        let again = folder.path().join(format!("{top}-again.parquet"));
        write(&again, &info, &records);
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(again).unwrap());
    }
}

#[test]
fn a_recording_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(5), folder.path().join("one.parquet"));
    let records = records(&info, 4);
    let mut writer = TraceWriter::open(&path, &info).unwrap();
    records.iter().for_each(|r| writer.push(r).unwrap());
    let told = TraceWriter::open(&path, &info).err().unwrap();
    assert!(matches!(told, TraceError::OtherWriter(_)), "{told}");
    // A row that something else took away is missed before the file is written.
    let part = folder.path().join("one.parquet.part");
    let bytes = std::fs::read(&part).unwrap();
    std::fs::write(&part, &bytes[..bytes.len() - 1]).unwrap();
    let told = writer.finish().unwrap_err();
    assert!(matches!(told, TraceError::OtherWriter(_)), "{told}");
    assert!(part.exists() && !path.exists());
}

#[test]
fn a_stopped_recording_goes_on_wherever_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (info, whole) = (info(5), folder.path().join("whole.parquet"));
    let records = records(&info, 20);
    write(&whole, &info, &records);
    let part = folder.path().join("cut.parquet.part");
    let path = folder.path().join("cut.parquet");
    let mut writer = TraceWriter::open(&path, &info).unwrap();
    records[..9].iter().for_each(|r| writer.push(r).unwrap());
    drop(writer);
    let bytes = std::fs::read(&part).unwrap();
    for cut in [0, 5, 40, 900, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        std::fs::write(&part, &bytes[..cut.min(bytes.len())]).unwrap();
        let mut writer = TraceWriter::open(&path, &info).unwrap();
        for record in &records {
            if !writer.has_id(&record.id) {
                writer.push(record).unwrap();
            }
        }
        writer.finish().unwrap();
        assert_eq!(
            std::fs::read(&path).unwrap(),
            std::fs::read(&whole).unwrap(),
            "cut at {cut}"
        );
        assert!(!part.exists());
        std::fs::remove_file(&path).unwrap();
    }
    // A row with a flipped bit is dropped, and all rows from there are recorded again.
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&part, &damaged).unwrap();
    let writer = TraceWriter::open(&path, &info).unwrap();
    assert!(writer.len() < 9, "{}", writer.len());
    drop(writer);
    // The partial file of another recording is not touched.
    std::fs::write(&part, &bytes).unwrap();
    let other = TraceInfo {
        tail: 2,
        ..info.clone()
    };
    let told = TraceWriter::open(&path, &other).err().unwrap().to_string();
    assert!(told.contains("tail was 3 and is 2"), "{told}");
    assert_eq!(std::fs::read(&part).unwrap(), bytes);
    // Nor is a finished one.
    let told = TraceWriter::open(&whole, &other).err().unwrap();
    assert!(matches!(told, TraceError::OtherRecording { .. }), "{told}");
    assert_eq!(read(&whole).unwrap(), records);
}

#[test]
fn a_finished_recording_grows() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(5), folder.path().join("grown.parquet"));
    let (whole, part) = (
        folder.path().join("whole.parquet"),
        folder.path().join("grown.parquet.part"),
    );
    let records = records(&info, 20);
    write(&whole, &info, &records);
    write(&path, &info, &records[..9]);
    let mut writer = TraceWriter::open(&path, &info).unwrap();
    assert_eq!(writer.len(), 9);
    assert!(writer.has_prompt(&records[8].prompt_ids));
    records[9..12].iter().for_each(|r| writer.push(r).unwrap());
    // Stopped: the finished file is as it was, and the partial one goes on.
    drop(writer);
    assert_eq!(read(&path).unwrap(), records[..9]);
    let mut writer = TraceWriter::open(&path, &info).unwrap();
    assert_eq!(writer.len(), 12);
    records[12..].iter().for_each(|r| writer.push(r).unwrap());
    writer.finish().unwrap();
    assert!(!part.exists());
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(&whole).unwrap()
    );
    // A damaged file is refused, and nothing is begun.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let told = TraceWriter::open(&path, &info).err().unwrap();
    assert!(matches!(told, TraceError::Damaged { .. }), "{told}");
    assert!(!part.exists());
}

#[test]
fn damage_is_told_by_file_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(5), folder.path().join("trace.parquet"));
    write(&path, &info, &records(&info, 40));
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 3, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let told = read(&path).unwrap_err();
        assert!(matches!(told, TraceError::Damaged { .. }), "{told}");
        assert!(told.to_string().contains("trace.parquet"), "{told}");
        assert!(told.hint().is_some());
    }
    // Any flipped byte is an error or changes nothing that is read.
    let good = {
        std::fs::write(&path, &bytes).unwrap();
        read(&path).unwrap()
    };
    let mut told = 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 200) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        match read(&path) {
            Err(_) => told += 1,
            Ok(rows) => assert_eq!(rows, good, "byte {at}"),
        }
    }
    assert!(told > 100, "{told}");
    std::fs::write(&path, "no parquet at all").unwrap();
    assert!(matches!(read(&path), Err(TraceError::Damaged { .. })));
}

/// A footer that claims fewer rows than none would otherwise hide them.
#[test]
fn impossible_numbers_of_rows_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(5), folder.path().join("trace.parquet"));
    write(&path, &info, &records(&info, 40));
    let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let mut footer = file.metadata().clone().into_builder();
    let mut groups = footer.take_row_groups();
    let last = groups.pop().unwrap().into_builder().set_num_rows(-1);
    groups.push(last.build().unwrap());
    let footer = footer.set_row_groups(groups).build();
    // The last eight bytes are the footer's length and the name of the format.
    let mut bytes = std::fs::read(&path).unwrap();
    let length = bytes.len() - 8;
    let footer_bytes = u32::from_le_bytes(bytes[length..length + 4].try_into().unwrap());
    bytes.truncate(length - footer_bytes as usize);
    let writer = ParquetMetaDataWriter::new(&mut bytes, &footer);
    writer.finish().unwrap();
    std::fs::write(&path, bytes).unwrap();
    let told = read(&path).unwrap_err().to_string();
    assert!(
        told.contains("trace.parquet") && told.contains("impossible size"),
        "{told}"
    );
}

/// A change to the tokens, values and rests of a distribution.
type Change<'a> = &'a dyn Fn(&mut [u32], &mut [f16], &mut [f32]);

#[test]
fn impossible_records_and_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.parquet");
    let good = info(5);
    let record = records(&good, 1).remove(0);
    let fault = |change: &dyn Fn(&mut Record)| {
        let mut record = record.clone();
        change(&mut record);
        record.check(&good).unwrap_err()
    };
    assert_eq!(fault(&|r| r.prompt_ids.clear()), RowFault::Empty("prompt"));
    assert_eq!(
        fault(&|r| r.prompt_ids[0] = 12),
        RowFault::Token {
            token: 12,
            vocab: 12
        }
    );
    assert!(matches!(
        fault(&|r| {
            r.tail.pop();
        }),
        RowFault::Length { .. }
    ));
    let other = (record.answer[0] + 1) % VOCAB as u32;
    let not_greedy = fault(&|r| r.answer[0] = other);
    assert!(
        matches!(not_greedy, RowFault::NotGreedy { position: 0, .. }),
        "{not_greedy}"
    );
    let law = |change: Change<'_>| {
        fault(&|r| {
            if let Law::Top {
                ids,
                log_probs,
                rest,
                ..
            } = &mut r.law
            {
                change(ids, log_probs, rest);
            }
        })
    };
    let is_law = |fault| matches!(fault, RowFault::Law { position: 0, .. });
    assert!(is_law(law(&|_, values, _| values[1] = f16::NAN)));
    assert!(is_law(law(&|_, values, _| values[0] = f16::from_f32(0.5))));
    assert!(is_law(law(&|_, values, _| values.swap(0, 1))));
    assert!(is_law(law(&|ids, _, _| ids[1] = ids[0])));
    assert!(is_law(law(&|_, _, rest| rest[0] = 1.5)));

    let told = |change: &dyn Fn(&mut TraceInfo)| {
        let mut info = good.clone();
        change(&mut info);
        let error = TraceWriter::open(&path, &info).err().unwrap();
        format!("{error} {}", error.hint().unwrap_or_default())
    };
    assert!(told(&|i| i.top = 13).contains("13 tokens a position, but the vocabulary has 12"));
    assert!(told(&|i| i.temperature = 0.7).contains("only greedy answers"));
    assert!(told(&|i| i.stop = vec![12]).contains("outside the vocabulary"));
    assert!(told(&|i| i.format = 9).contains("format 9"));
    assert!(told(&|i| i.max_tokens = 0).contains("max_tokens = 0 is outside 1..="));
    // Sums with it would overflow.
    assert!(told(&|i| i.tail = usize::MAX).contains("is outside 0..="));
    assert!(!path.exists());
}

#[test]
fn the_engine_says_what_the_model_said_and_nothing_off_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(VOCAB), folder.path().join("trace.parquet"));
    let records = records(&info, 40);
    write(&path, &info, &records);
    let open = || Traces::open(std::slice::from_ref(&path)).unwrap();
    let mut engine = TraceEngine::new(open(), 50);
    let mut row = Vec::new();
    for record in records.iter().rev() {
        let path: Vec<u32> = record.path().collect();
        engine.truncate(0);
        engine.prefill(&record.prompt_ids[..2]).unwrap();
        // All at once, the last token wrong.
        let wrong = (path[1] + 1) % VOCAB as u32;
        engine
            .forward(&[record.prompt_ids[2], path[0], wrong], &mut row)
            .unwrap();
        let mut context = record.prompt_ids.clone();
        assert_eq!(row[..VOCAB], logits_of(&context)[..]);
        context.push(path[0]);
        assert_eq!(row[VOCAB..2 * VOCAB], logits_of(&context)[..]);
        assert!(row[2 * VOCAB..].iter().all(|x| x.is_nan()));
        // Cut back and continue; after the end there is nothing.
        engine.truncate(4);
        engine.forward(&path[1..], &mut row).unwrap();
        context.truncate(4);
        for (i, token) in path[1..].iter().enumerate() {
            context.push(*token);
            let row = &row[i * VOCAB..][..VOCAB];
            match i + 2 < path.len() {
                true => assert_eq!(*row, logits_of(&context)[..]),
                false => assert!(row.iter().all(|x| x.is_nan())),
            }
        }
    }
    // Read one by one the rows are the same, and the best token is known without its row.
    let said: Vec<u32> = records[0].path().collect();
    let prompt = &records[0].prompt_ids;
    engine.truncate(0);
    engine.prefill(&prompt[..2]).unwrap();
    let scored = engine.device_logits(2).unwrap();
    scored
        .score(&[prompt[2], (said[0] + 1) % VOCAB as u32])
        .unwrap();
    let mut best = Vec::new();
    scored.best(&mut best).unwrap();
    assert_eq!(best, [Some(said[0]), None]);
    scored.rows(1..2, &mut row).unwrap();
    assert!(row.len() == VOCAB && row.iter().all(|x| x.is_nan()));
    scored.rows(0..1, &mut row).unwrap();
    assert_eq!(row, logits_of(prompt));
    let told = scored.rows(1..3, &mut row).unwrap_err();
    let cause = std::error::Error::source(&told).unwrap().to_string();
    assert!(cause.contains("row 2"), "{cause}");
    engine.truncate(0);
    let told = engine.forward(&[4, 4, 4], &mut row).unwrap_err();
    let cause = std::error::Error::source(&told).unwrap().to_string();
    assert!(
        cause.contains("trace.parquet: no row for this prompt"),
        "{cause}"
    );
    assert_eq!(engine.len(), 0);

    let told = open().check(Path::new("T"), "ef", 4).unwrap_err();
    assert!(told.to_string().contains("tokenizer cd"), "{told}");
    let told = open().check(Path::new("T"), "cd", 5).unwrap_err();
    assert!(matches!(
        told,
        TraceError::AnswerLimit {
            recorded: 4,
            asked: 5,
            ..
        }
    ));
    let other = folder.path().join("other.parquet");
    let others = TraceInfo {
        stop: vec![10],
        ..info.clone()
    };
    write(&other, &others, &crate::records(&others, 3));
    let told = Traces::open(&[path.clone(), other]).err().unwrap();
    assert!(
        told.to_string().contains("another set of stop tokens"),
        "{told}"
    );
    let other = folder.path().join("narrower.parquet");
    let narrower = TraceInfo {
        source: match info.source.clone() {
            Source::Model { name, sha256, .. } => Source::Model {
                name,
                sha256,
                weights: "int4".to_owned(),
            },
            text => text,
        },
        ..info.clone()
    };
    write(&other, &narrower, &crate::records(&narrower, 3));
    let told = Traces::open(&[path.clone(), other]).err().unwrap();
    assert!(told.to_string().contains("another target"), "{told}");
}

/// After a prompt, on the path of its answer: elsewhere a record has nothing to say.
#[test]
fn the_engine_keeps_the_contract_on_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(VOCAB), folder.path().join("trace.parquet"));
    let records = records(&info, 3);
    write(&path, &info, &records);
    for record in &records {
        let made = || {
            let traces = Traces::open(std::slice::from_ref(&path)).unwrap();
            let mut engine = TraceEngine::new(traces, 50);
            engine.prefill(&record.prompt_ids).unwrap();
            engine
        };
        let path: Vec<u32> = record.path().collect();
        lm::conformance::check_on(made, &path).unwrap();
    }
}

/// One prompt begins with another one and its answer: both are answered as recorded.
#[test]
fn a_prompt_may_begin_with_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(VOCAB), folder.path().join("trace.parquet"));
    let first = records(&info, 1).remove(0);
    let longer: Vec<u32> = [&first.prompt_ids[..], &[first.answer[0], 5, 6]].concat();
    let asked = ("longer", &*first.prompt, &*longer);
    let second = trace::answer(&mut Toy { fed: Vec::new() }, asked, &info).unwrap();
    write(&path, &info, &[first.clone(), second.clone()]);
    let mut engine = TraceEngine::new(Traces::open(&[path]).unwrap(), 50);
    let mut row = Vec::new();
    for record in [&first, &second, &first] {
        let (last, rest) = record.prompt_ids.split_last().unwrap();
        engine.truncate(0);
        engine.prefill(rest).unwrap();
        engine.forward(&[*last], &mut row).unwrap();
        assert_eq!(row, logits_of(&record.prompt_ids));
    }
}

/// The row built from K tokens and the rest's mass, and the losses on it, follow the formulas of
/// the documentation.
#[test]
fn losses_read_the_rest_as_one_uniform_mass() {
    let logits = logits_of(&[1, 2, 3]);
    let info = info(5);
    let mut law = Law::new(&info);
    law.push_logits(&logits);
    let mut row = vec![0.0_f32; VOCAB];
    law.write_row(0, &mut row);
    let Law::Top {
        ids,
        log_probs,
        rest,
        ..
    } = &law
    else {
        unreachable!()
    };
    let rho = f64::from(rest[0]) / (VOCAB - 5) as f64;
    let p: Vec<f64> = (0..VOCAB as u32)
        .map(|id| match ids.iter().position(|other| *other == id) {
            Some(at) => log_probs[at].to_f64().exp(),
            None => rho,
        })
        .collect();
    assert!((p.iter().sum::<f64>() - 1.0).abs() < 2e-3);
    for (row, p) in row.iter().zip(&p) {
        assert!((f64::from(*row) - p.ln()).abs() < 1e-6);
    }
    // Every unnamed token is at most as probable as the least probable named one.
    assert!(rho <= log_probs[4].to_f64().exp());
    let columns: Vec<usize> = vec![0, 2, 3, 4, 7, 8, 10];
    let drafter: Vec<f32> = columns.iter().map(|i| (*i as f32 * 0.37).sin()).collect();
    let sum: f64 = drafter.iter().map(|x| f64::from(*x).exp()).sum();
    let q: Vec<f64> = drafter.iter().map(|x| f64::from(*x).exp() / sum).collect();
    let pairs = || columns.iter().map(|i| p[*i]).zip(q.iter().copied());
    let teacher = || columns.iter().map(|i| row[*i]).collect::<Vec<f32>>();
    let loss =
        |loss: distill_loss::DirectLoss| loss.grade(&mut drafter.clone(), &mut teacher(), 0, 1.0);
    use distill_loss::DirectLoss::{Acceptance, ForwardKl, ReverseKl};
    let forward: f64 = pairs().map(|(p, q)| p * (p.ln() - q.ln())).sum();
    let reverse: f64 = pairs().map(|(p, q)| q * (q.ln() - p.ln())).sum();
    let acceptance: f64 = pairs().map(|(p, q)| p.min(q)).sum();
    assert!((loss(ForwardKl) - forward).abs() < 1e-5);
    assert!((loss(ReverseKl) - reverse).abs() < 1e-5);
    assert!((loss(Acceptance) - (1.0 - acceptance)).abs() < 1e-5);
}

#[test]
fn the_answers_token_stays_ahead_of_one_that_is_as_probable_in_16_bits() {
    let info = info(3);
    let mut law = Law::new(&info);
    // The greedy token has the higher id and leads by less than f16 resolves.
    law.push_top(&[(7, -0.693_000), (2, -0.693_050), (3, -9.0)]);
    let mut row = vec![0.0; VOCAB];
    law.write_row(0, &mut row);
    let best = (0..VOCAB)
        .max_by(|a, b| row[*a].total_cmp(&row[*b]))
        .unwrap();
    assert_eq!(best, 7);
    assert!(row[7] > row[2] && row[7] - row[2] < 1e-6);
    // Tokens of probability 0 leave the others finite.
    law.push_top(&[(1, 0.0), (2, f64::NEG_INFINITY), (3, f64::NEG_INFINITY)]);
    law.write_row(1, &mut row);
    assert!(row[0].is_finite() && row[2] == f32::NEG_INFINITY && row[1] == 0.0);
}

/// The distribution of text sums to one, puts 1 - s on the text and ranks the others as the model
/// does.
#[test]
fn the_law_of_text_is_a_law() {
    let texts: [&[u32]; 3] = [
        &[1, 2, 3, 1, 2, 4, END],
        &[1, 2, 3, 5, END],
        &[6, 1, 2, 3, END],
    ];
    for order in 1..=5 {
        let model = NgramModel::new(texts.into_iter(), order, VOCAB).unwrap();
        for history in [&[][..], &[1], &[1, 2], &[9, 9], &[6, 1, 2, 3]] {
            let all: Vec<f64> = (0..VOCAB as u32)
                .map(|t| model.probability(history, t))
                .collect();
            assert!(
                (all.iter().sum::<f64>() - 1.0).abs() < 1e-12,
                "order {order}"
            );
            assert!(all.iter().all(|p| *p > 0.0));
            let mut ranked: Vec<u32> = (0..VOCAB as u32).filter(|t| *t != 3).collect();
            ranked.sort_by(|a, b| all[*b as usize].total_cmp(&all[*a as usize]).then(a.cmp(b)));
            for count in [1, 4, VOCAB - 1] {
                let found = model.most_probable(history, 3, count);
                for ((token, p), expected) in found.iter().zip(&ranked) {
                    assert!((p - all[*token as usize]).abs() < 1e-12);
                    assert!((all[*token as usize] - all[*expected as usize]).abs() < 1e-12);
                }
                assert_eq!(found.len(), count);
            }
        }
    }
    // Computed by hand: "1 2" is followed by 3 three times and by 4 once.
    let model = NgramModel::new(texts.into_iter(), 3, VOCAB).unwrap();
    let bigram = (3.0 + 2.0 * model.probability(&[], 3)) / 6.0;
    let trigram = (3.0 + 2.0 * bigram) / 6.0;
    assert!((model.probability(&[1, 2], 3) - trigram).abs() < 1e-12);
    let law = TextLaw::new(model, 0.3, VOCAB).unwrap();
    let at = law.at(&[1, 2], 4);
    assert_eq!(at[0].0, 4);
    assert!((at[0].1.exp() - 0.7).abs() < 1e-12);
    assert!((at.iter().map(|(_, l)| l.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(at[1].0, 3);
    let new = |s, top| {
        let model = NgramModel::new(texts.into_iter(), 2, VOCAB).unwrap();
        TextLaw::new(model, s, top).err().map(|e| e.to_string())
    };
    assert!(new(0.5, 4).unwrap().contains("smooth"));
    assert!(new(f64::NAN, 4).unwrap().contains("smooth"));
    assert!(new(0.0, 13).unwrap().contains("12"));
    assert!(new(0.0, 4).is_none());
    assert!(NgramModel::new(texts.into_iter(), 6, VOCAB).is_err());
}

/// Two rows have one prompt: the first one answers.
#[test]
fn equal_prompts_have_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (info, path) = (info(5), folder.path().join("a.parquet"));
    let records = records(&info, 2);
    let again = Record {
        id: "again".to_owned(),
        ..records[0].clone()
    };
    let mut writer = TraceWriter::open(&path, &info).unwrap();
    records.iter().for_each(|r| writer.push(r).unwrap());
    assert!(writer.has_prompt(&again.prompt_ids) && !writer.has_id(&again.id));
    writer.push(&again).unwrap();
    writer.finish().unwrap();
    let paths: [PathBuf; 1] = [path];
    let mut engine = TraceEngine::new(Traces::open(&paths).unwrap(), 50);
    engine.forward(&again.prompt_ids, &mut Vec::new()).unwrap();
}
