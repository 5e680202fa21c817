//! The comparable parts of URLs: the compiled form of `normalise.parse_url` and, if `careful`, of
//! `address.careful_url`.
//!
//! `parse` handles URLs that do not depend on details of Python's `urllib`; for all others, `ask`
//! calls Python.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::PyString;

/// In the order of their tags (`pack`).
pub const IDENTITY_PARAMETERS: [&str; 7] =
    ["id", "itemid", "version", "sourcedoc", "docid", "v", "p"];

const MAX_PARAMETERS: usize = 500;

/// Name and value of a parameter: UTF-8, in which bytes that are none are surrogates.
pub type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The parts of a URL that are compared: host and path with a NUL between them, the remaining
/// pairs, sorted, and what counts only where the results differ in something else.
#[derive(Debug, PartialEq, Eq)]
pub struct Url<'a> {
    pub place: Vec<u8>,
    pub parameters: Vec<Pair<'a>>,
    pub route: Vec<u8>,
    pub weak: Vec<Pair<'a>>,
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
pub fn parse(url: &str, careful: bool) -> Parsed<'_> {
    // Without a branch, so that the compiler vectorises the loop.
    let plain = |byte: u8| matches!(byte, b'!'..=b'~') & (byte != b'\\');
    if !url.bytes().fold(true, |all, byte| all & plain(byte)) {
        return Parsed::Doubtful;
    }
    let (scheme, rest) = match url.bytes().position(|byte| byte == b':') {
        Some(end) if is_scheme(&url[..end]) => (&url[..end], &url[end + 1..]),
        _ => ("", url),
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
    let (rest, fragment) = split_at_byte(rest, b'#');
    let (path, query) = split_at_byte(rest, b'?');
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = if careful {
        match web_host(scheme, host) {
            Some(host) if is_spelled_once(host, path) && !is_doubtful(fragment) => host,
            _ => return Parsed::Doubtful,
        }
    } else {
        host.strip_suffix(":80")
            .or_else(|| host.strip_suffix(":443"))
            .unwrap_or(host)
    };
    if host.is_empty() {
        return Parsed::Absent;
    }
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
    let mut weak = Vec::new();
    if careful {
        weak = take_weak(&mut parameters);
    } else {
        keep_parameters(&mut parameters);
    }
    parameters.sort_unstable();
    Parsed::Url(Url {
        place,
        parameters,
        route: Vec::new(),
        weak,
    })
}

/// Python's result for a URL; None for one that counts as absent.
pub fn ask(py: Python<'_>, url: &str, careful: bool) -> PyResult<Option<Url<'static>>> {
    static PARSE_URL: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
    static CAREFUL_URL: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
    let parse = match careful {
        false => PARSE_URL.import(py, "stream_metrics.core.dedup.normalise", "parse_url"),
        true => CAREFUL_URL.import(py, "stream_metrics.core.dedup.address", "careful_url"),
    };
    let parsed = parse?.call1((url,))?;
    if parsed.is_none() {
        return Ok(None);
    }
    let address = parsed.getattr(intern!(py, "address"))?;
    let mut place = utf8(&address.get_item(0)?)?;
    place.push(0);
    place.append(&mut utf8(&address.get_item(1)?)?);
    let pairs = |name: &Bound<'_, PyString>| -> PyResult<Vec<Pair<'static>>> {
        let mut pairs = Vec::new();
        for pair in parsed.getattr(name)?.try_iter()? {
            let pair = pair?;
            let (name, value) = (utf8(&pair.get_item(0)?)?, utf8(&pair.get_item(1)?)?);
            pairs.push((Cow::Owned(name), Cow::Owned(value)));
        }
        Ok(pairs)
    };
    Ok(Some(Url {
        place,
        parameters: pairs(intern!(py, "parameters"))?,
        route: utf8(&parsed.getattr(intern!(py, "route"))?)?,
        weak: pairs(intern!(py, "weak"))?,
    }))
}

/// The UTF-8 of a text that may have surrogates.
fn utf8(text: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    text.call_method1(intern!(text.py(), "encode"), ("utf-8", "surrogatepass"))?
        .extract()
}

/// The host without a port that its scheme implies; None for schemes other than the web's.
fn web_host<'a>(scheme: &str, host: &'a str) -> Option<&'a str> {
    let port = match scheme {
        "" => "",
        _ if scheme.eq_ignore_ascii_case("http") => "80",
        _ if scheme.eq_ignore_ascii_case("https") => "443",
        _ => return None,
    };
    Some(match host.rsplit_once(':') {
        Some((name, "")) => name,
        Some((name, given)) if given == port => name,
        _ => host,
    })
}

