//! Changes to the buckets of windows by cells: the compiled form of `Windows.plain_changes` in
//! `stream_metrics.core.engine.windows`, which documents the rules.
//!
//! A bucket is a MessagePack map of codes to integers other than 0, as msgspec writes it. Python
//! handles all other input, and sums beyond 64 bits.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::msgpack::write_integer;

/// A code and its sum in a bucket.
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

    /// A big-endian number of `bytes` bytes.
    fn unsigned(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some((taken.iter()).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The number of entries of the map.
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
        if !code.is_ascii() {
            std::str::from_utf8(code).ok()?;
        }
        let sum = reader.integer().filter(|sum| *sum != 0)?;
        entries.push(Entry { code, sum });
    }
    reader.rest.is_empty().then_some(entries)
}

/// The encoded map of the entries other than 0; empty if there are none.
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

/// The index of `code`. The search starts after the last one found: orders usually agree.
fn find(entries: &[Entry<'_>], code: &[u8], from: usize) -> Option<usize> {
    let (before, behind) = entries.split_at(from.min(entries.len()));
    let here = |entry: &Entry<'_>| entry.code == code;
    match behind.iter().position(here) {
        Some(at) => Some(before.len() + at),
        None => before.iter().position(here),
    }
}

/// Sums by code, in the order of a Python dictionary.
#[derive(Clone, Default)]
struct Sums {
    entries: Vec<(usize, i64)>, // the code by its number
    seen: Seen,
}

/// A filter of codes that may be present, because many added ones are not.
#[derive(Clone, Default)]
struct Seen([u64; 4]);

impl Seen {
    /// Adds a code; false if it was certainly not added before.
    fn note(&mut self, code: usize) -> bool {
        let word = &mut self.0[code / 64 % 4];
        let before = *word;
        *word |= 1 << (code % 64);
        before == *word
    }
}

impl Sums {
    /// Adds or subtracts sums, and removes those that become 0. None if a sum becomes too large.
    fn add(&mut self, sums: &[(usize, i64)], sign: i64) -> Option<()> {
        if self.entries.is_empty() && sign == 1 {
            self.entries.extend_from_slice(sums);
            for (code, _) in sums {
                self.seen.note(*code);
            }
            return Some(());
        }
        let mut from = 0;
        for (code, value) in sums {
            let value = value.checked_mul(sign)?;
            let place = match self.seen.note(*code) {
                true => self.find(*code, from),
                false => None,
            };
            match place {
                Some(at) => {
                    let total = self.entries[at].1.checked_add(value)?;
                    if total == 0 {
                        self.entries.remove(at);
                        from = at;
                    } else {
                        self.entries[at].1 = total;
                        from = at + 1;
                    }
                }
                None if value != 0 => self.entries.push((*code, value)),
                None => {}
            }
        }
        Some(())
    }

    /// The index of `code`. The search starts after the last one found.
    fn find(&self, code: usize, from: usize) -> Option<usize> {
        let from = from.min(self.entries.len());
        let (before, behind) = self.entries.split_at(from);
        match behind.iter().position(|entry| entry.0 == code) {
            Some(at) => Some(from + at),
            None => before.iter().position(|entry| entry.0 == code),
        }
    }
}

/// Sums by bucket and agent, in the order of their first occurrence.
#[derive(Default)]
struct Level {
    places: HashMap<(i64, usize), usize>,
    found: Vec<((i64, usize), Sums)>,
}

impl Level {
    fn add(&mut self, key: (i64, usize), sums: &[(usize, i64)], sign: i64) -> Option<()> {
        let found = &mut self.found;
        let place = *self.places.entry(key).or_insert_with(|| {
            found.push((key, Sums::default()));
            found.len() - 1
        });
        found[place].1.add(sums, sign)
    }

    /// The sums in buckets that are `factor` times as wide.
    fn coarser(&self, factor: i64) -> Option<Level> {
        let most = self.found.len();
        let mut wider = Level {
            places: HashMap::with_capacity(most),
            found: Vec::with_capacity(most),
        };
        for ((bucket, agent), sums) in &self.found {
            wider.add((bucket.div_euclid(factor), *agent), &sums.entries, 1)?;
        }
        Some(wider)
    }
}

/// Texts, numbered in the order of their first occurrence.
struct Numbers<'py> {
    numbers: HashMap<Vec<u8>, usize>,
    texts: Vec<Bound<'py, PyString>>,
    /// A cache by memory address: the number of the last object at this address.
    guesses: [usize; GUESSES],
}

const GUESSES: usize = 256;

impl<'py> Numbers<'py> {
    fn new() -> Self {
        Numbers {
            numbers: HashMap::new(),
            texts: Vec::new(),
            guesses: [0; GUESSES],
        }
    }

    /// The number of a text; None if it contains a lone surrogate.
    fn of(&mut self, text: Bound<'py, PyString>) -> Option<usize> {
        // most texts are objects that have occurred before
        let guess = &mut self.guesses[text.as_ptr() as usize / 16 % GUESSES];
        if (self.texts.get(*guess)).map_or(false, |known| known.is(&text)) {
            return Some(*guess);
        }
        let bytes = text.to_str().ok()?.as_bytes();
        *guess = match self.numbers.get(bytes) {
            Some(number) => *number,
            None => {
                let number = self.texts.len();
                self.numbers.insert(bytes.to_vec(), number);
                self.texts.push(text);
                number
            }
        };
        Some(*guess)
    }

