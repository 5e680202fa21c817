//! Finds given words in texts: the compiled form of `stream_metrics.core.metrics.text`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBytes, PyFrozenSet, PyList, PySet, PyString};

use crate::json::Walk;

/// The only letter whose lower case depends on its context.
const SIGMA: char = '\u{3a3}';

/// The characters at which Python's `str.split` splits, and only they are `str.isspace`.
fn is_space(sign: char) -> bool {
    matches!(
        sign,
        '\t'..='\r' | '\u{1c}'..='\u{1f}' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}'
            | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}'
            | '\u{3000}'
    )
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// The words of `wanted` that occur in texts, and the number of texts with a word besides
/// `articles`; None if Python has to decide.
#[pyfunction]
fn words_among<'py>(
    texts: &Bound<'py, PyList>,
    wanted: &Bound<'py, PyFrozenSet>,
    articles: &Bound<'py, PyFrozenSet>,
) -> PyResult<Option<(Bound<'py, PySet>, usize)>> {
    let (wanted, articles) = (strings(wanted)?, strings(articles)?);
    let mut sought = match Sought::new(texts.py(), &wanted, &articles)? {
        Some(sought) => sought,
        None => return Ok(None),
    };
    for text in texts.iter() {
        match text.downcast::<PyString>()?.to_str() {
            Ok(text) if sought.take(text)? => (),
            _ => return Ok(None), // `Err`: it has lone surrogates
        }
    }
    Ok(Some((sought.found, sought.texts)))
}

/// A record's value, and results by the numbers of their searches and their own.
type EventWithResults<'py> = (Bound<'py, PyBytes>, Vec<(usize, usize)>);

/// `words_among` for the texts of results of valid search iterations: the title, and the content or
/// else the snippet.
///
/// The compiled form of `stream_metrics.lab.replay.recorded.RecordedTexts`.
#[pyfunction]
fn words_in_results<'py>(
    events: Vec<EventWithResults<'py>>,
    wanted: &Bound<'py, PyFrozenSet>,
    articles: &Bound<'py, PyFrozenSet>,
) -> PyResult<Option<(Bound<'py, PySet>, usize)>> {
    let (py, wanted, articles) = (wanted.py(), strings(wanted)?, strings(articles)?);
    let mut sought = match Sought::new(py, &wanted, &articles)? {
        Some(sought) => sought,
        None => return Ok(None),
    };
    for (value, mut places) in events {
        places.sort_unstable();
        let text = simdutf8::basic::from_utf8(value.as_bytes()).ok();
        let texts = match text.and_then(|text| texts_of_results(text, &places)) {
            Some(texts) if texts.len() == places.len() => texts,
            _ => return Ok(None),
        };
        for parts in texts.iter().filter(|parts| !parts.is_empty()) {
            if !sought.take_parts(parts)? {
                return Ok(None);
            }
        }
    }
    Ok(Some((sought.found, sought.texts)))
}

fn strings<'py>(set: &Bound<'py, PyFrozenSet>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let found: Result<_, _> = set.iter().map(|one| one.downcast_into()).collect();
    Ok(found?)
}

// -- texts of results -------------------------------------------------------------------------

type Parts<'a> = Vec<Cow<'a, str>>;

/// The parts of the texts of results at sorted places; None if Python has to decide.
fn texts_of_results<'a>(event: &'a str, places: &[(usize, usize)]) -> Option<Vec<Parts<'a>>> {
    let mut texts = Vec::with_capacity(places.len());
    let mut walk = Walk::new(event);
    let mut is_first = true;
    walk.object(|walk, name| {
        if name != b"searches" {
            return walk.skip();
        }
        once(&mut is_first)?;
        walk.list(|walk, search| {
            let start = places.partition_point(|place| place.0 < search);
            let end = places.partition_point(|place| place.0 <= search);
            match &places[start..end] {
                [] => walk.skip(),
                places => search_texts(walk, places, &mut texts),
            }
        })
    })?;
    walk.is_at_end().then_some(texts)
}

