//! A window bucket with more sums in it; the twin of `stream_metrics.engine.windows.plain_bucket`.
//!
//! A bucket is a MessagePack map of codes to whole numbers that are not 0, as msgspec writes it.
//! Whatever is anything else, or would not fit into 64 bits, is handed back to the twin.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySet, PyString};

/// A code and its sum.
struct Entry<'a> {
    code: &'a [u8],
    sum: i64,
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        if count > self.rest.len() {
            return None;
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    /// A number of so many bytes, the highest first.
    fn unsigned(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some((taken.iter()).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// How many entries the map has.
    fn map(&mut self) -> Option<usize> {
        match self.byte()? {
            mark @ 0x80..=0x8f => Some(usize::from(mark & 0x0f)),
            0xde => self.unsigned(2).map(|count| count as usize),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = match self.byte()? {
            mark @ 0xa0..=0xbf => usize::from(mark & 0x1f),
            0xd9 => self.unsigned(1)? as usize,
            0xda => self.unsigned(2)? as usize,
            _ => return None,
        };
        self.take(length)
    }

    fn integer(&mut self) -> Option<i64> {
        match self.byte()? {
            mark @ 0x00..=0x7f => Some(i64::from(mark)),
            mark @ 0xe0..=0xff => Some(i64::from(mark as i8)),
            0xcc => self.unsigned(1).map(|number| number as i64),
            0xcd => self.unsigned(2).map(|number| number as i64),
            0xce => self.unsigned(4).map(|number| number as i64),
            0xcf => i64::try_from(self.unsigned(8)?).ok(),
            0xd0 => self.unsigned(1).map(|number| i64::from(number as i8)),
            0xd1 => self.unsigned(2).map(|number| i64::from(number as i16)),
            0xd2 => self.unsigned(4).map(|number| i64::from(number as i32)),
            0xd3 => self.unsigned(8).map(|number| number as i64),
            _ => None,
        }
    }
}

fn read(stored: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut reader = Reader { rest: stored };
    let count = reader.map()?;
    let mut entries = Vec::with_capacity(count + 8);
    for _ in 0..count {
        let code = reader.text()?;
        std::str::from_utf8(code).ok()?;
        let sum = reader.integer().filter(|sum| *sum != 0)?;
        entries.push(Entry { code, sum });
    }
    reader.rest.is_empty().then_some(entries)
}

fn write_integer(into: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let (mark, length) = match number {
        -0x20..=0x7f => return into.push(number as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000..=i64::MAX => (0xcf, 8),
        -0x80..=-0x21 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        i64::MIN..=-0x8000_0001 => (0xd3, 8),
    };
    into.push(mark);
    into.extend_from_slice(&bytes[8 - length..]);
}

/// The map's bytes, of the entries that are not 0; empty if there are none.
fn write(entries: &[Entry<'_>]) -> Option<Vec<u8>> {
    let count = entries.iter().filter(|entry| entry.sum != 0).count();
    let mut into = Vec::with_capacity(16 * count + 3);
    match count {
        0 => return Some(into),
        1..=0x0f => into.push(0x80 | count as u8),
        0x10..=0xffff => {
            into.push(0xde);
            into.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => return None,
    }
    for entry in entries.iter().filter(|entry| entry.sum != 0) {
        match entry.code.len() {
            length @ 0..=0x1f => into.push(0xa0 | length as u8),
            length @ 0x20..=0xff => into.extend_from_slice(&[0xd9, length as u8]),
            length @ 0x100..=0xffff => {
                into.push(0xda);
                into.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => return None,
        }
        into.extend_from_slice(entry.code);
        write_integer(&mut into, entry.sum);
    }
    Some(into)
}

/// Where `code` stands; sought from where the one before stood, since both mostly have one order.
fn find(entries: &[Entry<'_>], code: &[u8], from: usize) -> Option<usize> {
    let (before, behind) = entries.split_at(from.min(entries.len()));
    let here = |entry: &Entry<'_>| entry.code == code;
    match behind.iter().position(here) {
        Some(at) => Some(before.len() + at),
        None => before.iter().position(here),
    }
}

/// The bucket `stored` with those of `sums` added whose codes are `kept`; empty if nothing is left.
///
/// None if the twin has to do it.
#[pyfunction]
#[pyo3(signature = (stored, sums, kept))]
fn added_bucket<'py>(
    py: Python<'py>,
    stored: Option<&[u8]>,
    sums: &Bound<'py, PyDict>,
    kept: &Bound<'py, PySet>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut entries = match stored.map_or(Some(Vec::new()), read) {
        Some(entries) => entries,
        None => return Ok(None),
    };
    let mut added: Vec<(Bound<'py, PyString>, i64)> = Vec::with_capacity(sums.len());
    for (code, value) in sums.iter() {
        if kept.contains(&code)? {
            match (code.downcast_into_exact::<PyString>(), value.extract()) {
                (Ok(code), Ok(value)) => added.push((code, value)),
                _ => return Ok(None),
            }
        }
    }
    let mut from = 0;
    for (code, value) in &added {
        let code = match code.to_str() {
            Ok(code) => code.as_bytes(),
            Err(_) => return Ok(None), // half of a surrogate pair
        };
        match find(&entries, code, from) {
            Some(at) => {
                let entry = &mut entries[at];
                entry.sum = match entry.sum.checked_add(*value) {
                    Some(sum) => sum,
                    None => return Ok(None),
                };
                from = at + 1;
            }
            None => entries.push(Entry { code, sum: *value }),
        }
    }
    Ok(write(&entries).map(|bytes| PyBytes::new(py, &bytes)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(added_bucket, module)?)
}
