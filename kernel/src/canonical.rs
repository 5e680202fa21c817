//! What is to be known of an event before its payload, straight from the bytes of the record.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use sha2::{Digest, Sha256};

use crate::json::{canonical, Canonical};
use crate::times::{micros_of_seconds, rfc3339_micros};

const DIGEST_BYTES: usize = 16;
const MOST_LEVELS: i64 = 200; // the slow way can recurse so far, whatever a caller allows

fn scan(raw: &[u8], max_levels: i64) -> Option<Canonical> {
    scan_text(std::str::from_utf8(raw).ok()?, max_levels)
}

pub fn scan_text(text: &str, max_levels: i64) -> Option<Canonical> {
    let levels = max_levels.clamp(0, MOST_LEVELS);
    canonical(text, usize::try_from(levels).ok()?)
}

pub fn digest<'py>(py: Python<'py>, found: &Canonical) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &Sha256::digest(&found.text)[..DIGEST_BYTES])
}

/// What stands between the quotes of a canonical text that has no escapes.
fn plain_text(value: &[u8]) -> Option<&[u8]> {
    let text = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!text.contains(&b'\\')).then_some(text)
}

fn instant(value: &[u8]) -> Option<i64> {
    match plain_text(value) {
        Some(text) => rfc3339_micros(text),
        None => micros_of_seconds(value),
    }
}

/// The digest of a JSON text's canonical form; None if the slow way has to decide.
///
/// See `stream_metrics.events.canonical.content_digest`.
#[pyfunction]
fn content_digest<'py>(
    py: Python<'py>,
    raw: &Bound<'py, PyBytes>,
    max_levels: i64,
) -> Option<Bound<'py, PyBytes>> {
    Some(digest(py, &scan(raw.as_bytes(), max_levels)?))
}

/// `type` and instant of an event of this version.
pub fn kind_and_instant(found: &Canonical, version: i64) -> Option<(&[u8], i64)> {
    if !found.is_object() {
        return None;
    }
    match found.member(b"version") {
        None | Some(b"null") => {}
        Some(value) if value == version.to_string().as_bytes() => {}
        Some(_) => return None,
    }
    let kind = plain_text(found.member(b"type")?)?;
    Some((kind, instant(found.member(b"occurred_at")?)?))
}

type Envelope<'py> = (
    Bound<'py, PyBytes>,  // digest
    Bound<'py, PyString>, // `type`
    i64,                  // `occurred_at`
    usize,                // longest list
    usize,                // elements of all lists
    usize,                // widest object
    usize,                // longest `url`
    bool,                 // a `doc_id` may stand in `ids`
);

/// Digest, type and instant of an event of this version, and bounds on what else it holds.
///
/// None if the slow way has to decide.
#[pyfunction]
fn envelope<'py>(
    py: Python<'py>,
    raw: &Bound<'py, PyBytes>,
    version: i64,
    max_levels: i64,
) -> Option<Envelope<'py>> {
    let found = scan(raw.as_bytes(), max_levels)?;
    let (kind, occurred_us) = kind_and_instant(&found, version)?;
    Some((
        digest(py, &found),
        PyString::new(py, std::str::from_utf8(kind).ok()?),
        occurred_us,
        found.longest_list,
        found.elements,
        found.widest_object,
        found.longest_url,
        found.doc_id_in_ids,
    ))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(content_digest, module)?)?;
    module.add_function(wrap_pyfunction!(envelope, module)?)
}
