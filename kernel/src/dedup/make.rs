//! Fingerprints of results; the twin of `fingerprint.Fingerprinter`.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::digests::{key_of, Digester, Slot};
use super::forms::Forms;
use super::pack::identity_tag;
use super::print::{
    Digest, Key, Print, DEFINITIVE, IDENTICAL_CONTENT, LONG_CONTENT, LONG_SNIPPET, NO_TITLE_KEY,
};
use super::tables::{Kind, Tables};
use super::text::{write_counted, Normal};
use super::url::{self, Parsed, Url, IDENTITY_PARAMETERS};

const LONG_TEXT: usize = 50;
const IDENTICAL_TEXT: usize = 200;
const SNIPPET_PREFIX: usize = 100;
const CONTENT_PREFIX: usize = 500;
const TITLE_PREFIX: usize = 100;

/// A result's fingerprint, and whether it has a URL that is none.
pub struct Made {
    pub print: Print,
    pub url_unparsed: bool,
}

/// Makes fingerprints, with the room that this takes.
pub struct Maker<'a> {
    tables: &'a Tables,
    digester: &'a Digester,
    normal: Normal,
    forms: Forms,
    pairs: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub fn new(tables: &'a Tables, digester: &'a Digester) -> Self {
        Maker {
            tables,
            digester,
            normal: Normal::default(),
            forms: Forms::default(),
            pairs: Vec::new(),
        }
    }

    pub fn make(&mut self, result: &Bound<'_, PyAny>) -> PyResult<Made> {
        let py = result.py();
        let kind = match text_of(result.getattr(intern!(py, "entity_type"))?)? {
            Some(name) => self.tables.kind(py, Some(name.to_str()?))?,
            None => self.tables.kind(py, None)?,
        };
        let mut print = Print::new(Arc::clone(&kind));
        if let Some(ids) = dict_of(result.getattr(intern!(py, "ids"))?)? {
            self.add_ids(&mut print, &kind, &ids)?;
        }
        if let Some(doc_id) = text_of(result.getattr(intern!(py, "doc_id"))?)? {
            let doc_id = doc_id.to_str()?;
            let digest = self.digester.doc.digest(doc_id.as_bytes());
            print.doc = Some(digest);
            if is_uuid_form(doc_id) && doc_id.bytes().any(|byte| byte.is_ascii_uppercase()) {
                print.doc_exact = Some(digest);
                let folded = doc_id.to_ascii_lowercase();
                print.doc = Some(self.digester.doc.digest(folded.as_bytes()));
            }
        }
        let mut url_unparsed = false;
        if let Some(text) = filled(result.getattr(intern!(py, "url"))?)? {
            let text = text.to_str()?;
            let url = match url::parse(text) {
                Parsed::Url(url) => Some(url),
                Parsed::Absent => None,
                Parsed::Doubtful => url::ask(py, text)?,
            };
            match url {
                Some(url) => self.add_url(&mut print, &url),
                None => url_unparsed = true,
            }
        }
        let fields = dict_of(result.getattr(intern!(py, "fields"))?)?;
        self.add_texts(&mut print, result)?;
        if let Some(fields) = fields {
            if print.title.is_none() {
                self.title_from_fields(&mut print, &kind, &fields)?;
            }
            self.add_fields(&mut print, &kind, &fields)?;
        }
        Ok(Made {
            print,
            url_unparsed,
        })
    }

    fn add_ids(&self, print: &mut Print, kind: &Kind, ids: &Bound<'_, PyDict>) -> PyResult<()> {
        for (name, value) in items(ids) {
            let name = name.downcast::<PyString>()?;
            let name = name.to_str()?;
            let named = self.digester.named(name);
            let caseless = matches!(name, "alias" | "upn" | "email");
            let before = print.ids.len();
            let mut add = |value: Bound<'_, PyAny>| -> PyResult<()> {
                if let Some(value) = filled(value)? {
                    let value = id_form(&value, caseless)?;
                    print
                        .ids
                        .push((named.name, named.id.digest(value.as_bytes())));
                }
                Ok(())
            };
            match value.downcast::<PyList>() {
                Ok(values) => values.iter().try_for_each(add)?,
                Err(_) => add(value)?,
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

    fn add_url(&mut self, print: &mut Print, url: &Url<'_>) {
        print.url = Some(self.digester.url.digest(&url.place));
        if url.parameters.is_empty() {
            return;
        }
        let pairs = url
            .parameters
            .iter()
            .map(|(name, value)| (&**name, &**value));
        write_pairs(&mut self.pairs, pairs);
        print.parameters = Some(self.digester.parameters.digest(&self.pairs));
        let mut rest = url.parameters.as_slice();
        while let Some((name, _)) = rest.first() {
            let count = rest.iter().take_while(|(other, _)| other == name).count();
            let (same, others) = rest.split_at(count);
            rest = others;
            if let Some(place) = IDENTITY_PARAMETERS.iter().position(|known| known == name) {
                write_pairs(
                    &mut self.pairs,
                    same.iter().map(|(_, value)| (&**value, "")),
                );
                let digest = self.digester.identity[place].digest(&self.pairs);
                print.identity.push((identity_tag(place), digest));
            }
        }
    }

    fn add_texts(&mut self, print: &mut Print, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = result.py();
        let Digester {
            title,
            snippet,
            content,
            ..
        } = self.digester;
        let text = &mut self.normal;
        if normalise(text, result.getattr(intern!(py, "snippet"))?)? {
            let (key, digest) = digests(snippet, text, SNIPPET_PREFIX);
            print.key_snippet = key;
            print.snippet = Some(digest);
            if text.chars >= LONG_TEXT {
                print.flags |= LONG_SNIPPET;
            }
        }
        if normalise(text, result.getattr(intern!(py, "content"))?)? {
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
        if normalise(text, result.getattr(intern!(py, "title"))?)? {
            let (key, digest) = digests(title, text, TITLE_PREFIX);
            print.key_title = key;
            print.title = Some(digest);
        }
        Ok(())
    }

    fn title_from_fields(
        &mut self,
        print: &mut Print,
        kind: &Kind,
        fields: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let py = fields.py();
        if let Some(name) = &kind.title_fallback {
            if let Some(value) = fields.get_item(name)? {
                if self.forms.field(&value)? {
                    print.title = Some(match self.forms.form.split_first() {
                        Some((b's', text)) => self.digester.title.digest(text),
                        _ => self.digester.title_form.digest(&self.forms.form),
                    });
                }
            }
        }
        let names = [
            intern!(py, "subject"),
            intern!(py, "file_name"),
            intern!(py, "display_name"),
        ];
        for name in names {
            if let Some(value) = fields.get_item(name)? {
                if let Some(text) = self.forms.single_text(&value)? {
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
        print: &mut Print,
        kind: &Kind,
        fields: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        for (name, value) in items(fields) {
            let name = name.downcast::<PyString>()?;
            let name = name.to_str()?;
            let counts = match &kind.fields_used {
                None => !self
                    .tables
                    .rules
                    .ignore_fields
                    .iter()
                    .any(|other| other == name),
                Some(used) => used.iter().any(|other| other == name),
            };
            if counts && self.forms.field(&value)? {
                let named = self.digester.named(name);
                let digest = named.field.digest(&self.forms.form);
                print.fields.push((named.name, digest));
            }
        }
        Ok(())
    }
}

/// Collected at once, so that nothing can change the dict meanwhile.
fn items<'py>(dict: &Bound<'py, PyDict>) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    dict.iter().collect()
}

fn text_of(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyString>>> {
    if value.is_none() {
        return Ok(None);
    }
    Ok(Some(value.downcast_into::<PyString>()?))
}

/// A text that is there and not empty.
fn filled(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyString>>> {
    let text = text_of(value)?;
    match text {
        Some(text) if text.len()? > 0 => Ok(Some(text)),
        _ => Ok(None),
    }
}

fn dict_of(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyDict>>> {
    if value.is_none() {
        return Ok(None);
    }
    Ok(Some(value.downcast_into::<PyDict>()?))
}

/// Normalises a text that may be absent; false if nothing of it remains.
fn normalise(normal: &mut Normal, value: Bound<'_, PyAny>) -> PyResult<bool> {
    match text_of(value)? {
        None => Ok(false),
        Some(text) => {
            normal.set(text.py(), text.to_str()?)?;
            Ok(!normal.is_empty())
        }
    }
}

/// The candidate key of a text that is longer than `prefix`, and its digest.
fn digests(slot: &Slot, text: &Normal, prefix: usize) -> (Option<Key>, Digest) {
    if text.chars <= prefix {
        return (None, slot.digest(&text.bytes));
    }
    let (first, whole) = slot.digests(&text.bytes, text.size_of(prefix));
    (Some(key_of(&first)), whole)
}

/// An identifier as it is compared.
fn id_form<'a>(value: &'a Bound<'_, PyString>, caseless: bool) -> PyResult<Cow<'a, str>> {
    let text = value.to_str()?;
    if caseless && !text.is_ascii() {
        let folded = value.call_method0(intern!(value.py(), "casefold"))?;
        return Ok(Cow::Owned(folded.extract()?));
    }
    let fold = (caseless || is_uuid_form(text)) && text.bytes().any(|b| b.is_ascii_uppercase());
    Ok(match fold {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    })
}

fn is_uuid_form(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

fn write_pairs<'a>(written: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    written.clear();
    for (name, value) in pairs {
        write_counted(written, name.as_bytes());
        write_counted(written, value.as_bytes());
    }
}
