//! Token <-> byte tables of one vocabulary.

use rustc_hash::FxHasher;
use std::hash::Hasher;

use crate::error::AlignError;
use crate::file::{AddedToken, TokenizerFile};
use crate::pool::{BytePool, NONE};
use crate::roles::{RoleHints, SpecialRole, role_of};
use crate::spelling::fallback_byte;

/// Kind of a token. It decides which of several tokens with equal bytes is the canonical one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A token of the model.
    Model,
    /// An added token that stands for its own text.
    Added,
    /// A byte-fallback token `<0xNN>`.
    Byte,
    /// A token without text.
    Special,
    /// An id without a token.
    Unused,
}

pub(crate) struct Tables {
    pub(crate) file: String,
    pub(crate) kinds: Vec<Kind>,
    /// True if the id is in `model.vocab`, which special tokens may or may not be.
    in_model: Vec<bool>,
    contents: BytePool,
    bytes: BytePool,
    /// The token for each single byte.
    byte_tokens: [u32; 256],
    /// Special tokens by ascending id.
    pub(crate) specials: Vec<(u32, SpecialRole)>,
    /// A hash of ids, strings and kinds: the identity of this revision of the tokenizer.
    pub(crate) fingerprint: u64,
}

impl Tables {
    pub(crate) fn new(file: &TokenizerFile, hints: &RoleHints) -> Result<Self, AlignError> {
        let entries = entries(file, hints)?;
        let mut tables = Self {
            file: file.name.clone(),
            kinds: Vec::with_capacity(entries.len()),
            in_model: vec![false; entries.len()],
            contents: BytePool::default(),
            bytes: BytePool::default(),
            byte_tokens: [NONE; 256],
            specials: Vec::new(),
            fingerprint: 0,
        };
        let mut hasher = FxHasher::default();
        let mut spelled = Vec::new();
        for (id, entry) in entries.iter().enumerate() {
            spelled.clear();
            match entry.kind {
                // An added token is decoded as one of the model's. If its string is in the
                // byte-level alphabet (`õ` for byte F5), it stands for these bytes.
                Kind::Model | Kind::Added => file.spelling.bytes_of(entry.content, &mut spelled),
                Kind::Byte => spelled.extend(fallback_byte(entry.content)),
                Kind::Special => tables.specials.push((id as u32, entry.role)),
                Kind::Unused => {}
            }
            hasher.write(entry.content.as_bytes());
            hasher.write_u8(entry.kind as u8);
            tables.contents.push(entry.content.as_bytes());
            tables.bytes.push(&spelled);
            // A token without bytes counts as unused: it could be emitted for ever to no effect.
            let empty = spelled.is_empty() && entry.kind != Kind::Special;
            tables
                .kinds
                .push(if empty { Kind::Unused } else { entry.kind });
        }
        for (_, id) in &file.tokens {
            tables.in_model[*id as usize] = true;
        }
        tables.fingerprint = hasher.finish();
        tables.index();
        Ok(tables)
    }

