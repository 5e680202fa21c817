//! Reads single values of a JSON text that is valid, and skips the others.
//!
//! Much faster than a scan, which checks a text and learns all of it. Of a text that is not valid,
//! it may read anything.

use std::borrow::Cow;

use super::escapes::unescaped;
use super::scan::plain_length;

/// A place in a text, before a value or after one.
pub struct Walk<'a> {
    text: &'a str,
    raw: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// A walk that begins before the top-level value.
    pub fn new(text: &'a str) -> Self {
        Walk {
            text,
            raw: text.as_bytes(),
            at: 0,
        }
    }

    /// The text that has not been read.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Whether only white space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.visible().is_none()
    }

    /// Calls `read` with the name of each member of an object; it must read or skip the value.
    ///
    /// None if the value is no object, a name has escapes, or `read` returns None.
    pub fn object(
        &mut self,
        mut read: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        self.inside(b'{', b'}', |walk, _| {
            let name = walk.string().filter(|name| !name.contains(&b'\\'))?;
            walk.take(b':')?;
            read(walk, name)
        })
    }

    /// Calls `read` with the number of each element of a list; it must read or skip the element.
    pub fn list(&mut self, mut read: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.inside(b'[', b']', |walk, number| read(walk, number))
    }

    /// A text; `Some(None)` for null.
    pub fn text(&mut self) -> Option<Option<Cow<'a, str>>> {
        if self.visible()? != b'"' {
            return self.take_null().then_some(None);
        }
        let start = self.at + 1;
        let length = self.string()?.len();
        let text = self.text.get(start..start + length)?;
        Some(Some(match text.contains('\\') {
            true => Cow::Owned(unescaped(text)?),
            false => Cow::Borrowed(text),
        }))
    }

    /// Skips a null, and says whether there was one.
    fn take_null(&mut self) -> bool {
        let found = self.visible().is_some() && self.raw[self.at..].starts_with(b"null");
        self.at += if found { 4 } else { 0 };
        found
    }

    /// Skips null, or an integer without a sign of at most so many digits.
    pub fn small_number(&mut self, most_digits: usize) -> Option<()> {
        if self.take_null() {
            return Some(());
        }
        let start = self.at;
        self.skip()?;
        let number = &self.raw[start..self.at];
        let is_small = number.len() <= most_digits && number.iter().all(u8::is_ascii_digit);
        is_small.then_some(())
    }

    /// Skips a value.
    pub fn skip(&mut self) -> Option<()> {
        let mut level = 0usize;
        loop {
            match self.visible()? {
                b'"' => drop(self.string()?),
                b'{' | b'[' => {
                    level += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    level = level.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if level > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let rest = &self.raw[self.at..];
                    let is_end =
                        |byte: &u8| matches!(byte, 0..=b' ' | b'"' | b',' | b':' | b'}' | b']');
                    let length = rest.iter().position(is_end).unwrap_or(rest.len());
                    if length == 0 {
                        return None;
                    }
                    self.at += length;
                }
            }
            if level == 0 {
                return Some(());
            }
        }
    }

    fn inside(
        &mut self,
        opening: u8,
        closing: u8,
        mut read: impl FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        self.take(opening)?;
        if self.visible()? == closing {
            return self.take(closing);
        }
        for number in 0.. {
            self.visible()?;
            read(self, number)?;
            if self.visible()? == closing {
                break;
            }
            self.take(b',')?;
        }
        self.take(closing)
    }

    /// The content of a text as sent, between its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            self.at += plain_length(self.raw.get(self.at..)?);
            match *self.raw.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => return None, // a control character
            }
        }
        self.at += 1;
        self.raw.get(start..self.at - 1)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let found = self.visible()? == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// Skips white space; returns the byte after it.
    #[inline]
    fn visible(&mut self) -> Option<u8> {
        loop {
            match *self.raw.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }
}
