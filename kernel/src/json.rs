//! One strict scan of a JSON text, which writes its canonical form: sorted keys, no spaces, floats
//! as Python's `repr`, texts escaped as Python's `json` does.
//!
//! The scan gives up (`None`) on what is no JSON, and just as well on what is rare and hard to get
//! exactly right: keys that stand twice or need an escape, exponents, integers beyond 64 bits.

use std::cmp::Ordering;
use std::io::Write;

const LARGEST_PLAIN: f64 = 1e16; // from here on, and below the next, `repr` writes an exponent
const SMALLEST_PLAIN: f64 = 1e-4;
const DIGITS_OF_EVERY_U64: usize = 19;
const DIGITS_OF_EVERY_I64: usize = 18;
const DIGITS_THAT_A_DOUBLE_KEEPS: usize = 15;
const MOST_MOVES: usize = 16; // of a byte, on average: once for each object around it
const LEVEL_OF_IDS: usize = 6; // event, `searches`, search, `results`, result, `ids`

/// A value or a name, as it was sent; places are those of the text as it was sent.
///
/// Behind an object stand its names and values in turn, behind a list its values.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// `behind` is the place among the tokens that follows on all that is inside.
    Object {
        members: u32,
        behind: u32,
    },
    List {
        elements: u32,
        behind: u32,
    },
    /// What stands between the quotes, without escapes.
    Plain {
        start: u32,
        end: u32,
    },
    /// What stands between the quotes, with escapes.
    Escaped {
        start: u32,
        end: u32,
    },
    Integer {
        start: u32,
        end: u32,
    },
    Decimal {
        start: u32,
        end: u32,
    },
    Truth(bool),
    Null,
}

/// `"key":value` in the canonical text.
struct Member {
    prefix: u64, // of the key: its first bytes, which mostly decide the order
    start: usize,
    value: usize,
    end: usize,
}

impl Member {
    fn key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start + 1..self.value - 2]
    }

    fn has_key(&self, short: &[u8]) -> bool {
        self.prefix == prefix(short, short.len()) && self.value - self.start - 3 == short.len()
    }

    fn order(&self, other: &Self, text: &[u8]) -> Ordering {
        let by_prefix = self.prefix.cmp(&other.prefix);
        by_prefix.then_with(|| self.key(text).cmp(other.key(text)))
    }
}

/// An object or list that is not closed yet.
struct Frame {
    is_object: bool,
    ordered: bool,  // its keys stand in ascending order so far, by their prefixes alone
    content: usize, // where its content begins in the canonical text
    members: usize, // its first member
    elements: usize, // of a list
    token: usize,
}

/// The canonical text, and upper bounds on what it holds.
#[derive(Default)]
pub struct Canonical {
    pub text: Vec<u8>,
    /// The most elements of a list.
    pub longest_list: usize,
    /// The elements of all lists.
    pub elements: usize,
    /// The most members of an object.
    pub widest_object: usize,
    /// The most bytes of a text that is a value of `url`.
    pub longest_url: usize,
    /// Whether a key `doc_id` stands where `ids` of a result may be.
    pub doc_id_in_ids: bool,
    /// What was read, in the order in which it was sent.
    pub tokens: Vec<Token>,
    members: Vec<Member>, // of the open objects; in the end those of the outermost one
}

impl Canonical {
    /// The canonical value of a member of the outermost object.
    pub fn member(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.members.iter().find(|m| m.key(&self.text) == key)?;
        Some(&self.text[found.value..found.end])
    }

    /// Whether the outermost value is an object.
    pub fn is_object(&self) -> bool {
        self.text.first() == Some(&b'{')
    }
}

/// The canonical form of `text`, which may nest up to `max_levels` deep.
pub fn canonical(text: &str, max_levels: usize) -> Option<Canonical> {
    let raw = text.as_bytes();
    u32::try_from(raw.len()).ok()?; // so is each place in it
    let found = Canonical {
        text: Vec::with_capacity(raw.len() + 8),
        members: Vec::with_capacity(32),
        tokens: Vec::with_capacity(raw.len() / 8),
        ..Canonical::default()
    };
    let scan = Scan {
        raw,
        at: 0,
        found,
        frames: Vec::with_capacity(8),
        copied: 0,
        moved: 0,
        sorted: Vec::new(),
    };
    scan.run(max_levels)
}

