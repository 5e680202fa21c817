//! Are two results of one entity type the same document? The twin of `stream_metrics.core.dedup.verify`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::print::{
    Digest, Name, Print, DEFINITIVE, IDENTICAL_CONTENT, LONG_CONTENT, LONG_SNIPPET,
};
use super::tables::{Kind, Need, Part, Rules};

/// `verify.VERDICTS`, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    PartsDiffer,
    IdsDiffer,
    IdsEqual,
    UrlDiffers,
    UrlEqual,
    TextEqual,
    TextDiffers,
    FieldsDiffer,
    FieldsText,
    FieldsEqual,
    Inconclusive,
}

pub const VERDICTS: [Verdict; 11] = [
    Verdict::PartsDiffer,
    Verdict::IdsDiffer,
    Verdict::IdsEqual,
    Verdict::UrlDiffers,
    Verdict::UrlEqual,
    Verdict::TextEqual,
    Verdict::TextDiffers,
    Verdict::FieldsDiffer,
    Verdict::FieldsText,
    Verdict::FieldsEqual,
    Verdict::Inconclusive,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    Id,
    Url,
    Text,
    Fields,
}

impl Verdict {
    pub fn step(self) -> &'static str {
        match self {
            Verdict::PartsDiffer => "segment",
            Verdict::IdsDiffer | Verdict::IdsEqual => "ids",
            Verdict::UrlDiffers | Verdict::UrlEqual => "url",
            Verdict::TextEqual | Verdict::TextDiffers => "text",
            Verdict::FieldsDiffer
            | Verdict::FieldsText
            | Verdict::FieldsEqual
            | Verdict::Inconclusive => "fields",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Inconclusive => "inconclusive",
            _ if self.evidence().is_some() => "duplicate",
            _ => "different",
        }
    }

    /// Of a duplicate, what it rests on.
    pub fn evidence(self) -> Option<Evidence> {
        match self {
            Verdict::IdsEqual => Some(Evidence::Id),
            Verdict::UrlEqual => Some(Evidence::Url),
            Verdict::TextEqual | Verdict::FieldsText => Some(Evidence::Text),
            Verdict::FieldsEqual => Some(Evidence::Fields),
            _ => None,
        }
    }
}

/// From how many values on a hash table is worth its making.
const MANY: usize = 16;

/// For names and digests, which are digests already: a cheap mix will do.
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
type Value = (Name, Digest);

/// The values of one component after another; those of one stand together in `ids`.
fn runs(ids: &[Value]) -> impl Iterator<Item = &[Value]> {
    let mut rest = ids;
    std::iter::from_fn(move || {
        let name = rest.first()?.0;
        let size = rest.iter().take_while(|value| value.0 == name).count();
        let (run, behind) = rest.split_at(size);
        rest = behind;
        Some(run)
    })
}

/// Whether two runs, each sorted, have a digest in common.
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

/// Where in a print's `ids` each component stands; only for prints with many values.
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
    fn component(&self, name: Name) -> &'a [Value] {
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

/// The content that is long enough to be the same text indexed twice.
fn identical(print: &Print) -> Option<Digest> {
    print
        .content
        .filter(|_| print.flags & IDENTICAL_CONTENT != 0)
}

