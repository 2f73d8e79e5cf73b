//! GGUF files as model folders. The test writes the files, key by key.

use std::path::Path;

use models::{ImportError, ModelFolder, ModelText, import_gguf};
use vocab_align::{TargetId, TokenId};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A value of a key.
#[derive(Clone)]
enum Entry {
    Short(u16),
    Int(u32),
    Float(f32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i32>),
    Floats(Vec<f32>),
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn list(bytes: &mut Vec<u8>, kind: u32, len: usize) {
    bytes.extend(9_u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend((len as u64).to_le_bytes());
}

impl Entry {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Short(value) => {
                to.extend(2_u32.to_le_bytes());
                to.extend(value.to_le_bytes());
            }
            Self::Int(value) => {
                to.extend(4_u32.to_le_bytes());
                to.extend(value.to_le_bytes());
            }
            Self::Float(value) => {
                to.extend(6_u32.to_le_bytes());
                to.extend(value.to_le_bytes());
            }
            Self::Flag(value) => {
                to.extend(7_u32.to_le_bytes());
                to.push(u8::from(*value));
            }
            Self::Text(value) => {
                to.extend(8_u32.to_le_bytes());
                text(to, value);
            }
            Self::Texts(values) => {
                list(to, 8, values.len());
                values.iter().for_each(|value| text(to, value));
            }
            Self::Ints(values) => {
                list(to, 5, values.len());
                values.iter().for_each(|v| to.extend(v.to_le_bytes()));
            }
            Self::Floats(values) => {
                list(to, 6, values.len());
                values.iter().for_each(|v| to.extend(v.to_le_bytes()));
            }
        }
    }
}

const WIDTH: usize = 32;

type Keys = Vec<(String, Entry)>;
type Tensors = Vec<(String, Vec<usize>)>;

/// A Llama of one block with these tokens.
fn model(tokens: &[String], mut tokenizer: Vec<(&'static str, Entry)>) -> (Keys, Tensors) {
    let shape = [
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", WIDTH as u32),
        ("block_count", 1),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("context_length", 64),
    ];
    let mut keys: Keys = shape
        .map(|(key, value)| (format!("llama.{key}"), Entry::Int(value)))
        .into();
    let eps = "llama.attention.layer_norm_rms_epsilon";
    keys.push((eps.into(), Entry::Float(1e-5)));
    keys.push(("general.architecture".into(), Entry::Text("llama".into())));
    tokenizer.push(("tokens", Entry::Texts(tokens.to_vec())));
    let of_tokenizer =
        tokenizer
            .into_iter()
            .map(|(key, value)| match key.contains("chat_template") {
                true => (format!("tokenizer.{key}"), value),
                false => (format!("tokenizer.ggml.{key}"), value),
            });
    keys.extend(of_tokenizer);

    let half = WIDTH / 2;
    let square = ["attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let mut tensors = vec![
        ("token_embd".to_owned(), vec![WIDTH, tokens.len()]),
        ("output_norm".to_owned(), vec![WIDTH]),
        ("blk.0.attn_norm".to_owned(), vec![WIDTH]),
        ("blk.0.ffn_norm".to_owned(), vec![WIDTH]),
        ("blk.0.attn_k".to_owned(), vec![WIDTH, half]),
        ("blk.0.attn_v".to_owned(), vec![WIDTH, half]),
    ];
    tensors.extend(square.map(|name| (format!("blk.0.{name}"), vec![WIDTH, WIDTH])));
    (keys, tensors)
}

/// A file with these keys and tensors, whose numbers are all 1/16.
fn written((keys, tensors): &(Keys, Tensors)) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut bytes, key);
        value.write(&mut bytes);
    }
    let mut values = 0;
    for (name, shape) in tensors {
        text(&mut bytes, &format!("{name}.weight"));
        bytes.extend((shape.len() as u32).to_le_bytes());
        for size in shape {
            bytes.extend((*size as u64).to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend((values as u64 * 4).to_le_bytes());
        values += shape.iter().product::<usize>();
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    for _ in 0..values {
        bytes.extend((1.0_f32 / 16.0).to_le_bytes());
    }
    bytes
}

/// The letters that stand for bytes in byte-level vocabularies.
fn letters() -> Vec<String> {
    let mut others = 0..;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next().and_then(|i: u32| char::from_u32(256 + i)),
    };
    (0..=255).filter_map(letter).map(String::from).collect()
}

/// End of text, bytes, and three longer tokens.
fn byte_level(pre: &str) -> Vec<u8> {
    written(&byte_level_model(pre))
}

fn byte_level_model(pre: &str) -> (Keys, Tensors) {
    let mut tokens = vec!["<|end|>".to_owned()];
    tokens.extend(letters());
    tokens.extend(["he", "hel", "ĊĊ"].map(str::to_owned));
    let mut kinds = vec![1; tokens.len()];
    kinds[0] = 3;
    let template = "{% for m in messages %}{{ m['content'] }}{% endfor %}:";
    model(
        &tokens,
        vec![
            ("model", Entry::Text("gpt2".into())),
            ("pre", Entry::Text(pre.into())),
            ("token_type", Entry::Ints(kinds)),
            (
                "merges",
                Entry::Texts(["h e", "he l", "Ċ Ċ"].map(str::to_owned).into()),
            ),
            ("eos_token_id", Entry::Int(0)),
            ("chat_template", Entry::Text(template.into())),
        ],
    )
}

/// Specials, bytes, and pieces with scores.
fn pieces(prefix: bool) -> Vec<u8> {
    let mut tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "a", "b", "ab", "▁a", "▁ab"].map(str::to_owned));
    let mut kinds = vec![2, 3, 3];
    kinds.resize(259, 6);
    kinds.resize(tokens.len(), 1);
    let mut scores = vec![0.0; 259];
    scores.extend([-5.0, -6.0, -7.0, -1.0, -2.0, -3.0]);
    let made = model(
        &tokens,
        vec![
            ("model", Entry::Text("llama".into())),
            ("token_type", Entry::Ints(kinds)),
            ("scores", Entry::Floats(scores)),
            ("bos_token_id", Entry::Int(1)),
            ("eos_token_id", Entry::Int(2)),
            ("unknown_token_id", Entry::Int(0)),
            ("add_space_prefix", Entry::Flag(prefix)),
        ],
    );
    written(&made)
}

