//! NDCG of a search as shown and before reranking: the compiled form of
//! `stream_metrics.core.metrics.decisions.plain_rerank`.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// A compared result: its document, the gain of the document, its baseline rank.
struct Place {
    document: usize,
    gain: Option<i64>,
    rank: i64,
}

/// NDCG in the order shown and by baseline rank; None if there is nothing to compare.
///
/// `credited` has the gain of each document, `baseline` the rank of each result, None for results
/// that do not take part.
#[pyfunction]
fn reranked(
    documents: &Bound<'_, PyList>,
    baseline: &Bound<'_, PyList>,
    credited: &Bound<'_, PyList>,
) -> PyResult<Option<(f64, f64)>> {
    if documents.len() != baseline.len() {
        return Err(PyValueError::new_err(
            "documents and ranks differ in number",
        ));
    }
    let mut places = Vec::with_capacity(documents.len());
    for (document, rank) in documents.iter().zip(baseline.iter()) {
        if rank.is_none() {
            continue;
        }
        let document: usize = document.extract()?;
        if document >= credited.len() {
            return Err(PyIndexError::new_err("a document has no gain"));
        }
        let gain = credited.get_item(document)?.extract()?;
        let rank = rank.extract()?;
        places.push(Place {
            document,
            gain,
            rank,
        });
    }
    if places.len() < 2 || places.iter().all(|place| place.gain.is_none()) {
        return Ok(None);
    }
    let mut seen = vec![false; credited.len()];
    let shown = first_places(&places, &mut seen);
    let mut best = shown.clone();
    best.sort_unstable_by(|one, other| other.cmp(one));
    let ideal = dcg(&best);
    if ideal == 0.0 {
        return Ok(Some((0.0, 0.0)));
    }
    places.sort_by_key(|place| place.rank); // stable: ties stay as shown
    seen.fill(false);
    let before = first_places(&places, &mut seen);
    Ok(Some((dcg(&shown) / ideal, dcg(&before) / ideal)))
}

/// The gains of documents, each at its first position.
fn first_places(places: &[Place], seen: &mut [bool]) -> Vec<i64> {
    let mut gains = Vec::with_capacity(places.len());
    for place in places {
        if !std::mem::replace(&mut seen[place.document], true) {
            gains.push(place.gain.unwrap_or(0));
        }
    }
    gains
}

fn dcg(gains: &[i64]) -> f64 {
    let gained = gains.iter().enumerate().filter(|(_, gain)| **gain != 0);
    fsum(gained.map(|(at, gain)| *gain as f64 / ((at + 2) as f64).log2()))
}

/// The correctly rounded sum, which does not depend on the order (Shewchuk's partial sums, as in
/// Python's `math.fsum`), of finite values whose sums are finite.
fn fsum(values: impl Iterator<Item = f64>) -> f64 {
    let mut partials: Vec<f64> = Vec::with_capacity(8);
    for value in values {
        let mut sum = value;
        let mut kept = 0;
        for at in 0..partials.len() {
            let (rounded, lost) = added(sum, partials[at]);
            if lost != 0.0 {
                partials[kept] = lost;
                kept += 1;
            }
            sum = rounded;
        }
        partials.truncate(kept);
        partials.push(sum);
    }
    let mut total = partials.pop().unwrap_or(0.0);
    while let Some(next) = partials.pop() {
        let (rounded, lost) = added(total, next);
        total = rounded;
        if lost == 0.0 {
            continue;
        }
        // The remaining lower part decides ties.
        if partials
            .last()
            .map_or(false, |below| (*below < 0.0) == (lost < 0.0))
        {
            let twice = lost * 2.0;
            let other = total + twice;
            if other - total == twice {
                total = other;
            }
        }
        break;
    }
    total
}

/// A sum and its rounding error.
fn added(one: f64, other: f64) -> (f64, f64) {
    let (large, small) = if one.abs() < other.abs() {
        (other, one)
    } else {
        (one, other)
    };
    let sum = large + small;
    (sum, small - (sum - large))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(reranked, module)?)
}
