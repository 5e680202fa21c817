//! Fingerprints of the results that came last, by their whole content.
//!
//! Popular documents come again and again. Contents are compared whole, so that a hostile choice of
//! results costs speed and nothing else.

use std::sync::Arc;

use super::print::Print;

const SETS: usize = 2_048; // a power of two // a power of two
const WAYS: usize = 4;
const LONGEST: usize = 4_096; // bytes of a content

struct Entry {
    hash: u64,
    sent: Box<str>,
    print: Arc<Print>,
    url_unparsed: bool,
}

/// Entries in sets by their hash, in each the one that was asked for last first.
pub struct Memo(Vec<[Option<Entry>; WAYS]>);

impl Default for Memo {
    fn default() -> Self {
        let mut sets = Vec::new();
        sets.resize_with(SETS, Default::default);
        Memo(sets)
    }
}

impl Memo {
    /// The fingerprint of what `Sent` wrote, and whether its URL is none, if it is remembered.
    pub fn get(&mut self, hash: u64, sent: &str) -> Option<(Arc<Print>, bool)> {
        let set = &mut self.0[place(hash)];
        let found = set.iter().position(|entry| match entry {
            Some(entry) => entry.hash == hash && *entry.sent == *sent,
            None => false,
        })?;
        set[..=found].rotate_right(1);
        let entry = set[0].as_ref()?;
        Some((Arc::clone(&entry.print), entry.url_unparsed))
    }

    /// Remember the fingerprint of what `Sent` wrote, unless that is long.
    pub fn put(&mut self, hash: u64, sent: &str, print: &Arc<Print>, url_unparsed: bool) {
        if sent.len() > LONGEST {
            return;
        }
        let set = &mut self.0[place(hash)];
        set.rotate_right(1);
        set[0] = Some(Entry {
            hash,
            sent: sent.into(),
            print: Arc::clone(print),
            url_unparsed,
        });
    }
}

fn place(hash: u64) -> usize {
    (hash >> 40) as usize & (SETS - 1)
}

/// A quick hash, 16 bytes a step: it only chooses the entry.
pub fn hash(sent: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let step = |hash: u64, bytes| (hash.rotate_left(23) ^ word(bytes)).wrapping_mul(FACTOR);
    let (mut one, mut other) = (sent.len() as u64, 0);
    let mut pairs = sent.as_bytes().chunks_exact(16);
    for pair in &mut pairs {
        let (first, second) = pair.split_at(8);
        one = step(one, first);
        other = step(other, second);
    }
    let rest = pairs.remainder().chunks(8).fold(one, step);
    (rest ^ other.rotate_left(32)).wrapping_mul(FACTOR)
}
