//! Writes the canonical text of tokens, copying each piece once.

use super::escapes::{escape, write_canonical};
use super::numbers::write_decimal;
use super::tokens::{Closed, Member, Token, AS_SENT, IN_ORDER};

/// Writes values; pieces that are contiguous in the text as sent are copied together.
pub struct Writer<'a> {
    raw: &'a [u8],
    tokens: &'a [Token],
    closed: &'a [Closed],
    sorted: &'a [Member],
    text: &'a mut Vec<u8>,
    from: usize, // the text between here and `to` is still to be copied
    to: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        raw: &'a [u8],
        tokens: &'a [Token],
        closed: &'a [Closed],
        sorted: &'a [Member],
        text: &'a mut Vec<u8>,
    ) -> Self {
        Writer {
            raw,
            tokens,
            closed,
            sorted,
            text,
            from: 0,
            to: 0,
        }
    }

    /// Writes the value at this index of the tokens.
    pub fn write(mut self, at: usize) -> Option<()> {
        self.value(at)?;
        self.flush();
        Some(())
    }

    /// Writes a value or a name; returns the index of the token after it.
    fn value(&mut self, at: usize) -> Option<usize> {
        match *self.tokens.get(at)? {
            Token::Plain { start, end } | Token::Name { start, end, .. } => {
                self.copy(start as usize - 1, end as usize + 1);
            }
            Token::Escaped { start, end } => self.escaped(start as usize, end as usize)?,
            Token::Integer { start, end } => self.copy(start as usize, end as usize),
            Token::Decimal {
                start,
                end,
                as_sent,
            } => {
                let (start, end) = (start as usize, end as usize);
                if as_sent {
                    self.copy(start, end);
                } else {
                    self.flush();
                    write_decimal(self.text, &self.raw[start..end])?;
                }
            }
            Token::Truth { start, truth } => {
                let start = start as usize;
                self.copy(start, start + if truth { 4 } else { 5 });
            }
            Token::Null { start } => self.copy(start as usize, start as usize + 4),
            Token::Object {
                members,
                behind,
                closed,
            } => {
                self.object(at, members as usize, self.closed[closed as usize])?;
                return Some(behind as usize);
            }
            Token::List {
                elements,
                behind,
                closed,
            } => {
                self.list(at, elements as usize, self.closed[closed as usize])?;
                return Some(behind as usize);
            }
        }
        Some(at + 1)
    }

    fn object(&mut self, at: usize, members: usize, closed: Closed) -> Option<()> {
        let (start, end) = (closed.start as usize, closed.end as usize);
        if closed.order == AS_SENT {
            self.copy(start, end);
            return Some(());
        }
        self.copy(start, start + 1);
        if closed.order == IN_ORDER {
            self.each(at + 1, members, Self::member)?;
        } else {
            let sorted = self.sorted.get(closed.order as usize..)?;
            for (number, member) in sorted.get(..members)?.iter().enumerate() {
                if number > 0 {
                    self.mark(b',');
                }
                if member.as_sent {
                    self.copy(member.start as usize, member.end as usize);
                } else {
                    self.member(member.name as usize)?;
                }
            }
        }
        self.copy(end - 1, end);
        Some(())
    }

    /// Writes this number of members or elements, separated by commas.
    fn each(
        &mut self,
        first: usize,
        count: usize,
        write: fn(&mut Self, usize) -> Option<usize>,
    ) -> Option<()> {
        let mut next = first;
        for number in 0..count {
            if number > 0 {
                self.mark(b',');
            }
            next = write(self, next)?;
        }
        Some(())
    }

    fn member(&mut self, name: usize) -> Option<usize> {
        let value = self.value(name)?;
        self.mark(b':');
        self.value(value)
    }

    fn list(&mut self, at: usize, elements: usize, closed: Closed) -> Option<()> {
        let (start, end) = (closed.start as usize, closed.end as usize);
        if closed.order == AS_SENT {
            self.copy(start, end);
            return Some(());
        }
        self.copy(start, start + 1);
        self.each(at + 1, elements, Self::value)?;
        self.copy(end - 1, end);
        Some(())
    }

    /// Writes the text in this range, which has escapes.
    fn escaped(&mut self, start: usize, end: usize) -> Option<()> {
        let raw = self.raw;
        self.copy(start - 1, start);
        let mut at = start;
        while at < end {
            let rest = &raw[at..end];
            let plain = rest.iter().position(|byte| *byte == b'\\');
            let plain = plain.unwrap_or(rest.len());
            self.copy(at, at + plain);
            at += plain;
            if at < end {
                at += 1;
                self.flush();
                write_canonical(self.text, escape(raw, &mut at)?)?;
            }
        }
        self.copy(end, end + 1);
        Some(())
    }

    #[inline]
    fn copy(&mut self, start: usize, end: usize) {
        if start != self.to {
            self.flush();
            self.from = start;
        }
        self.to = end;
    }

    /// Writes a byte, which usually is the next one as sent.
    #[inline]
    fn mark(&mut self, byte: u8) {
        if self.raw.get(self.to) == Some(&byte) {
            self.to += 1;
        } else {
            self.flush();
            self.text.push(byte);
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.text.extend_from_slice(&self.raw[self.from..self.to]);
        self.from = self.to;
    }
}
