//! Compiled implementations of what `stream_metrics` does most often.
//!
//! Each gives exactly the result of its Python function, or leaves the case to that function.

use pyo3::prelude::*;

mod buckets;
mod canonical;
mod dedup;
mod deduplicator;
mod json;
mod labels;
mod lines;
mod msgpack;
mod names;
mod rankings;
mod reranking;
mod resampling;
mod times;
mod wire;
mod words;

/// Increased with every change of the interface; see `stream_metrics.core.compiled`.
const INTERFACE: u32 = 10;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    buckets::register(module)?;
    canonical::register(module)?;
    deduplicator::register(module)?;
    labels::register(module)?;
    lines::register(module)?;
    rankings::register(module)?;
    reranking::register(module)?;
    resampling::register(module)?;
    words::register(module)?;
    Ok(())
}