/// The folder converted from a file, below `within`.
fn imported(within: &Path, bytes: &[u8]) -> Result<std::path::PathBuf, ImportError> {
    let file = within.join("file.gguf");
    std::fs::write(&file, bytes).expect("a temporary folder");
    let out = within.join("model");
    import_gguf(&file, &out).map(|()| out)
}

fn ids(text: &ModelText<TargetId>, prompt: &str) -> Result<Vec<u32>> {
    let ids = text.encode(&text.template.render(prompt)?)?;
    Ok(ids.iter().map(|id| id.get()).collect())
}

#[test]
fn a_byte_level_file_is_a_model_folder() -> Result {
    let within = tempfile::tempdir()?;
    let folder: ModelFolder<TargetId> =
        ModelFolder::load(&imported(within.path(), &byte_level("smollm"))?)?;
    assert_eq!(folder.config().num_layers, 1);
    assert_eq!(folder.weights().files().bytes() as usize % 4, 0);
    let byte = |b: u8| 1 + u32::from(b);
    let colon = byte(b':');
    assert_eq!(ids(&folder, "hello")?, [258, byte(b'l'), byte(b'o'), colon]);
    // Digits are split one by one, so that white space in front of one is a whole run.
    assert_eq!(ids(&folder, "\n\n7")?, [259, byte(b'7'), colon]);
    let lines = [byte(b'\n'), byte(b'\n'), byte(b'h'), colon];
    assert_eq!(ids(&folder, "\n\nh")?, lines);
    assert_eq!(ids(&folder, "<|end|>")?, [0, colon]);
    let stop: Vec<u32> = folder.stop_tokens().iter().map(|id| id.get()).collect();
    assert_eq!(stop, [0]);
    Ok(())
}

