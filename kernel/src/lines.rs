//! Divides a block into lines and finds their conversations: the compiled form of
//! `stream_metrics.lab.replay.index_lines.plain_lines` and `spool_key`.

use std::borrow::Cow;

use blake2b_simd::Params;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::json::Walk;
use crate::wire::HANDLE;

/// The beginning of a line that is certainly an event, not a recorded record.
const EVENT: &[u8] = b"{\"type\"";
const KEY_BYTES: usize = 8;
const LONGEST_TIMESTAMP: usize = 15; // digits; Python accepts any such number

type Columns<'py> = (
    usize,               // lines, blank ones too
    Bound<'py, PyBytes>, // starts
    Bound<'py, PyBytes>, // lengths without the end of the line
    Bound<'py, PyBytes>, // numbers from 1
    Bound<'py, PyBytes>, // digests of conversation ids
    Bound<'py, PyBytes>, // whether the digest is known; Python finds the others
);

/// The lines of a block that are not blank, as columns of 32-bit numbers.
#[pyfunction]
fn keyed_lines<'py>(
    py: Python<'py>,
    block: &Bound<'py, PyBytes>,
    record_bytes: usize,
) -> Option<Columns<'py>> {
    let block = block.as_bytes();
    u32::try_from(block.len()).ok()?; // so is each place in it
    let mut hash = Params::new();
    hash.hash_length(KEY_BYTES);
    let (mut starts, mut lengths, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keys, mut known) = (Vec::new(), Vec::new());
    let (mut number, mut start) = (0u32, 0);
    while start < block.len() {
        let rest = &block[start..];
        let size = rest.iter().position(|byte| *byte == b'\n');
        let line = without_end(&rest[..size.unwrap_or(rest.len())]);
        number += 1;
        if !line.iter().all(is_space) {
            let id = conversation_id(line, record_bytes);
            starts.extend_from_slice(&(start as u32).to_le_bytes());
            lengths.extend_from_slice(&(line.len() as u32).to_le_bytes());
            numbers.extend_from_slice(&number.to_le_bytes());
            match &id {
                Some(id) => keys.extend_from_slice(hash.hash(id.as_bytes()).as_bytes()),
                None => keys.extend_from_slice(&[0; KEY_BYTES]),
            }
            known.push(u8::from(id.is_some()));
        }
        start += size.map_or(rest.len(), |size| size + 1);
    }
    let column = |bytes: &[u8]| PyBytes::new(py, bytes);
    Some((
        number as usize,
        column(&starts),
        column(&lengths),
        column(&numbers),
        column(&keys),
        column(&known),
    ))
}

/// What Python's `bytes.isspace` says of a byte.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

fn without_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b'\r');
    &line[..end.map_or(0, |end| end + 1)]
}

/// The conversation id of a valid event or recorded record; None if Python has to find it.
///
/// Of what is not valid it may be any.
fn conversation_id(line: &[u8], record_bytes: usize) -> Option<Cow<'_, str>> {
    let text = simdutf8::basic::from_utf8(line).ok()?;
    if line.starts_with(EVENT) {
        return id_of_event(text, record_bytes);
    }
    let found = Members::read(text)?;
    if found.is_event {
        return found.id().filter(|_| line.len() <= record_bytes);
    }
    let value = found.recorded.filter(|_| found.has_offset)?;
    let id = id_of_event(&value, record_bytes)?;
    Some(Cow::Owned(id.into_owned()))
}

fn id_of_event(event: &str, record_bytes: usize) -> Option<Cow<'_, str>> {
    if event.len() > record_bytes {
        return None;
    }
    match first_id(event).filter(|(_, behind)| !may_have_id(behind)) {
        Some((id, _)) => Some(id).filter(|id| fits(id)),
        None => Members::read(event)?.id(),
    }
}

/// The first conversation id of an event, and the text after it.
fn first_id(event: &str) -> Option<(Cow<'_, str>, &str)> {
    let (mut walk, mut found) = (Walk::new(event), None);
    if !event.as_bytes().starts_with(EVENT) {
        return None; // it may be traces
    }
    walk.object(|walk, name| {
        if name != b"conversation_id" {
            return walk.skip();
        }
        found = walk.text()?.map(|id| (id, walk.rest()));
        None // nothing more is read
    });
    found
}

fn fits(id: &str) -> bool {
    !id.is_empty() && id.chars().count() <= HANDLE
}

/// Whether a text may have the name of a conversation id, also with escapes: few do so twice.
fn may_have_id(text: &str) -> bool {
    const ESCAPE: &str = "\\u00";
    let is_of_name = |at: usize| matches!(text.as_bytes().get(at + 4), Some(b'5'..=b'7'));
    text.contains("\"conversation_id\"")
        || (text.contains(ESCAPE) && text.match_indices(ESCAPE).any(|(at, _)| is_of_name(at)))
}

/// What the members of an object say of the record that it is.
#[derive(Default)]
struct Members<'a> {
    id: Option<Cow<'a, str>>,
    is_event: bool,
    has_offset: bool,
    /// The value of a recorded record.
    recorded: Option<Cow<'a, str>>,
    /// The names that were read, each of them a bit.
    seen: u8,
}

impl<'a> Members<'a> {
    /// None if it may be traces or something else that is rare, which Python reads.
    fn read(text: &'a str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        let mut found = Members::default();
        let mut walk = Walk::new(text);
        walk.object(|walk, name| match name {
            b"conversation_id" => {
                found.once(0)?;
                found.id = walk.text()?;
                Some(())
            }
            b"type" => {
                found.is_event = true;
                walk.skip()
            }
            b"offset" => {
                found.has_offset = true;
                walk.skip()
            }
            b"value" => {
                found.once(1)?;
                found.recorded = walk.text()?;
                Some(())
            }
            b"key" => {
                found.once(2)?;
                walk.text().map(drop)
            }
            b"timestamp" => {
                found.once(3)?;
                walk.small_number(LONGEST_TIMESTAMP)
            }
            b"key_base64" | b"value_base64" | b"resourceSpans" => None,
            _ => walk.skip(),
        })?;
        walk.is_at_end().then_some(found)
    }

    /// None for a repeated name, of which the last one counts.
    fn once(&mut self, name: u8) -> Option<()> {
        let is_first = self.seen & 1 << name == 0;
        self.seen |= 1 << name;
        is_first.then_some(())
    }

    fn id(self) -> Option<Cow<'a, str>> {
        self.id.filter(|id| fits(id))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(keyed_lines, module)?)
}
