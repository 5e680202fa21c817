//! Normalised text: the compiled form of `normalise.normalise_text` and `normalise.canonical_text`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBytes, PyString};

/// Normalised text and its length in code points.
pub struct Normal {
    pub bytes: Vec<u8>,
    pub chars: usize,
    canonical: bool,
}

impl Normal {
    /// `canonical`: whether canonically equivalent texts are equal.
    pub fn new(canonical: bool) -> Self {
        Normal {
            bytes: Vec::new(),
            chars: 0,
            canonical,
        }
    }

    /// Casefolds, collapses white space to single spaces, and strips.
    pub fn set(&mut self, py: Python<'_>, text: &str) -> PyResult<()> {
        if self.set_plain(text.as_bytes()) {
            return Ok(());
        }
        self.bytes.clear();
        self.bytes.reserve(text.len());
        let mut words = Words {
            written: &mut self.bytes,
            ended: false,
            canonical: self.canonical,
            class: 0,
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (run, others) = rest.split_at(ascii_size(rest.as_bytes()));
            words.add_ascii(run.as_bytes());
            let mut others = others.chars();
            if let Some(character) = others.next() {
                if !words.add_other(py, character)? {
                    return self.ask(py, text);
                }
            }
            rest = others.as_str();
        }
        self.chars = code_points(&self.bytes);
        Ok(())
    }

    /// Has Python normalise a text with characters that depend on those around them.
    fn ask(&mut self, py: Python<'_>, text: &str) -> PyResult<()> {
        static CANONICAL_TEXT: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
        let normalise = CANONICAL_TEXT.import(py, NORMALISE, "canonical_text")?;
        let normal = normalise.call1((text,))?;
        self.bytes.clear();
        self.bytes
            .extend_from_slice(normal.downcast::<PyString>()?.to_str()?.as_bytes());
        self.chars = code_points(&self.bytes);
        Ok(())
    }

    /// Accepts an ASCII text whose white space is single spaces; false for another.
    fn set_plain(&mut self, text: &[u8]) -> bool {
        let text = text.strip_prefix(b" ").unwrap_or(text);
        let text = text.strip_suffix(b" ").unwrap_or(text);
        if matches!(text.first(), Some(b' ')) || matches!(text.last(), Some(b' ')) {
            return false;
        }
        self.bytes.clear();
        self.bytes.reserve((text.len() + BLOCK).max(ROOM)); // the last block is written whole
        self.chars = text.len();
        let mut found = [0; BLOCK];
        let mut at = 0;
        while let Some(block) = text.get(at..at + BLOCK + 1) {
            self.bytes.extend_from_slice(&folded(block, &mut found));
            at += BLOCK;
        }
        let rest = &text[at..];
        let mut block = [b'-'; BLOCK + 1];
        block[..rest.len()].copy_from_slice(rest);
        let last = folded(&block, &mut found);
        self.bytes.extend_from_slice(&last);
        self.bytes.truncate(text.len());
        found == [0; BLOCK]
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number of bytes of the first `count` code points.
    pub fn size_of(&self, count: usize) -> usize {
        if self.chars == self.bytes.len() {
            return count.min(self.chars);
        }
        let starts = self.bytes.iter().enumerate();
        let mut starts = starts.filter(|(_, byte)| !is_continuation(**byte));
        starts.nth(count).map_or(self.bytes.len(), |(at, _)| at)
    }

    /// The first `count` code points.
    pub fn prefix(&self, count: usize) -> &[u8] {
        &self.bytes[..self.size_of(count)]
    }
}

const NORMALISE: &str = "stream_metrics.core.dedup.normalise";
const ROOM: usize = 128; // bytes, so that it need not grow with each text
const BLOCK: usize = 16;

/// The block with its ASCII letters in lower case; `found` becomes other than 0 if a byte is not
/// ASCII, or is a control character, or a space before another.
///
/// The byte after the block is needed, too. Without a branch, so that the compiler vectorises the
/// loop.
#[inline]
fn folded(block: &[u8], found: &mut [u8; BLOCK]) -> [u8; BLOCK] {
    let mut lower = [0; BLOCK];
    if let (Some(here), Some(next)) = (block.get(..BLOCK), block.get(1..BLOCK + 1)) {
        for place in 0..BLOCK {
            let byte = here[place];
            let odd = (byte as i8) < b' ' as i8;
            let double = (byte == b' ') & (next[place] == b' ');
            found[place] |= u8::from(odd | double);
            lower[place] = byte.to_ascii_lowercase();
        }
    }
    lower
}

/// Appends the length of a text in code points, then the text.
pub fn write_counted(written: &mut Vec<u8>, utf8: &[u8]) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = code_points(utf8);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    written.extend_from_slice(&digits[first..]);
    written.push(b':');
    written.extend_from_slice(utf8);
}

fn code_points(utf8: &[u8]) -> usize {
    utf8.iter().filter(|byte| !is_continuation(**byte)).count()
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The number of ASCII bytes at the beginning.
fn ascii_size(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len(); // the usual case, found many bytes at a time
    }
    let end = text.iter().position(|byte| !byte.is_ascii());
    end.unwrap_or(text.len())
}

/// Whether all white space in an ASCII text is single spaces.
fn is_plain(text: &[u8]) -> bool {
    let others = match text.split_first() {
        Some((_, others)) => others,
        None => return true,
    };
    // Without a branch, so that the compiler vectorises the loop.
    let control = |found, &byte: &u8| found | u8::from(byte < b' ');
    let double =
        |found, (&one, &next): (&u8, &u8)| found | (u8::from(one == b' ') & u8::from(next == b' '));
    text.iter().fold(0, control) | text.iter().zip(others).fold(0, double) == 0
}

