//! Stored fingerprints: the compiled form of `stream_metrics.core.dedup.pack`, which describes
//! the format.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use super::digests::{Digest, Key, Name, KNOWN_NAMES};
use super::print::{Fingerprints, Print};
use super::tables::Kind;
use crate::msgpack::{write_size, write_text, Size};

const FIRST_IDENTITY: u8 = 11;
const LAST_IDENTITY: u8 = 17;
const ROUTE: u8 = 18;
const WEAK: u8 = 19;
const KNOWN_ID: u8 = 32;
const KNOWN_FIELD: u8 = 96;
const NEW_ID: u8 = 160;
const NEW_FIELD: u8 = 207;
const NEW_SPAN: u8 = 47;
const FAR_ID: u8 = 254;
const FAR_FIELD: u8 = 255;

/// The tag of an identifying parameter by its index in `url::IDENTITY_PARAMETERS`.
pub fn identity_tag(place: usize) -> u8 {
    FIRST_IDENTITY + place as u8
}

const USUAL_BYTES: usize = 256; // of a result
const DIGEST_BYTES: usize = 16;

/// The stored form of the searches of one event.
pub fn pack<'a>(
    searches: impl ExactSizeIterator<Item = &'a Fingerprints> + Clone,
) -> PyResult<Vec<u8>> {
    let mut shared = Shared::default();
    let results: usize = searches.clone().map(|search| search.each.len()).sum();
    let mut body = Vec::with_capacity(USUAL_BYTES * (results + 1));
    let mut packed = Vec::with_capacity(USUAL_BYTES);
    sized(write_size(&mut body, Size::Array, searches.len()))?;
    for search in searches {
        sized(write_size(&mut body, Size::Array, search.each.len()))?;
        for print in &search.each {
            packed.clear();
            packed.extend_from_slice(&shared.kind(&print.kind)?.to_be_bytes());
            write_values(&mut packed, print, &mut shared)?;
            sized(write_size(&mut body, Size::Bin, packed.len()))?;
            body.extend_from_slice(&packed);
        }
    }
    let mut whole = Vec::with_capacity(body.len() + 10 * shared.names.len() + USUAL_BYTES);
    sized(write_size(&mut whole, Size::Array, 3))?;
    sized(write_size(&mut whole, Size::Array, shared.names.len()))?;
    for name in &shared.names {
        sized(write_size(&mut whole, Size::Bin, name.len()))?;
        whole.extend_from_slice(name);
    }
    sized(write_size(&mut whole, Size::Array, shared.kinds.len()))?;
    for kind in &shared.kinds {
        sized(write_text(&mut whole, &kind.name))?;
    }
    whole.append(&mut body);
    Ok(whole)
}

fn sized(written: Option<()>) -> PyResult<()> {
    written.ok_or_else(|| PyOverflowError::new_err("too large for MessagePack"))
}

/// The values that the results of one event share.
#[derive(Default)]
struct Shared<'a> {
    names: Vec<Key>,
    name_places: BTreeMap<Key, u32>,
    kinds: Vec<&'a Arc<Kind>>,
    kind_places: BTreeMap<&'a str, u16>,
    last_kind: Option<(&'a Arc<Kind>, u16)>,
}

impl<'a> Shared<'a> {
    fn kind(&mut self, kind: &'a Arc<Kind>) -> PyResult<u16> {
        match self.last_kind {
            Some((last, place)) if Arc::ptr_eq(last, kind) => return Ok(place),
            _ => {}
        }
        let place = match self.kind_places.get(kind.name.as_str()) {
            Some(&place) => place,
            None => {
                let place = u16::try_from(self.kinds.len())
                    .map_err(|_| PyOverflowError::new_err("too many entity types in one event"))?;
                self.kinds.push(kind);
                self.kind_places.insert(&kind.name, place);
                place
            }
        };
        self.last_kind = Some((kind, place));
        Ok(place)
    }

