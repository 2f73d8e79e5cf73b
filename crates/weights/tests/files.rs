//! Files of PyTorch and of GGUF's own package are read to the last bit, and malformed files are
//! reported.

use std::path::{Path, PathBuf};

use weights::{Encoding, Format, GgufValue, RowBuffer, TensorFiles, WeightsError};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn open(format: Format, name: &str) -> TensorFiles {
    TensorFiles::of_file(format, &fixture(name)).unwrap()
}

/// Every tensor of `expected` is in `files`, with the same bits, read whole and in any two parts.
fn assert_same(files: &TensorFiles, expected: &TensorFiles) {
    assert!(expected.tensors().count() > 5);
    for (name, tensor) in expected.tensors() {
        assert_eq!(files.get(name).unwrap().shape, tensor.shape, "{name}");
        let rows = tensor.rows();
        let (mut one, mut other) = (RowBuffer::default(), RowBuffer::default());
        let whole = bits(expected.rows(name, 0..rows, &mut one).unwrap());
        for cut in 0..=rows {
            let mut found = bits(files.rows(name, 0..cut, &mut other).unwrap());
            found.extend(bits(files.rows(name, cut..rows, &mut other).unwrap()));
            assert_eq!(found, whole, "{name}, cut at {cut}");
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn pytorch_files_are_read_with_their_views() {
    let expected = open(Format::Safetensors, "views.safetensors");
    let files = open(Format::Torch, "views.bin");
    assert_same(&files, &expected);
    assert_eq!(files.encoding("half").unwrap(), Encoding::F16);
    assert_eq!(files.encoding("bfloat").unwrap(), Encoding::Bf16);
    assert_same(&open(Format::Torch, "nested.bin"), &expected);

    let error = files
        .rows("positions", 0..1, &mut RowBuffer::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`positions` has type LongStorage"),
        "{error}"
    );
    let error = files
        .rows("plain", 2..4, &mut RowBuffer::default())
        .unwrap_err();
    assert!(error.to_string().contains("has 3 rows; 2..4"), "{error}");
}

#[test]
fn gguf_types_have_the_values_of_the_gguf_package() {
    let files = open(Format::Gguf, "types.gguf");
    assert_same(&files, &open(Format::Safetensors, "types.safetensors"));
    assert_eq!(files.encoding("Q4_K").unwrap(), Encoding::Q4K);
    let keys = files.keys();
    assert_eq!(
        keys["general.architecture"],
        GgufValue::Text("llama".into())
    );
    assert_eq!(
        keys["some.numbers"],
        GgufValue::Numbers(vec![1.0, 2.0, 3.0])
    );
    assert!(matches!(
        keys["some.texts"],
        GgufValue::Texts { count: 2, .. }
    ));
    assert_eq!(files.texts("some.texts").unwrap().unwrap(), ["one", "two"]);
    assert_eq!(files.texts("some.numbers").unwrap(), None);
    assert_eq!(keys["some.truth"], GgufValue::Bool(true));
}

#[test]
fn a_pickle_calls_nothing() {
    let error = TensorFiles::of_file(Format::Torch, &fixture("evil.bin")).unwrap_err();
    assert!(
        matches!(&error, WeightsError::Global { global, .. } if global.ends_with(".system")),
        "{error}"
    );
    let error = TensorFiles::of_file(Format::Torch, &fixture("legacy.bin")).unwrap_err();
    assert!(error.to_string().contains("PyTorch 1.6"), "{error}");
}

/// A file that is cut anywhere, or that has any one byte changed, is read or refused: no panic, and
/// no allocation beyond the file's size (which would not fit the address space).
#[test]
fn damaged_files_are_refused_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [
        (Format::Torch, "views.bin"),
        (Format::Torch, "nested.bin"),
        (Format::Gguf, "types.gguf"),
        (Format::Safetensors, "views.safetensors"),
    ] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let path = folder.path().join(name);
        let mut refused = 0;
        let mut read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let read_all = |files: TensorFiles| {
                let mut buffer = RowBuffer::default();
                for (name, tensor) in files.tensors() {
                    if tensor.encoding.is_ok() {
                        files.rows(name, 0..tensor.rows(), &mut buffer).unwrap();
                    }
                }
            };
            match TensorFiles::of_file(format, &path) {
                Ok(files) => read_all(files),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains(name), "{error}");
                }
            }
        };
        for len in (0..whole.len()).step_by(31) {
            read(&whole[..len]);
        }
        for at in (0..whole.len()).step_by(7) {
            for change in [0xff, 0x01] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                read(&bytes);
            }
        }
        assert!(refused > whole.len() / 31, "{name}: {refused}");
    }
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn malicious_headers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let told = |bytes: Vec<u8>, expected: &str| {
        std::fs::write(&path, bytes).unwrap();
        let error = TensorFiles::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("model.safetensors"),
            "{error}"
        );
    };
    let entry = |shape: &str, offsets: &str| {
        format!(r#"{{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}"#)
    };
    let one = entry("[2]", "[0, 8]");
    told(
        u64::MAX.to_le_bytes().to_vec(),
        "a header of 18446744073709551615 bytes",
    );
    told(99_000_000_u64.to_le_bytes().to_vec(), "are beyond its end");
    told(
        safetensors(&format!(r#"{{"a": {one}}}"#), 4),
        "0..8, and the file holds 4",
    );
    told(
        safetensors(&format!(r#"{{"a": {}}}"#, entry("[2]", "[8, 0]")), 8),
        "8..0",
    );
    told(
        safetensors(&format!(r#"{{"a": {}}}"#, entry("[3]", "[0, 8]")), 8),
        "has 8 bytes",
    );
    let huge = entry("[4611686018427387905, 4]", "[0, 16]");
    told(
        safetensors(&format!(r#"{{"a": {huge}}}"#), 16),
        "has 16 bytes",
    );
    let overlap = format!(r#"{{"a": {one}, "b": {}}}"#, entry("[2]", "[4, 12]"));
    told(safetensors(&overlap, 12), "tensors `a` and `b` overlap");
    told(
        safetensors(&format!(r#"{{"a": {one}, "a": {one}}}"#), 8),
        "`a` is there twice",
    );
    told(safetensors("[]", 0), "expected an object of tensors");

    let path = folder.path().join("model.gguf");
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let told = |words: &[u64], expected: &str| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        std::fs::write(&path, bytes).unwrap();
        let error = TensorFiles::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("model.gguf"),
            "{error}"
        );
    };
    told(&[u64::MAX, 0], "it ends at byte");
    told(&[0, 1, u64::MAX], "a text of");
    told(&[1, 0, 1 << 16], "expected");
    // A key whose value is a list in a list in a list, deeper than a stack is high.
    let mut nested = b"GGUF\x03\0\0\0".to_vec();
    for word in [0_u64, 1, 0] {
        nested.extend(word.to_le_bytes());
    }
    nested.extend(9_u32.to_le_bytes());
    for _ in 0..200_000 {
        nested.extend(9_u32.to_le_bytes());
        nested.extend(1_u64.to_le_bytes());
    }
    std::fs::write(&path, nested).unwrap();
    let error = TensorFiles::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("a list of lists"), "{error}");
    for version in [2_u32, 3] {
        let bytes = [b"GGUF".as_slice(), &version.to_be_bytes(), &[0; 16]].concat();
        std::fs::write(&path, bytes).unwrap();
        let error = TensorFiles::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it is big-endian"), "{error}");
    }
}

#[test]
fn a_tensor_without_rows_may_have_any_width() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let place = r#""dtype": "F32", "data_offsets": [0, 0]"#;
    let header = format!(
        r#"{{"a": {{"shape": [0, {0}, {0}], {place}}}}}"#,
        1_u64 << 40
    );
    std::fs::write(&path, safetensors(&header, 0)).unwrap();
    let files = TensorFiles::open(folder.path()).unwrap();
    let mut buffer = RowBuffer::default();
    let read = files.rows("a", 0..0, &mut buffer).unwrap();
    assert!(read.is_empty());
}

#[test]
fn a_pointer_of_git_lfs_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n";
    for name in [
        "model.safetensors",
        "pytorch_model.bin",
        "model.gguf",
        "model.safetensors.index.json",
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, pointer).unwrap();
        let error = TensorFiles::open(folder.path()).unwrap_err();
        assert!(
            matches!(&error, WeightsError::Pointer { path: found } if *found == path),
            "{error}"
        );
        assert!(weights::is_pointer(&path));
        std::fs::remove_file(&path).unwrap();
    }
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, format!("{pointer}{}", " ".repeat(2000))).unwrap();
    let error = TensorFiles::open(folder.path()).unwrap_err();
    assert!(matches!(error, WeightsError::Malformed { .. }), "{error}");
}

/// A snapshot of the hub's cache that was moved without the files that its links name.
#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_told_with_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let path = folder.path().join(name);
        std::os::unix::fs::symlink("../../blobs/4d7a", &path).unwrap();
        path
    };
    for name in [
        "model.safetensors",
        "pytorch_model.bin",
        "model.gguf",
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ] {
        let path = link(name);
        let error = TensorFiles::open(folder.path()).unwrap_err();
        assert!(
            matches!(&error, WeightsError::Link { path: found, .. } if *found == path),
            "{error}"
        );
        assert!(error.to_string().contains("../../blobs/4d7a"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
    let index = r#"{"weight_map": {"a": "model-00001-of-00001.safetensors"}}"#;
    let path = folder.path().join("model.safetensors.index.json");
    // With a byte order mark in front, as some editors write it.
    std::fs::write(path, format!("\u{feff}{index}")).unwrap();
    let shard = link("model-00001-of-00001.safetensors");
    let error = TensorFiles::open(folder.path()).unwrap_err();
    assert!(
        matches!(&error, WeightsError::Link { path, .. } if *path == shard),
        "{error}"
    );
}

/// Shards were saved here before, and only their index is left.
#[test]
fn weights_in_one_file_count_before_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}"#;
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, safetensors(header, 4)).unwrap();
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let files = TensorFiles::open(folder.path()).unwrap();
    assert_eq!(files.paths().collect::<Vec<_>>(), [path.as_path()]);
}

/// Of two names for one tensor a writer keeps one, and the file says which.
#[test]
fn a_name_that_was_left_out_is_found_by_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let entry = r#"{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}"#;
    let header =
        format!(r#"{{"__metadata__": {{"format": "pt", "b": "a", "c": "d"}}, "a": {entry}}}"#);
    std::fs::write(&path, safetensors(&header, 8)).unwrap();
    let files = TensorFiles::open(folder.path()).unwrap();
    assert_eq!(
        files.tensors().map(|(name, _)| name).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(files.get("a"), files.get("b"));
    assert_eq!(
        files.rows("b", 0..2, &mut RowBuffer::default()).unwrap(),
        [0.0; 2]
    );
}

#[test]
fn an_index_stays_in_its_folder_and_names_a_tensor_once() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let told = |map: &str, expected: &str| {
        std::fs::write(&index, format!(r#"{{"weight_map": {map}}}"#)).unwrap();
        let error = TensorFiles::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let one = r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;
    for shard in ["1.safetensors", "2.safetensors"] {
        std::fs::write(folder.path().join(shard), safetensors(one, 8)).unwrap();
    }
    for name in [
        "../1.safetensors",
        "/etc/passwd",
        "",
        ".",
        "x/../../1.safetensors",
    ] {
        told(
            &format!(r#"{{"a": "{name}"}}"#),
            "is not the name of a file in this folder",
        );
    }
    told(
        r#"{"a": "1.safetensors", "b": "2.safetensors"}"#,
        "tensor `a` is in two files",
    );
    told(
        r#"{"a": "1.safetensors", "b": "1.safetensors"}"#,
        "`b` is not in `1.safetensors`",
    );
    told(r#"{"a": "3.safetensors"}"#, "3.safetensors");
    told("[1]", "weight_map");
    std::fs::write(&index, r#"{"weight_map": {"a": "1.safetensors"}}"#).unwrap();
    assert_eq!(
        TensorFiles::open(folder.path()).unwrap().tensors().count(),
        1
    );
}

#[test]
fn a_folder_without_weights_or_with_too_many_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = || TensorFiles::open(folder.path()).unwrap_err().to_string();
    assert!(told().contains("there are no weights"), "{}", told());
    for name in ["one.gguf", "two.gguf"] {
        std::fs::copy(fixture("types.gguf"), folder.path().join(name)).unwrap();
    }
    assert!(told().contains("`one.gguf`, `two.gguf`"), "{}", told());
    for (from, to) in [("one", "m-00001-of-00002"), ("two", "m-00002-of-00002")] {
        let path = |name| folder.path().join(format!("{name}.gguf"));
        std::fs::rename(path(from), path(to)).unwrap();
    }
    assert!(told().contains("is in two files"), "{}", told());
}