    /// The bytes of the texts, by number.
    fn bytes(&self) -> Option<Vec<&[u8]>> {
        let texts = self.texts.iter();
        texts
            .map(|text| Some(text.to_str().ok()?.as_bytes()))
            .collect()
    }
}

type Cell<'py> = (i64, i64, Bound<'py, PyString>, Bound<'py, PyDict>);

/// A window: its name, the width of its buckets, the width of the buckets that they are summed
/// from, its oldest bucket, the codes of its families, and its present buckets.
type Window<'py> = (
    Bound<'py, PyString>,
    i64,
    i64,
    i64,
    HashSet<String>,
    Bound<'py, PyDict>,
);

/// The bucket `stored` with the `kept` codes of `sums` added; empty if no sum remains.
fn added(
    stored: Option<&[u8]>,
    sums: &[(usize, i64)],
    codes: &[&[u8]],
    kept: &[bool],
) -> Option<Vec<u8>> {
    let mut entries = match stored {
        Some(stored) => read(stored)?,
        None => Vec::with_capacity(sums.len()),
    };
    let is_new = entries.is_empty();
    let mut from = 0;
    for (code, value) in sums.iter().filter(|(code, _)| kept[*code]) {
        let code = *codes.get(*code)?;
        if is_new {
            entries.push(Entry { code, sum: *value }); // sums have each code once
            continue;
        }
        match find(&entries, code, from) {
            Some(at) => {
                let entry = &mut entries[at];
                entry.sum = entry.sum.checked_add(*value)?;
                from = at + 1;
            }
            None => entries.push(Entry { code, sum: *value }),
        }
    }
    write(&entries)
}

/// The sums of cells in the narrowest buckets.
fn narrowest<'py>(
    cells: &Bound<'py, PyList>,
    base_us: i64,
    codes: &mut Numbers<'py>,
    agents: &mut Numbers<'py>,
) -> Option<Level> {
    let mut level = Level::default();
    let mut sums = Vec::new();
    for cell in cells.iter() {
        let (sign, time_us, agent, cell_sums): Cell<'py> = cell.extract().ok()?;
        sums.clear();
        for (code, value) in cell_sums.iter() {
            let code = codes.of(code.downcast_into_exact().ok()?)?;
            sums.push((code, value.extract().ok()?));
        }
        let agent = agents.of(agent)?;
        level.add((time_us.div_euclid(base_us), agent), &sums, sign)?;
    }
    Some(level)
}

/// The new bytes of each bucket that signed cells change, None for an empty one.
///
/// `cells` are tuples of sign, time, agent and sums. Each of `windows` comes after the window from
/// whose buckets its own are summed. None if Python has to do it.
#[pyfunction]
fn changed_buckets<'py>(
    py: Python<'py>,
    cells: &Bound<'py, PyList>,
    base_us: i64,
    windows: Vec<Window<'py>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (mut codes, mut agents) = (Numbers::new(), Numbers::new());
    let base = match narrowest(cells, base_us, &mut codes, &mut agents) {
        Some(level) => level,
        None => return Ok(None),
    };
    let codes = match codes.bytes() {
        Some(codes) => codes,
        None => return Ok(None),
    };
    let mut levels = HashMap::from([(base_us, base)]);
    let touched = PyDict::new(py);
    for (name, bucket_us, source_us, oldest, heads, buckets) in &windows {
        if !levels.contains_key(bucket_us) {
            let source = levels.get(source_us);
            match source.and_then(|source| source.coarser(bucket_us / source_us)) {
                Some(level) => levels.insert(*bucket_us, level),
                None => return Ok(None),
            };
        }
        let kept: Vec<bool> = (codes.iter())
            .map(|code| begins_with_one(code, heads))
            .collect();
        for ((bucket, agent), sums) in &levels[bucket_us].found {
            if bucket < oldest || sums.entries.is_empty() {
                continue;
            }
            let agent = &agents.texts[*agent];
            let key = PyTuple::new(py, [bucket.into_pyobject(py)?.as_any(), agent.as_any()])?;
            let stored = buckets.get_item(key)?;
            let bytes = match &stored {
                Some(stored) => Some(stored.downcast::<PyBytes>()?.as_bytes()),
                None => None,
            };
            let made = match added(bytes, &sums.entries, &codes, &kept) {
                Some(made) => made,
                None => return Ok(None),
            };
            let made = (!made.is_empty()).then(|| PyBytes::new(py, &made));
            touched.set_item((name, bucket, agent), made)?;
        }
    }
    Ok(Some(touched))
}

/// Whether the part of a code before its first bar is one of `heads`.
fn begins_with_one(code: &[u8], heads: &HashSet<String>) -> bool {
    let head = code.split(|byte| *byte == b'|').next().unwrap_or_default();
    std::str::from_utf8(head).map_or(false, |head| heads.contains(head))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(changed_buckets, module)?)
}
