//! Reads a document into tokens, and notes where its text is not canonical.

use std::borrow::Cow;

use super::escapes::{escape, is_escaped, unescaped};
use super::numbers::{number, Number};
use super::room::Room;
use super::shapes::{Place, NOWHERE, OUTSIDE};
use super::tokens::{span, Closed, Member, Token, AS_SENT, IN_ORDER};
use super::write::Writer;
use crate::names::Known;

const LEVEL_OF_IDS: usize = 6; // event, `searches`, search, `results`, result, `ids`

/// Upper bounds on the sizes in a text.
#[derive(Clone, Copy, Default)]
pub struct Extent {
    /// The number of elements of the longest list.
    pub longest_list: usize,
    /// The number of elements of all lists.
    pub elements: usize,
    /// The number of members of the largest object.
    pub widest_object: usize,
    /// The number of bytes of the longest `url`.
    pub longest_url: usize,
    /// Whether a key `doc_id` occurs where the `ids` of a result may be.
    pub doc_id_in_ids: bool,
}

pub struct Scan<'a> {
    pub text: &'a str,
    pub raw: &'a [u8],
    pub at: usize,
    pub max_levels: usize,
    pub changes: usize, // where the text so far is not canonical
    pub found: Extent,
    pub room: Room,
}

impl Scan<'_> {
    /// Reads the top-level value and checks that nothing follows it.
    pub fn whole(&mut self) -> Option<()> {
        let first = self.next_visible()?;
        self.value(first, OUTSIDE, 0)?;
        self.next_visible().is_none().then_some(())
    }

    /// Reads a nested value. Most are texts, which are read without a call.
    #[inline]
    fn inner(&mut self, first: u8, place: Place, level: usize) -> Option<()> {
        match first {
            b'"' => self.any_text(),
            _ => self.value(first, place, level),
        }
    }

    /// Reads a value that begins with this byte, at this level of nesting.
    fn value(&mut self, first: u8, place: Place, level: usize) -> Option<()> {
        match first {
            b'"' => self.any_text(),
            b'{' => self.object(place, level),
            b'[' => self.list(place, level),
            b't' => self.word(b"true", |start| Token::Truth { start, truth: true }),
            b'f' => self.word(b"false", |start| Token::Truth {
                start,
                truth: false,
            }),
            b'n' => self.word(b"null", |start| Token::Null { start }),
            _ => self.number(),
        }
    }

    fn object(&mut self, place: Place, level: usize) -> Option<()> {
        let opened = self.open(level)?;
        let first_member = self.room.members.len();
        let mut shape = self.room.shapes.inside(place);
        if self.next_visible()? != b'}' {
            loop {
                let (key, changes) = (self.at, self.changes);
                let name = self.room.tokens.len() as u32;
                let known;
                (shape, known) = self.key(shape)?;
                if known == Known::DocId && level + 1 == LEVEL_OF_IDS {
                    self.found.doc_id_in_ids = true;
                }
                let first = self.next_visible()?;
                self.inner(first, shape, level + 1)?;
                if known == Known::Url && first == b'"' {
                    self.note_url()?;
                }
                self.room.members.push(Member {
                    start: key as u32,
                    end: self.at as u32,
                    name,
                    as_sent: self.changes == changes,
                });
                match self.next_visible()? {
                    b',' => self.at += 1,
                    b'}' => break,
                    _ => return None,
                }
                self.next_visible()?;
            }
        }
        self.at += 1;
        let members = self.room.members.len() - first_member;
        self.found.widest_object = self.found.widest_object.max(members);
        let order = self.order(first_member, shape)?;
        self.room.members.truncate(first_member);
        let (behind, closed) = self.close(&opened, order);
        self.room.tokens[opened.token] = Token::Object {
            members: members as u32,
            behind,
            closed,
        };
        Some(())
    }

    fn list(&mut self, place: Place, level: usize) -> Option<()> {
        let opened = self.open(level)?;
        let mut elements = 0;
        let mut first = self.next_visible()?;
        if first != b']' {
            loop {
                self.inner(first, place, level + 1)?;
                elements += 1;
                match self.next_visible()? {
                    b',' => self.at += 1,
                    b']' => break,
                    _ => return None,
                }
                first = self.next_visible()?;
            }
        }
        self.at += 1;
        self.found.longest_list = self.found.longest_list.max(elements);
        self.found.elements += elements;
        let (behind, closed) = self.close(&opened, IN_ORDER);
        self.room.tokens[opened.token] = Token::List {
            elements: elements as u32,
            behind,
            closed,
        };
        Some(())
    }

    #[inline]
    fn open(&mut self, level: usize) -> Option<Opened> {
        if level >= self.max_levels {
            return None;
        }
        let opened = Opened {
            token: self.room.tokens.len(),
            start: self.at as u32,
            changes: self.changes,
        };
        self.room.tokens.push(Token::Null { start: 0 }); // until it is closed
        self.at += 1;
        Some(opened)
    }

    /// Records what was just closed; returns its next token and its index.
    #[inline]
    fn close(&mut self, opened: &Opened, order: u32) -> (u32, u32) {
        let room = &mut self.room;
        self.changes += usize::from(order != IN_ORDER);
        let as_sent = self.changes == opened.changes;
        room.closed.push(Closed {
            start: opened.start,
            end: self.at as u32,
            order: if as_sent { AS_SENT } else { order },
        });
        (room.tokens.len() as u32, room.closed.len() as u32 - 1)
    }

    #[inline]
    fn next_visible(&mut self) -> Option<u8> {
        let byte = *self.raw.get(self.at)?;
        if byte > b' ' {
            return Some(byte);
        }
        self.behind_space()
    }

    #[cold]
    fn behind_space(&mut self) -> Option<u8> {
        self.changes += 1;
        while matches!(self.raw.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.raw.get(self.at).copied()
    }

    fn word(&mut self, word: &[u8], token: fn(u32) -> Token) -> Option<()> {
        if !self.raw[self.at..].starts_with(word) {
            return None;
        }
        self.room.tokens.push(token(self.at as u32));
        self.at += word.len();
        Some(())
    }

    /// Reads `"key":`, which follows `shape`.
    #[inline]
    fn key(&mut self, shape: Place) -> Option<(Place, Known)> {
        let rest = &self.raw[self.at..];
        match self.room.shapes.follow(shape, rest) {
            Some(step) => {
                let start = self.at as u32 + 1;
                self.at += step.size;
                let known = step.known;
                let end = self.at as u32 - 2;
                self.room.tokens.push(Token::Name { start, end, known });
                Some((step.place, known))
            }
            None => self.new_key(shape),
        }
    }

    #[inline(never)]
    fn new_key(&mut self, shape: Place) -> Option<(Place, Known)> {
        let first = self.at;
        if *self.raw.get(first)? != b'"' {
            return None;
        }
        let (start, end, escapes) = self.string()?;
        let behind = self.at;
        if self.next_visible()? != b':' {
            return None;
        }
        self.at += 1;
        if escapes {
            let name = unescaped(span(self.text, start, end)?)?;
            if name.chars().any(is_escaped) {
                return None; // its place among the keys is not that of its escaped form
            }
            self.room.tokens.push(Token::Escaped { start, end });
            return Some((NOWHERE, Known::of(name.as_bytes())));
        }
        let known = Known::of(&self.raw[start as usize..end as usize]);
        self.room.tokens.push(Token::Name { start, end, known });
        let place = match self.at == behind + 1 {
            true => (self.room.shapes).learn(shape, &self.raw[first..self.at], known),
            false => NOWHERE,
        };
        Some((place, known))
    }

    #[inline]
    fn any_text(&mut self) -> Option<()> {
        let start = self.at + 1;
        let end = start + plain_length(&self.raw[start..]);
        if self.raw.get(end) == Some(&b'"') {
            self.at = end + 1;
            let (start, end) = (start as u32, end as u32);
            self.room.tokens.push(Token::Plain { start, end });
            return Some(());
        }
        let (start, end, _) = self.string()?;
        self.room.tokens.push(Token::Escaped { start, end });
        Some(())
    }

    /// Reads text up to the closing quote: its range, and whether it has escapes.
    fn string(&mut self) -> Option<(u32, u32, bool)> {
        let start = self.at + 1;
        let end = start + plain_length(&self.raw[start..]);
        if *self.raw.get(end)? == b'"' {
            self.at = end + 1;
            return Some((start as u32, end as u32, false));
        }
        self.at = end;
        self.string_with_escapes(start)
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Option<(u32, u32, bool)> {
        self.changes += 1;
        loop {
            self.at += plain_length(&self.raw[self.at..]);
            match *self.raw.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 1,
                _ => return None, // a control character
            }
            escape(self.raw, &mut self.at)?;
        }
        self.at += 1;
        Some((start as u32, self.at as u32 - 1, true))
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at as u32;
        match number(&self.raw[self.at..])? {
            Number::Integer(size) => {
                self.at += size;
                let end = self.at as u32;
                self.room.tokens.push(Token::Integer { start, end });
            }
            Number::Decimal { size, as_sent } => {
                self.at += size;
                self.changes += usize::from(!as_sent);
                let end = self.at as u32;
                self.room.tokens.push(Token::Decimal {
                    start,
                    end,
                    as_sent,
                });
            }
        }
        Some(())
    }

    /// Records the size of the text that was just read.
    fn note_url(&mut self) -> Option<()> {
        let size = match *self.room.tokens.last()? {
            Token::Escaped { .. } => {
                let mut text = Vec::new();
                let (at, room) = (self.room.tokens.len() - 1, &self.room);
                let (tokens, closed) = (&room.tokens, &room.closed);
                Writer::new(self.raw, tokens, closed, &room.sorted, &mut text).write(at)?;
                text.len()
            }
            Token::Plain { start, end } => (end - start) as usize + 2,
            _ => 0,
        };
        self.found.longest_url = self.found.longest_url.max(size);
        Some(())
    }

    /// Sorts the members from this one on, the last of which leads to `shape`.
    #[inline]
    fn order(&mut self, first_member: usize, shape: Place) -> Option<u32> {
        let room = &mut self.room;
        let members = room.members.get(first_member..)?;
        match room.shapes.order(shape) {
            Some(None) => Some(IN_ORDER),
            Some(Some(places)) => {
                let start = room.sorted.len() as u32;
                let sorted = places.iter().map(|place| members[usize::from(*place)]);
                room.sorted.extend(sorted);
                Some(start)
            }
            None => self.sort(first_member, shape),
        }
    }

    #[inline(never)]
    fn sort(&mut self, first_member: usize, shape: Place) -> Option<u32> {
        let room = &mut self.room;
        let members = &room.members[first_member..];
        let mut sorted = Vec::with_capacity(members.len());
        for (place, member) in members.iter().enumerate() {
            let name = match *room.tokens.get(member.name as usize)? {
                Token::Name { start, end, .. } => Cow::Borrowed(span(self.text, start, end)?),
                Token::Escaped { start, end } => {
                    Cow::Owned(unescaped(span(self.text, start, end)?)?)
                }
                _ => return None,
            };
            sorted.push((prefix(name.as_bytes()), name, place));
        }
        sorted.sort_unstable();
        let twice = |pair: &[(u64, Cow<'_, str>, usize)]| pair[0].1 == pair[1].1;
        if sorted.windows(2).any(twice) {
            return None;
        }
        let places = || sorted.iter().map(|(_, _, place)| *place);
        if places().eq(0..members.len()) {
            room.shapes.remember(shape, None::<std::iter::Empty<usize>>);
            return Some(IN_ORDER);
        }
        let start = room.sorted.len() as u32;
        room.sorted.extend(places().map(|place| members[place]));
        room.shapes.remember(shape, Some(places()));
        Some(start)
    }
}

/// An object or list that is still open.
struct Opened {
    token: usize,
    start: u32,
    changes: usize,
}

/// The first bytes of a key as a number with the same order.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(first)
}

/// The number of bytes before the first quote, backslash or control character.
#[inline]
pub fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    const LOWEST: u64 = 0x20; // except for a quote, which is adjacent when a bit is changed
    let special = |chunk: &[u8]| {
        let word = u64::from_le_bytes(<[u8; 8]>::try_from(chunk).unwrap_or_default());
        let low = (word ^ (2 * ONES)).wrapping_sub((LOWEST + 1) * ONES);
        let backslash = (word ^ (u64::from(b'\\') * ONES)).wrapping_sub(ONES);
        // Only the lowest of these bits is certain.
        (low | backslash) & !word & HIGH
    };
    let mut length = 0;
    for chunk in text.chunks_exact(16) {
        let (first, second) = chunk.split_at(8);
        let (first, second) = (special(first), special(second));
        if first | second != 0 {
            return length
                + match first {
                    0 => 8 + second.trailing_zeros() as usize / 8,
                    _ => first.trailing_zeros() as usize / 8,
                };
        }
        length += 16;
    }
    let rest = &text[length..];
    let plain = |byte: &&u8| **byte >= 0x20 && **byte != b'"' && **byte != b'\\';
    length + rest.iter().take_while(plain).count()
}
