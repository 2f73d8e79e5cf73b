//! Direct mapping between two vocabularies (the paper's DM, section 3.1).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::AlignError;
use crate::ids::{DraftId, TargetId, TokenId};
use crate::pool::NONE;
use crate::roles::SpecialRole;
use crate::tables::Kind;
use crate::vocabulary::Vocabulary;

/// Rule by which a drafter's and a target's token count as the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingMode {
    /// Equal bytes; special tokens correspond by role.
    #[default]
    Bytes,
    /// The paper's rule: equal strings after rewriting only a leading `▁` to `Ġ`, looked up among
    /// the target's model tokens. It maps some tokens to different bytes and misses the line
    /// break; kept for comparison.
    Paper,
}

/// The direct mapping between a drafter's and a target's tokens.
///
/// Invariants: in mode [`MappingMode::Bytes`] mapped tokens have equal bytes or are special tokens
/// with corresponding roles; [`Alignment::pairs`] is one-to-one and every id in it is below its
/// vocabulary's length.
#[derive(Clone, Debug)]
pub struct Alignment {
    direct: Vec<u32>,
    draft_of: Vec<u32>,
    pairs: Vec<(DraftId, TargetId)>,
    /// Draft counterparts of special target tokens, by ascending target id. They are the same in
    /// both modes.
    specials: Vec<(TargetId, DraftId)>,
    stats: AlignmentStats,
    fingerprints: (u64, u64),
}

/// Numbers that `omnidraft align` prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AlignmentStats {
    /// Ids in the drafter's vocabulary, added tokens included.
    pub draft_vocab: usize,
    /// Ids in the target's vocabulary, added tokens included.
    pub target_vocab: usize,
    /// Mapping rule.
    pub mode: MappingMode,
    /// Number of draft tokens with a direct target token; special tokens mapped by role are not
    /// counted.
    pub direct_tokens: usize,
    /// `direct_tokens / draft_vocab`.
    pub draft_coverage: f64,
    /// Distinct target tokens reached by direct mapping, divided by `target_vocab`.
    pub target_coverage: f64,
    /// Number of one-to-one pairs, special tokens included.
    pub pairs: usize,
    /// Number of special draft tokens mapped by role.
    pub special_tokens: usize,
    /// Number of direct mappings between tokens with different bytes; 0 in mode `bytes`.
    pub byte_mismatches: usize,
}

impl Alignment {
    /// Maps every token of both vocabularies.
    pub fn build(
        draft: &Vocabulary<DraftId>,
        target: &Vocabulary<TargetId>,
        mode: MappingMode,
    ) -> Self {
        let (direct, draft_of) = match mode {
            MappingMode::Bytes => (best_matches(draft, target), best_matches(target, draft)),
            MappingMode::Paper => by_string(draft, target),
        };
        let pairs: Vec<_> = raw_ids(draft.len())
            .filter(|id| mapped(&direct, *id).and_then(|t| mapped(&draft_of, t)) == Some(*id))
            .map(|id| (DraftId(id), TargetId(direct[id as usize])))
            .collect();
        let specials = target
            .specials()
            .filter_map(|(id, _)| Some((id, DraftId(best_special(target, id.get(), draft)?))))
            .collect();
        let stats = stats(draft, target, mode, &direct, pairs.len());
        let fingerprints = (draft.fingerprint(), target.fingerprint());
        Self {
            direct,
            draft_of,
            pairs,
            specials,
            stats,
            fingerprints,
        }
    }

    /// The target token of a draft token. Several draft tokens may share one, as `a` and `<0x61>`
    /// do. `None` if the token is not mapped, or is not an id of the drafter's vocabulary.
    pub fn direct(&self, id: DraftId) -> Option<TargetId> {
        mapped(&self.direct, id.get()).map(TargetId)
    }

