//! Events as `stream_metrics.core.events.wire` describes them, straight from the record.
//!
//! What is certain is read; whatever is wrong, or more unusual than it is worth, is None. The slow
//! way then decides.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::dedup::memo::{hash, Limits, Memo, Remembered};
use crate::dedup::print::Print;
use crate::dedup::sent::Sent;
use crate::dedup::tables::Kind;
use crate::json::{unescaped, Canonical, Token};
use crate::names::Known;

const HANDLE: usize = 128;
const NAME: usize = 64;
const DOC_ID: usize = 256;
const COUNT: i64 = (1 << 31) - 1;
const TURN: i64 = (1 << 53) - 1;
const GAIN: i64 = 4;
const MOST_NAMED: usize = 16; // unknown fields (`stream_metrics.core.events.fields`)
const MOST_SEARCHES: usize = 256; // their ids are compared each with each

/// What one record may hold (`stream_metrics.core.events.limits.Limits`), its version, and how metrics
/// name types.
#[pyclass(frozen, module = "stream_metrics_kernel")]
pub struct Bounds {
    pub record_bytes: usize,
    pub json_levels: i64,
    pub version: i64,
    searches: usize,
    results: usize,
    ids: usize,
    fields: usize,
    values: usize,
    url_bytes: usize,
    labels: usize,
    type_labels: Py<PyDict>,
    other_label: Py<PyString>,
}

#[pymethods]
impl Bounds {
    #[new]
    fn new(
        limits: &Bound<'_, PyAny>,
        version: i64,
        type_labels: Py<PyDict>,
        other_label: Py<PyString>,
    ) -> PyResult<Self> {
        let bound = |name: &str| -> PyResult<usize> {
            let value: i64 = limits.getattr(name)?.extract()?;
            Ok(usize::try_from(value).unwrap_or(0))
        };
        Ok(Bounds {
            record_bytes: bound("record_bytes")?,
            json_levels: limits.getattr("json_levels")?.extract()?,
            version,
            searches: bound("searches_per_event")?.min(MOST_SEARCHES),
            results: bound("results_per_event")?,
            ids: bound("ids_per_result")?,
            fields: bound("fields_per_result")?,
            values: bound("values_per_list")?,
            url_bytes: bound("url_bytes")?,
            labels: bound("labels_per_event")?,
            type_labels,
            other_label,
        })
    }
}

impl Bounds {
    /// Those that decide whether the parts of a result are valid.
    pub fn of_results(&self) -> Limits {
        [self.ids, self.fields, self.values, self.url_bytes]
    }

    /// How metrics name the types of results.
    pub fn labels<'py>(
        &self,
        py: Python<'py>,
        prints: &[Arc<Print>],
    ) -> PyResult<Bound<'py, PyList>> {
        let labels = self.type_labels.bind(py);
        let mut found = Vec::with_capacity(prints.len());
        let mut last: Option<(&Arc<Kind>, Bound<'py, PyAny>)> = None;
        for print in prints {
            let label = match &last {
                Some((kind, label)) if Arc::ptr_eq(kind, &print.kind) => label.clone(),
                _ => match labels.get_item(&print.kind.py_name)? {
                    Some(label) => label,
                    None => self.other_label.bind(py).clone().into_any(),
                },
            };
            found.push(label.clone());
            last = Some((&print.kind, label));
        }
        PyList::new(py, found)
    }
}

pub type Text<'a> = Cow<'a, str>;

/// The payload of a `search_iteration`; of searches with one id the first.
#[derive(Default)]
pub struct SearchIteration<'a> {
    pub conversation_id: Text<'a>,
    pub event_id: Text<'a>,
    pub turn: i64,
    pub iteration: i64,
    pub agent: Option<Text<'a>>,
    pub release: Option<Text<'a>>,
    pub gate: Option<&'a str>,
    pub searches: Vec<Search<'a>>,
    /// The paths of fields that the contract does not name, each once.
    pub unknown: Vec<String>,
    /// What the fingerprints of results are made from, unless they are remembered.
    pub sent: Sent,
}