struct Scan<'a> {
    raw: &'a [u8],
    at: usize,
    copied: usize, // what stands between here and `at` is canonical, but not in `found.text` yet
    found: Canonical,
    frames: Vec<Frame>,
    sorted: Vec<u8>, // scratch
    moved: usize,    // bytes, in sorting
}

impl Scan<'_> {
    fn run(mut self, max_levels: usize) -> Option<Canonical> {
        loop {
            match self.next_visible()? {
                open @ (b'{' | b'[') => {
                    if self.frames.len() >= max_levels {
                        return None;
                    }
                    self.at += 1;
                    let is_object = open == b'{';
                    let token = self.found.tokens.len();
                    self.found.tokens.push(Token::Null); // until it is closed
                    self.frames.push(Frame {
                        is_object,
                        ordered: true,
                        content: self.length(),
                        members: self.found.members.len(),
                        elements: 0,
                        token,
                    });
                    if self.next_visible()? != open + 2 {
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                    self.close()?;
                }
                b'"' => {
                    let start = self.length();
                    self.string()?;
                    self.note_text(start);
                }
                b't' => self.word(b"true", Token::Truth(true))?,
                b'f' => self.word(b"false", Token::Truth(false))?,
                b'n' => self.word(b"null", Token::Null)?,
                _ => self.number()?,
            }
            if self.behind_value()? {
                self.copy();
                return Some(self.found);
            }
        }
    }

    /// Goes on to where the next value begins; true at the end of the text.
    fn behind_value(&mut self) -> Option<bool> {
        loop {
            let length = self.length();
            let is_object = match self.frames.last_mut() {
                None => return self.next_visible().is_none().then_some(true),
                Some(frame) if frame.is_object => {
                    self.found.members.last_mut()?.end = length;
                    true
                }
                Some(frame) => {
                    frame.elements += 1;
                    false
                }
            };
            match (self.next_visible()?, is_object) {
                (b',', true) => {
                    self.at += 1;
                    self.key()?;
                    return Some(false);
                }
                (b',', false) => {
                    self.at += 1;
                    return Some(false);
                }
                (b'}', true) | (b']', false) => self.close()?,
                _ => return None,
            }
        }
    }

    /// The length of the canonical text so far.
    #[inline]
    fn length(&self) -> usize {
        self.found.text.len() + (self.at - self.copied)
    }

    #[inline]
    fn copy(&mut self) {
        let text = &self.raw[self.copied..self.at];
        self.found.text.extend_from_slice(text);
        self.copied = self.at;
    }

    #[inline]
    fn next_visible(&mut self) -> Option<u8> {
        let byte = *self.raw.get(self.at)?;
        if byte > b' ' {
            return Some(byte);
        }
        self.copy();
        while matches!(self.raw.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
            self.copied = self.at;
        }
        self.raw.get(self.at).copied()
    }

    fn word(&mut self, word: &[u8], token: Token) -> Option<()> {
        if !self.raw[self.at..].starts_with(word) {
            return None;
        }
        self.at += word.len();
        self.found.tokens.push(token);
        Some(())
    }

    /// Reads `"key":`.
    fn key(&mut self) -> Option<()> {
        if self.next_visible()? != b'"' {
            return None;
        }
        let (start, from) = (self.length(), self.at + 1);
        if self.string()? {
            return None; // its place among the keys is not that of its escaped form
        }
        let length = self.at - 1 - from;
        let as_sent = length == self.length() - start - 2;
        let mut member = Member {
            prefix: prefix(&self.raw[from..], length),
            start,
            value: self.length() + 1,
            end: 0,
        };
        if self.next_visible()? != b':' {
            return None;
        }
        self.at += 1;
        if !as_sent {
            self.copy();
            let key = member.key(&self.found.text);
            member.prefix = prefix(key, key.len());
        }
        if self.frames.len() == LEVEL_OF_IDS && member.has_key(b"doc_id") {
            self.found.doc_id_in_ids = true;
        }
        let frame = self.frames.last_mut()?;
        if frame.ordered {
            if let Some(before) = self.found.members[frame.members..].last() {
                frame.ordered = before.prefix < member.prefix;
            }
        }
        self.found.members.push(member);
        Some(())
    }

    /// Reads a text; true if its canonical form has an escape.
    fn string(&mut self) -> Option<bool> {
        self.at += 1;
        let start = self.at as u32;
        let (mut escapes, mut escaped) = (false, false);
        loop {
            let rest = &self.raw[self.at..];
            let plain = plain_length(rest);
            let end = *rest.get(plain)?;
            self.at += plain;
            if end == b'"' {
                let end = self.at as u32;
                self.found.tokens.push(match escapes {
                    false => Token::Plain { start, end },
                    true => Token::Escaped { start, end },
                });
                self.at += 1;
                return Some(escaped);
            }
            if end != b'\\' {
                return None; // a control character
            }
            self.copy();
            self.at += 1;
            escapes = true;
            escaped |= self.escape()?;
            self.copied = self.at;
        }
    }

    /// Reads an escape, behind its backslash; true if the canonical form has one, too.
    fn escape(&mut self) -> Option<bool> {
        let character = escape(self.raw, &mut self.at)?;
        let text = &mut self.found.text;
        match character {
            '"' => text.extend_from_slice(b"\\\""),
            '\\' => text.extend_from_slice(b"\\\\"),
            '\x08' => text.extend_from_slice(b"\\b"),
            '\x0c' => text.extend_from_slice(b"\\f"),
            '\n' => text.extend_from_slice(b"\\n"),
            '\r' => text.extend_from_slice(b"\\r"),
            '\t' => text.extend_from_slice(b"\\t"),
            '\0'..='\x1f' => write!(text, "\\u{:04x}", character as u32).ok()?,
            _ => {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Some(false);
            }
        }
        Some(true)
    }

    fn number(&mut self) -> Option<()> {
        let raw = self.raw;
        let rest = &raw[self.at..];
        let sign = usize::from(rest.first() == Some(&b'-'));
        let whole = digits(&rest[sign..]);
        if whole == 0 || whole > DIGITS_OF_EVERY_U64 || (whole > 1 && rest[sign] == b'0') {
            return None;
        }
        let point = sign + whole;
        match rest.get(point) {
            Some(b'e' | b'E') => return None,
            Some(b'.') => {}
            _ => {
                let minus = sign == 1;
                if minus && (rest[sign] == b'0' || whole > DIGITS_OF_EVERY_I64) {
                    return None;
                }
                let start = self.at as u32;
                self.at += point;
                let end = self.at as u32;
                self.found.tokens.push(Token::Integer { start, end });
                return Some(());
            }
        }
        let fraction = &rest[point + 1..];
        let fraction = &fraction[..digits(fraction)];
        let end = point + 1 + fraction.len();
        if fraction.is_empty() || matches!(rest.get(end), Some(b'e' | b'E')) {
            return None;
        }
        self.found.tokens.push(Token::Decimal {
            start: self.at as u32,
            end: (self.at + end) as u32,
        });
        if is_repr(&rest[sign..point], fraction) {
            self.at += end;
            return Some(());
        }
        self.copy();
        self.hard_float(&rest[..end])?;
        self.at += end;
        self.copied = self.at;
        Some(())
    }

    fn hard_float(&mut self, token: &[u8]) -> Option<()> {
        let digits = token.iter().filter(|byte| byte.is_ascii_digit());
        if digits.skip_while(|byte| **byte == b'0').count() > DIGITS_OF_EVERY_U64 {
            return None;
        }
        let value: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
        if value != 0.0 && !(SMALLEST_PLAIN..LARGEST_PLAIN).contains(&value.abs()) {
            return None;
        }
        let text = &mut self.found.text;
        let start = text.len();
        write!(text, "{value}").ok()?;
        match text[start..].iter().position(|byte| *byte == b'.') {
            Some(point) if is_half_way(value, text.len() - start - point - 1) => return None,
            Some(_) => {}
            None => text.extend_from_slice(b".0"),
        }
        Some(())
    }

    fn note_text(&mut self, start: usize) {
        let length = self.length() - start;
        if let (Some(frame), Some(member)) = (self.frames.last(), self.found.members.last()) {
            if frame.is_object && member.has_key(b"url") {
                self.found.longest_url = self.found.longest_url.max(length);
            }
        }
    }

    /// Closes the innermost object or list at its last bracket, and puts its members in order.
    fn close(&mut self) -> Option<()> {
        let frame = self.frames.pop()?;
        let behind = self.found.tokens.len() as u32;
        let token = if frame.is_object {
            if !frame.ordered {
                self.copy();
                self.sort(&frame)?;
            }
            let found = &mut self.found;
            let width = found.members.len() - frame.members;
            found.widest_object = found.widest_object.max(width);
            if !self.frames.is_empty() {
                found.members.truncate(frame.members);
            }
            Token::Object {
                members: width as u32,
                behind,
            }
        } else {
            let found = &mut self.found;
            found.longest_list = found.longest_list.max(frame.elements);
            found.elements += frame.elements;
            Token::List {
                elements: frame.elements as u32,
                behind,
            }
        };
        *self.found.tokens.get_mut(frame.token)? = token;
        self.at += 1;
        Some(())
    }

    fn sort(&mut self, frame: &Frame) -> Option<()> {
        let text = &mut self.found.text;
        self.moved += text.len() - frame.content;
        if self.moved > MOST_MOVES * self.raw.len() {
            return None;
        }
        let members = &mut self.found.members[frame.members..];
        members.sort_unstable_by(|a, b| a.order(b, text));
        if (members.windows(2)).any(|pair| pair[0].order(&pair[1], text) == Ordering::Equal) {
            return None;
        }
        self.sorted.clear();
        self.sorted.reserve(text.len() - frame.content);
        for member in members {
            if !self.sorted.is_empty() {
                self.sorted.push(b',');
            }
            let start = frame.content + self.sorted.len();
            let span = &text[member.start..member.end];
            self.sorted.extend_from_slice(span);
            member.value = start + (member.value - member.start);
            member.end = start + span.len();
            member.start = start;
        }
        text.truncate(frame.content);
        text.extend_from_slice(&self.sorted);
        Some(())
    }
}