    /// The canonical draft token of a target token: the token of the same string, kind and bytes,
    /// else that of [`Vocabulary::find_bytes`]; for a special token, its counterpart by role. In
    /// mode [`MappingMode::Paper`] it is the lowest id that is mapped to the target token.
    pub fn draft_of(&self, id: TargetId) -> Option<DraftId> {
        mapped(&self.draft_of, id.get()).map(DraftId)
    }

    /// One-to-one pairs by ascending draft id. Drafting and the loss L_DM work on these shared
    /// tokens.
    pub fn pairs(&self) -> &[(DraftId, TargetId)] {
        &self.pairs
    }

    /// The draft token that represents a special target token in the drafter's context, in either
    /// mode.
    pub fn special_of(&self, id: TargetId) -> Option<DraftId> {
        let at = self
            .specials
            .binary_search_by_key(&id, |(target, _)| *target)
            .ok()?;
        Some(self.specials[at].1)
    }

    /// Length in bytes of each target token in the drafter's context
    /// ([`DraftContext`](crate::DraftContext)). It is that of [`Vocabulary::byte_lengths`], except
    /// that a marker without a counterpart has the length of its name, because the drafter reads
    /// the name as text.
    pub fn spelled_lengths(&self, target: &Vocabulary<TargetId>, ids: &[TargetId]) -> Vec<usize> {
        ids.iter()
            .map(|&id| match target.bytes(id) {
                Some(bytes) => bytes.len(),
                None if self.special_of(id).is_some() => 0,
                None => target.marker(id).map_or(0, str::len),
            })
            .collect()
    }

    /// True if draft and target tokens stand for the same bytes, as a
    /// [`DraftContext`](crate::DraftContext) counts the target's. They may differ if the drafter
    /// normalises text or has no tokens for it.
    pub fn same_text(
        &self,
        (draft, ids): (&Vocabulary<DraftId>, &[DraftId]),
        (target, tokens): (&Vocabulary<TargetId>, &[TargetId]),
    ) -> bool {
        let drafted = ids.iter().filter_map(|id| draft.bytes(*id)).flatten();
        let spelled = tokens.iter().filter_map(|&token| {
            let name = || match self.special_of(token) {
                None => target.marker(token).map(str::as_bytes),
                Some(_) => None,
            };
            target.bytes(token).or_else(name)
        });
        drafted.eq(spelled.flatten())
    }

    /// Counts and coverage of this alignment.
    pub fn stats(&self) -> &AlignmentStats {
        &self.stats
    }

    /// Checks that this alignment was built from these revisions of the tokenizers.
    ///
    /// # Errors
    /// [`AlignError::StaleAlignment`].
    pub fn check(
        &self,
        draft: &Vocabulary<DraftId>,
        target: &Vocabulary<TargetId>,
    ) -> Result<(), AlignError> {
        let stale = |side, file: &str| AlignError::StaleAlignment {
            side,
            file: file.to_owned(),
        };
        if draft.fingerprint() != self.fingerprints.0 {
            return Err(stale("drafter", draft.file()));
        }
        if target.fingerprint() != self.fingerprints.1 {
            return Err(stale("target", target.file()));
        }
        Ok(())
    }
}

fn raw_ids(len: usize) -> std::ops::Range<u32> {
    0..len as u32
}

fn mapped(table: &[u32], id: u32) -> Option<u32> {
    table.get(id as usize).copied().filter(|id| *id != NONE)
}

/// For every token of `from`, the best token of `to` that stands for the same text.
fn best_matches<A: TokenId, B: TokenId>(from: &Vocabulary<A>, to: &Vocabulary<B>) -> Vec<u32> {
    raw_ids(from.len())
        .map(|id| match from.tables().bytes(id) {
            Some(bytes) => best_text(from, id, bytes, to),
            None => best_special(from, id, to),
        })
        .map(|id| id.unwrap_or(NONE))
        .collect()
}

