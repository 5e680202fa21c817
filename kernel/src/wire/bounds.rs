//! The limits on what is read.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::dedup::memo::Limits;
use crate::dedup::print::Print;
use crate::dedup::tables::Kind;

pub const HANDLE: usize = 128;
pub const NAME: usize = 64;
pub const DOC_ID: usize = 256;
pub const COUNT: i64 = (1 << 31) - 1;
pub const GAIN: i64 = 4;
const MOST_SEARCHES: usize = 256; // their ids are compared each with each

/// The limits on a record (`stream_metrics.core.events.limits.Limits`), its version, and the names
/// of entity types in metrics.
#[pyclass(frozen, module = "stream_metrics._engine")]
pub struct Bounds {
    pub record_bytes: usize,
    pub json_levels: i64,
    pub version: i64,
    pub(super) searches: usize,
    pub(super) results: usize,
    pub(super) ids: usize,
    pub(super) fields: usize,
    pub(super) values: usize,
    pub(super) url_bytes: usize,
    pub(super) labels: usize,
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
