//! The fields of an event outside its payload, read directly from the bytes of the record.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use sha2::{Digest, Sha256};

use crate::json::{canonical, Canonical, Room};
use crate::times::{micros_of_seconds, rfc3339_micros};
use crate::wire::Bounds;

const DIGEST_BYTES: usize = 16;
const MOST_LEVELS: i64 = 200; // Python's decoder can recurse this far, whatever a caller allows

thread_local! {
    /// The scanner of this thread; a nested scan uses a new one.
    static ROOM: Cell<Option<Box<Room>>> = const { Cell::new(None) };
}

/// The bytes of a record as text.
fn utf8(raw: &[u8]) -> Option<&str> {
    simdutf8::basic::from_utf8(raw).ok()
}

/// The result of `use_found` for the scanned text; None if Python has to decide.
fn with_scan<T>(
    text: &str,
    max_levels: i64,
    use_found: impl FnOnce(Canonical<'_>) -> Option<T>,
) -> Option<T> {
    let levels = usize::try_from(max_levels.clamp(0, MOST_LEVELS)).ok()?;
    let mut room = ROOM.with(Cell::take).unwrap_or_default();
    let made = canonical(text, levels, &mut room).and_then(use_found);
    ROOM.with(|place| place.set(Some(room)));
    made
}

/// See `stream_metrics.core.events.canonical.content_digest`.
pub fn digest<'py>(py: Python<'py>, found: &Canonical<'_>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &Sha256::digest(found.text())[..DIGEST_BYTES])
}

/// The content between the quotes of a canonical text without escapes.
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

/// The result of `use_kind` for the `type` of an event of this version, and the event's time.
fn kind_and_instant<T>(
    found: &Canonical<'_>,
    version: i64,
    use_kind: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<(T, i64)> {
    if !found.is_object() {
        return None;
    }
    if let Some(value) = found.member("version") {
        if *value != *b"null" && *value != *version.to_string().as_bytes() {
            return None;
        }
    }
    let kind = use_kind(plain_text(&found.member("type")?)?)?;
    Some((kind, instant(&found.member("occurred_at")?)?))
}

/// The result of `read` for an event of this type and its time; None if it has another type, or
/// Python has to decide.
pub fn event_of<T>(
    raw: &[u8],
    kind: &str,
    bounds: &Bounds,
    read: impl FnOnce(&Canonical<'_>, i64) -> PyResult<Option<T>>,
) -> PyResult<Option<T>> {
    let text = match utf8(raw) {
        Some(text) if text.len() <= bounds.record_bytes && text.contains(kind) => text,
        _ => return Ok(None),
    };
    let event = with_scan(text, bounds.json_levels, |found| {
        let is_kind = |found_kind: &[u8]| (found_kind == kind.as_bytes()).then_some(());
        let ((), occurred_us) = kind_and_instant(&found, bounds.version, is_kind)?;
        Some(read(&found, occurred_us))
    });
    event.unwrap_or(Ok(None))
}

type Envelope<'py> = (
    Bound<'py, PyBytes>,  // digest
    Bound<'py, PyString>, // `type`
    i64,                  // `occurred_at`
    usize,                // longest list
    usize,                // elements of all lists
    usize,                // widest object
    usize,                // longest `url`
    bool,                 // a `doc_id` may be in `ids`
);

/// Digest, type and time of an event of this version, and upper bounds on its sizes.
///
/// None if Python has to decide.
#[pyfunction]
fn envelope<'py>(
    py: Python<'py>,
    raw: &Bound<'py, PyBytes>,
    version: i64,
    max_levels: i64,
) -> Option<Envelope<'py>> {
    let text = utf8(raw.as_bytes())?;
    with_scan(text, max_levels, |found| {
        let text = |kind: &[u8]| Some(PyString::new(py, std::str::from_utf8(kind).ok()?));
        let (kind, occurred_us) = kind_and_instant(&found, version, text)?;
        Some((
            digest(py, &found),
            kind,
            occurred_us,
            found.bounds.longest_list,
            found.bounds.elements,
            found.bounds.widest_object,
            found.bounds.longest_url,
            found.bounds.doc_id_in_ids,
        ))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(envelope, module)?)
}
