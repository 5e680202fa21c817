//! What a scan finds in a text.

use crate::names::Known;

/// A token: a value or a name. Offsets refer to the text as sent.
///
/// An object is followed by its names and values alternately, a list by its values.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// `behind` is the index of the token after its content; `closed` is its index among the
    /// closed objects and lists.
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
    /// The content between the quotes of a name without escapes.
    Name {
        start: u32,
        end: u32,
        known: Known,
    },
    /// The content between the quotes of a text without escapes.
    Plain {
        start: u32,
        end: u32,
    },
    /// The content between the quotes of a name or a text with escapes.
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
        /// Whether it is its own canonical form.
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

/// An object or list: the range from its opening to after its closing bracket.
#[derive(Clone, Copy)]
pub struct Closed {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The start of its sorted members, or one of the following constants.
    pub(super) order: u32,
}

pub const AS_SENT: u32 = u32::MAX; // the text is canonical
pub const IN_ORDER: u32 = AS_SENT - 1; // its names are sorted, or there are none

/// `"key":value` as sent.
#[derive(Clone, Copy)]
pub struct Member {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The index of the name's token.
    pub(super) name: u32,
    /// Whether the text is canonical.
    pub(super) as_sent: bool,
}

pub fn span(text: &str, start: u32, end: u32) -> Option<&str> {
    text.get(start as usize..end as usize)
}
