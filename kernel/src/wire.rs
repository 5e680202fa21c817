//! Events of `stream_metrics.core.events.wire`, read directly from the record.
//!
//! Reads records that are certainly valid. The result for invalid and unusual ones is None, and
//! Python decides.

mod searches;
mod tape;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use tape::Tape;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::dedup::memo::{Limits, Memo, Remembered};
use crate::dedup::print::Print;
use crate::dedup::sent::Sent;
use crate::dedup::tables::Kind;
use crate::json::Canonical;
use crate::names::Known;

pub const HANDLE: usize = 128;
const NAME: usize = 64;
const DOC_ID: usize = 256;
const COUNT: i64 = (1 << 31) - 1;
const TURN: i64 = (1 << 53) - 1;
const GAIN: i64 = 4;
const MOST_SEARCHES: usize = 256; // their ids are compared each with each

/// The limits on a record (`stream_metrics.core.events.limits.Limits`), its version, and the names
/// of entity types in metrics.
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
    /// The limits that decide whether the parts of a result are valid.
    pub fn of_results(&self) -> Limits {
        [self.ids, self.fields, self.values, self.url_bytes]
    }

    /// The names of entity types in metrics.
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

/// The payload of a `search_iteration`; of searches with the same id the first.
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
    /// The paths of fields that the contract does not have, each once.
    pub unknown: Vec<String>,
    /// The parts of results whose fingerprints are not cached.
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

/// The source of a result's fingerprint.
pub enum Parts<'a> {
    /// The cached fingerprint of the same text.
    Remembered(Remembered),
    Written {
        /// The text of exactly these parts, if they are contiguous.
        text: Option<&'a str>,
        /// Their range in `SearchIteration::sent`.
        sent: Range<usize>,
    },
}

/// The context in which results are read.
struct Reading<'m> {
    sent: Sent,
    bounds: &'m Bounds,
    memo: Option<&'m mut Memo>,
}

impl<'a> SearchIteration<'a> {
    /// Reads the payload of a scanned event, without its envelope.
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
    /// Gains of results by id; a label without one is withdrawn.
    pub results: Vec<(Text<'a>, Option<i64>)>,
    /// The best route of searches, by id.
    pub routing: Vec<(Text<'a>, Option<Text<'a>>)>,
    /// Whether a search was needed in an iteration, by number.
    pub gate: Vec<(i64, Option<bool>)>,
    /// The paths of fields that the contract does not have, each once.
    pub unknown: Vec<String>,
}

impl<'a> RelevanceLabels<'a> {
    /// Reads the payload of a scanned event, without its envelope.
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