#[derive(Default)]
pub struct Search<'a> {
    pub search_id: Text<'a>,
    pub ordinal: i64,
    pub position: usize,
    pub route: Option<Text<'a>>,
    pub results: Vec<SentResult<'a>>,
}

pub struct SentResult<'a> {
    pub result_id: Text<'a>,
    pub gain: Option<i64>,
    pub baseline_rank: Option<i64>,
    pub parts: Parts<'a>,
}

/// What the fingerprint of a result is made from.
pub enum Parts<'a> {
    /// The same text had this one.
    Remembered(Remembered),
    Written {
        /// The text that has all parts and nothing else, if they stand together.
        text: Option<&'a str>,
        /// Where in `SearchIteration::sent` they stand.
        sent: Range<usize>,
    },
}

/// What results are read with.
struct Reading<'m> {
    sent: Sent,
    bounds: &'m Bounds,
    memo: Option<&'m mut Memo>,
}

impl<'a> SearchIteration<'a> {
    /// Reads the event that was found; its envelope is not looked at.
    pub fn read(
        found: &Canonical<'a>,
        bounds: &Bounds,
        mut memo: Option<&mut Memo>,
    ) -> Option<Self> {
        if let Some(memo) = &mut memo {
            memo.expect(bounds.of_results());
        }
        let mut tape = Tape::new(found);
        let mut reading = Reading {
            sent: Sent::default(),
            bounds,
            memo,
        };
        let mut event = SearchIteration::default();
        for _ in 0..tape.object()? {
            match tape.name()? {
                Known::ConversationId => event.conversation_id = tape.text(HANDLE)?,
                Known::EventId => event.event_id = tape.text(HANDLE)?,
                Known::Turn => event.turn = tape.integer(1, TURN)?,
                Known::Iteration => event.iteration = tape.integer(1, COUNT)?,
                Known::Agent => event.agent = tape.optional(|tape| tape.text(NAME))?,
                Known::Release => event.release = tape.optional(|tape| tape.text(NAME))?,
                Known::Gate => event.gate = tape.optional(Tape::gate)?,
                Known::Searches => {
                    let searches = tape.optional(|tape| tape.searches(&mut reading))?;
                    event.searches = searches.unwrap_or_default();
                }
                Known::Type | Known::Version | Known::OccurredAt => tape.skip()?,
                _ => tape.unknown("")?,
            }
        }
        let complete = !event.conversation_id.is_empty()
            && !event.event_id.is_empty()
            && event.turn > 0
            && event.iteration > 0
            && tape.is_at_end();
        event.sent = reading.sent;
        event.unknown = tape.unknown_paths();
        complete.then_some(event)
    }
}

/// The payload of `relevance_labels`.
#[derive(Default)]
pub struct RelevanceLabels<'a> {
    pub conversation_id: Text<'a>,
    pub event_id: Text<'a>,
    pub turn: i64,
    /// Of results, by id; without one, a label is withdrawn.
    pub results: Vec<(Text<'a>, Option<i64>)>,
    /// Of searches, by id: the best route.
    pub routing: Vec<(Text<'a>, Option<Text<'a>>)>,
    /// Of iterations, by number: whether a search was needed.
    pub gate: Vec<(i64, Option<bool>)>,
    /// The paths of fields that the contract does not name, each once.
    pub unknown: Vec<String>,
}

