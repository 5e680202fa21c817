//! One strict scan of a JSON text, and its canonical form: sorted keys, no spaces, floats as
//! Python's `repr`, texts escaped as Python's `json` does.
//!
//! The scan gives up (`None`) on what is no JSON, and just as well on what is rare and hard to get
//! exactly right: keys that stand twice or need an escape, exponents, integers beyond 64 bits.

use std::borrow::Cow;

mod escapes;
mod numbers;
mod scan;
mod shapes;
mod write;

use scan::{span, Scan};
use shapes::Shapes;
use write::Writer;

pub use escapes::unescaped;

use crate::names::Known;

const LARGE_TEXT: usize = 1 << 16; // the room that a larger one takes is not kept

/// A value or a name, as it was sent; places are those of the text as it was sent.
///
/// Behind an object stand its names and values in turn, behind a list its values.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// `behind` is the place among the tokens that follows on all that is inside; `closed` the one
    /// among what was closed.
    Object {
        members: u32,
        behind: u32,
        closed: u32,
    },
    List {
        elements: u32,
        behind: u32,
        closed: u32,
    },
    /// What stands between the quotes of a name without escapes.
    Name {
        start: u32,
        end: u32,
        known: Known,
    },
    /// The same of a text.
    Plain {
        start: u32,
        end: u32,
    },
    /// What stands between the quotes of a name or a text, with escapes.
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
        /// Whether its canonical form is the same.
        as_sent: bool,
    },
    Truth {
        start: u32,
        truth: bool,
    },
    Null {
        start: u32,
    },
}

/// An object or list, from its first bracket to behind its last.
#[derive(Clone, Copy)]
pub struct Closed {
    start: u32,
    end: u32,
    /// Where its sorted members begin; or one of the following.
    order: u32,
}

const AS_SENT: u32 = u32::MAX; // the text is canonical
const IN_ORDER: u32 = AS_SENT - 1; // its names are sorted, or there are none

/// `"key":value` as it was sent.
#[derive(Clone, Copy)]
struct Member {
    start: u32,
    end: u32,
    /// The name among the tokens.
    name: u32,
    /// Whether the text is canonical.
    as_sent: bool,
}

/// What a scan fills, and what it learns from one text for the next.
#[derive(Default)]
pub struct Room {
    tokens: Vec<Token>,
    members: Vec<Member>, // of the open objects
    closed: Vec<Closed>,
    sorted: Vec<Member>, // of the objects whose names were not
    text: Vec<u8>,
    shapes: Shapes,
}

impl Room {
    fn clear(&mut self) {
        if self.text.capacity() > LARGE_TEXT {
            let shapes = std::mem::take(&mut self.shapes);
            *self = Room {
                shapes,
                ..Room::default()
            };
        }
        self.tokens.clear();
        self.members.clear();
        self.closed.clear();
        self.sorted.clear();
        self.text.clear();
        self.shapes.begin();
    }
}

/// What was read of a text, and upper bounds on what it holds.
#[derive(Clone, Copy)]
pub struct Canonical<'a> {
    sent: &'a str,
    room: &'a Room,
    pub bounds: Extent,
}

/// Upper bounds on what a text holds.
#[derive(Clone, Copy, Default)]
pub struct Extent {
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
}

impl<'a> Canonical<'a> {
    /// The text as it was sent.
    pub fn sent(&self) -> &'a str {
        self.sent
    }

    /// Where in it an object or list ends, given its place among what was closed.
    pub fn end(&self, closed: u32) -> Option<u32> {
        Some(self.room.closed.get(closed as usize)?.end)
    }

    /// The canonical text.
    pub fn text(&self) -> &'a [u8] {
        &self.room.text
    }

    /// What was read, in the order in which it was sent.
    pub fn tokens(&self) -> &'a [Token] {
        &self.room.tokens
    }

    /// The canonical value of a member of the outermost object.
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

    /// Whether the outermost value is an object.
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
