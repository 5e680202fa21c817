//! Fingerprints of results: the compiled form of `fingerprint.Fingerprinter`.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::prelude::*;

use super::digests::{key_of, Digest, Digester, Key, Slot};
use super::forms::Forms;
use super::pack::identity_tag;
use super::print::{
    Print, DEFINITIVE, IDENTICAL_CONTENT, LONG_CONTENT, LONG_SNIPPET, NO_TITLE_KEY,
};
use super::sent::{Entries, Reader, Value};
use super::tables::{casefold, Kind, Tables};
use super::text::{write_counted, Normal};
use super::url::{self, Pair, Parsed, Url, IDENTITY_PARAMETERS};

const LONG_TEXT: usize = 50;
const IDENTICAL_TEXT: usize = 200;
const SNIPPET_PREFIX: usize = 100;
const CONTENT_PREFIX: usize = 500;
const TITLE_PREFIX: usize = 100;
const TITLE_FIELDS: [&str; 3] = ["subject", "file_name", "display_name"];

/// A result's fingerprint, and whether its URL cannot be parsed.
pub struct Made {
    pub print: Print,
    pub url_unparsed: bool,
}

struct Texts<'a> {
    title: Option<&'a str>,
    snippet: Option<&'a str>,
    content: Option<&'a str>,
}

/// Computes fingerprints, with reusable buffers.
pub struct Maker<'a> {
    tables: &'a Tables,
    digester: &'a Digester,
    normal: Normal,
    forms: Forms,
    pairs: Vec<u8>,
    /// The type of the last result as the producer spells it, and its row.
    last: Option<(String, Arc<Kind>)>,
}

impl<'a> Maker<'a> {
    pub fn new(tables: &'a Tables, digester: &'a Digester) -> Self {
        Maker {
            tables,
            digester,
            normal: Normal::new(tables.rules.canonical_texts),
            forms: Forms::new(tables.rules.canonical_texts),
            pairs: Vec::new(),
            last: None,
        }
    }

    /// The digest of a search's query; `None` if it is blank.
    pub fn query(&mut self, py: Python<'_>, text: &str) -> PyResult<Option<Key>> {
        let found = normalise(py, &mut self.normal, Some(text))?;
        Ok(found.then(|| key_of(&self.digester.query.digest(&self.normal.bytes))))
    }

    /// The fingerprint of what `Sent` has written.
    pub fn make(&mut self, py: Python<'_>, sent: &str) -> PyResult<Made> {
        let mut parts = Reader::new(sent);
        let kind = self.kind(py, parts.text().unwrap_or_default())?;
        let doc_id = parts.text();
        let url = parts.text().filter(|url| !url.is_empty());
        let texts = Texts {
            title: parts.text(),
            snippet: parts.text(),
            content: parts.text(),
        };
        let ids = parts.entries();
        let fields = parts.entries();

        let mut print = Print::new(Arc::clone(&kind));
        self.add_ids(py, &mut print, &kind, ids)?;
        if let Some(doc_id) = doc_id {
            let digest = self.digester.doc.digest(doc_id.as_bytes());
            print.doc = Some(digest);
            if is_uuid_form(doc_id) && doc_id.bytes().any(|byte| byte.is_ascii_uppercase()) {
                print.doc_exact = Some(digest);
                let folded = doc_id.to_ascii_lowercase();
                print.doc = Some(self.digester.doc.digest(folded.as_bytes()));
            }
        }
        let mut url_unparsed = false;
        if let Some(text) = url {
            let careful = self.tables.rules.careful_addresses;
            let url = match url::parse(text, careful) {
                Parsed::Url(url) => Some(url),
                Parsed::Absent => None,
                Parsed::Doubtful => url::ask(py, text, careful)?,
            };
            match url {
                Some(url) => self.add_url(&mut print, &url),
                None => url_unparsed = true,
            }
        }
        self.add_texts(py, &mut print, &texts)?;
        if print.title.is_none() && fields.len() > 0 {
            self.title_from_fields(py, &mut print, &kind, fields)?;
        }
        self.add_fields(py, &mut print, &kind, fields)?;
        Ok(Made {
            print,
            url_unparsed,
        })
    }

    fn kind(&mut self, py: Python<'_>, producer_name: &str) -> PyResult<Arc<Kind>> {
        if let Some((name, kind)) = &self.last {
            if name == producer_name {
                return Ok(Arc::clone(kind));
            }
        }
        let kind = self.tables.kind(py, producer_name)?;
        self.last = Some((producer_name.to_owned(), Arc::clone(&kind)));
        Ok(kind)
    }

    fn add_ids(
        &self,
        py: Python<'_>,
        print: &mut Print,
        kind: &Kind,
        ids: Entries<'_>,
    ) -> PyResult<()> {
        print.ids.reserve_exact(ids.len());
        for (name, values) in ids {
            let named = self.digester.named(name);
            let caseless = matches!(name, "alias" | "upn" | "email");
            let before = print.ids.len();
            for value in values {
                if let Value::Text(text) = value {
                    if !text.is_empty() {
                        let form = self.id_form(py, text, caseless)?;
                        let digest = named.id.digest(form.as_bytes());
                        print.ids.push((named.name, digest));
                    }
                }
            }
            if print.ids.len() - before > 1 {
                let mut values = print.ids.split_off(before);
                values.sort_unstable_by_key(|(_, digest)| *digest);
                values.dedup();
                print.ids.append(&mut values);
            }
            if print.ids.len() > before && kind.is_definitive(named.name) {
                print.flags |= DEFINITIVE;
            }
        }
        Ok(())
    }

