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

/// Whether equal identifiers name parts of two documents, each with its own numbers.
fn in_other_documents(a: Single<'_>, b: Single<'_>, kind: &Kind, rules: &Rules) -> bool {
    if rules.local_components.is_empty() {
        return false;
    }
    let mut local = false;
    for run in runs(&a.print.ids) {
        let name = run[0].0;
        if kind.is_definitive(name) && !b.component(name).is_empty() {
            if !rules.local_components.contains(&name) {
                return false;
            }
            local = true;
        }
    }
    let differ = |mine: &Option<Digest>, other: &Option<Digest>| matches!((mine, other), (Some(mine), Some(other)) if mine != other);
    local
        && (differ(&a.print.doc, &b.print.doc) || differ(&a.print.url, &b.print.url))
        && text_verdict(a.print, b.print, rules) == Some(false)
}

/// Whether the titles or the texts differ.
fn told_apart(a: &Print, b: &Print, rules: &Rules) -> bool {
    let titles = matches!((&a.title, &b.title), (Some(mine), Some(other)) if mine != other);
    titles || text_verdict(a, b, rules) == Some(false)
}

fn compare_urls(one: Single<'_>, other: Single<'_>, kind: &Kind, rules: &Rules) -> Option<Verdict> {
    let (a, b) = (one.print, other.print);
    if a.url.as_ref()? != b.url.as_ref()? {
        return Some(Verdict::UrlDiffers);
    }
    if a.route != b.route && told_apart(a, b, rules) {
        return Some(Verdict::UrlDiffers);
    }
    if a.parameters == b.parameters
        && (a.weak == b.weak
            || !(told_apart(a, b, rules) || fields_reject(one, other, kind, rules)))
    {
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
