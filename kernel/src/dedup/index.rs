//! Finds the document of the next result of a turn: the compiled form of `PlainIndex`.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::identifiers::{Members, Places, Single};
use super::print::{Fingerprints, Print, DEFINITIVE, LONG_CONTENT, LONG_SNIPPET, NO_TITLE_KEY};
use super::shared_key::{SharedKey, Unchanged};
use super::tables::{Kind, Tables};
use super::verdict::{Evidence, Verdict, VERDICTS};
use super::verify::{compare_ids, text_verdict, verify};

#[derive(Clone, Copy)]
enum KeyKind {
    Id,
    DocId,
    Url,
    Snippet,
    Content,
    Title,
}

const KEY_KINDS: usize = 6;

/// The counts that are added to `DedupCounts` at the end of an append.
#[derive(Default)]
struct Tally {
    candidates: [u64; KEY_KINDS],
    /// By the index of the entity type, then of the verdict in `VERDICTS`.
    verdicts: Vec<[u64; VERDICTS.len()]>,
    truncated: u64,
    contradictions: u64,
    other_text: u64,
}

/// A result with a key, and the link of the previous result with this key.
#[derive(Clone, Copy)]
struct Link {
    position: u32,
    /// The number of links up to this one.
    sharing: u32,
    before: u32,
}

struct Placed {
    print: Arc<Print>,
    places: Option<Box<Places>>,
    document: u32,
    /// The last result for which this was a candidate, counted from 1.
    asked_by: u32,
}

impl Placed {
    fn single(&self) -> Single<'_> {
        Single {
            print: &self.print,
            places: self.places.as_deref(),
        }
    }
}

struct Document {
    first: u32,
    /// Set only if there are several.
    members: Option<Box<Members>>,
}

/// The results of one turn so far, by candidate key.
#[pyclass(module = "stream_metrics._engine")]
pub struct Index {
    tables: Arc<Tables>,
    kinds: Vec<Arc<Kind>>,
    /// The other kinds, by name.
    far_kinds: HashMap<String, u32>,
    /// The last link of each key.
    by_key: HashMap<SharedKey, u32, BuildHasherDefault<Unchanged>>,
    links: Vec<Link>,
    results: Vec<Placed>,
    documents: Vec<Document>,
    candidates: Vec<u32>,
}

/// The first kinds of a turn, which are searched linearly; few turns have more.
const NEAR_KINDS: usize = 8;