#[test]
fn a_file_in_parts_is_imported_by_the_name_of_any() -> Result {
    let (keys, mut tensors) = byte_level_model("smollm");
    let rest = tensors.split_off(4);
    let split = |part: u16| -> Keys {
        let keys = [
            ("split.no", Entry::Short(part)),
            ("split.count", Entry::Short(2)),
        ];
        keys.map(|(key, value)| (key.to_owned(), value)).into()
    };
    let first = ([keys, split(0)].concat(), tensors);
    let within = tempfile::tempdir()?;
    let names = ["toy-00001-of-00002.gguf", "toy-00002-of-00002.gguf"];
    let path = |i: usize| within.path().join(names[i]);
    std::fs::write(path(0), written(&first))?;
    let out = within.path().join("alone");
    let error = import_gguf(&path(0), &out).err().ok_or("a part alone")?;
    let error = error.to_string();
    assert!(
        error.contains(names[1]) && !error.contains(".part"),
        "{error}"
    );
    std::fs::write(path(1), written(&(split(1), rest)))?;
    for i in 0..2 {
        let out = within.path().join(format!("model-{i}"));
        import_gguf(&path(i), &out)?;
        let folder: ModelFolder<TargetId> = ModelFolder::load(&out)?;
        assert_eq!(folder.weights().files().tensors().count(), 11);
        assert_eq!(ids(&folder, "hello")?[0], 258);
    }
    Ok(())
}

#[test]
fn pieces_with_scores_are_merged_by_them() -> Result {
    for (prefix, opening, between) in [(true, vec![1, 264], 264), (false, vec![1, 262], 264)] {
        let within = tempfile::tempdir()?;
        let folder: ModelFolder<TargetId> =
            ModelFolder::load(&imported(within.path(), &pieces(prefix))?)?;
        assert!(!folder.template.is_chat());
        let mut expected = opening;
        // `ab` has a higher score than `▁a`, so it is merged first.
        expected.push(between);
        // A letter without a piece becomes its bytes.
        expected.extend([3 + 0xc3, 3 + 0xa9]);
        assert_eq!(ids(&folder, "ab abé")?, expected, "{prefix}");
    }
    Ok(())
}

#[test]
fn unknown_and_padding_tokens_that_are_none_are_read_over() -> Result {
    for (key, id, taken) in [
        ("padding_token_id", u32::MAX, true),
        ("padding_token_id", 260, true),
        ("unknown_token_id", 260, true),
        ("bos_token_id", 260, false),
    ] {
        let (mut keys, tensors) = byte_level_model("smollm");
        keys.push((format!("tokenizer.ggml.{key}"), Entry::Int(id)));
        let within = tempfile::tempdir()?;
        match imported(within.path(), &written(&(keys, tensors))) {
            Ok(out) => {
                let folder: ModelFolder<TargetId> = ModelFolder::load(&out)?;
                assert_eq!(ids(&folder, "hello")?[0], 258);
                assert!(taken, "{key}");
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!taken && error.contains(key), "{error}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_imported_leaves_nothing_behind() -> Result {
    let within = tempfile::tempdir()?;
    let told = |bytes: &[u8]| {
        let error = imported(within.path(), bytes).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let found = told(&byte_level("a-new-one"));
    assert!(
        found.contains("key `tokenizer.ggml.pre` `a-new-one`"),
        "{found}"
    );
    let whole = byte_level("smollm");
    for cut in (0..whole.len()).step_by(whole.len() / 200) {
        assert_ne!(told(&whole[..cut]), "", "{cut}");
    }
    // A missing key, and a key that is not a list.
    for (key, other) in [("scores", "scared"), ("tokens", "tokans")] {
        let mut bytes = pieces(true);
        let key = format!("tokenizer.ggml.{key}");
        let at = bytes
            .windows(key.len())
            .position(|window| window == key.as_bytes());
        let at = at.ok_or("no key")? + key.len() - other.len();
        bytes[at..at + other.len()].copy_from_slice(other.as_bytes());
        assert!(told(&bytes).contains(&key), "{key}");
    }
    let left: Vec<_> = std::fs::read_dir(within.path())?.collect::<Result<_, _>>()?;
    assert_eq!(left.len(), 1, "{left:?}");

    let out = imported(within.path(), &whole)?;
    let config = std::fs::read(out.join("config.json"))?;
    assert!(matches!(
        imported(within.path(), &whole),
        Err(ImportError::Exists { .. })
    ));
    assert_eq!(std::fs::read(out.join("config.json"))?, config);
    Ok(())
}
