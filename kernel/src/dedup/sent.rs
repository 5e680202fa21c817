//! The source of a fingerprint, whether from a Python object or from a record's bytes.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

const SEPTETS: u32 = 10; // of a `u64`, and more than there are of a size
const SHORT: usize = 0x7f; // below, a size is one character

/// The parts of a result in an unambiguous encoding: `entity_type`, `doc_id`, `url`,
/// `title`, `snippet`, `content`, `ids`, `fields`.
///
/// Results with equal parts have equal encodings.
#[derive(Default)]
pub struct Sent(String);

impl Sent {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reserves this number of bytes, if there is no buffer yet.
    pub fn make_room(&mut self, bytes: usize) {
        if self.0.capacity() == 0 {
            self.0.reserve(bytes);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn null(&mut self) {
        self.0.push('-');
    }

    #[inline]
    pub fn text(&mut self, text: &str) {
        self.counted('s', text.len());
        self.0.push_str(text);
    }

    pub fn truth(&mut self, truth: bool) {
        self.0.push(if truth { '1' } else { '0' });
    }

    /// An integer, in decimal digits.
    pub fn integer(&mut self, digits: &str) {
        self.counted('n', digits.len());
        self.0.push_str(digits);
    }

    pub fn float(&mut self, value: f64) {
        self.0.push('f');
        self.septets(value.to_bits());
    }

    /// The number of values that follow.
    pub fn list(&mut self, values: usize) {
        self.counted('l', values);
    }

    /// The number of names with values that follow.
    pub fn entries(&mut self, count: usize) {
        self.counted('d', count);
    }

    #[inline]
    fn counted(&mut self, tag: char, size: usize) {
        self.0.push(tag);
        if size < SHORT {
            self.0.push(char::from(size as u8));
        } else {
            self.0.push(char::from(SHORT as u8));
            self.septets(size as u64);
        }
    }

    fn septets(&mut self, number: u64) {
        for place in 0..SEPTETS {
            let septet = (number >> (7 * place)) as u8 & 0x7f;
            self.0.push(char::from(septet));
        }
    }

    /// The parts of a `wire.Result`; an error if no record can hold one of them.
    pub fn result(&mut self, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = result.py();
        let texts = [
            intern!(py, "entity_type"),
            intern!(py, "doc_id"),
            intern!(py, "url"),
            intern!(py, "title"),
            intern!(py, "snippet"),
            intern!(py, "content"),
        ];
        for name in texts {
            self.text_or_null(&result.getattr(name)?)?;
        }
        self.dict_or_null(&result.getattr(intern!(py, "ids"))?, Self::text_or_null)?;
        self.dict_or_null(&result.getattr(intern!(py, "fields"))?, Self::scalar)
    }

    fn dict_or_null(
        &mut self,
        entries: &Bound<'_, PyAny>,
        value: fn(&mut Self, &Bound<'_, PyAny>) -> PyResult<()>,
    ) -> PyResult<()> {
        if entries.is_none() {
            self.null();
            return Ok(());
        }
        // Collected first, so that nothing can change the dict meanwhile.
        let entries: Vec<_> = entries.downcast::<PyDict>()?.iter().collect();
        self.entries(entries.len());
        for (name, sent) in &entries {
            self.text(name.downcast::<PyString>()?.to_str()?);
            match sent.downcast::<PyList>() {
                Ok(items) => {
                    let items: Vec<_> = items.iter().collect();
                    self.list(items.len());
                    items.iter().try_for_each(|item| value(self, item))?;
                }
                Err(_) => value(self, sent)?,
            }
        }
        Ok(())
    }

    fn text_or_null(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            self.null();
        } else {
            self.text(value.downcast::<PyString>()?.to_str()?);
        }
        Ok(())
    }

    fn scalar(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(truth) = value.downcast_exact::<PyBool>() {
            self.truth(truth.is_true());
        } else if let Ok(number) = value.downcast_exact::<PyFloat>() {
            self.float(number.value());
        } else if value.is_exact_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(number) => self.integer(&number.to_string()),
                Err(_) => self.integer(value.str()?.to_str()?),
            }
        } else {
            self.text_or_null(value)?;
        }
        Ok(())
    }
}

/// One value; for lists and entries the number that follow.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Null,
    Text(&'a str),
    Truth(bool),
    Integer(&'a str),
    Float(f64),
    List(usize),
    Entries(usize),
}

/// Reads what `Sent` has written.
#[derive(Clone, Copy)]
pub struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    pub fn new(sent: &'a str) -> Self {
        Reader(sent)
    }

    #[inline]
    pub fn value(&mut self) -> Value<'a> {
        if let [b's', size, ..] = *self.0.as_bytes() {
            let end = 2 + usize::from(size);
            if let (true, Some(text), Some(rest)) = (
                usize::from(size) < SHORT,
                self.0.get(2..end),
                self.0.get(end..),
            ) {
                self.0 = rest;
                return Value::Text(text); // most are short texts
            }
        }
        match self.byte() {
            b's' => Value::Text(self.counted()),
            b'n' => Value::Integer(self.counted()),
            b'0' => Value::Truth(false),
            b'1' => Value::Truth(true),
            b'f' => Value::Float(f64::from_bits(self.septets())),
            b'l' => Value::List(self.size()),
            b'd' => Value::Entries(self.size()),
            _ => Value::Null,
        }
    }

    /// A text; None for null.
    pub fn text(&mut self) -> Option<&'a str> {
        match self.value() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value at this position, or those of the list.
    pub fn values(&mut self) -> Values<'a> {
        let alone = Values {
            reader: *self,
            left: 1,
        };
        match self.value() {
            Value::List(left) => {
                let values = Values {
                    reader: *self,
                    left,
                };
                for _ in 0..left {
                    self.value();
                }
                values
            }
            _ => alone,
        }
    }

    /// The entries at this position; none for null.
    pub fn entries(&mut self) -> Entries<'a> {
        let left = match self.value() {
            Value::Entries(count) => count,
            _ => 0,
        };
        let entries = Entries {
            reader: *self,
            left,
        };
        for _ in 0..left {
            self.value();
            self.values();
        }
        entries
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        self.piece(1).bytes().next().unwrap_or(0)
    }

    #[inline]
    fn counted(&mut self) -> &'a str {
        let size = self.size();
        self.piece(size)
    }

    #[inline]
    fn size(&mut self) -> usize {
        match usize::from(self.byte()) {
            SHORT => self.septets() as usize,
            size => size,
        }
    }

    fn septets(&mut self) -> u64 {
        let piece = self.piece(SEPTETS as usize).bytes();
        piece
            .rev()
            .fold(0, |number, septet| number << 7 | u64::from(septet))
    }

    #[inline]
    fn piece(&mut self, size: usize) -> &'a str {
        let pieces = (self.0.get(..size), self.0.get(size..));
        let (piece, rest) = match pieces {
            (Some(piece), Some(rest)) => (piece, rest),
            _ => ("", ""),
        };
        self.0 = rest;
        piece
    }
}

/// The values of one name.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.reader.value())
    }
}

impl ExactSizeIterator for Values<'_> {
    fn len(&self) -> usize {
        self.left
    }
}

/// Names with their values, in the order as sent.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Entries<'a> {
    /// The values of one name; none if it is absent.
    pub fn of(mut self, name: &str) -> Option<Values<'a>> {
        self.find(|(other, _)| *other == name).map(|entry| entry.1)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, Values<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = self.reader.text().unwrap_or_default();
        Some((name, self.reader.values()))
    }
}

impl ExactSizeIterator for Entries<'_> {
    fn len(&self) -> usize {
        self.left
    }
}
