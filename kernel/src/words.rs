//! Finds given words in texts: the compiled form of `stream_metrics.core.metrics.text`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBytes, PyFrozenSet, PyList, PySet, PyString};

use crate::json::Walk;

/// The characters at which Python's `str.split` splits, and only they are `str.isspace`.
fn is_space(sign: char) -> bool {
    matches!(
        sign,
        '\t'..='\r' | '\u{1c}'..='\u{1f}' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}'
            | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}'
            | '\u{3000}'
    )
}

/// The characters with the property Default_Ignorable_Code_Point, as in `unicode.py`.
fn is_invisible(sign: char) -> bool {
    matches!(
        sign,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

fn is_blank(text: &str, version: usize) -> bool {
    text.chars()
        .all(|sign| is_space(sign) || (version > 1 && is_invisible(sign)))
}

/// The words of `wanted` that occur in texts, and the number of texts with a word besides
/// `articles`; None if Python has to decide. `version` is that of the rules.
#[pyfunction]
fn words_among<'py>(
    texts: &Bound<'py, PyList>,
    wanted: &Bound<'py, PyFrozenSet>,
    articles: &Bound<'py, PyFrozenSet>,
    version: usize,
) -> PyResult<Option<(Bound<'py, PySet>, usize)>> {
    let (wanted, articles) = (strings(wanted)?, strings(articles)?);
    let mut sought = match Sought::new(texts.py(), &wanted, &articles, version)? {
        Some(sought) => sought,
        None => return Ok(None),
    };
    for text in texts.iter() {
        match text.downcast::<PyString>()?.to_str() {
            Ok(text) => sought.take_parts(&[Cow::Borrowed(text)])?,
            Err(_) => return Ok(None), // it has lone surrogates
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
    version: usize,
) -> PyResult<Option<(Bound<'py, PySet>, usize)>> {
    let (py, wanted, articles) = (wanted.py(), strings(wanted)?, strings(articles)?);
    let mut sought = match Sought::new(py, &wanted, &articles, version)? {
        Some(sought) => sought,
        None => return Ok(None),
    };
    for (value, mut places) in events {
        places.sort_unstable();
        let text = simdutf8::basic::from_utf8(value.as_bytes()).ok();
        let texts = match text.and_then(|text| texts_of_results(text, &places, version)) {
            Some(texts) if texts.len() == places.len() => texts,
            _ => return Ok(None),
        };
        for parts in texts.iter().filter(|parts| !parts.is_empty()) {
            sought.take_parts(parts)?;
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
fn texts_of_results<'a>(
    event: &'a str,
    places: &[(usize, usize)],
    version: usize,
) -> Option<Vec<Parts<'a>>> {
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
                places => search_texts(walk, places, version, &mut texts),
            }
        })
    })?;
    walk.is_at_end().then_some(texts)
}

fn search_texts<'a>(
    walk: &mut Walk<'a>,
    places: &[(usize, usize)],
    version: usize,
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
                texts.push(parts_of_text(walk, version)?);
                Some(())
            }
            _ => walk.skip(),
        })
    })
}

/// The title, and the content or else the snippet; none that is blank.
fn parts_of_text<'a>(walk: &mut Walk<'a>, version: usize) -> Option<Parts<'a>> {
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
        |part: Option<Option<Cow<'a, str>>>| part.flatten().filter(|text| !is_blank(text, version));
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
    version: usize,
    left: HashMap<&'a [u8], &'a Bound<'py, PyString>>,
    articles: HashSet<&'a [u8]>,
    /// The lengths of wanted words as bits, by their first byte: most others are told by these.
    lengths: [u64; 256],
    found: Bound<'py, PySet>,
    /// Those that were found in the part of a text that is being read.
    found_here: Vec<(&'a [u8], &'a Bound<'py, PyString>)>,
    /// How many of the texts so far have a word besides articles.
    texts: usize,
    word: Vec<u8>,
    /// The canonical combining class of the last character.
    class: u8,
}