impl Index {
    pub fn new(tables: Arc<Tables>) -> Self {
        Index {
            tables,
            kinds: Vec::new(),
            far_kinds: HashMap::new(),
            by_key: HashMap::default(),
            links: Vec::new(),
            results: Vec::new(),
            documents: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// The index of the row by which results of this type are compared: that of the canonical
    /// name, whichever row the fingerprint was computed with.
    fn kind(&mut self, py: Python<'_>, kind: &Arc<Kind>) -> PyResult<u32> {
        let near = || (0..).zip(self.kinds.iter().take(NEAR_KINDS));
        let same = near().find(|(_, known)| Arc::ptr_eq(known, kind));
        if let Some((place, _)) = same.or_else(|| near().find(|(_, known)| known.name == kind.name))
        {
            return Ok(place);
        }
        if let Some(place) = self.far_kinds.get(&kind.name) {
            return Ok(*place);
        }
        let place = number(self.kinds.len())?;
        self.kinds.push(self.tables.canonical(py, &kind.name)?);
        if self.kinds.len() > NEAR_KINDS {
            self.far_kinds.insert(kind.name.clone(), place);
        }
        Ok(place)
    }

    /// Reserves what these results need at most, so that no table grows result by result.
    fn make_room(&mut self, results: &[Arc<Print>]) {
        let keys = results.iter().map(|print| print.most_keys()).sum();
        self.by_key.reserve(keys);
        self.links.reserve(keys);
        self.results.reserve(results.len());
        self.documents.reserve(results.len());
    }

    /// Enters the next result under its keys, and collects earlier results that share a key.
    ///
    /// A key keeps one result more than may be verified, to detect that there were more.
    fn enter(
        &mut self,
        print: &Print,
        kind: u32,
        position: u32,
        tally: &mut Tally,
    ) -> PyResult<()> {
        self.candidates.clear();
        let row = Arc::clone(&self.kinds[kind as usize]);
        let series = self.tables.series;
        if !print.ids.is_empty() {
            let mut name = None;
            let mut gives_key = false;
            for (component, digest) in &print.ids {
                if name != Some(*component) {
                    name = Some(*component);
                    gives_key = *component == series || row.is_definitive(*component);
                }
                if gives_key {
                    self.enter_key(KeyKind::Id, digest, kind, position, tally)?;
                }
            }
        }
        if let (Some(doc), 0) = (&print.doc, print.flags & DEFINITIVE) {
            self.enter_key(KeyKind::DocId, doc, kind, position, tally)?;
        }
        if let Some(url) = &print.url {
            self.enter_key(KeyKind::Url, url, kind, position, tally)?;
        }
        if print.flags & LONG_SNIPPET != 0 {
            if let Some(key) = either(&print.key_snippet, &print.snippet) {
                self.enter_key(KeyKind::Snippet, key, kind, position, tally)?;
            }
        }
        if print.flags & LONG_CONTENT != 0 {
            if let Some(key) = either(&print.key_content, &print.content) {
                self.enter_key(KeyKind::Content, key, kind, position, tally)?;
            }
        }
        let title = print.title.filter(|_| print.flags & NO_TITLE_KEY == 0);
        if let Some(key) = either(&print.key_title, &title) {
            self.enter_key(KeyKind::Title, key, kind, position, tally)?;
        }
        Ok(())
    }

    fn enter_key(
        &mut self,
        key_kind: KeyKind,
        key: &[u8],
        kind: u32,
        position: u32,
        tally: &mut Tally,
    ) -> PyResult<()> {
        let half =
            |from| u32::from_le_bytes([key[from], key[from + 1], key[from + 2], key[from + 3]]);
        let key = SharedKey {
            key: [half(0), half(4)],
            kind,
        };
        let next = number(self.links.len())?;
        match self.by_key.entry(key) {
            Entry::Vacant(place) => {
                place.insert(next);
                self.links.push(Link {
                    position,
                    sharing: 1,
                    before: next,
                });
            }
            Entry::Occupied(mut last) => {
                let before = *last.get();
                let mut link = self.links[before as usize];
                // Two values of one result have the same key: it is not its own candidate. Where
                // it was not entered because the key is full, the second value counts again.
                if link.position == position {
                    return Ok(());
                }
                let sharing = link.sharing;
                tally.candidates[key_kind as usize] += u64::from(sharing);
                if sharing as usize <= self.tables.rules.max_candidates {
                    last.insert(next);
                    self.links.push(Link {
                        position,
                        sharing: sharing + 1,
                        before,
                    });
                }
                loop {
                    let asked_by = &mut self.results[link.position as usize].asked_by;
                    if *asked_by != position + 1 {
                        *asked_by = position + 1;
                        self.candidates.push(link.position);
                    }
                    if link.sharing == 1 {
                        break;
                    }
                    link = self.links[link.before as usize];
                }
            }
        }
        Ok(())
    }

    /// The document of the entered result and the evidence; None if it is a new document.
    fn decide(
        &mut self,
        result: Single<'_>,
        kind: u32,
        tally: &mut Tally,
    ) -> Option<(u32, Evidence)> {
        if self.candidates.is_empty() {
            return None;
        }
        self.candidates.sort_unstable();
        let row = &self.kinds[kind as usize];
        let rules = &self.tables.rules;
        if tally.verdicts.len() <= kind as usize {
            tally.verdicts.resize(self.kinds.len(), Default::default());
        }
        let verdicts = &mut tally.verdicts[kind as usize];
        for position in self.candidates.iter().take(rules.max_candidates) {
            let other = &self.results[*position as usize];
            let verdict = verify(result, other.single(), row, rules);
            verdicts[verdict as usize] += 1;
            let evidence = match verdict.evidence() {
                Some(evidence) => evidence,
                None => continue,
            };
            let document = &mut self.documents[other.document as usize];
            match &mut document.members {
                Some(members) => {
                    let against = compare_ids(result.print, &**members, row, rules);
                    if matches!(against, Some(Verdict::IdsDiffer)) {
                        tally.contradictions += 1;
                        continue;
                    }
                    members.join(result.print);
                }
                None => document.members = Some(Members::of_two(&other.print, result.print)),
            }
            if matches!(verdict, Verdict::IdsEqual | Verdict::UrlEqual)
                && text_verdict(result.print, &other.print, rules) == Some(false)
            {
                tally.other_text += 1;
            }
            return Some((other.document, evidence));
        }
        if self.candidates.len() > rules.max_candidates {
            tally.truncated += 1;
        }
        None
    }

    fn place(&mut self, print: &Arc<Print>, places: Option<Box<Places>>, document: u32) {
        self.results.push(Placed {
            print: Arc::clone(print),
            places,
            document,
            asked_by: 0,
        });
    }
}

#[pymethods]
impl Index {
    /// Appends the next search; returns the document and the evidence of each of its results.
    fn append<'py>(
        &mut self,
        results: &Bound<'py, Fingerprints>,
        counts: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let py = results.py();
        let mut tally = Tally::default();
        let each = &results.get().each;
        self.make_room(each);
        let mut documents = Vec::with_capacity(each.len());
        let mut evidences = Vec::with_capacity(each.len());
        for print in each {
            let position = number(self.results.len())?;
            let kind = self.kind(py, &print.kind)?;
            self.enter(print, kind, position, &mut tally)?;
            let places = Places::of(print);
            let result = Single {
                print,
                places: places.as_deref(),
            };
            let document = match self.decide(result, kind, &mut tally) {
                Some((document, evidence)) => {
                    evidences.push(evidence_text(py, evidence));
                    document
                }
                None => {
                    evidences.push(intern!(py, ""));
                    let document = number(self.documents.len())?;
                    self.documents.push(Document {
                        first: position,
                        members: None,
                    });
                    document
                }
            };
            documents.push(document);
            self.place(print, places, document);
        }
        tally.add_to(counts, &self.kinds)?;
        Ok((PyList::new(py, documents)?, PyList::new(py, evidences)?))
    }

    /// Appends the next search, whose documents were decided before it was stored.
    fn append_decided(
        &mut self,
        results: &Bound<'_, Fingerprints>,
        documents: &Bound<'_, PyList>,
    ) -> PyResult<()> {
        let py = results.py();
        let each = &results.get().each;
        let documents = self.checked(documents, each.len())?;
        let mut unused = Tally::default();
        for (print, document) in each.iter().zip(documents) {
            let position = number(self.results.len())?;
            let kind = self.kind(py, &print.kind)?;
            self.enter(print, kind, position, &mut unused)?;
            match self.documents.get_mut(document as usize) {
                None => self.documents.push(Document {
                    first: position,
                    members: None,
                }),
                Some(found) => match &mut found.members {
                    Some(members) => members.join(print),
                    None => {
                        let first = &self.results[found.first as usize].print;
                        found.members = Some(Members::of_two(first, print));
                    }
                },
            }
            self.place(print, Places::of(print), document);
        }
        Ok(())
    }
}

impl Index {
    /// Checks stored document numbers: one per result, and new ones in sequence.
    fn checked(&self, documents: &Bound<'_, PyList>, results: usize) -> PyResult<Vec<u32>> {
        if documents.len() != results {
            let given = documents.len();
            let message = format!("{given} documents are given for {results} results");
            return Err(PyValueError::new_err(message));
        }
        let mut next = number(self.documents.len())?;
        let mut found = Vec::with_capacity(results);
        for document in documents {
            let known = document.extract::<u32>().or_else(|error| {
                // a negative or huge number is invalid like one after the next
                let out_of_range = error.is_instance_of::<PyOverflowError>(documents.py());
                out_of_range.then_some(u32::MAX).ok_or(error)
            })?;
            if known > next || known == u32::MAX {
                let message = format!("document {document} is not one of the {next} of its turn");
                return Err(PyValueError::new_err(message));
            }
            next += u32::from(known == next);
            found.push(known);
        }
        Ok(found)
    }
}

impl Tally {
    /// Adds the counts to a `DedupCounts`.
    fn add_to(&self, counts: &Bound<'_, PyAny>, kinds: &[Arc<Kind>]) -> PyResult<()> {
        let py = counts.py();
        if self.candidates.iter().any(|pairs| *pairs != 0) {
            let found = counts.getattr(intern!(py, "candidates"))?;
            let found = found.downcast::<PyDict>()?;
            let names = [
                intern!(py, "id"),
                intern!(py, "doc_id"),
                intern!(py, "url"),
                intern!(py, "snippet"),
                intern!(py, "content"),
                intern!(py, "title"),
            ];
            for (name, pairs) in names.into_iter().zip(self.candidates) {
                if pairs != 0 {
                    add(found, name, pairs)?;
                }
            }
        }
        if !self.verdicts.is_empty() {
            let found = counts.getattr(intern!(py, "verdicts"))?;
            let found = found.downcast::<PyDict>()?;
            for (kind, verdicts) in kinds.iter().zip(&self.verdicts) {
                for (verdict, pairs) in VERDICTS.into_iter().zip(verdicts) {
                    if *pairs != 0 {
                        add(found, kind.verdict_key(py, verdict)?, *pairs)?;
                    }
                }
            }
        }
        let numbers = [
            (intern!(py, "truncated"), self.truncated),
            (intern!(py, "contradictions"), self.contradictions),
            (intern!(py, "other_text"), self.other_text),
        ];
        for (name, number) in numbers {
            if number != 0 {
                counts.setattr(name, counts.getattr(name)?.add(number)?)?;
            }
        }
        Ok(())
    }
}

fn add(counter: &Bound<'_, PyDict>, key: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
    match counter.get_item(key)? {
        Some(before) => counter.set_item(key, before.add(number)?),
        None => counter.set_item(key, number),
    }
}

fn evidence_text(py: Python<'_>, evidence: Evidence) -> &Bound<'_, PyString> {
    match evidence {
        Evidence::Id => intern!(py, "id"),
        Evidence::Url => intern!(py, "url"),
        Evidence::Text => intern!(py, "text"),
        Evidence::Fields => intern!(py, "fields"),
    }
}

/// A separate key, else the beginning of the digest.
fn either<'a>(key: &'a Option<[u8; 8]>, digest: &'a Option<[u8; 16]>) -> Option<&'a [u8]> {
    match key {
        Some(key) => Some(key),
        None => digest.as_ref().map(|digest| &digest[..]),
    }
}

/// The next number, as 32 bits.
fn number(count: usize) -> PyResult<u32> {
    match u32::try_from(count) {
        Ok(number) if number < u32::MAX => Ok(number),
        _ => Err(PyOverflowError::new_err("too many results in one turn")),
    }
}
