//! Decides whether two results of one entity type are the same document: the compiled form of
//! `stream_metrics.core.dedup.verify`.

use super::digests::{Digest, Name};
use super::identifiers::{identical, runs, Identifiers, Single};
use super::print::{Print, DEFINITIVE, LONG_CONTENT, LONG_SNIPPET};
use super::tables::{Kind, Need, Part, Rules};
use super::verdict::Verdict;

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

/// Compares snippet and content: true if they match, false if they differ, None if undecided.
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

/// Whether an equal identifier is a number that each of two documents has.
fn in_other_documents(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> bool {
    let mut local = rules.local_components.iter();
    if !local.any(|&name| {
        kind.is_definitive(name) && !a.component(name).is_empty() && !b.component(name).is_empty()
    }) {
        return false;
    }
    let (x, y) = (a.print, b.print);
    if let (Some(mine), Some(other)) = (&x.doc, &y.doc) {
        return mine != other && text_verdict(x, y, rules) == Some(false);
    }
    let elsewhere = (&x.url, &x.parameters, &x.route) != (&y.url, &y.parameters, &y.route);
    x.url.is_some()
        && y.url.is_some()
        && elsewhere
        && matches!((&x.content, &y.content), (Some(mine), Some(other)) if mine != other)
}

/// Whether the titles, the texts or fields that reject differ.
fn differ(one: Single<'_>, other: Single<'_>, kind: &Kind, rules: &Rules) -> bool {
    let (a, b) = (one.print, other.print);
    matches!((&a.title, &b.title), (Some(mine), Some(other)) if mine != other)
        || text_verdict(a, b, rules) == Some(false)
        || fields_reject(one, other, kind, rules)
}

fn compare_urls(one: Single<'_>, other: Single<'_>, kind: &Kind, rules: &Rules) -> Option<Verdict> {
    let (a, b) = (one.print, other.print);
    if a.url.as_ref()? != b.url.as_ref()? {
        return Some(Verdict::UrlDiffers);
    }
    if a.route != b.route && differ(one, other, kind, rules) {
        return Some(Verdict::UrlDiffers);
    }
    if a.parameters == b.parameters && (a.weak == b.weak || !differ(one, other, kind, rules)) {
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

/// For each field that both have, whether it is equal.
fn common_fields<'a>(a: &'a Print, b: &'a Print) -> impl Iterator<Item = bool> + 'a {
    let pairs = a.fields.iter().enumerate();
    pairs.filter_map(move |(at, (name, digest))| Some(field(b, *name, at)? == digest))
}

/// The digest of a field, searched from `at` on: results of one type usually have the same fields.
fn field(print: &Print, name: Name, at: usize) -> Option<&Digest> {
    match print.fields.get(at) {
        Some((there, digest)) if *there == name => Some(digest),
        _ => {
            let mut fields = print.fields.iter();
            fields.find(|field| field.0 == name).map(|field| &field.1)
        }
    }
}

/// Whether the values of a name in the tables match, and whether they differ; neither if they
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
        // several fields are not one value: rejections and needs compare them
        Part::Every | Part::Nothing => None,
    };
    (outcome == Some(true), outcome == Some(false))
}

fn fields_reject(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> bool {
    kind.rejects.iter().any(|part| match part {
        Part::Every => common_fields(a.print, b.print).any(|equal| !equal),
        part => compare_part(a, b, *part, rules).1,
    })
}

fn compare_fields(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> Verdict {
    if fields_reject(a, b, kind, rules) {
        return Verdict::FieldsDiffer;
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

/// None if the rule does not hold; else whether its evidence includes a text.
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

/// Decides whether `a` and `b`, two results of type `kind`, are one document. `Inconclusive` counts
/// as different.
pub fn verify(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> Verdict {
    for part in &kind.parts_differ {
        if compare_part(a, b, *part, rules).1 {
            return Verdict::PartsDiffer;
        }
    }
    match compare_ids(a.print, &b, kind, rules) {
        Some(Verdict::IdsEqual) if in_other_documents(a, b, kind, rules) => {
            return Verdict::IdsDiffer;
        }
        Some(verdict) => return verdict,
        None => {}
    }
    compare_urls(a, b, kind, rules).unwrap_or_else(|| compare_fields(a, b, kind, rules))
}
