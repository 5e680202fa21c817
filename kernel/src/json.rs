//! One strict scan of a JSON text, and its canonical form: sorted keys, no spaces, floats as
//! Python's `repr`, texts escaped as Python's `json` does.
//!
//! The scan returns `None` for invalid JSON, and also for what is rare and hard to get exactly
//! right: repeated keys, keys with escapes, exponents, integers beyond 64 bits.

use std::borrow::Cow;

mod escapes;
mod numbers;
mod room;
mod scan;
mod shapes;
mod tokens;
mod walk;
mod write;

use scan::{Extent, Scan};
use tokens::span;
use write::Writer;

pub use escapes::unescaped;
pub use room::Room;
pub use tokens::Token;
pub use walk::Walk;

/// A scanned text, and upper bounds on its sizes.
#[derive(Clone, Copy)]
pub struct Canonical<'a> {
    sent: &'a str,
    room: &'a Room,
    pub bounds: Extent,
}

impl<'a> Canonical<'a> {
    /// The text as sent.
    pub fn sent(&self) -> &'a str {
        self.sent
    }

    /// The end of an object or list, given its index among the closed ones.
    pub fn end(&self, closed: u32) -> Option<u32> {
        Some(self.room.closed.get(closed as usize)?.end)
    }

    /// The canonical text.
    pub fn text(&self) -> &'a [u8] {
        &self.room.text
    }

    /// The tokens, in the order of the text.
    pub fn tokens(&self) -> &'a [Token] {
        &self.room.tokens
    }

    /// The canonical value of a member of the top-level object.
    pub fn member(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        let tokens = self.tokens();
        let members = match tokens.first()? {
            Token::Object { members, .. } => *members,
            _ => return None,
        };
        let mut at = 1;
        for _ in 0..members {
            let value = at + 1;
            if self.is_name(*tokens.get(at)?, key) {
                return self.value(value);
            }
            at = match *tokens.get(value)? {
                Token::Object { behind, .. } | Token::List { behind, .. } => behind as usize,
                _ => value + 1,
            };
        }
        None
    }

    /// Whether the top-level value is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.tokens().first(), Some(Token::Object { .. }))
    }

    fn is_name(&self, token: Token, key: &str) -> bool {
        match token {
            Token::Name { start, end, .. } => {
                (end - start) as usize == key.len() && span(self.sent, start, end) == Some(key)
            }
            Token::Escaped { start, end } => {
                let name = span(self.sent, start, end).and_then(unescaped);
                name.map_or(false, |name| name == key)
            }
            _ => false,
        }
    }

    fn value(&self, at: usize) -> Option<Cow<'a, [u8]>> {
        let raw = self.sent.as_bytes();
        match *self.tokens().get(at)? {
            Token::Plain { start, end } => {
                let quoted = raw.get(start as usize - 1..end as usize + 1)?;
                Some(Cow::Borrowed(quoted))
            }
            Token::Integer { start, end }
            | Token::Decimal {
                start,
                end,
                as_sent: true,
            } => Some(Cow::Borrowed(raw.get(start as usize..end as usize)?)),
            _ => {
                let mut text = Vec::new();
                let room = self.room;
                Writer::new(raw, &room.tokens, &room.closed, &room.sorted, &mut text).write(at)?;
                Some(Cow::Owned(text))
            }
        }
    }
}

/// The canonical form of `text`, which may nest up to `max_levels` deep.
pub fn canonical<'a>(
    text: &'a str,
    max_levels: usize,
    room: &'a mut Room,
) -> Option<Canonical<'a>> {
    let raw = text.as_bytes();
    u32::try_from(raw.len()).ok()?; // so is each place in it
    room.clear();
    let mut scan = Scan {
        text,
        raw,
        at: 0,
        max_levels,
        changes: 0,
        found: Extent::default(),
        room: std::mem::take(room), // its parts are nearer so
    };
    let whole = scan.whole();
    let bounds = scan.found;
    *room = scan.room;
    whole?;
    room.text.reserve(raw.len() + 8);
    Writer::new(
        raw,
        &room.tokens,
        &room.closed,
        &room.sorted,
        &mut room.text,
    )
    .write(0)?;
    Some(Canonical {
        sent: text,
        room,
        bounds,
    })
}
