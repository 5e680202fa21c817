//! Identifiers of a result, or of all members of a document.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::digests::{Digest, Name};
use super::print::{Print, DEFINITIVE, IDENTICAL_CONTENT};

/// The number of values from which a hash table is faster.
const MANY: usize = 16;

/// A cheap hash for names and digests.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Mixed = BuildHasherDefault<Mixer>;
pub type Value = (Name, Digest);

/// Iterates over components; the values of each are contiguous in `ids`.
pub fn runs(ids: &[Value]) -> impl Iterator<Item = &[Value]> {
    let mut rest = ids;
    std::iter::from_fn(move || {
        let name = rest.first()?.0;
        let size = rest.iter().take_while(|value| value.0 == name).count();
        let (run, behind) = rest.split_at(size);
        rest = behind;
        Some(run)
    })
}

/// Whether two sorted runs have a digest in common.
fn meet(a: &[Value], b: &[Value]) -> bool {
    let (mut a, mut b) = (a.iter(), b.iter());
    let (mut mine, mut other) = (a.next(), b.next());
    while let (Some(x), Some(y)) = (mine, other) {
        if x.1 == y.1 {
            return true;
        }
        if x.1 < y.1 {
            mine = a.next();
        } else {
            other = b.next();
        }
    }
    false
}

/// The position of each component in `ids`; only for fingerprints with many values.
pub struct Places(HashMap<Name, Range<usize>, Mixed>);

impl Places {
    pub fn of(print: &Print) -> Option<Box<Self>> {
        if print.ids.len() <= MANY {
            return None;
        }
        let mut places = HashMap::default();
        let mut start = 0;
        for run in runs(&print.ids) {
            places.insert(run[0].0, start..start + run.len());
            start += run.len();
        }
        Some(Box::new(Places(places)))
    }
}

/// One result.
#[derive(Clone, Copy)]
pub struct Single<'a> {
    pub print: &'a Print,
    pub places: Option<&'a Places>,
}

impl<'a> Single<'a> {
    /// The values of a component; none if it is absent.
    pub fn component(&self, name: Name) -> &'a [Value] {
        let ids = &self.print.ids;
        if let Some(places) = self.places {
            let place = places.0.get(&name).cloned();
            return place.and_then(|place| ids.get(place)).unwrap_or(&[]);
        }
        let start = ids.iter().position(|value| value.0 == name);
        let from = start.map_or(&[][..], |start| &ids[start..]);
        let size = from.iter().take_while(|value| value.0 == name).count();
        &from[..size]
    }
}

/// The content, if it is long enough to show that one text was indexed twice.
pub fn identical(print: &Print) -> Option<Digest> {
    print
        .content
        .filter(|_| print.flags & IDENTICAL_CONTENT != 0)
}

/// The identifiers of a result, or of all members of a document.
pub trait Identifiers {
    /// Whether the component of `run` has one of its values; None if the component is absent.
    fn meets(&self, run: &[Value]) -> Option<bool>;
    /// Whether the document ids include this one; None if there are none.
    fn has_doc(&self, doc: &Digest) -> Option<bool>;
    fn is_definitive(&self) -> bool;
    fn has_content(&self, content: &Digest) -> bool;
}

impl Identifiers for Single<'_> {
    fn meets(&self, run: &[Value]) -> Option<bool> {
        let found = self.component(run.first()?.0);
        (!found.is_empty()).then(|| meet(run, found))
    }

    fn has_doc(&self, doc: &Digest) -> Option<bool> {
        self.print.doc.as_ref().map(|mine| mine == doc)
    }

    fn is_definitive(&self) -> bool {
        self.print.flags & DEFINITIVE != 0
    }

    fn has_content(&self, content: &Digest) -> bool {
        identical(self.print).as_ref() == Some(content)
    }
}

enum Digests {
    Few(Vec<Digest>),
    Many(HashSet<Digest, Mixed>),
}

impl Digests {
    fn contains(&self, digest: &Digest) -> bool {
        match self {
            Digests::Few(digests) => digests.contains(digest),
            Digests::Many(digests) => digests.contains(digest),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Digests::Few(digests) if digests.is_empty())
    }

    fn insert(&mut self, digest: Digest) {
        match self {
            Digests::Many(digests) => {
                digests.insert(digest);
            }
            Digests::Few(digests) if digests.contains(&digest) => {}
            Digests::Few(digests) if digests.len() < MANY => digests.push(digest),
            Digests::Few(digests) => {
                let few = digests.drain(..).chain([digest]);
                *self = Digests::Many(few.collect());
            }
        }
    }
}

enum Components {
    Few(Vec<Value>),
    Many(HashMap<Name, HashSet<Digest, Mixed>, Mixed>),
}

impl Components {
    fn insert(&mut self, value: Value) {
        match self {
            Components::Many(components) => match components.entry(value.0) {
                Entry::Occupied(mut digests) => {
                    digests.get_mut().insert(value.1);
                }
                Entry::Vacant(place) => {
                    place.insert([value.1].into_iter().collect());
                }
            },
            Components::Few(values) if values.contains(&value) => {}
            Components::Few(values) if values.len() < MANY => values.push(value),
            Components::Few(values) => {
                let few = std::mem::take(values);
                *self = Components::Many(HashMap::default());
                for value in few.into_iter().chain([value]) {
                    self.insert(value);
                }
            }
        }
    }
}

/// The identifiers of all members of a document; grows as members join.
pub struct Members {
    ids: Components,
    docs: Digests,
    contents: Digests,
    definitive: bool,
}

impl Members {
    pub fn of_two(first: &Print, second: &Print) -> Box<Self> {
        let mut members = Box::new(Members {
            ids: Components::Few(Vec::with_capacity(first.ids.len().min(MANY))),
            docs: Digests::Few(Vec::new()),
            contents: Digests::Few(Vec::new()),
            definitive: false,
        });
        members.join(first);
        members.join(second);
        members
    }

    pub fn join(&mut self, member: &Print) {
        for value in &member.ids {
            self.ids.insert(*value);
        }
        if let Some(doc) = member.doc {
            self.docs.insert(doc);
        }
        if let Some(content) = identical(member) {
            self.contents.insert(content);
        }
        self.definitive |= member.flags & DEFINITIVE != 0;
    }
}

impl Identifiers for Members {
    fn meets(&self, run: &[Value]) -> Option<bool> {
        let name = run.first()?.0;
        match &self.ids {
            Components::Few(values) => {
                let mut found = values.iter().filter(|value| value.0 == name).peekable();
                found.peek()?;
                Some(found.any(|value| run.contains(value)))
            }
            Components::Many(components) => {
                let digests = components.get(&name)?;
                Some(run.iter().any(|value| digests.contains(&value.1)))
            }
        }
    }

    fn has_doc(&self, doc: &Digest) -> Option<bool> {
        (!self.docs.is_empty()).then(|| self.docs.contains(doc))
    }

    fn is_definitive(&self) -> bool {
        self.definitive
    }

    fn has_content(&self, content: &Digest) -> bool {
        self.contents.contains(content)
    }
}
