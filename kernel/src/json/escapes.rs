//! Escapes in JSON texts.

use std::io::Write;

/// The value of a text, given the content between its quotes.
pub fn unescaped(text: &str) -> Option<String> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(plain) = rest.bytes().position(|byte| byte == b'\\') {
        written.push_str(&rest[..plain]);
        let mut at = plain + 1;
        written.push(escape(rest.as_bytes(), &mut at)?);
        rest = rest.get(at..)?;
    }
    written.push_str(rest);
    Some(written)
}

/// Whether the canonical form escapes a character.
pub fn is_escaped(character: char) -> bool {
    matches!(character, '"' | '\\' | '\0'..='\x1f')
}

/// Writes the canonical form of an escaped character.
pub fn write_canonical(text: &mut Vec<u8>, character: char) -> Option<()> {
    match character {
        '"' => text.extend_from_slice(b"\\\""),
        '\\' => text.extend_from_slice(b"\\\\"),
        '\x08' => text.extend_from_slice(b"\\b"),
        '\x0c' => text.extend_from_slice(b"\\f"),
        '\n' => text.extend_from_slice(b"\\n"),
        '\r' => text.extend_from_slice(b"\\r"),
        '\t' => text.extend_from_slice(b"\\t"),
        '\0'..='\x1f' => write!(text, "\\u{:04x}", character as u32).ok()?,
        _ => text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
    Some(())
}

/// Reads an escape whose backslash is before `at`.
pub fn escape(raw: &[u8], at: &mut usize) -> Option<char> {
    let kind = *raw.get(*at)?;
    *at += 1;
    Some(match kind {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => coded(raw, at)?,
        _ => return None,
    })
}

fn coded(raw: &[u8], at: &mut usize) -> Option<char> {
    let first = unit(raw, at)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first); // none for the lower half of a pair
    }
    if !raw[*at..].starts_with(b"\\u") {
        return None;
    }
    *at += 2;
    let lower = unit(raw, at)?;
    if !(0xdc00..0xe000).contains(&lower) {
        return None;
    }
    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (lower - 0xdc00))
}

fn unit(raw: &[u8], at: &mut usize) -> Option<u32> {
    let digits = raw.get(*at..*at + 4)?;
    *at += 4;
    digits.iter().try_fold(0, |value, byte| {
        Some(value << 4 | char::from(*byte).to_digit(16)?)
    })
}
