//! The comparable parts of URLs: the compiled form of `normalise.parse_url`.
//!
//! `parse` handles URLs that do not depend on details of Python's `urllib`; for all others, `ask`
//! calls Python.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;

/// In the order of their tags (`pack`).
pub const IDENTITY_PARAMETERS: [&str; 7] =
    ["id", "itemid", "version", "sourcedoc", "docid", "v", "p"];

const MAX_PARAMETERS: usize = 500;

/// The parts of a URL that are compared: the remaining (name, value) pairs, sorted, and host
/// and path with a NUL between them.
#[derive(Debug, PartialEq, Eq)]
pub struct Url<'a> {
    pub place: Vec<u8>,
    pub parameters: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// The outcome of parsing a URL.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    Url(Url<'a>),
    /// It counts as absent.
    Absent,
    /// Python has to parse it.
    Doubtful,
}

/// Parses a URL of plain ASCII characters.
pub fn parse(url: &str) -> Parsed<'_> {
    // Without a branch, so that the compiler vectorises the loop.
    let plain = |byte: u8| matches!(byte, b'!'..=b'~') & (byte != b'\\');
    if !url.bytes().fold(true, |all, byte| all & plain(byte)) {
        return Parsed::Doubtful;
    }
    let rest = match url.bytes().position(|byte| byte == b':') {
        Some(end) if is_scheme(&url[..end]) => &url[end + 1..],
        _ => url,
    };
    // Python's releases differ on whether a scheme may begin like this.
    if matches!(
        url.as_bytes().first(),
        Some(b'0'..=b'9' | b'+' | b'-' | b'.')
    ) {
        return Parsed::Doubtful;
    }
    let rest = match rest.strip_prefix("//") {
        Some(rest) => rest,
        None => return Parsed::Absent,
    };
    let end = rest
        .bytes()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    if authority.bytes().any(|byte| matches!(byte, b'[' | b']')) {
        return Parsed::Doubtful;
    }
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = host
        .strip_suffix(":80")
        .or_else(|| host.strip_suffix(":443"))
        .unwrap_or(host);
    if host.is_empty() {
        return Parsed::Absent;
    }
    let (rest, fragment) = split_at_byte(rest, b'#');
    let (path, query) = split_at_byte(rest, b'?');
    let mut place = Vec::with_capacity(url.len() + 2);
    place.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
    place.push(0);
    match path {
        "" | "/" => place.push(b'/'),
        _ => add_path(path.strip_suffix('/').unwrap_or(path), &mut place),
    }
    if fragment.starts_with(['/', '!']) {
        place.push(b'#');
        place.extend_from_slice(fragment.as_bytes());
    }
    let mut parameters = Vec::new();
    for (number, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if number == MAX_PARAMETERS {
            // Before the pair is read, so that its content makes no difference.
            return Parsed::Absent;
        }
        let (name, value) = split_at_byte(pair, b'=');
        match (unquoted(name), unquoted(value)) {
            (Some(name), Some(value)) if name.is_ascii() => {
                parameters.push((lower(name), value));
            }
            _ => return Parsed::Doubtful,
        }
    }
    keep_parameters(&mut parameters);
    Parsed::Url(Url { place, parameters })
}

/// Python's result for a URL; None for one that counts as absent.
pub fn ask(py: Python<'_>, url: &str) -> PyResult<Option<Url<'static>>> {
    static PARSE_URL: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
    let parse_url = PARSE_URL.import(py, "stream_metrics.core.dedup.normalise", "parse_url")?;
    let parsed = parse_url.call1((url,))?;
    if parsed.is_none() {
        return Ok(None);
    }
    let (host, path): (String, String) = parsed.getattr(intern!(py, "address"))?.extract()?;
    let mut parameters = Vec::new();
    for pair in parsed.getattr(intern!(py, "parameters"))?.try_iter()? {
        let (name, value): (String, String) = pair?.extract()?;
        parameters.push((Cow::Owned(name), Cow::Owned(value)));
    }
    let mut place = host.into_bytes();
    place.push(0);
    place.extend_from_slice(path.as_bytes());
    Ok(Some(Url { place, parameters }))
}

/// The parts before and after the first occurrence of this ASCII character.
fn split_at_byte(text: &str, mark: u8) -> (&str, &str) {
    match text.bytes().position(|byte| byte == mark) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    }
}

fn is_scheme(text: &str) -> bool {
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(in_scheme)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The byte of a percent triplet at the beginning of `text`.
fn triplet(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match *text {
        [b'%', high, low, ..] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    }
}

/// Appends the path with its percent triplets normalised.
fn add_path(path: &str, place: &mut Vec<u8>) {
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        place.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let size = match triplet(rest) {
            None => 1,
            Some(_) => 3,
        };
        match triplet(rest) {
            Some(byte) if is_unreserved(byte) => place.push(byte),
            _ => place.extend(rest[..size].iter().map(|byte| byte.to_ascii_uppercase())),
        }
        rest = &rest[size..];
    }
    place.extend_from_slice(rest);
}

/// Python's `unquote_plus`; None if the bytes are not UTF-8.
fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, others)) = rest.split_first() {
        if let Some(byte) = triplet(rest) {
            bytes.push(byte);
            rest = &rest[3..];
        } else {
            bytes.push(if first == b'+' { b' ' } else { first });
            rest = others;
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn lower(mut name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_mut().make_ascii_lowercase();
    }
    name
}

fn is_dropped(name: &str) -> bool {
    name.starts_with("utm_")
        || matches!(
            name,
            "web"
                | "preview"
                | "auth"
                | "token"
                | "session"
                | "gclid"
                | "fbclid"
                | "msclkid"
                | "srsltid"
                | "mc_cid"
                | "mc_eid"
                | "igshid"
                | "ref"
                | "ref_src"
        )
}

fn is_dropped_unless_alone(name: &str) -> bool {
    matches!(name, "view" | "action")
}

fn keep_parameters(parameters: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>) {
    parameters.retain(|(name, _)| !is_dropped(name));
    if !parameters
        .iter()
        .all(|(name, _)| is_dropped_unless_alone(name))
    {
        parameters.retain(|(name, _)| !is_dropped_unless_alone(name));
    }
    parameters.sort_unstable();
}