fn search_texts<'a>(
    walk: &mut Walk<'a>,
    places: &[(usize, usize)],
    texts: &mut Vec<Parts<'a>>,
) -> Option<()> {
    let mut is_first = true;
    walk.object(|walk, name| {
        if name != b"results" {
            return walk.skip();
        }
        once(&mut is_first)?;
        let mut left = places;
        walk.list(|walk, result| match left {
            [(_, next), rest @ ..] if *next == result => {
                left = rest;
                texts.push(parts_of_text(walk)?);
                Some(())
            }
            _ => walk.skip(),
        })
    })
}

/// The title, and the content or else the snippet; none that is blank.
fn parts_of_text<'a>(walk: &mut Walk<'a>) -> Option<Parts<'a>> {
    let (mut title, mut content, mut snippet) = (None, None, None);
    walk.object(|walk, name| {
        let part = match name {
            b"title" => &mut title,
            b"content" => &mut content,
            b"snippet" => &mut snippet,
            _ => return walk.skip(),
        };
        let is_first = part.is_none();
        *part = Some(walk.text()?);
        is_first.then_some(())
    })?;
    let visible =
        |part: Option<Option<Cow<'a, str>>>| part.flatten().filter(|text| !is_blank(text));
    let body = visible(content).or_else(|| visible(snippet));
    Some(visible(title).into_iter().chain(body).collect())
}

/// None at the second occurrence of a name, of which the last one counts.
fn once(is_first: &mut bool) -> Option<()> {
    std::mem::take(is_first).then_some(())
}

// -- words ------------------------------------------------------------------------------------

/// The words that are left to find.
struct Sought<'a, 'py> {
    py: Python<'py>,
    left: HashMap<&'a [u8], &'a Bound<'py, PyString>>,
    articles: HashSet<&'a [u8]>,
    /// The lengths of wanted words as bits, by their first byte: most others are told by these.
    lengths: [u64; 256],
    found: Bound<'py, PySet>,
    /// How many of the texts so far have a word besides articles.
    texts: usize,
    word: Vec<u8>,
}