    fn index(&mut self) {
        let of_kind = |kinds: &[Kind], kind: Kind| -> Vec<u32> {
            (0..kinds.len() as u32)
                .filter(|id| kinds[*id as usize] == kind)
                .collect()
        };
        let ids = [Kind::Model, Kind::Added, Kind::Byte].map(|kind| of_kind(&self.kinds, kind));
        self.bytes.index(ids.iter().flatten().copied());
        // The canonical token of a single byte is its byte-fallback token, else a model token, else
        // an added one. Each write of this loop is better than those before it.
        for id in ids[1]
            .iter()
            .rev()
            .chain(ids[0].iter().rev())
            .chain(ids[2].iter().rev())
        {
            if let Some(&[byte]) = self.bytes.get(*id) {
                self.byte_tokens[usize::from(byte)] = *id;
            }
        }
        let used =
            (0..self.kinds.len() as u32).filter(|id| self.kinds[*id as usize] != Kind::Unused);
        self.contents.index(used);
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn in_model(&self, id: u32) -> bool {
        self.in_model.get(id as usize) == Some(&true)
    }

    pub(crate) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id).filter(|bytes| !bytes.is_empty())
    }

    pub(crate) fn content(&self, id: u32) -> Option<&str> {
        match self.kind(id) {
            Kind::Unused => None,
            _ => std::str::from_utf8(self.contents.get(id)?).ok(),
        }
    }

    pub(crate) fn role(&self, id: u32) -> Option<SpecialRole> {
        let at = self
            .specials
            .binary_search_by_key(&id, |(id, _)| *id)
            .ok()?;
        Some(self.specials[at].1)
    }

    /// The canonical token with these bytes: a model token, else an added one, else a byte token.
    pub(crate) fn find_bytes(&self, bytes: &[u8]) -> Option<u32> {
        self.bytes.find(bytes)
    }

    pub(crate) fn find_content(&self, content: &str) -> Option<u32> {
        self.contents.find(content.as_bytes())
    }

    /// True if the bytes of the tokens are `text`.
    pub(crate) fn spells(&self, ids: &[u32], text: &[u8]) -> bool {
        let mut rest = text;
        let all = ids.iter().all(|id| {
            let after = self.bytes(*id).and_then(|bytes| rest.strip_prefix(bytes));
            after.map(|after| rest = after).is_some()
        });
        all && rest.is_empty()
    }

    /// Appends tokens for text character by character; a character without a token becomes byte
    /// tokens. Returns false if a byte has none; then nothing from that character on is appended.
    pub(crate) fn spell(&self, text: &[u8], ids: &mut Vec<u32>) -> bool {
        let mut utf8 = [0; 4];
        text.utf8_chunks().all(|chunk| {
            let mut chars = chunk.valid().chars();
            chars.all(|c| {
                let c = c.encode_utf8(&mut utf8).as_bytes();
                let whole = self.find_bytes(c);
                ids.extend(whole);
                whole.is_some() || self.spell_bytes(c, ids)
            }) && self.spell_bytes(chunk.invalid(), ids)
        })
    }

    /// Appends a token for every byte. Returns false, and appends nothing, if a byte has none.
    pub(crate) fn spell_bytes(&self, bytes: &[u8], ids: &mut Vec<u32>) -> bool {
        let tokens = bytes
            .iter()
            .map(|byte| self.byte_tokens[usize::from(*byte)]);
        let complete = tokens.clone().all(|id| id != NONE);
        if complete {
            ids.extend(tokens);
        }
        complete
    }
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    content: &'a str,
    kind: Kind,
    role: SpecialRole,
}

/// Largest number of ids without a token below the largest id. Vocabularies leave some out, but a
/// file that leaves out millions is damaged, and tables by id would fill the memory.
const MOST_UNUSED: usize = 1 << 18;

/// One entry per id, holes included.
fn entries<'a>(file: &'a TokenizerFile, hints: &RoleHints) -> Result<Vec<Entry<'a>>, AlignError> {
    let model = file.tokens.iter().map(|(content, id)| (content, *id));
    // What the model has no row for is never read or written.
    let rowed = |token: &&AddedToken| file.has_row(token.id);
    let added = file.raw.added_tokens.iter().filter(rowed);
    let added = added.map(|token| (&token.content, token.id));
    let last = model.chain(added).max_by_key(|(_, id)| *id);
    let len = last.map_or(0, |(_, id)| id as usize + 1);
    let tokens = file.tokens.len() + file.raw.added_tokens.len();
    if let Some((content, id)) = last.filter(|_| len > tokens + MOST_UNUSED) {
        let message =
            format!("{content:?} has id {id}, far beyond the {tokens} tokens of the file");
        return Err(file.key("model.vocab", message));
    }
    let unused = Entry {
        content: "",
        kind: Kind::Unused,
        role: SpecialRole::Other,
    };
    let mut entries = vec![unused; len];
    for (content, id) in &file.tokens {
        let kind = if file.byte_fallback && fallback_byte(content).is_some() {
            Kind::Byte
        } else if file.unk.as_deref() == Some(content) {
            Kind::Special
        } else {
            Kind::Model
        };
        entries[*id as usize] = Entry {
            content,
            kind,
            role: SpecialRole::Unk,
        };
    }
    let rowed = |(_, token): &(usize, &AddedToken)| file.has_row(token.id);
    for (i, token) in file.raw.added_tokens.iter().enumerate().filter(rowed) {
        let entry = &mut entries[token.id as usize];
        if entry.kind != Kind::Unused && entry.content != token.content {
            let message = format!("id {} is already taken by {:?}", token.id, entry.content);
            return Err(file.key(format!("added_tokens[{i}].id"), message));
        }
        let role = if file.unk.as_deref() == Some(&token.content) {
            Some(SpecialRole::Unk)
        } else {
            role_of(&token.content, hints)
        };
        let kind = match (token.special || role.is_some(), entry.kind) {
            (true, _) => Kind::Special,
            (false, Kind::Unused) => Kind::Added,
            // Text runs that the model knows as well (Gemma's line breaks) stay the model's.
            (false, kind) => kind,
        };
        *entry = Entry {
            content: &token.content,
            kind,
            role: role.unwrap_or(SpecialRole::Other),
        };
    }
    Ok(entries)
}