/// Whether host and path surely have no other spelling; Python looks at the others.
fn is_spelled_once(host: &str, path: &str) -> bool {
    const ODD: [bool; 256] = set_of(br#""<>[]^`{|}"#);
    let mut before = 0;
    let has_other = |byte: u8| {
        let after_slash = before == b'/' && matches!(byte, b'.' | b'%');
        before = byte;
        after_slash || ODD[usize::from(byte)]
    };
    !host.starts_with(':')
        && !host.as_bytes().windows(2).any(|two| two == b"--") // as in `xn--`
        && !host.bytes().any(|byte| byte == b'%')
        && !path.bytes().any(has_other)
}

/// A table of the bytes in a set.
const fn set_of(bytes: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        set[bytes[at] as usize] = true;
        at += 1;
    }
    set
}

/// Whether Python has to look at a fragment: it may be a page of an application, or have other
/// spellings.
fn is_doubtful(fragment: &str) -> bool {
    if fragment.is_empty() {
        return false;
    }
    if fragment.contains(":~:") || fragment.starts_with("eyJ") {
        return true;
    }
    if fragment.starts_with(['/', '!']) {
        let plain = |byte: u8| is_unreserved(byte) || matches!(byte, b'/' | b'!' | b'?' | b'=');
        return !fragment.bytes().all(plain);
    }
    let sign = |byte: u8| matches!(byte, b'/' | b':' | b'@' | b'=');
    fragment.bytes().any(sign) && !is_page_number(fragment)
}

/// The most frequent fragment that points into one document; Python knows more of them.
fn is_page_number(fragment: &str) -> bool {
    let number = fragment.strip_prefix("page=").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
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
fn unquoted(text: &str) -> Option<Cow<'_, [u8]>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text.as_bytes()));
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
    std::str::from_utf8(&bytes).ok()?;
    Some(Cow::Owned(bytes))
}

fn lower(mut name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if name.iter().any(|byte| byte.is_ascii_uppercase()) {
        name.to_mut().make_ascii_lowercase();
    }
    name
}

fn is_tracking(name: &[u8]) -> bool {
    name.starts_with(b"utm_")
        || matches!(
            name,
            b"gclid"
                | b"fbclid"
                | b"msclkid"
                | b"srsltid"
                | b"mc_cid"
                | b"mc_eid"
                | b"igshid"
                | b"ref_src"
        )
}

fn is_weak(name: &[u8]) -> bool {
    matches!(
        name,
        b"web" | b"preview" | b"auth" | b"token" | b"session" | b"ref"
    )
}

fn is_weak_unless_alone(name: &[u8]) -> bool {
    matches!(name, b"view" | b"action")
}

/// Drops what counts never and, if there are others, what counts only alone.
fn keep_parameters(parameters: &mut Vec<Pair<'_>>) {
    parameters.retain(|(name, _)| !is_tracking(name) && !is_weak(name));
    if !parameters
        .iter()
        .all(|(name, _)| is_weak_unless_alone(name))
    {
        parameters.retain(|(name, _)| !is_weak_unless_alone(name));
    }
}

/// Drops what counts never; takes out, sorted, what counts only where something else differs.
fn take_weak<'a>(parameters: &mut Vec<Pair<'a>>) -> Vec<Pair<'a>> {
    parameters.retain(|(name, _)| !is_tracking(name));
    let ordinary = |name: &[u8]| !is_weak(name) && !is_weak_unless_alone(name);
    let alone = !parameters.iter().any(|(name, _)| ordinary(name));
    let is_taken = |name: &[u8]| is_weak(name) || (!alone && is_weak_unless_alone(name));
    if !parameters.iter().any(|(name, _)| is_taken(name)) {
        return Vec::new(); // the usual case
    }
    let (mut weak, kept) = std::mem::take(parameters)
        .into_iter()
        .partition::<Vec<_>, _>(|(name, _)| is_taken(name));
    *parameters = kept;
    weak.sort_unstable();
    weak
}
