//! Special tokens by the names that a folder's files give them, in the order in which transformers
//! 5 adds those that a tokenizer lacks.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::file::{AddedToken, without_mark};

/// Standard names of special tokens, in the order in which they are added.
const STANDARD: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
/// Key of a list of further tokens, or of an object with names for them.
const EXTRA: &str = "extra_special_tokens";
/// Older key of the list.
const ADDITIONAL: &str = "additional_special_tokens";
/// Key of an object with tokens that only one model names.
const SPECIFIC: &str = "model_specific_special_tokens";
/// Key that marks an object as a token.
const TYPE: &str = "__type";

/// A token as a configuration describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    /// The token, without its id.
    pub(crate) added: AddedToken,
    /// True if it is written as a string.
    is_text: bool,
}

impl Named {
    /// Reads a string, or an object with `content` and the treatment of white space around the
    /// token.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let content = value.as_str().or_else(|| value.get("content")?.as_str())?;
        let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
        let added = AddedToken {
            single_word: flag("single_word"),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            normalized: Some(flag("normalized")),
            ..AddedToken::plain(0, content)
        };
        Some(Self {
            added,
            is_text: value.is_string(),
        })
    }

    pub(crate) fn content(&self) -> &str {
        &self.added.content
    }
}

/// The entries of a JSON object in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    entries: Vec<(String, Value)>,
    /// The object under [`EXTRA`], if it is one.
    extra: Option<Vec<(String, Value)>>,
    /// The object under [`SPECIFIC`].
    specific: Option<Vec<(String, Value)>>,
}

impl Entries {
    /// The entries of a JSON object; empty for any other value.
    pub(crate) fn read(json: &[u8]) -> Self {
        let Ok(Pairs(pairs)) = serde_json::from_slice::<Pairs<Node>>(without_mark(json)) else {
            return Self::default();
        };
        let mut found = Self::default();
        for (key, node) in pairs {
            match (key.as_str(), node) {
                (EXTRA, Node::Object(named)) => found.extra = Some(named.0),
                (SPECIFIC, Node::Object(named)) => found.specific = Some(named.0),
                (_, Node::Object(object)) => {
                    found.set(&key, Value::Object(object.0.into_iter().collect()));
                }
                (_, Node::Other(value)) => found.set(&key, value),
            }
        }
        found
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let found = self.entries.iter().find(|(own, _)| own == key);
        found.map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        update(&mut self.entries, [(key.to_owned(), value)]);
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        let at = self.entries.iter().position(|(own, _)| own == key)?;
        Some(self.entries.remove(at).1)
    }
}

/// Special tokens of a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specials {
    /// Named tokens, in the order in which they are added.
    pub(crate) named: Vec<(String, Named)>,
    /// Tokens without names.
    pub(crate) extra: Vec<Named>,
}

