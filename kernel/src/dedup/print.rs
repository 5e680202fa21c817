//! A result's fingerprint: digests of everything that deduplication compares, without texts.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::digests::{Digest, Key, Name};
use super::tables::Kind;

pub const LONG_SNIPPET: u8 = 1;
pub const LONG_CONTENT: u8 = 2;
pub const IDENTICAL_CONTENT: u8 = 4;
pub const DEFINITIVE: u8 = 8;
pub const NO_TITLE_KEY: u8 = 16;

/// See `fingerprint.Fingerprint` for the parts; `None` and a missing name mean absent.
pub struct Print {
    pub kind: Arc<Kind>,
    pub flags: u8,
    pub doc: Option<Digest>,
    pub doc_exact: Option<Digest>,
    pub url: Option<Digest>,
    pub parameters: Option<Digest>,
    pub title: Option<Digest>,
    pub snippet: Option<Digest>,
    pub content: Option<Digest>,
    pub key_title: Option<Key>,
    pub key_snippet: Option<Key>,
    pub key_content: Option<Key>,
    /// By the tag of the parameter's name (`pack`), in order of first occurrence.
    pub identity: Vec<(u8, Digest)>,
    pub route: Option<Digest>,
    pub weak: Option<Digest>,
    /// The values of one component are contiguous and sorted.
    pub ids: Vec<(Name, Digest)>,
    pub fields: Vec<(Name, Digest)>,
}

impl Print {
    pub fn new(kind: Arc<Kind>) -> Self {
        Print {
            kind,
            flags: 0,
            doc: None,
            doc_exact: None,
            url: None,
            parameters: None,
            title: None,
            snippet: None,
            content: None,
            key_title: None,
            key_snippet: None,
            key_content: None,
            identity: Vec::new(),
            route: None,
            weak: None,
            ids: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// The most candidate keys; an entity type need not use each.
    pub fn most_keys(&self) -> usize {
        let texts = usize::from(self.flags & LONG_SNIPPET != 0)
            + usize::from(self.flags & LONG_CONTENT != 0)
            + usize::from(self.key_title.is_some() || self.title.is_some());
        let places = usize::from(self.doc.is_some()) + usize::from(self.url.is_some());
        self.ids.len() + places + texts
    }
}

/// The fingerprints of one search's results, by rank.
#[pyclass(frozen, module = "stream_metrics._engine")]
#[derive(Default)]
pub struct Fingerprints {
    pub each: Vec<Arc<Print>>,
    pub urls_unparsed: usize,
}

#[pymethods]
impl Fingerprints {
    #[getter]
    fn types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.each.iter().map(|print| print.kind.py_name.bind(py)),
        )
    }

    #[getter]
    fn documents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let documents = self.each.iter().map(|print| {
            let digest = print.doc_exact.as_ref().or(print.doc.as_ref());
            digest.map(|digest| PyBytes::new(py, digest))
        });
        PyList::new(py, documents)
    }

    #[getter]
    fn extra_values(&self) -> usize {
        let values = self
            .each
            .iter()
            .map(|print| print.ids.len() + print.fields.len());
        values.map(|count| count.saturating_sub(8)).sum()
    }

    #[getter]
    fn urls_unparsed(&self) -> usize {
        self.urls_unparsed
    }
}