/// The identifiers of a result, or of all members of a document together.
pub trait Identifiers {
    /// Whether the component that `run` is of has one of its values; None if it is absent.
    fn meets(&self, run: &[Value]) -> Option<bool>;
    /// Whether there is this document id among those that are; None if there is none.
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

/// Step 1; None if identifiers do not decide.
pub fn compare_ids(a: &Print, b: &impl Identifiers, kind: &Kind, rules: &Rules) -> Option<Verdict> {
    let mut conclusive = false;
    for run in runs(&a.ids) {
        match b.meets(run) {
            None => {}
            Some(false) => return Some(Verdict::IdsDiffer),
            Some(true) => conclusive = conclusive || kind.is_definitive(run[0].0),
        }
    }
    if conclusive {
        return Some(Verdict::IdsEqual);
    }
    if a.flags & DEFINITIVE != 0 || b.is_definitive() {
        return None;
    }
    if b.has_doc(a.doc.as_ref()?)? {
        return Some(Verdict::IdsEqual);
    }
    match identical(a) {
        Some(content) if rules.identical_content && b.has_content(&content) => {
            Some(Verdict::IdsEqual)
        }
        _ => Some(Verdict::IdsDiffer),
    }
}

/// Snippet and content together: true matches, false differs, None says nothing.
pub fn text_verdict(a: &Print, b: &Print, rules: &Rules) -> Option<bool> {
    let mut matches = false;
    if let (Some(mine), Some(other)) = (&a.snippet, &b.snippet) {
        if mine == other {
            matches = a.flags & LONG_SNIPPET != 0;
        } else if rules.snippet_rejects {
            return Some(false);
        }
    }
    if let (Some(mine), Some(other)) = (&a.content, &b.content) {
        if mine != other {
            return Some(false);
        }
        matches = matches || a.flags & LONG_CONTENT != 0;
    }
    matches.then_some(true)
}

fn compare_urls(a: &Print, b: &Print, rules: &Rules) -> Option<Verdict> {
    if a.url.as_ref()? != b.url.as_ref()? {
        return Some(Verdict::UrlDiffers);
    }
    if a.parameters == b.parameters {
        return Some(Verdict::UrlEqual);
    }
    for (tag, digest) in &a.identity {
        let other = b.identity.iter().find(|(other, _)| other == tag);
        if matches!(other, Some((_, other)) if other != digest) {
            return Some(Verdict::UrlDiffers);
        }
    }
    Some(match text_verdict(a, b, rules)? {
        true => Verdict::TextEqual,
        false => Verdict::TextDiffers,
    })
}

/// Of each field that both have, whether it is equal.
fn common_fields<'a>(a: &'a Print, b: &'a Print) -> impl Iterator<Item = bool> + 'a {
    let pairs = a.fields.iter().enumerate();
    pairs.filter_map(move |(at, (name, digest))| Some(field(b, *name, at)? == digest))
}

/// A field's digest, looked for first at `at`: results of one type mostly name the same fields.
fn field(print: &Print, name: Name, at: usize) -> Option<&Digest> {
    match print.fields.get(at) {
        Some((there, digest)) if *there == name => Some(digest),
        _ => {
            let mut fields = print.fields.iter();
            fields.find(|field| field.0 == name).map(|field| &field.1)
        }
    }
}

/// Whether the values of one name of the tables match and whether they differ; neither where they
/// are not comparable.
fn compare_part(a: Single<'_>, b: Single<'_>, part: Part, rules: &Rules) -> (bool, bool) {
    let (x, y) = (a.print, b.print);
    let equal = |mine: &Option<Digest>, other: &Option<Digest>| {
        mine.as_ref()
            .zip(other.as_ref())
            .map(|(mine, other)| mine == other)
    };
    let outcome = match part {
        Part::Text => text_verdict(x, y, rules),
        Part::Title => equal(&x.title, &y.title),
        Part::Snippet => match equal(&x.snippet, &y.snippet) {
            Some(true) => return (x.flags & LONG_SNIPPET != 0, false),
            same => same.filter(|_| rules.snippet_rejects),
        },
        Part::Content => match equal(&x.content, &y.content) {
            Some(true) => return (x.flags & LONG_CONTENT != 0, false),
            same => same,
        },
        Part::Id(name) => match a.component(name) {
            [] => None,
            run => b.meets(run),
        },
        Part::Field(name) => {
            let mine = x
                .fields
                .iter()
                .enumerate()
                .find(|(_, field)| field.0 == name);
            mine.and_then(|(at, mine)| Some(field(y, name, at)? == &mine.1))
        }
        // several fields are not one value: they are compared where rejections and needs are
        Part::Every | Part::Nothing => None,
    };
    (outcome == Some(true), outcome == Some(false))
}

fn compare_fields(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> Verdict {
    for part in &kind.rejects {
        let differs = match part {
            Part::Every => common_fields(a.print, b.print).any(|equal| !equal),
            part => compare_part(a, b, *part, rules).1,
        };
        if differs {
            return Verdict::FieldsDiffer;
        }
    }
    let mut verdict = Verdict::Inconclusive;
    for rule in &kind.confirms {
        match rule_holds(a, b, rule, rules) {
            Some(true) => return Verdict::FieldsText,
            Some(false) => verdict = Verdict::FieldsEqual,
            None => {}
        }
    }
    verdict
}

/// None if the rule does not hold; else whether a text is among what it rests on.
fn rule_holds(a: Single<'_>, b: Single<'_>, rule: &[Need], rules: &Rules) -> Option<bool> {
    let mut text = false;
    for need in rule {
        let mut matched = 0;
        for part in &need.parts {
            if *part == Part::Every {
                matched += common_fields(a.print, b.print)
                    .filter(|equal| *equal)
                    .count();
            } else if compare_part(a, b, *part, rules).0 {
                matched += 1;
                text = text || part.is_text();
            }
        }
        if matched < need.count {
            return None;
        }
    }
    Some(text)
}

/// Whether `a` and `b`, two results of type `kind`, are one document. `Inconclusive` counts as
/// different.
pub fn verify(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> Verdict {
    for part in &kind.parts_differ {
        if compare_part(a, b, *part, rules).1 {
            return Verdict::PartsDiffer;
        }
    }
    compare_ids(a.print, &b, kind, rules)
        .or_else(|| compare_urls(a.print, b.print, rules))
        .unwrap_or_else(|| compare_fields(a, b, kind, rules))
}
