//! Fingerprints of the results that came last, by their whole content.
//!
//! Popular documents come again and again. Contents are compared whole, so that a hostile choice of
//! results costs speed and nothing else.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

use super::print::Print;

const ENTRIES: usize = 8_192; // a power of two
const LONGEST: usize = 4_096; // bytes of a content

struct Entry {
    content: Box<[u8]>,
    print: Arc<Print>,
    url_unparsed: bool,
}

pub struct Memo {
    entries: Vec<Option<Entry>>,
    /// What was asked for last; empty if it cannot be remembered.
    content: Vec<u8>,
}

impl Default for Memo {
    fn default() -> Self {
        let mut entries = Vec::new();
        entries.resize_with(ENTRIES, || None);
        Memo {
            entries,
            content: Vec::new(),
        }
    }
}

impl Memo {
    /// The fingerprint of `result`, and whether its URL is none, if it is remembered.
    pub fn get(&mut self, result: &Bound<'_, PyAny>) -> PyResult<Option<(Arc<Print>, bool)>> {
        self.content.clear();
        if !write_result(&mut self.content, result)? || self.content.len() > LONGEST {
            self.content.clear();
            return Ok(None);
        }
        Ok(match &self.entries[place(&self.content)] {
            Some(entry) if *entry.content == *self.content => {
                Some((Arc::clone(&entry.print), entry.url_unparsed))
            }
            _ => None,
        })
    }

    /// Remember the fingerprint of the result that was asked for last.
    pub fn put(&mut self, print: &Arc<Print>, url_unparsed: bool) {
        if !self.content.is_empty() {
            self.entries[place(&self.content)] = Some(Entry {
                content: self.content.as_slice().into(),
                print: Arc::clone(print),
                url_unparsed,
            });
        }
    }
}

/// Everything that a fingerprint is made from, unambiguously; false for what it does not know.
fn write_result(written: &mut Vec<u8>, result: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = result.py();
    let names = [
        intern!(py, "entity_type"),
        intern!(py, "doc_id"),
        intern!(py, "url"),
        intern!(py, "title"),
        intern!(py, "snippet"),
        intern!(py, "content"),
    ];
    for name in names {
        if !write_value(written, &result.getattr(name)?) {
            return Ok(false);
        }
    }
    for name in [intern!(py, "ids"), intern!(py, "fields")] {
        let entries = result.getattr(name)?;
        match entries.downcast::<PyDict>() {
            Ok(entries) => {
                write_size(written, b'd', entries.len());
                for (name, value) in entries {
                    if !write_value(written, &name) || !write_value(written, &value) {
                        return Ok(false);
                    }
                }
            }
            Err(_) if entries.is_none() => written.push(b'-'),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

fn write_value(written: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> bool {
    if let Ok(text) = value.downcast::<PyString>() {
        match text.to_str() {
            Ok(text) => {
                write_size(written, b's', text.len());
                written.extend_from_slice(text.as_bytes());
            }
            Err(_) => return false,
        }
    } else if value.is_none() {
        written.push(b'-');
    } else if let Ok(truth) = value.downcast::<PyBool>() {
        written.push(if truth.is_true() { b'1' } else { b'0' });
    } else if let Ok(number) = value.downcast::<PyFloat>() {
        written.push(b'f');
        written.extend_from_slice(&number.value().to_bits().to_le_bytes());
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => {
                written.push(b'i');
                written.extend_from_slice(&number.to_le_bytes());
            }
            Err(_) => return false,
        }
    } else if let Ok(values) = value.downcast::<PyList>() {
        write_size(written, b'l', values.len());
        return values.iter().all(|value| write_value(written, &value));
    } else {
        return false;
    }
    true
}

fn write_size(written: &mut Vec<u8>, tag: u8, size: usize) {
    written.push(tag);
    written.extend_from_slice(&(size as u64).to_le_bytes());
}

/// A quick hash, eight bytes a step: it only chooses the entry.
fn place(content: &[u8]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = content.len() as u64;
    let mut words = content.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(bytes)).wrapping_mul(FACTOR);
    }
    for byte in words.remainder() {
        hash = (hash.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(FACTOR);
    }
    (hash >> 40) as usize & (ENTRIES - 1)
}
