//! The compiled twin of what `stream_metrics` does most often.
//!
//! Each part does exactly what its Python twin does, byte for byte, or hands the case back to it.

use pyo3::prelude::*;

mod buckets;
mod canonical;
mod dedup;
mod json;
mod labels;
mod msgpack;
mod names;
mod rankings;
mod reranking;
mod resampling;
mod times;
mod wire;
mod words;

/// Raised with every change that the Python side must know of; see `stream_metrics.core.compiled`.
const INTERFACE: u32 = 5;

#[pymodule]
fn stream_metrics_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    buckets::register(module)?;
    canonical::register(module)?;
    dedup::register(module)?;
    labels::register(module)?;
    rankings::register(module)?;
    reranking::register(module)?;
    resampling::register(module)?;
    times::register(module)?;
    words::register(module)?;
    Ok(())
}
