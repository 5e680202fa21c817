//! The tokens of an event, read one after the other.

use std::borrow::Cow;

use super::bounds::{HANDLE, NAME};
use crate::json::{unescaped, Canonical, Token};
use crate::names::Known;

const MOST_NAMED: usize = 16; // unknown fields (`stream_metrics.core.events.fields`)

pub type Text<'a> = Cow<'a, str>;

pub struct Tape<'a> {
    pub found: Canonical<'a>,
    pub text: &'a str,
    pub tokens: &'a [Token],
    pub at: usize,
    unknown: Vec<Path<'a>>,
    /// The index of the probable next unknown field.
    likely: usize,
}

/// The path of an unknown field: its name after those of its parents, separated by dots.
type Path<'a> = (&'a str, &'static str); // compared in this order: most names differ

/// Replaces names that must not be shown, and those over the limit.
const OTHER: Path = ("other", "");

fn is_shown(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let fit = |byte: &u8| letter(*byte) || byte.is_ascii_digit() || *byte == b'-';
    let name = name.as_bytes();
    name.len() <= NAME
        && (name.first()).map_or(false, |first| letter(*first))
        && name.iter().all(fit)
}

impl<'a> Tape<'a> {
    pub fn new(found: &Canonical<'a>) -> Self {
        Tape {
            found: *found,
            text: found.sent(),
            tokens: found.tokens(),
            at: 0,
            unknown: Vec::new(),
            likely: 0,
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    #[inline]
    pub fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    pub fn skip(&mut self) -> Option<()> {
        if let Token::Object { behind, .. } | Token::List { behind, .. } = self.next()? {
            self.at = behind as usize;
        }
        Some(())
    }

    /// Records the field whose name was read last, and skips its value; None if it has escapes.
    #[cold]
    pub fn unknown(&mut self, place: &'static str) -> Option<()> {
        let name = match *self.tokens.get(self.at.checked_sub(1)?)? {
            Token::Name { start, end, .. } => self.span(start, end)?,
            _ => return None,
        };
        if name.contains('\\') {
            return None;
        }
        let path = (name, place);
        if self.unknown.get(self.likely) != Some(&path) {
            self.likely = self.noted(path);
        }
        self.likely += 1; // objects of a list mostly have the same fields in the same order
        self.skip()
    }

    /// The index of the path among those of unknown fields, or of its replacement.
    fn noted(&mut self, path: Path<'a>) -> usize {
        let place_of = |noted: &[Path], path| noted.iter().position(|one| *one == path);
        if let Some(at) = place_of(&self.unknown, path) {
            return at;
        }
        let named = is_shown(path.0) && self.unknown.len() < MOST_NAMED;
        let path = if named { path } else { OTHER };
        place_of(&self.unknown, path).unwrap_or_else(|| {
            self.unknown.push(path);
            self.unknown.len() - 1
        })
    }

    /// The paths of unknown fields, each once.
    pub fn unknown_paths(&self) -> Vec<String> {
        (self.unknown.iter())
            .map(|(name, place)| format!("{place}{name}"))
            .collect()
    }

    #[inline]
    pub fn span(&self, start: u32, end: u32) -> Option<&'a str> {
        self.text.get(start as usize..end as usize)
    }

    /// The number of members that follow.
    pub fn object(&mut self) -> Option<u32> {
        match self.next()? {
            Token::Object { members, .. } => Some(members),
            _ => None,
        }
    }

    /// The number of elements that follow.
    pub fn list(&mut self) -> Option<usize> {
        match self.next()? {
            Token::List { elements, .. } => Some(elements as usize),
            _ => None,
        }
    }

    /// The name of a member; None if it has escapes.
    #[inline]
    pub fn name(&mut self) -> Option<Known> {
        match self.next()? {
            Token::Name { known, .. } => Some(known),
            _ => None,
        }
    }

    /// A text without escapes.
    pub fn plain_text(&mut self) -> Option<&'a str> {
        match self.next()? {
            Token::Plain { start, end } => self.span(start, end),
            _ => None,
        }
    }

    /// Reads a value that may be null.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.tokens.get(self.at)? {
            Token::Null { .. } => {
                self.at += 1;
                Some(None)
            }
            _ => read(self).map(Some),
        }
    }

    #[inline]
    pub fn any_text(&mut self) -> Option<Text<'a>> {
        match self.next()? {
            Token::Plain { start, end } | Token::Name { start, end, .. } => {
                self.span(start, end).map(Cow::Borrowed)
            }
            Token::Escaped { start, end } => unescaped(self.span(start, end)?).map(Cow::Owned),
            _ => None,
        }
    }

    /// A text of 1 to `most` code points.
    pub fn text(&mut self, most: usize) -> Option<Text<'a>> {
        let text = self.any_text()?;
        let fits = text.len() <= most || text.chars().count() <= most;
        (fits && !text.is_empty()).then_some(text)
    }

    pub fn integer(&mut self, least: i64, most: i64) -> Option<i64> {
        let value: i64 = match self.next()? {
            Token::Integer { start, end } => self.span(start, end)?.parse().ok()?,
            _ => return None,
        };
        (least..=most).contains(&value).then_some(value)
    }

    pub fn handle(&mut self) -> Option<Text<'a>> {
        self.text(HANDLE)
    }

    /// Whether a text is the second of two, which are all that it may be.
    pub fn either(&mut self, first: &str, second: &str) -> Option<bool> {
        let text = self.any_text()?;
        match &*text {
            text if text == first => Some(false),
            text if text == second => Some(true),
            _ => None,
        }
    }

    pub fn truth(&mut self) -> Option<bool> {
        match self.next()? {
            Token::Truth { truth, .. } => Some(truth),
            _ => None,
        }
    }

    /// A list of labels: objects with the labelled item and a value, which may be null.
    pub fn labels<N, V>(
        &mut self,
        place: &'static str,
        name: Known,
        read_name: impl Fn(&mut Self) -> Option<N>,
        value: Known,
        read_value: impl Fn(&mut Self) -> Option<V>,
    ) -> Option<Vec<(N, Option<V>)>> {
        let count = match self.optional(Self::list)? {
            Some(count) => count,
            None => return Some(Vec::new()),
        };
        let mut labels = Vec::with_capacity(count);
        for _ in 0..count {
            let (mut named, mut said) = (None, None);
            for _ in 0..self.object()? {
                let key = self.name()?;
                if key == name {
                    named = Some(read_name(self)?);
                } else if key == value {
                    said = Some(self.optional(&read_value)?);
                } else {
                    self.unknown(place)?;
                }
            }
            labels.push((named?, said?));
        }
        Some(labels)
    }

    pub fn number(&mut self) -> Option<()> {
        match self.next()? {
            Token::Integer { .. } | Token::Decimal { .. } => Some(()),
            _ => None,
        }
    }
}