/// What a text stands for, given what is between its quotes.
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

/// Reads an escape, of which the backslash stands before `at`.
fn escape(raw: &[u8], at: &mut usize) -> Option<char> {
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

/// The first bytes of the key that stands at the start of `text`, as a number of their order.
#[inline]
fn prefix(text: &[u8], length: usize) -> u64 {
    let mut first = [0; 8];
    match text.get(..8) {
        Some(bytes) => first.copy_from_slice(bytes),
        None => first
            .iter_mut()
            .zip(text)
            .for_each(|(to, from)| *to = *from),
    }
    let behind = if length < 8 { !0 >> (8 * length) } else { 0 };
    u64::from_be_bytes(first) & !behind
}

/// How many bytes stand before the first that is a quote, a backslash or a control character.
#[inline]
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let below = |word: u64, bound: u64| word.wrapping_sub(bound * ONES) & !word & HIGH;
    let mut length = 0;
    for chunk in text.chunks_exact(8) {
        let word = u64::from_le_bytes(<[u8; 8]>::try_from(chunk).unwrap_or_default());
        // The lowest of these bits is always right, those above it need not be.
        let special = below(word, 0x20)
            | below(word ^ (u64::from(b'"') * ONES), 1)
            | below(word ^ (u64::from(b'\\') * ONES), 1);
        if special != 0 {
            return length + special.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let rest = &text[length..];
    let plain = |byte: &&u8| **byte >= 0x20 && **byte != b'"' && **byte != b'\\';
    length + rest.iter().take_while(plain).count()
}

#[inline]
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether `value` is just between two decimals with so many digits behind the point.
///
/// If both are as short as can be, `repr` takes the even one, and other libraries either.
fn is_half_way(value: f64, decimals: usize) -> bool {
    let bits = value.to_bits();
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    let exponent = (bits >> 52) as usize & 0x7ff;
    // The value is mantissa / 2^(1075 - exponent), and 10^decimals has as many factors of 2.
    mantissa.trailing_zeros() as usize + decimals + 1 + exponent == 1075
}

/// Whether `whole.fraction` is for certain how `repr` writes it: so few digits are never rounded.
fn is_repr(whole: &[u8], fraction: &[u8]) -> bool {
    let plain_size = whole != b"0" || fraction == b"0" || {
        let zeros = fraction.iter().take_while(|digit| **digit == b'0').count();
        zeros < 4 && zeros < fraction.len()
    };
    whole.len() + fraction.len() <= DIGITS_THAT_A_DOUBLE_KEEPS
        && (fraction.len() == 1 || fraction.last() != Some(&b'0'))
        && plain_size
}
