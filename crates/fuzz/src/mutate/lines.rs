//! Damage to files of lines and of words.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{bytes, json, pick};

/// Right-hand sides for TOML keys.
const TOML_VALUES: [&str; 18] = [
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "9223372036854775807",
    "1e300",
    "nan",
    "inf",
    "true",
    "\"\"",
    "\"../../x\"",
    "\"a\\u0000b\"",
    "[]",
    "{}",
    "[1, \"two\", 3.0]",
    "[[[[[[[[[[]]]]]]]]]]",
    "{ a = { b = { c = 1 } } }",
    "1979-05-27",
];

/// Words of templates.
const WORDS: [&str; 38] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{%- for m in messages -%}",
    "{% for i in range(99999999) %}x",
    "{% endfor %}",
    "{% if messages %}",
    "{% else %}",
    "{% endif %}",
    "{% set x = x ~ x %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% break %}",
    "{{ messages[0]['content'] }}",
    "{{ messages[99] }}",
    "{{ 'a' * 999999999 }}",
    "{{ [1] * 99999999 }}",
    "{{ 'ab'.replace('a', 'b' * 99999) }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ 1 / 0 }}",
    "{{ 1 % 0 }}",
    "{{ range(10**12)|list }}",
    "{{ messages|tojson(indent=99999999) }}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%Y %q') }}",
    "{{ bos_token }}",
    "{{ messages|map(attribute='content')|join }}",
    "{{ '%s'|format(messages) }}",
    "{{ x.y.z }}",
    "{{ ''.join(messages) }}",
    "{{ messages[::-1] }}",
    "{{ messages[::0] }}",
    "{{ namespace(a=1).a }}",
    "\r\n",
    "((((((((((((((((((((",
    "|upper|lower|trim|title|list|sort|unique|reverse|first",
];

/// Changes the document of one line, or drops, doubles, swaps or joins lines.
pub fn json_lines(input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut lines = split(&input);
    let at = rng.random_range(0..lines.len());
    match serde_json::from_str::<Value>(&lines[at]) {
        Ok(mut document) if rng.random_bool(0.7) => {
            json::change(&mut document, rng);
            lines[at] = document.to_string();
        }
        _ => shuffle(&mut lines, rng),
    }
    lines.join("\n").into_bytes()
}

/// Changes one value or key, or drops, doubles or swaps lines.
pub fn toml(input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut lines = split(&input);
    let at = rng.random_range(0..lines.len());
    let line = lines[at].clone();
    match (line.split_once('='), rng.random_range(0..6)) {
        (Some((key, _)), 0..=2) => lines[at] = format!("{key}= {}", pick(&TOML_VALUES, rng)),
        (Some((key, value)), 3) => lines[at] = format!("{}x = {value}", key.trim_end()),
        (_, 4) => {
            let bytes = line.into_bytes();
            let line = bytes::mutate(bytes.clone(), &[bytes], rng);
            lines[at] = String::from_utf8_lossy(&line).into_owned();
        }
        _ => shuffle(&mut lines, rng),
    }
    lines.join("\n").into_bytes()
}

/// Inserts one of [`WORDS`], replaces a piece of the text by one, drops a piece or swaps two.
pub fn template(input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let text = String::from_utf8_lossy(&input).into_owned();
    let mut pieces: Vec<&str> = text.split_inclusive(['}', '\n', ' ', '(', ')']).collect();
    if pieces.is_empty() {
        pieces.push("");
    }
    let at = rng.random_range(0..pieces.len());
    let other = rng.random_range(0..pieces.len());
    match rng.random_range(0..5) {
        0 | 1 => pieces.insert(at, *pick::<&str>(&WORDS, rng)),
        2 => drop(pieces.remove(at)),
        3 => pieces.swap(at, other),
        _ => pieces[at] = *pick::<&str>(&WORDS, rng),
    }
    pieces.concat().into_bytes()
}

fn split(input: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(input);
    text.split('\n').map(str::to_owned).collect()
}

fn shuffle(lines: &mut Vec<String>, rng: &mut ChaCha8Rng) {
    let (a, b) = (
        rng.random_range(0..lines.len()),
        rng.random_range(0..lines.len()),
    );
    match rng.random_range(0..4) {
        0 if lines.len() > 1 => drop(lines.remove(a)),
        1 => lines.insert(b, lines[a].clone()),
        2 => lines.swap(a, b),
        _ => {
            let line = std::mem::take(&mut lines[a]);
            lines[b].push_str(&line);
        }
    }
}