    /// The tag of a name that is not in `KNOWN_NAMES`.
    fn write_tag(&mut self, packed: &mut Vec<u8>, digest: Key, tags: Tags) -> PyResult<()> {
        let place = match self.name_places.get(&digest) {
            Some(&place) => place,
            None => {
                let place = u32::try_from(self.names.len())
                    .map_err(|_| PyOverflowError::new_err("too many names in one event"))?;
                self.names.push(digest);
                self.name_places.insert(digest, place);
                place
            }
        };
        if place < u32::from(NEW_SPAN) {
            packed.push(tags.new + place as u8);
        } else {
            packed.push(tags.far);
            packed.extend_from_slice(&place.to_be_bytes());
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Tags {
    known: u8,
    new: u8,
    far: u8,
}

const ID_TAGS: Tags = Tags {
    known: KNOWN_ID,
    new: NEW_ID,
    far: FAR_ID,
};
const FIELD_TAGS: Tags = Tags {
    known: KNOWN_FIELD,
    new: NEW_FIELD,
    far: FAR_FIELD,
};

fn write_values(packed: &mut Vec<u8>, print: &Print, shared: &mut Shared<'_>) -> PyResult<()> {
    packed.push(print.flags);
    write_some(packed, 1, &print.doc);
    write_some(packed, 2, &print.doc_exact);
    write_some(packed, 3, &print.url);
    write_some(packed, 4, &print.parameters);
    write_some(packed, 5, &print.title);
    write_some(packed, 6, &print.snippet);
    write_some(packed, 7, &print.content);
    let keys = [&print.key_title, &print.key_snippet, &print.key_content];
    for (tag, key) in (8..).zip(keys) {
        if let Some(key) = key {
            packed.push(tag);
            packed.extend_from_slice(key);
        }
    }
    for (tag, digest) in &print.identity {
        write_digest(packed, *tag, digest);
    }
    write_some(packed, ROUTE, &print.route);
    write_some(packed, WEAK, &print.weak);
    for (values, tags) in [(&print.ids, ID_TAGS), (&print.fields, FIELD_TAGS)] {
        for (name, digest) in values {
            match name {
                Name::Known(place) => write_digest(packed, tags.known + place, digest),
                Name::Other(name) => {
                    shared.write_tag(packed, *name, tags)?;
                    packed.extend_from_slice(digest);
                }
            }
        }
    }
    Ok(())
}

#[inline]
fn write_some(packed: &mut Vec<u8>, tag: u8, digest: &Option<Digest>) {
    if let Some(digest) = digest {
        write_digest(packed, tag, digest);
    }
}

/// Both in one step, because a result has a dozen.
#[inline]
fn write_digest(packed: &mut Vec<u8>, tag: u8, digest: &Digest) {
    let mut value = [tag; 1 + DIGEST_BYTES];
    value[1..].copy_from_slice(digest);
    packed.extend_from_slice(&value);
}

/// The fingerprints of each of an event's searches. `kind` finds a type by its canonical name and
/// `name` the name of a stored digest.
pub fn unpack(
    data: &[u8],
    kind: impl FnMut(&str) -> PyResult<Arc<Kind>>,
    name: impl Fn(&Key) -> Name,
) -> PyResult<Vec<Fingerprints>> {
    let mut reader = Reader(data);
    if reader.size(Size::Array)? != 3 {
        return Err(malformed());
    }
    let names = reader.list(|reader| Ok(name(&reader.piece(Size::Bin).and_then(exactly)?)))?;
    let mut kind = kind;
    let kinds = reader.list(|reader| {
        let text = std::str::from_utf8(reader.piece(Size::Str)?).map_err(|_| malformed())?;
        kind(text)
    })?;
    let searches = reader.list(|reader| {
        let each = reader.list(|reader| {
            read_print(Reader(reader.piece(Size::Bin)?), &names, &kinds).map(Arc::new)
        })?;
        Ok(Fingerprints {
            each,
            urls_unparsed: 0,
        })
    })?;
    match reader.0 {
        [] => Ok(searches),
        _ => Err(malformed()),
    }
}

fn read_print(mut reader: Reader<'_>, names: &[Name], kinds: &[Arc<Kind>]) -> PyResult<Print> {
    let kind = kinds.get(usize::from(u16::from_be_bytes(reader.array()?)));
    let mut print = Print::new(Arc::clone(kind.ok_or_else(malformed)?));
    print.flags = reader.byte()?;
    while !reader.0.is_empty() {
        let tag = reader.byte()?;
        match tag {
            1 => print.doc = Some(reader.array()?),
            2 => print.doc_exact = Some(reader.array()?),
            3 => print.url = Some(reader.array()?),
            4 => print.parameters = Some(reader.array()?),
            5 => print.title = Some(reader.array()?),
            6 => print.snippet = Some(reader.array()?),
            7 => print.content = Some(reader.array()?),
            8 => print.key_title = Some(reader.array()?),
            9 => print.key_snippet = Some(reader.array()?),
            10 => print.key_content = Some(reader.array()?),
            FIRST_IDENTITY..=LAST_IDENTITY => print.identity.push((tag, reader.array()?)),
            ROUTE => print.route = Some(reader.array()?),
            WEAK => print.weak = Some(reader.array()?),
            KNOWN_ID..=NEW_ID_BEFORE => {
                let (first, values) = match tag {
                    KNOWN_FIELD.. => (KNOWN_FIELD, &mut print.fields),
                    _ => (KNOWN_ID, &mut print.ids),
                };
                if usize::from(tag - first) >= KNOWN_NAMES.len() {
                    return Err(malformed());
                }
                values.push((Name::Known(tag - first), reader.array()?));
            }
            NEW_ID.. => {
                let (place, values) = match tag {
                    FAR_ID => (u32::from_be_bytes(reader.array()?), &mut print.ids),
                    FAR_FIELD => (u32::from_be_bytes(reader.array()?), &mut print.fields),
                    NEW_FIELD.. => (u32::from(tag - NEW_FIELD), &mut print.fields),
                    _ => (u32::from(tag - NEW_ID), &mut print.ids),
                };
                let name = usize::try_from(place)
                    .ok()
                    .and_then(|place| names.get(place));
                let digest: Digest = reader.array()?;
                values.push((*name.ok_or_else(malformed)?, digest));
            }
            _ => return Err(malformed()),
        }
    }
    Ok(print)
}

const NEW_ID_BEFORE: u8 = NEW_ID - 1;

/// The bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        if count > self.0.len() {
            return Err(malformed());
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        self.take(N).and_then(exactly)
    }

    fn byte(&mut self) -> PyResult<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn size(&mut self, what: Size) -> PyResult<usize> {
        let size = match (what, self.byte()?) {
            (Size::Array, mark @ 0x90..=0x9f) => u32::from(mark & 0x0f),
            (Size::Str, mark @ 0xa0..=0xbf) => u32::from(mark & 0x1f),
            (Size::Bin, 0xc4) | (Size::Str, 0xd9) => u32::from(self.byte()?),
            (Size::Array, 0xdc) | (Size::Bin, 0xc5) | (Size::Str, 0xda) => {
                u32::from(u16::from_be_bytes(self.array()?))
            }
            (Size::Array, 0xdd) | (Size::Bin, 0xc6) | (Size::Str, 0xdb) => {
                u32::from_be_bytes(self.array()?)
            }
            _ => return Err(malformed()),
        };
        usize::try_from(size).map_err(|_| malformed())
    }

    fn piece(&mut self, what: Size) -> PyResult<&'a [u8]> {
        let size = self.size(what)?;
        self.take(size)
    }

    fn list<T>(&mut self, item: impl FnMut(&mut Self) -> PyResult<T>) -> PyResult<Vec<T>> {
        let size = self.size(Size::Array)?;
        // An item takes at least a byte: a larger count is invalid, and must not take memory.
        if size > self.0.len() {
            return Err(malformed());
        }
        let mut item = item;
        (0..size).map(|_| item(self)).collect()
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> PyResult<[u8; N]> {
    bytes.try_into().map_err(|_| malformed())
}

fn malformed() -> PyErr {
    PyValueError::new_err("not packed fingerprints")
}