impl Specials {
    /// The tokens that `tokenizer_config.json` names, and those of `special_tokens_map.json` if
    /// that file counts; `own_names` are those of the class. The error is the key of a value that
    /// is not a token, and true if the second file has it.
    pub(crate) fn of(
        mut init: Entries,
        map: Option<Entries>,
        own_names: &[(&str, &str)],
    ) -> Result<Self, (bool, String)> {
        let mut renamed = false;
        let named = init.extra.as_ref().is_some_and(|extra| !extra.is_empty());
        let listed = init.get(EXTRA).and_then(Value::as_array);
        let listed = listed.is_some_and(|extra| !extra.is_empty());
        if !named
            && !listed
            && let Some(additional) = init.take(ADDITIONAL)
        {
            init.set(EXTRA, additional);
            renamed = true;
        }
        let own = |(key, value): &(String, Value)| is_specific(key) && value.is_string();
        let (mut explicit, others): (Vec<_>, Vec<_>) = init.entries.into_iter().partition(own);
        init.entries = others;
        update(&mut explicit, init.extra.take().into_iter().flatten());
        if explicit.is_empty() {
            explicit = init.specific.take().unwrap_or_default();
        }
        let mut later = Vec::new();
        if let Some(map) = map {
            if let Some(specific) = map.specific {
                explicit = specific;
            }
            for (key, mut value) in map.entries {
                if let Some(token) = value.as_object_mut() {
                    token.insert(TYPE.to_owned(), "AddedToken".into());
                }
                if let (EXTRA, Value::Array(more)) = (key.as_str(), &mut value) {
                    let before = init.get(EXTRA).and_then(Value::as_array);
                    let mut all = before.cloned().unwrap_or_default();
                    more.retain(|token| !all.contains(token));
                    all.append(more);
                    value = Value::Array(all);
                }
                init.set(&key, value);
                later.push(key);
            }
            if let Some(extra) = map.extra {
                init.take(EXTRA);
                update(&mut explicit, extra);
            }
        }
        let mut first = Vec::new();
        for (name, content) in own_names {
            let value = init.take(name).unwrap_or_else(|| (*content).into());
            if !value.is_null() {
                first.push(((*name).to_owned(), value));
            }
        }
        if init.get(EXTRA).is_none() {
            let additional = init.take(ADDITIONAL);
            renamed |= additional.is_some();
            let listed = first.iter().map(|(_, value)| value.clone());
            match additional {
                Some(Value::Array(mut tokens)) => {
                    tokens.extend(listed);
                    init.set(EXTRA, tokens.into());
                }
                None | Some(Value::Null) => init.set(EXTRA, listed.collect()),
                Some(other) => init.set(EXTRA, other),
            }
        }
        first.append(&mut init.entries);
        init.entries = first;
        Self::named(&init, explicit).map_err(|key| {
            let place = key.split('[').next().unwrap_or_default();
            let of_extra = renamed && place == EXTRA;
            let place = if of_extra { ADDITIONAL } else { place };
            let older = later.iter().any(|own| own == place);
            let key = match of_extra {
                true => key.replacen(EXTRA, ADDITIONAL, 1),
                false => key,
            };
            (older, key)
        })
    }

    /// The tokens of both kinds. `explicit` ones override those of the file.
    fn named(init: &Entries, explicit: Vec<(String, Value)>) -> Result<Self, String> {
        let mut specials = Self::default();
        for name in STANDARD {
            let value = init.get(name).filter(|value| !value.is_null());
            if let Some(value) = value {
                let token = Named::of(value).ok_or_else(|| name.to_owned())?;
                specials.named.push((name.to_owned(), token));
            }
        }
        let own = |(key, value): &&(String, Value)| {
            is_specific(key) && (value.is_string() || value.get(TYPE).is_some())
        };
        let mut specific: Vec<(String, Value)> = init.entries.iter().filter(own).cloned().collect();
        update(&mut specific, explicit);
        for (name, value) in specific {
            let Some(token) = Named::of(&value) else {
                return Err(name);
            };
            specials.named.push((name, token));
        }
        if let Some(Value::Array(tokens)) = init.get(EXTRA) {
            for (i, value) in tokens.iter().enumerate() {
                let token = Named::of(value).ok_or_else(|| format!("{EXTRA}[{i}]"))?;
                specials.extra.push(token);
            }
        }
        Ok(specials)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Named> {
        let found = self.named.iter().find(|(own, _)| own == name);
        found.map(|(_, token)| token)
    }

    /// True of a token with one of the standard names, or without a name.
    pub(crate) fn is_special(&self, content: &str) -> bool {
        let named = STANDARD.iter().filter_map(|name| self.get(name));
        named
            .chain(&self.extra)
            .any(|token| token.content() == content)
    }

    /// True of a token with any name.
    pub(crate) fn is_named(&self, content: &str) -> bool {
        let mut named = self.named.iter();
        named.any(|(_, token)| token.content() == content)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Named> {
        let named = self.named.iter().map(|(_, token)| token);
        named.chain(&self.extra)
    }
}

/// True of a name that a file may give to a token of its model.
fn is_specific(key: &str) -> bool {
    key.ends_with("_token") && !STANDARD.contains(&key)
}

/// Overwrites values in place and appends new ones.
fn update(entries: &mut Vec<(String, Value)>, more: impl IntoIterator<Item = (String, Value)>) {
    for (key, value) in more {
        match entries.iter_mut().find(|(own, _)| *own == key) {
            Some((_, own)) => *own = value,
            None => entries.push((key, value)),
        }
    }
}

/// A JSON value; an object keeps the order of its entries.
#[derive(Deserialize)]
#[serde(untagged)]
enum Node {
    Object(Pairs<Value>),
    Other(Value),
}

/// The entries of a JSON object, in the order of the file.
struct Pairs<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Objects<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Objects<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Pairs(entries))
            }
        }
        deserializer.deserialize_map(Objects(PhantomData))
    }
}