impl<'a, 'py> Sought<'a, 'py> {
    /// None if a word has lone surrogates.
    fn new(
        py: Python<'py>,
        wanted: &'a [Bound<'py, PyString>],
        articles: &'a [Bound<'py, PyString>],
    ) -> PyResult<Option<Self>> {
        let mut sought = Sought {
            py,
            left: HashMap::with_capacity(wanted.len()),
            articles: HashSet::with_capacity(articles.len()),
            lengths: [0; 256],
            found: PySet::empty(py)?,
            texts: 0,
            word: Vec::new(),
        };
        for word in wanted {
            let text = match word.to_str() {
                Ok(text) => text.as_bytes(),
                Err(_) => return Ok(None),
            };
            if let Some(first) = text.first() {
                sought.lengths[usize::from(*first)] |= length_bit(text);
            }
            sought.left.insert(text, word);
        }
        for word in articles {
            sought.articles.insert(word.to_str()?.as_bytes());
        }
        Ok(Some(sought))
    }

    /// Looks for words in a text; false if Python has to do it.
    fn take(&mut self, text: &str) -> PyResult<bool> {
        self.take_parts(&[Cow::Borrowed(text)])
    }

    /// Looks for words in the parts of a text, which are separated by white space.
    fn take_parts(&mut self, parts: &[Cow<'_, str>]) -> PyResult<bool> {
        let mut has_words = false;
        for part in parts {
            let mut rest = part.as_ref();
            if has_words && self.left.is_empty() {
                break; // nothing is left to find
            }
            while !rest.is_empty() {
                let size = self.take_ascii(rest.as_bytes(), &mut has_words)?;
                let mut others = rest[size..].chars();
                match others.next() {
                    Some(sign) if !self.take_other(sign, &mut has_words)? => return Ok(false),
                    _ => (),
                }
                rest = others.as_str();
            }
            self.end_word(&mut has_words)?;
        }
        self.texts += usize::from(has_words);
        Ok(true)
    }

    /// Reads ASCII characters; returns how many there were.
    fn take_ascii(&mut self, text: &[u8], has_words: &mut bool) -> PyResult<usize> {
        for (at, byte) in text.iter().enumerate() {
            match ASCII[usize::from(*byte)] {
                DROPPED => (),
                SPACE => self.end_word(has_words)?,
                OTHER => return Ok(at),
                lower => self.word.push(lower),
            }
        }
        Ok(text.len())
    }

    /// Reads another character; false if Python has to do it.
    fn take_other(&mut self, sign: char, has_words: &mut bool) -> PyResult<bool> {
        if sign == SIGMA {
            return Ok(false);
        }
        match replacement(self.py, sign)? {
            Some(None) => self.add(sign, has_words)?,
            Some(Some(normal)) => {
                for sign in normal.chars() {
                    self.add(sign, has_words)?;
                }
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Adds a normalised character to the word, or ends it.
    fn add(&mut self, sign: char, has_words: &mut bool) -> PyResult<()> {
        if is_space(sign) {
            return self.end_word(has_words);
        }
        let mut buffer = [0; 4];
        self.word
            .extend_from_slice(sign.encode_utf8(&mut buffer).as_bytes());
        Ok(())
    }

    fn end_word(&mut self, has_words: &mut bool) -> PyResult<()> {
        let word = self.word.as_slice();
        if let Some(first) = word.first() {
            *has_words = *has_words || !self.articles.contains(word);
            if self.lengths[usize::from(*first)] & length_bit(word) != 0 {
                if let Some(known) = self.left.remove(word) {
                    self.found.add(known)?;
                }
            }
            self.word.clear();
        }
        Ok(())
    }
}

fn length_bit(word: &[u8]) -> u64 {
    1 << word.len().min(63)
}

const DROPPED: u8 = 0xfe; // no byte of ASCII
const SPACE: u8 = b' ';
const OTHER: u8 = 0xff;

/// What becomes of ASCII characters: the lower case of most.
static ASCII: [u8; 256] = ascii();

const fn ascii() -> [u8; 256] {
    let mut found = [OTHER; 256];
    let mut byte = 0;
    while byte < 128 {
        let sign = byte as u8;
        found[byte] = match sign {
            b'\t'..=b'\r' | 0x1c..=0x1f | b' ' => SPACE,
            _ if sign.is_ascii_punctuation() => DROPPED,
            _ => sign.to_ascii_lowercase(),
        };
        byte += 1;
    }
    found
}

// -- other characters -------------------------------------------------------------------------

const PAGE: usize = 256;
const PAGES: usize = 0x3_2400 / PAGE; // there are few characters beyond, and Python knows them

/// The normalised forms of a page of Unicode; None for a character that stays as it is.
type Page = Vec<Option<String>>;

/// The normalised form of a character that is not ASCII: `Some(None)` if it stays as it is, None if
/// Python has to decide.
///
/// Python tells those of a page when one of them occurs for the first time, because Python and Rust
/// may have different versions of Unicode.
fn replacement(py: Python<'_>, sign: char) -> PyResult<Option<Option<&'static str>>> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NONE: GILOnceCell<Page> = GILOnceCell::new();
    static ALL: [GILOnceCell<Page>; PAGES] = [NONE; PAGES];
    let number = sign as usize / PAGE;
    let page = match ALL.get(number) {
        Some(page) => page.get_or_try_init(py, || {
            py.import(intern!(py, "stream_metrics.core.metrics.text"))?
                .call_method1(intern!(py, "replacements"), (number,))?
                .extract()
        })?,
        None => return Ok(None),
    };
    Ok(Some(page[sign as usize % PAGE].as_deref()))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(words_among, module)?)?;
    module.add_function(wrap_pyfunction!(words_in_results, module)?)
}