/// The best token for a text. A token with the same string and kind comes first, so that a
/// vocabulary maps to itself token by token even if `a` and `<0x61>` have the same bytes.
fn best_text<A: TokenId, B: TokenId>(
    from: &Vocabulary<A>,
    id: u32,
    bytes: &[u8],
    to: &Vocabulary<B>,
) -> Option<u32> {
    let namesake = from
        .tables()
        .content(id)
        .and_then(|content| to.tables().find_content(content));
    namesake
        .filter(|other| {
            to.tables().bytes(*other) == Some(bytes)
                && to.tables().kind(*other) == from.tables().kind(id)
        })
        .or_else(|| to.tables().find_bytes(bytes))
}

/// The counterpart of a special token: one of the same role and name, else of the same role, else
/// of the role that substitutes a missing one. If a vocabulary has a single end token and the other
/// one distinguishes end of turn and end of text, the single one corresponds to the end of turn.
fn best_special<A: TokenId, B: TokenId>(
    from: &Vocabulary<A>,
    id: u32,
    to: &Vocabulary<B>,
) -> Option<u32> {
    let role = from.tables().role(id)?;
    let namesake = to.tables().find_content(from.tables().content(id)?);
    if namesake.is_some_and(|other| to.tables().role(other) == Some(role)) {
        return namesake;
    }
    if !role.crosses() {
        return None;
    }
    let other = role.substitute();
    // A vocabulary with one end token ends its turns with it, and turns end more often than texts.
    let only_end = other.is_some_and(|other| from.special(other).is_none());
    let first = match role {
        SpecialRole::Eos if only_end => SpecialRole::EndOfTurn,
        role => role,
    };
    let partner = [Some(first), Some(role), other]
        .into_iter()
        .flatten()
        .find_map(|role| to.special(role));
    partner.map(TokenId::get)
}

/// The paper's string rule, and its inverse with the lowest draft id.
fn by_string(draft: &Vocabulary<DraftId>, target: &Vocabulary<TargetId>) -> (Vec<u32>, Vec<u32>) {
    let (draft_sign, target_sign) = (draft.space_sign(), target.space_sign());
    let mut direct = vec![NONE; draft.len()];
    let mut draft_of = vec![NONE; target.len()];
    for id in raw_ids(draft.len()).filter(|id| draft.tables().in_model(*id)) {
        let Some(content) = draft.tables().content(id) else {
            continue;
        };
        let rewritten = match content.strip_prefix(draft_sign) {
            Some(rest) if draft_sign != target_sign => Cow::Owned(format!("{target_sign}{rest}")),
            _ => Cow::Borrowed(content),
        };
        let found = target.tables().find_content(&rewritten);
        if let Some(found) = found.filter(|found| target.tables().in_model(*found)) {
            direct[id as usize] = found;
            let back = &mut draft_of[found as usize];
            *back = id.min(*back);
        }
    }
    (direct, draft_of)
}

fn stats(
    draft: &Vocabulary<DraftId>,
    target: &Vocabulary<TargetId>,
    mode: MappingMode,
    direct: &[u32],
    pairs: usize,
) -> AlignmentStats {
    let by_role = |id: u32| mode == MappingMode::Bytes && draft.tables().kind(id) == Kind::Special;
    let (mut direct_tokens, mut special_tokens, mut byte_mismatches) = (0, 0, 0);
    let mut reached = vec![false; target.len()];
    for id in raw_ids(direct.len()) {
        match mapped(direct, id) {
            Some(_) if by_role(id) => special_tokens += 1,
            Some(other) => {
                direct_tokens += 1;
                reached[other as usize] = true;
                let bytes = draft.tables().bytes(id);
                let equal = bytes.is_some() && bytes == target.tables().bytes(other);
                byte_mismatches += usize::from(!equal);
            }
            None => {}
        }
    }
    let ratio = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    AlignmentStats {
        draft_vocab: draft.len(),
        target_vocab: target.len(),
        mode,
        direct_tokens,
        draft_coverage: ratio(direct_tokens, draft.len()),
        target_coverage: ratio(reached.iter().filter(|hit| **hit).count(), target.len()),
        pairs,
        special_tokens,
        byte_mismatches,
    }
}
