//! Labels: the compiled form of `stream_metrics.core.engine.digested` for `relevance_labels`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::canonical::{digest, event_of};
use crate::json::Canonical;
use crate::wire::{Bounds, RelevanceLabels};

const KIND: &str = "relevance_labels";

type DigestedLabels<'py> = (
    i64,                          // `occurred_at`
    Bound<'py, PyString>,         // event
    Bound<'py, PyBytes>,          // digest
    Bound<'py, PyString>,         // conversation
    i64,                          // turn
    Bound<'py, PyDict>,           // gains by result
    Bound<'py, PyDict>,           // best routes by search
    Bound<'py, PyDict>,           // by iteration, whether a search was needed
    Option<Bound<'py, PyString>>, // labeller
    Option<bool>,                 // whether the labels are a model's, if the event says it
    bool,                         // whether the turn is in the random sample
    Bound<'py, PyTuple>,          // paths of unknown fields
);

/// The items of labels as in `stream_metrics.core.engine.digested`; None if Python has to decide.
#[pyfunction]
#[pyo3(signature = (value, key, bounds))]
fn digested_labels<'py>(
    value: &Bound<'py, PyBytes>,
    key: Option<&[u8]>,
    bounds: &Bounds,
) -> PyResult<Option<DigestedLabels<'py>>> {
    let py = value.py();
    event_of(value.as_bytes(), KIND, bounds, |found, occurred_us| {
        digested(py, found, occurred_us, key, bounds)
    })
}

fn digested<'py>(
    py: Python<'py>,
    found: &Canonical<'_>,
    occurred_us: i64,
    key: Option<&[u8]>,
    bounds: &Bounds,
) -> PyResult<Option<DigestedLabels<'py>>> {
    let event = match RelevanceLabels::read(found, bounds) {
        Some(event) => event,
        None => return Ok(None),
    };
    if key.map_or(false, |key| key != event.conversation_id.as_bytes()) {
        return Ok(None);
    }
    let (results, routing, gate) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    for (name, gain) in &event.results {
        results.set_item(PyString::new(py, name), gain)?;
    }
    for (name, route) in &event.routing {
        let route = route.as_ref().map(|route| PyString::new(py, route));
        routing.set_item(PyString::new(py, name), route)?;
    }
    for (number, needed) in &event.gate {
        gate.set_item(number, needed)?;
    }
    let all_differ = results.len() == event.results.len()
        && routing.len() == event.routing.len()
        && gate.len() == event.gate.len();
    if !all_differ {
        return Ok(None); // of several labels of one thing the first counts
    }
    Ok(Some((
        occurred_us,
        PyString::new(py, &event.event_id),
        digest(py, found),
        PyString::new(py, &event.conversation_id),
        event.turn,
        results,
        routing,
        gate,
        event
            .labeller
            .as_ref()
            .map(|labeller| PyString::new(py, labeller)),
        event.by_model,
        event.random,
        PyTuple::new(py, &event.unknown)?,
    )))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(digested_labels, module)?)
}