    /// The comparable form of an identifier.
    fn id_form<'b>(&self, py: Python<'_>, text: &'b str, caseless: bool) -> PyResult<Cow<'b, str>> {
        if caseless && !text.is_ascii() {
            return casefold(py, text, self.tables.rules.canonical_texts).map(Cow::Owned);
        }
        let fold = (caseless || is_uuid_form(text)) && text.bytes().any(|b| b.is_ascii_uppercase());
        Ok(match fold {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        })
    }

    fn add_url(&mut self, print: &mut Print, url: &Url<'_>) {
        print.url = Some(self.digester.url.digest(&url.place));
        if !url.route.is_empty() {
            print.route = Some(self.digester.route.digest(&url.route));
        }
        if !url.weak.is_empty() {
            write_pairs(&mut self.pairs, texts_of(&url.weak));
            print.weak = Some(self.digester.weak.digest(&self.pairs));
        }
        if url.parameters.is_empty() {
            return;
        }
        write_pairs(&mut self.pairs, texts_of(&url.parameters));
        print.parameters = Some(self.digester.parameters.digest(&self.pairs));
        let mut rest = url.parameters.as_slice();
        while let Some((name, _)) = rest.first() {
            let count = rest.iter().take_while(|(other, _)| other == name).count();
            let (same, others) = rest.split_at(count);
            rest = others;
            if let Some(place) = IDENTITY_PARAMETERS
                .iter()
                .position(|known| known.as_bytes() == &**name)
            {
                write_pairs(
                    &mut self.pairs,
                    same.iter().map(|(_, value)| (&**value, &b""[..])),
                );
                let digest = self.digester.identity[place].digest(&self.pairs);
                print.identity.push((identity_tag(place), digest));
            }
        }
    }

    fn add_texts(&mut self, py: Python<'_>, print: &mut Print, texts: &Texts<'_>) -> PyResult<()> {
        let Digester {
            title,
            snippet,
            content,
            ..
        } = self.digester;
        let text = &mut self.normal;
        if normalise(py, text, texts.snippet)? {
            let (key, digest) = digests(snippet, text, SNIPPET_PREFIX);
            print.key_snippet = key;
            print.snippet = Some(digest);
            if text.chars >= LONG_TEXT {
                print.flags |= LONG_SNIPPET;
            }
        }
        if normalise(py, text, texts.content)? {
            let (key, digest) = digests(content, text, CONTENT_PREFIX);
            print.key_content = key;
            print.content = Some(digest);
            if text.chars >= LONG_TEXT {
                print.flags |= LONG_CONTENT;
            }
            if text.chars >= IDENTICAL_TEXT {
                print.flags |= IDENTICAL_CONTENT;
            }
        }
        if normalise(py, text, texts.title)? {
            let (key, digest) = digests(title, text, TITLE_PREFIX);
            print.key_title = key;
            print.title = Some(digest);
        }
        Ok(())
    }

    fn title_from_fields(
        &mut self,
        py: Python<'_>,
        print: &mut Print,
        kind: &Kind,
        fields: Entries<'_>,
    ) -> PyResult<()> {
        let fallback = kind.title_fallback.as_deref();
        if let Some(values) = fallback.and_then(|name| fields.of(name)) {
            if self.forms.field(py, values)? {
                print.title = Some(match self.forms.form.split_first() {
                    Some((b's', text)) => self.digester.title.digest(text),
                    _ => self.digester.title_form.digest(&self.forms.form),
                });
            }
        }
        for name in TITLE_FIELDS {
            if let Some(values) = fields.of(name) {
                if let Some(text) = self.forms.single_text(py, values)? {
                    let digest = self.digester.title.digest(text.prefix(TITLE_PREFIX));
                    print.key_title = Some(key_of(&digest));
                    return Ok(());
                }
            }
        }
        if print.title.is_some() {
            print.flags |= NO_TITLE_KEY;
        }
        Ok(())
    }

    fn add_fields(
        &mut self,
        py: Python<'_>,
        print: &mut Print,
        kind: &Kind,
        fields: Entries<'_>,
    ) -> PyResult<()> {
        let used = kind.fields_used.as_ref().map_or(usize::MAX, Vec::len);
        print.fields.reserve_exact(fields.len().min(used));
        for (name, values) in fields {
            let counts = match &kind.fields_used {
                None => {
                    let mut ignored = self.tables.rules.ignore_fields.iter();
                    !ignored.any(|other| other == name)
                }
                Some(used) => used.iter().any(|other| other == name),
            };
            if counts && self.forms.field(py, values)? {
                let named = self.digester.named(name);
                let digest = named.field.digest(&self.forms.form);
                print.fields.push((named.name, digest));
            }
        }
        Ok(())
    }
}

/// Normalises a text that may be absent; false if it is then empty.
fn normalise(py: Python<'_>, normal: &mut Normal, text: Option<&str>) -> PyResult<bool> {
    match text {
        None => Ok(false),
        Some(text) => {
            normal.set(py, text)?;
            Ok(!normal.is_empty())
        }
    }
}

/// The candidate key and the digest of a text that is longer than `prefix`.
fn digests(slot: &Slot, text: &Normal, prefix: usize) -> (Option<Key>, Digest) {
    if text.chars <= prefix {
        return (None, slot.digest(&text.bytes));
    }
    let (first, whole) = slot.digests(&text.bytes, text.size_of(prefix));
    (Some(key_of(&first)), whole)
}

fn is_uuid_form(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

fn texts_of<'a>(pairs: &'a [Pair<'_>]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    pairs.iter().map(|(name, value)| (&**name, &**value))
}

fn write_pairs<'a>(written: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    written.clear();
    for (name, value) in pairs {
        write_counted(written, name);
        write_counted(written, value);
    }
}