impl<'a, 'py> Sought<'a, 'py> {
    /// None if a word has lone surrogates, or the version is unknown.
    fn new(
        py: Python<'py>,
        wanted: &'a [Bound<'py, PyString>],
        articles: &'a [Bound<'py, PyString>],
        version: usize,
    ) -> PyResult<Option<Self>> {
        if !(1..=VERSIONS).contains(&version) {
            return Ok(None);
        }
        let mut sought = Sought {
            py,
            version,
            left: HashMap::with_capacity(wanted.len()),
            articles: HashSet::with_capacity(articles.len()),
            lengths: [0; 256],
            found: PySet::empty(py)?,
            found_here: Vec::new(),
            texts: 0,
            word: Vec::new(),
            class: 0,
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

    /// Looks for words in the parts of a text, which are separated by white space.
    fn take_parts(&mut self, parts: &[Cow<'_, str>]) -> PyResult<()> {
        let mut has_words = false;
        for part in parts {
            if has_words && self.left.is_empty() {
                break; // nothing is left to find
            }
            let had_words = has_words;
            self.found_here.clear();
            if !self.take_signs(part, false, &mut has_words)? {
                has_words = had_words;
                self.take_back()?;
                let text = self.py.import(TEXT)?;
                let prepared = text.call_method1("prepared", (part.as_ref(), self.version))?;
                let prepared = prepared.downcast::<PyString>()?;
                self.take_signs(prepared.to_str()?, true, &mut has_words)?;
            }
        }
        self.texts += usize::from(has_words);
        Ok(())
    }

    /// Reads characters one by one; false if the form of one depends on those around it, as in no
    /// text that Python has prepared.
    fn take_signs(&mut self, part: &str, prepared: bool, has_words: &mut bool) -> PyResult<bool> {
        let pages = pages(self.version, prepared);
        let mut rest = part;
        self.class = 0;
        while !rest.is_empty() {
            let size = self.take_ascii(rest.as_bytes(), has_words)?;
            if size > 0 {
                self.class = 0;
            }
            let mut others = rest[size..].chars();
            match others.next() {
                Some(sign) if !self.take_other(sign, pages, has_words)? => return Ok(false),
                _ => (),
            }
            rest = others.as_str();
        }
        self.end_word(has_words)?;
        Ok(true)
    }

    /// Makes the words that were found in this part unfound.
    fn take_back(&mut self) -> PyResult<()> {
        self.word.clear();
        for (word, known) in self.found_here.drain(..) {
            self.found.discard(known)?;
            self.left.insert(word, known);
        }
        Ok(())
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

    /// Reads another character; false if its form depends on those around it.
    fn take_other(&mut self, sign: char, pages: &Pages, has_words: &mut bool) -> PyResult<bool> {
        let page = match pages.page(self.py, sign)? {
            Some(page) => page,
            None if pages.prepared => {
                self.add(sign, has_words)?;
                return Ok(true);
            }
            None => return Ok(false),
        };
        let place = sign as usize % PAGE;
        let class = page.classes[place];
        if class != 0 && class < self.class {
            return Ok(false); // not in canonical order
        }
        match &page.forms[place] {
            Form::Same => self.add(sign, has_words)?,
            Form::Other(normal) if normal.is_empty() => return Ok(true), // it may be invisible
            Form::Other(normal) => {
                for sign in normal.chars() {
                    self.add(sign, has_words)?;
                }
            }
            Form::InContext => return Ok(false),
        }
        self.class = class;
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
                if let Some((word, known)) = self.left.remove_entry(word) {
                    self.found.add(known)?;
                    self.found_here.push((word, known));
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

const TEXT: &str = "stream_metrics.core.metrics.text";
const VERSIONS: usize = 2;
const PAGE: usize = 256;
const PAGES: usize = 0x3_2400 / PAGE; // there are few characters beyond, and Python knows them

/// The normalised form of a character.
enum Form {
    Same,
    Other(String),
    /// It depends on the characters around it.
    InContext,
}

struct Page {
    forms: Vec<Form>,
    classes: [u8; PAGE],
}

/// The pages of a version of the rules, for texts that Python has prepared or others.
///
/// Python tells a page when one of its characters occurs for the first time, because Python and
/// Rust may have different versions of Unicode.
struct Pages {
    version: usize,
    prepared: bool,
    all: [GILOnceCell<Box<Page>>; PAGES],
}

impl Pages {
    const fn new(version: usize, prepared: bool) -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: GILOnceCell<Box<Page>> = GILOnceCell::new();
        Pages {
            version,
            prepared,
            all: [NONE; PAGES],
        }
    }

    /// The page of a character that is not ASCII; None if it is beyond those of most languages.
    fn page(&self, py: Python<'_>, sign: char) -> PyResult<Option<&Page>> {
        let number = sign as usize / PAGE;
        match self.all.get(number) {
            Some(page) => {
                let page = page.get_or_try_init(py, || self.ask(py, number).map(Box::new))?;
                Ok(Some(page))
            }
            None => Ok(None),
        }
    }

    fn ask(&self, py: Python<'_>, number: usize) -> PyResult<Page> {
        let text = py.import(TEXT)?;
        let answer = text.call_method1("page_of_forms", (number, self.version, self.prepared))?;
        let (forms, classes): (Vec<Option<String>>, Vec<u8>) = answer.extract()?;
        let signs = (number * PAGE) as u32..;
        let forms = forms.into_iter().zip(signs).map(|(form, code)| match form {
            Some(form) if form.chars().map(u32::from).eq([code]) => Form::Same,
            Some(form) => Form::Other(form),
            None => Form::InContext,
        });
        Ok(Page {
            forms: forms.collect(),
            classes: classes.as_slice().try_into()?,
        })
    }
}

fn pages(version: usize, prepared: bool) -> &'static Pages {
    static ALL: [[Pages; 2]; VERSIONS] = [
        [Pages::new(1, false), Pages::new(1, true)],
        [Pages::new(2, false), Pages::new(2, true)],
    ];
    &ALL[version - 1][usize::from(prepared)]
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(words_among, module)?)?;
    module.add_function(wrap_pyfunction!(words_in_results, module)?)
}