impl<'a> RelevanceLabels<'a> {
    /// Reads the event that was found; its envelope is not looked at.
    pub fn read(found: &Canonical<'a>, bounds: &Bounds) -> Option<Self> {
        let mut tape = Tape::new(found);
        let mut event = RelevanceLabels::default();
        for _ in 0..tape.object()? {
            match tape.name()? {
                Known::ConversationId => event.conversation_id = tape.text(HANDLE)?,
                Known::EventId => event.event_id = tape.text(HANDLE)?,
                Known::Turn => event.turn = tape.integer(1, TURN)?,
                Known::Labeller => drop(tape.optional(Tape::any_text)?),
                Known::Labels => {
                    event.results = tape.labels(
                        "labels.",
                        Known::ResultId,
                        Tape::handle,
                        Known::Gain,
                        |tape| tape.integer(0, GAIN),
                    )?
                }
                Known::Routing => {
                    event.routing = tape.labels(
                        "routing.",
                        Known::SearchId,
                        Tape::handle,
                        Known::Optimal,
                        Tape::any_text,
                    )?;
                }
                Known::Gate => {
                    event.gate = tape.labels(
                        "gate.",
                        Known::Iteration,
                        |tape| tape.integer(1, COUNT),
                        Known::SearchNeeded,
                        Tape::truth,
                    )?
                }
                Known::Type | Known::Version | Known::OccurredAt => tape.skip()?,
                Known::Agent | Known::Release => tape.skip()?, // ignored, whatever they are
                _ => tape.unknown("")?,
            }
        }
        let count = event.results.len() + event.routing.len() + event.gate.len();
        let certain = !event.conversation_id.is_empty()
            && !event.event_id.is_empty()
            && event.turn > 0
            && count <= bounds.labels
            && tape.is_at_end();
        event.unknown = tape.unknown_paths();
        certain.then_some(event)
    }
}

struct Tape<'a> {
    found: Canonical<'a>,
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    unknown: Vec<Path<'a>>,
    /// Which of them the next unknown field probably is.
    likely: usize,
}

/// Of an unknown field: its name, and before it the names of those around it, each with a dot.
type Path<'a> = (&'a str, &'static str); // compared in this order: most names differ

/// Stands for names that are not fit to be shown, and for those that are too many.
const OTHER: Path = ("other", "");

fn is_shown(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let fit = |byte: &u8| letter(*byte) || byte.is_ascii_digit() || *byte == b'-';
    let name = name.as_bytes();
    name.len() <= NAME
        && (name.first()).map_or(false, |first| letter(*first))
        && name.iter().all(fit)
}

impl<'a> Tape<'a> {
    fn new(found: &Canonical<'a>) -> Self {
        Tape {
            found: *found,
            text: found.sent(),
            tokens: found.tokens(),
            at: 0,
            unknown: Vec::new(),
            likely: 0,
        }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    #[inline]
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn skip(&mut self) -> Option<()> {
        if let Token::Object { behind, .. } | Token::List { behind, .. } = self.next()? {
            self.at = behind as usize;
        }
        Some(())
    }

    /// Notes the field whose name was read last, and skips its value; None if its name is escaped.
    #[cold]
    fn unknown(&mut self, place: &'static str) -> Option<()> {
        let name = match *self.tokens.get(self.at.checked_sub(1)?)? {
            Token::Name { start, end, .. } => self.span(start, end)?,
            _ => return None,
        };
        if name.contains('\\') {
            return None;
        }
        let path = (name, place);
        if self.unknown.get(self.likely) != Some(&path) {
            self.likely = self.noted(path);
        }
        self.likely += 1; // objects of a list mostly have the same fields in the same order
        self.skip()
    }

    /// Where the path is among those of unknown fields, or what stands for it.
    fn noted(&mut self, path: Path<'a>) -> usize {
        let place_of = |noted: &[Path], path| noted.iter().position(|one| *one == path);
        if let Some(at) = place_of(&self.unknown, path) {
            return at;
        }
        let named = is_shown(path.0) && self.unknown.len() < MOST_NAMED;
        let path = if named { path } else { OTHER };
        place_of(&self.unknown, path).unwrap_or_else(|| {
            self.unknown.push(path);
            self.unknown.len() - 1
        })
    }

    /// The paths of unknown fields, each once.
    fn unknown_paths(&self) -> Vec<String> {
        (self.unknown.iter())
            .map(|(name, place)| format!("{place}{name}"))
            .collect()
    }

    #[inline]
    fn span(&self, start: u32, end: u32) -> Option<&'a str> {
        self.text.get(start as usize..end as usize)
    }

    /// How many members follow.
    fn object(&mut self) -> Option<u32> {
        match self.next()? {
            Token::Object { members, .. } => Some(members),
            _ => None,
        }
    }