/// A text that is written word by word.
struct Words<'a> {
    written: &'a mut Vec<u8>,
    /// Whether white space follows what is written.
    ended: bool,
    canonical: bool,
    /// The canonical combining class of the last character.
    class: u8,
}

impl Words<'_> {
    fn add_ascii(&mut self, text: &[u8]) {
        if !text.is_empty() {
            self.class = 0;
        }
        if is_plain(text) {
            self.add_plain(text);
            return;
        }
        let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ');
        for (number, word) in text.split(is_space).enumerate() {
            self.ended |= number > 0;
            self.add(word);
        }
    }

    /// Adds an ASCII text in which all white space is single spaces.
    fn add_plain(&mut self, text: &[u8]) {
        let (first, text) = match text {
            [b' ', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let (text, last) = match text {
            [rest @ .., b' '] => (rest, true),
            _ => (text, false),
        };
        self.ended |= first;
        self.add(text);
        self.ended |= last;
    }

    /// False if the form of this character depends on those around it.
    fn add_other(&mut self, py: Python<'_>, character: char) -> PyResult<bool> {
        let page = Page::of(py, character, self.canonical)?;
        let place = character as usize % PAGE;
        if let Some(classes) = &page.classes {
            let class = classes[place];
            if class != 0 && class < self.class {
                return Ok(false); // not in canonical order
            }
            self.class = class;
        }
        match page.folded[place] {
            Folded::InContext => return Ok(false),
            Folded::Space => self.ended = true,
            Folded::One(folded) => {
                self.begin();
                let mut buffer = [0; 4];
                let folded = folded.encode_utf8(&mut buffer);
                self.written.extend_from_slice(folded.as_bytes());
            }
            Folded::Many(place) => {
                self.begin();
                let folded = page.many[usize::from(place)].as_bytes();
                self.written.extend_from_slice(folded);
            }
        }
        Ok(true)
    }

    /// Adds ASCII characters of one word, or of words that are one space apart.
    fn add(&mut self, text: &[u8]) {
        if !text.is_empty() {
            self.begin();
            let before = self.written.len();
            self.written.extend_from_slice(text);
            self.written[before..].make_ascii_lowercase();
        }
    }

    fn begin(&mut self) {
        if self.ended && !self.written.is_empty() {
            self.written.push(b' ');
        }
        self.ended = false;
    }
}
#[derive(Clone, Copy)]
enum Folded {
    Space,
    One(char),
    Many(u8),
    InContext,
}

const PAGE: usize = 256;
const PAGES: usize = 0x11_0000 / PAGE;

/// The case folding of one page of Unicode, requested from Python when the first of its characters
/// occurs, because Python and Rust may have different versions of Unicode.
struct Page {
    folded: [Folded; PAGE],
    many: Vec<String>,
    /// The canonical combining classes, for canonical texts only.
    classes: Option<[u8; PAGE]>,
}

impl Page {
    fn of(py: Python<'_>, character: char, canonical: bool) -> PyResult<&'static Page> {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: GILOnceCell<Box<Page>> = GILOnceCell::new();
        static FOLDED: [GILOnceCell<Box<Page>>; PAGES] = [NONE; PAGES];
        static CANONICAL: [GILOnceCell<Box<Page>>; PAGES] = [NONE; PAGES];
        let number = character as usize / PAGE;
        let page = match canonical {
            false => FOLDED[number].get_or_try_init(py, || Page::ask(py, number).map(Box::new)),
            true => CANONICAL[number]
                .get_or_try_init(py, || Page::ask_canonical(py, number).map(Box::new)),
        };
        page.map(|page| &**page)
    }

    fn new() -> Self {
        Page {
            folded: [Folded::Space; PAGE],
            many: Vec::new(),
            classes: None,
        }
    }

    fn put(&mut self, place: usize, text: String) {
        let mut characters = text.chars();
        self.folded[place] = match (characters.next(), characters.next()) {
            (Some(one), None) => Folded::One(one),
            _ => {
                self.many.push(text);
                Folded::Many((self.many.len() - 1) as u8) // at most 256 of them
            }
        };
    }

    fn ask(py: Python<'_>, number: usize) -> PyResult<Page> {
        let mut page = Page::new();
        let codes = (number * PAGE) as u32..;
        let mut buffer = [0; 4];
        for (place, code) in (0..PAGE).zip(codes) {
            let character = match char::from_u32(code) {
                Some(character) => character,
                None => continue, // half of a surrogate pair
            };
            let text = PyString::new(py, character.encode_utf8(&mut buffer));
            if text.call_method0(intern!(py, "isspace"))?.extract()? {
                continue;
            }
            page.put(
                place,
                text.call_method0(intern!(py, "casefold"))?.extract()?,
            );
        }
        Ok(page)
    }

    fn ask_canonical(py: Python<'_>, number: usize) -> PyResult<Page> {
        static FOLDED_PAGE: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
        let folded_page = FOLDED_PAGE.import(py, NORMALISE, "folded_page")?;
        let answer = folded_page.call1((number,))?;
        let forms: Vec<Option<String>> = answer.get_item(0)?.extract()?;
        let classes = answer.get_item(1)?;
        let mut page = Page::new();
        page.classes = Some(classes.downcast::<PyBytes>()?.as_bytes().try_into()?);
        for (place, form) in (0..PAGE).zip(forms) {
            match form {
                None => page.folded[place] = Folded::InContext,
                Some(form) if form.is_empty() => {} // white space
                Some(form) => page.put(place, form),
            }
        }
        Ok(page)
    }
}
