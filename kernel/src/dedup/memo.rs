//! A cache of fingerprints of recent results, by their whole content.
//!
//! Popular documents occur repeatedly. Whole contents are compared, so that hostile results can
//! only reduce the speed.

use std::sync::Arc;

use super::print::Print;

const SETS: usize = 2_048; // a power of two
const WAYS: usize = 4;
const LONGEST: usize = 4_096; // bytes of a content

/// A fingerprint, and whether the URL of its result cannot be parsed.
pub type Remembered = (Arc<Print>, bool);

/// The limits by which parts of results were valid.
pub type Limits = [usize; 4];

struct Entry {
    hash: u64,
    content: Box<str>,
    found: Remembered,
}

/// Entries in sets by hash, the most recently used first.
///
/// A content is the output of `Sent` or the text of a valid result. Only the text begins with a
/// quote.
pub struct Memo {
    sets: Vec<[Option<Entry>; WAYS]>,
    limits: Limits,
}

impl Default for Memo {
    fn default() -> Self {
        let mut sets = Vec::new();
        sets.resize_with(SETS, Default::default);
        Memo {
            sets,
            limits: Limits::default(),
        }
    }
}

impl Memo {
    /// Clears the cache if the limits have changed.
    pub fn expect(&mut self, limits: Limits) {
        if self.limits != limits {
            *self = Memo {
                limits,
                ..Memo::default()
            };
        }
    }

    /// The cached fingerprint of a content.
    pub fn get(&mut self, hash: u64, content: &str) -> Option<Remembered> {
        let set = &mut self.sets[place(hash)];
        let found = set.iter().position(|entry| match entry {
            Some(entry) => entry.hash == hash && *entry.content == *content,
            None => false,
        })?;
        set[..=found].rotate_right(1);
        Some(set[0].as_ref()?.found.clone())
    }

    /// Caches the fingerprint of a content, unless the content is long.
    pub fn put(&mut self, hash: u64, content: &str, found: &Remembered) {
        if content.len() > LONGEST {
            return;
        }
        let set = &mut self.sets[place(hash)];
        set.rotate_right(1);
        set[0] = Some(Entry {
            hash,
            content: content.into(),
            found: found.clone(),
        });
    }
}

fn place(hash: u64) -> usize {
    (hash >> 40) as usize & (SETS - 1)
}

/// A fast hash, 16 bytes per step, which only chooses the entry.
pub fn hash(content: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let step = |hash: u64, bytes| (hash.rotate_left(23) ^ word(bytes)).wrapping_mul(FACTOR);
    let (mut one, mut other) = (content.len() as u64, 0);
    let mut pairs = content.as_bytes().chunks_exact(16);
    for pair in &mut pairs {
        let (first, second) = pair.split_at(8);
        one = step(one, first);
        other = step(other, second);
    }
    let rest = pairs.remainder().chunks(8).fold(one, step);
    (rest ^ other.rotate_left(32)).wrapping_mul(FACTOR)
}