    /// How many elements follow.
    fn list(&mut self) -> Option<usize> {
        match self.next()? {
            Token::List { elements, .. } => Some(elements as usize),
            _ => None,
        }
    }

    /// The name of a member; None if it has escapes.
    #[inline]
    fn name(&mut self) -> Option<Known> {
        match self.next()? {
            Token::Name { known, .. } => Some(known),
            _ => None,
        }
    }

    /// A text without escapes.
    fn plain_text(&mut self) -> Option<&'a str> {
        match self.next()? {
            Token::Plain { start, end } => self.span(start, end),
            _ => None,
        }
    }

    /// Reads what may be null as well.
    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.tokens.get(self.at)? {
            Token::Null { .. } => {
                self.at += 1;
                Some(None)
            }
            _ => read(self).map(Some),
        }
    }

    #[inline]
    fn any_text(&mut self) -> Option<Text<'a>> {
        match self.next()? {
            Token::Plain { start, end } | Token::Name { start, end, .. } => {
                self.span(start, end).map(Cow::Borrowed)
            }
            Token::Escaped { start, end } => unescaped(self.span(start, end)?).map(Cow::Owned),
            _ => None,
        }
    }

    /// A text of 1 to `most` code points.
    fn text(&mut self, most: usize) -> Option<Text<'a>> {
        let text = self.any_text()?;
        let fits = text.len() <= most || text.chars().count() <= most;
        (fits && !text.is_empty()).then_some(text)
    }

    fn integer(&mut self, least: i64, most: i64) -> Option<i64> {
        let value: i64 = match self.next()? {
            Token::Integer { start, end } => self.span(start, end)?.parse().ok()?,
            _ => return None,
        };
        (least..=most).contains(&value).then_some(value)
    }

    fn handle(&mut self) -> Option<Text<'a>> {
        self.text(HANDLE)
    }

    fn truth(&mut self) -> Option<bool> {
        match self.next()? {
            Token::Truth { truth, .. } => Some(truth),
            _ => None,
        }
    }

    /// A list of objects, each with what a label names and, maybe null, what it says of that.
    fn labels<N, V>(
        &mut self,
        place: &'static str,
        name: Known,
        read_name: impl Fn(&mut Self) -> Option<N>,
        value: Known,
        read_value: impl Fn(&mut Self) -> Option<V>,
    ) -> Option<Vec<(N, Option<V>)>> {
        let count = match self.optional(Self::list)? {
            Some(count) => count,
            None => return Some(Vec::new()),
        };
        let mut labels = Vec::with_capacity(count);
        for _ in 0..count {
            let (mut named, mut said) = (None, None);
            for _ in 0..self.object()? {
                let key = self.name()?;
                if key == name {
                    named = Some(read_name(self)?);
                } else if key == value {
                    said = Some(self.optional(&read_value)?);
                } else {
                    self.unknown(place)?;
                }
            }
            labels.push((named?, said?));
        }
        Some(labels)
    }

    fn number(&mut self) -> Option<()> {
        match self.next()? {
            Token::Integer { .. } | Token::Decimal { .. } => Some(()),
            _ => None,
        }
    }

    fn gate(&mut self) -> Option<&'a str> {
        let mut decision = None;
        for _ in 0..self.object()? {
            match self.name()? {
                Known::Decision => decision = Some(self.plain_text()?),
                Known::Score => drop(self.optional(Self::number)?),
                _ => self.unknown("gate.")?,
            }
        }
        decision.filter(|decision| matches!(*decision, "search" | "skip"))
    }

    fn route(&mut self) -> Option<Text<'a>> {
        let mut selected = None;
        for _ in 0..self.object()? {
            match self.name()? {
                Known::Selected => selected = Some(self.text(NAME)?),
                Known::Scores => drop(self.optional(Self::scores)?),
                _ => self.unknown("searches.routing.")?,
            }
        }
        selected
    }

    fn scores(&mut self) -> Option<()> {
        for _ in 0..self.object()? {
            self.skip()?; // the name, whatever it is
            self.optional(Self::number)?;
        }
        Some(())
    }

    fn searches(&mut self, reading: &mut Reading<'_>) -> Option<Vec<Search<'a>>> {
        let count = self.list()?;
        if count > reading.bounds.searches {
            return None;
        }
        let mut searches: Vec<Search<'a>> = Vec::with_capacity(count);
        let mut results_left = reading.bounds.results;
        for position in 0..count {
            let search = self.search(position, &mut results_left, reading)?;
            if !searches.iter().any(|s| s.search_id == search.search_id) {
                searches.push(search);
            }
        }
        Some(searches)
    }

    fn search(
        &mut self,
        position: usize,
        results_left: &mut usize,
        reading: &mut Reading<'_>,
    ) -> Option<Search<'a>> {
        let mut search = Search {
            position,
            ..Search::default()
        };
        for _ in 0..self.object()? {
            match self.name()? {
                Known::SearchId => search.search_id = self.text(HANDLE)?,
                Known::Ordinal => {
                    let ordinal = self.optional(|tape| tape.integer(0, COUNT))?;
                    search.ordinal = ordinal.unwrap_or(0);
                }
                Known::Query => drop(self.optional(Self::any_text)?),
                Known::Routing => search.route = self.optional(Self::route)?,
                Known::Results => {
                    let results = self.optional(|tape| tape.results(results_left, reading))?;
                    search.results = results.unwrap_or_default();
                }
                _ => self.unknown("searches.")?,
            }
        }
        (!search.search_id.is_empty()).then_some(search)
    }

    fn results(
        &mut self,
        left: &mut usize,
        reading: &mut Reading<'_>,
    ) -> Option<Vec<SentResult<'a>>> {
        let count = self.list()?;
        *left = left.checked_sub(count)?;
        let mut results = Vec::with_capacity(count);
        for _ in 0..count {
            results.push(self.result(reading)?);
        }
        Some(results)
    }

    fn result(&mut self, reading: &mut Reading<'_>) -> Option<SentResult<'a>> {
        let mut result_id = None;
        let (mut gain, mut baseline_rank) = (None, None);
        let mut places = Places::default();
        let (members, end) = match self.next()? {
            Token::Object {
                members, closed, ..
            } => (members, self.found.end(closed)?),
            _ => return None,
        };
        let mut run = Run::default();
        for _ in 0..members {
            let (name, start) = match self.next()? {
                Token::Name { known, start, .. } => (known, start),
                _ => return None,
            };
            let place = match name {
                Known::EntityType => &mut places.entity_type,
                Known::DocId => &mut places.doc_id,
                Known::Url => &mut places.url,
                Known::Title => &mut places.title,
                Known::Snippet => &mut places.snippet,
                Known::Content => &mut places.content,
                Known::Ids => &mut places.ids,
                Known::Fields => &mut places.fields,
                _ => {
                    run.end(start);
                    match name {
                        Known::ResultId => result_id = Some(self.text(HANDLE)?),
                        Known::Gain => gain = self.optional(|tape| tape.integer(0, GAIN))?,
                        Known::BaselineRank => {
                            baseline_rank = self.optional(|tape| tape.integer(1, COUNT))?;
                        }
                        Known::Score => drop(self.optional(Self::number)?),
                        _ => self.unknown("searches.results.")?,
                    }
                    continue;
                }
            };
            run.begin(start);
            *place = Some(self.at);
            self.skip()?;
        }
        run.end(end);
        let text = run
            .together()
            .and_then(|(start, end)| self.span(start, end));
        Some(SentResult {
            result_id: result_id?,
            gain,
            baseline_rank,
            parts: self.parts(text, &places, reading)?,
        })
    }

    fn parts(
        &mut self,
        text: Option<&'a str>,
        places: &Places,
        reading: &mut Reading<'_>,
    ) -> Option<Parts<'a>> {
        if let (Some(memo), Some(text)) = (&mut reading.memo, text) {
            if let Some(found) = memo.get(hash(text), text) {
                return Some(Parts::Remembered(found));
            }
        }
        let behind = self.at;
        reading.sent.make_room(self.text.len());
        let start = reading.sent.as_str().len();
        self.write(places, &mut reading.sent, reading.bounds)?;
        self.at = behind;
        let sent = start..reading.sent.as_str().len();
        Some(Parts::Written { text, sent })
    }

    /// Writes what `Sent::result` writes of the same result as a Python object.
    fn write(&mut self, places: &Places, sent: &mut Sent, bounds: &Bounds) -> Option<()> {
        if self.begin(places.entity_type, sent) {
            sent.text(&self.text(NAME)?);
        }
        if self.begin(places.doc_id, sent) {
            sent.text(&self.text(DOC_ID)?);
        }
        if self.begin(places.url, sent) {
            let url = self.any_text()?;
            if url.len() > bounds.url_bytes {
                return None;
            }
            sent.text(&url);
        }
        for place in [places.title, places.snippet, places.content] {
            if self.begin(place, sent) {
                sent.text(&self.any_text()?);
            }
        }
        if self.begin(places.ids, sent) {
            self.write_entries(bounds.ids, bounds.values, sent, Self::write_text)?;
        }
        if self.begin(places.fields, sent) {
            self.write_entries(bounds.fields, bounds.values, sent, Self::write_scalar)?;
        }
        Some(())
    }

    /// Goes to where a part stands; false, with null written, if it is absent.
    fn begin(&mut self, place: Option<usize>, sent: &mut Sent) -> bool {
        match place {
            Some(place) if !matches!(self.tokens.get(place), Some(Token::Null { .. })) => {
                self.at = place;
                true
            }
            _ => {
                sent.null();
                false
            }
        }
    }

    fn write_entries(
        &mut self,
        most: usize,
        most_values: usize,
        sent: &mut Sent,
        write: fn(&mut Self, &mut Sent) -> Option<()>,
    ) -> Option<()> {
        let count = self.object()? as usize;
        if count > most {
            return None; // unless enough of them are null
        }
        sent.entries(count);
        for _ in 0..count {
            sent.text(&self.any_text()?);
            match self.tokens.get(self.at)? {
                Token::List { elements, .. } => {
                    let elements = *elements as usize;
                    if elements > most_values {
                        return None;
                    }
                    self.at += 1;
                    sent.list(elements);
                    for _ in 0..elements {
                        write(self, sent)?;
                    }
                }
                _ => write(self, sent)?,
            }
        }
        Some(())
    }

    fn write_text(&mut self, sent: &mut Sent) -> Option<()> {
        match self.optional(Self::any_text)? {
            Some(text) => sent.text(&text),
            None => sent.null(),
        }
        Some(())
    }

    fn write_scalar(&mut self, sent: &mut Sent) -> Option<()> {
        match *self.tokens.get(self.at)? {
            Token::Integer { start, end } => sent.integer(self.span(start, end)?),
            Token::Decimal { start, end, .. } => sent.float(self.span(start, end)?.parse().ok()?),
            Token::Truth { truth, .. } => sent.truth(truth),
            _ => return self.write_text(sent),
        }
        self.at += 1;
        Some(())
    }
}

/// Where among the tokens the parts of a result stand.
#[derive(Default)]
struct Places {
    entity_type: Option<usize>,
    doc_id: Option<usize>,
    url: Option<usize>,
    title: Option<usize>,
    snippet: Option<usize>,
    content: Option<usize>,
    ids: Option<usize>,
    fields: Option<usize>,
}

/// The members of a result that make its fingerprint, if they stand together.
#[derive(Default)]
struct Run {
    start: Option<u32>,
    end: Option<u32>,
    parted: bool,
}

impl Run {
    /// Notes a member that belongs to it, and where its name begins.
    fn begin(&mut self, name: u32) {
        self.parted |= self.end.is_some();
        self.start = self.start.or(Some(name - 1)); // with the quote, which no `Sent` begins with
    }

    /// Notes where something else begins.
    fn end(&mut self, start: u32) {
        if self.start.is_some() {
            self.end = self.end.or(Some(start - 1));
        }
    }

    /// From where to where it stands.
    fn together(&self) -> Option<(u32, u32)> {
        if self.parted {
            return None;
        }
        self.start.zip(self.end)
    }
}
