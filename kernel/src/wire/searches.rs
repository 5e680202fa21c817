//! Searches and their results, with what fingerprints are made from.

use std::ops::Range;

use super::bounds::{Bounds, COUNT, DOC_ID, GAIN, HANDLE, NAME};
use super::tape::{Tape, Text};
use crate::dedup::memo::{hash, Memo, Remembered};
use crate::dedup::sent::Sent;
use crate::json::Token;
use crate::names::Known;

#[derive(Default)]
pub struct Search<'a> {
    pub search_id: Text<'a>,
    pub ordinal: i64,
    pub position: usize,
    pub query: Option<Text<'a>>,
    pub route: Option<Text<'a>>,
    pub results: Vec<SentResult<'a>>,
}

pub struct SentResult<'a> {
    pub result_id: Text<'a>,
    pub gain: Option<i64>,
    pub baseline_rank: Option<i64>,
    pub parts: Parts<'a>,
}

/// The source of a result's fingerprint.
pub enum Parts<'a> {
    /// The cached fingerprint of the same text.
    Remembered(Remembered),
    Written {
        /// The text of exactly these parts, if they are contiguous.
        text: Option<&'a str>,
        /// Their range in `SearchIteration::sent`.
        sent: Range<usize>,
    },
}

/// The context in which results are read.
pub struct Reading<'m> {
    pub sent: Sent,
    pub bounds: &'m Bounds,
    pub memo: Option<&'m mut Memo>,
}

impl<'a> Tape<'a> {
    pub fn gate(&mut self) -> Option<&'a str> {
        let mut decision = None;
        for _ in 0..self.object()? {
            match self.name()? {
                Known::Decision => decision = Some(self.plain_text()?),
                Known::Score => drop(self.optional(Self::number)?),
                _ => self.unknown("gate.")?,
            }
        }
        decision.filter(|decision| matches!(*decision, "search" | "skip"))
    }

    fn route(&mut self) -> Option<Text<'a>> {
        let mut selected = None;
        for _ in 0..self.object()? {
            match self.name()? {
                Known::Selected => selected = Some(self.text(NAME)?),
                Known::Scores => drop(self.optional(Self::scores)?),
                _ => self.unknown("searches.routing.")?,
            }
        }
        selected
    }

    fn scores(&mut self) -> Option<()> {
        for _ in 0..self.object()? {
            self.skip()?; // the name, whatever it is
            self.optional(Self::number)?;
        }
        Some(())
    }

    pub(super) fn searches(&mut self, reading: &mut Reading<'_>) -> Option<Vec<Search<'a>>> {
        let count = self.list()?;
        if count > reading.bounds.searches {
            return None;
        }
        let mut searches: Vec<Search<'a>> = Vec::with_capacity(count);
        let mut results_left = reading.bounds.results;
        for position in 0..count {
            let search = self.search(position, &mut results_left, reading)?;
            if !searches.iter().any(|s| s.search_id == search.search_id) {
                searches.push(search);
            }
        }
        Some(searches)
    }

    fn search(
        &mut self,
        position: usize,
        results_left: &mut usize,
        reading: &mut Reading<'_>,
    ) -> Option<Search<'a>> {
        let mut search = Search {
            position,
            ..Search::default()
        };
        for _ in 0..self.object()? {
            match self.name()? {
                Known::SearchId => search.search_id = self.text(HANDLE)?,
                Known::Ordinal => {
                    let ordinal = self.optional(|tape| tape.integer(0, COUNT))?;
                    search.ordinal = ordinal.unwrap_or(0);
                }
                Known::Query => search.query = self.optional(Self::any_text)?,
                Known::Routing => search.route = self.optional(Self::route)?,
                Known::Results => {
                    let results = self.optional(|tape| tape.results(results_left, reading))?;
                    search.results = results.unwrap_or_default();
                }
                _ => self.unknown("searches.")?,
            }
        }
        (!search.search_id.is_empty()).then_some(search)
    }

    fn results(
        &mut self,
        left: &mut usize,
        reading: &mut Reading<'_>,
    ) -> Option<Vec<SentResult<'a>>> {
        let count = self.list()?;
        *left = left.checked_sub(count)?;
        let mut results = Vec::with_capacity(count);
        for _ in 0..count {
            results.push(self.result(reading)?);
        }
        Some(results)
    }

    fn result(&mut self, reading: &mut Reading<'_>) -> Option<SentResult<'a>> {
        let mut result_id = None;
        let (mut gain, mut baseline_rank) = (None, None);
        let mut places = Places::default();
        let (members, end) = match self.next()? {
            Token::Object {
                members, closed, ..
            } => (members, self.found.end(closed)?),
            _ => return None,
        };
        let mut run = Run::default();
        for _ in 0..members {
            let (name, start) = match self.next()? {
                Token::Name { known, start, .. } => (known, start),
                _ => return None,
            };
            let place = match name {
                Known::EntityType => &mut places.entity_type,
                Known::DocId => &mut places.doc_id,
                Known::Url => &mut places.url,
                Known::Title => &mut places.title,
                Known::Snippet => &mut places.snippet,
                Known::Content => &mut places.content,
                Known::Ids => &mut places.ids,
                Known::Fields => &mut places.fields,
                _ => {
                    run.end(start);
                    match name {
                        Known::ResultId => result_id = Some(self.text(HANDLE)?),
                        Known::Gain => gain = self.optional(|tape| tape.integer(0, GAIN))?,
                        Known::BaselineRank => {
                            baseline_rank = self.optional(|tape| tape.integer(1, COUNT))?;
                        }
                        Known::Score => drop(self.optional(Self::number)?),
                        _ => self.unknown("searches.results.")?,
                    }
                    continue;
                }
            };
            run.begin(start);
            *place = Some(self.at);
            self.skip()?;
        }
        run.end(end);
        let text = run
            .together()
            .and_then(|(start, end)| self.span(start, end));
        Some(SentResult {
            result_id: result_id?,
            gain,
            baseline_rank,
            parts: self.parts(text, &places, reading)?,
        })
    }

    fn parts(
        &mut self,
        text: Option<&'a str>,
        places: &Places,
        reading: &mut Reading<'_>,
    ) -> Option<Parts<'a>> {
        if let (Some(memo), Some(text)) = (&mut reading.memo, text) {
            if let Some(found) = memo.get(hash(text), text) {
                return Some(Parts::Remembered(found));
            }
        }
        let behind = self.at;
        reading.sent.make_room(self.text.len());
        let start = reading.sent.as_str().len();
        self.write(places, &mut reading.sent, reading.bounds)?;
        self.at = behind;
        let sent = start..reading.sent.as_str().len();
        Some(Parts::Written { text, sent })
    }

    /// Writes the same as `Sent::result` for the same result as a Python object.
    fn write(&mut self, places: &Places, sent: &mut Sent, bounds: &Bounds) -> Option<()> {
        if self.begin(places.entity_type, sent) {
            sent.text(&self.text(NAME)?);
        }
        if self.begin(places.doc_id, sent) {
            sent.text(&self.text(DOC_ID)?);
        }
        if self.begin(places.url, sent) {
            let url = self.any_text()?;
            if url.len() > bounds.url_bytes {
                return None;
            }
            sent.text(&url);
        }
        for place in [places.title, places.snippet, places.content] {
            if self.begin(place, sent) {
                sent.text(&self.any_text()?);
            }
        }
        if self.begin(places.ids, sent) {
            self.write_entries(bounds.ids, bounds.values, sent, Self::write_text)?;
        }
        if self.begin(places.fields, sent) {
            self.write_entries(bounds.fields, bounds.values, sent, Self::write_scalar)?;
        }
        Some(())
    }

    /// Moves to a part; if it is absent, writes null and returns false.
    fn begin(&mut self, place: Option<usize>, sent: &mut Sent) -> bool {
        match place {
            Some(place) if !matches!(self.tokens.get(place), Some(Token::Null { .. })) => {
                self.at = place;
                true
            }
            _ => {
                sent.null();
                false
            }
        }
    }

    fn write_entries(
        &mut self,
        most: usize,
        most_values: usize,
        sent: &mut Sent,
        write: fn(&mut Self, &mut Sent) -> Option<()>,
    ) -> Option<()> {
        let count = self.object()? as usize;
        if count > most {
            return None; // unless enough of them are null
        }
        sent.entries(count);
        for _ in 0..count {
            sent.text(&self.any_text()?);
            match self.tokens.get(self.at)? {
                Token::List { elements, .. } => {
                    let elements = *elements as usize;
                    if elements > most_values {
                        return None;
                    }
                    self.at += 1;
                    sent.list(elements);
                    for _ in 0..elements {
                        write(self, sent)?;
                    }
                }
                _ => write(self, sent)?,
            }
        }
        Some(())
    }

    fn write_text(&mut self, sent: &mut Sent) -> Option<()> {
        match self.optional(Self::any_text)? {
            Some(text) => sent.text(&text),
            None => sent.null(),
        }
        Some(())
    }

    fn write_scalar(&mut self, sent: &mut Sent) -> Option<()> {
        match *self.tokens.get(self.at)? {
            Token::Integer { start, end } => sent.integer(self.span(start, end)?),
            Token::Decimal { start, end, .. } => sent.float(self.span(start, end)?.parse().ok()?),
            Token::Truth { truth, .. } => sent.truth(truth),
            _ => return self.write_text(sent),
        }
        self.at += 1;
        Some(())
    }
}

/// The token indexes of the parts of a result.
#[derive(Default)]
struct Places {
    entity_type: Option<usize>,
    doc_id: Option<usize>,
    url: Option<usize>,
    title: Option<usize>,
    snippet: Option<usize>,
    content: Option<usize>,
    ids: Option<usize>,
    fields: Option<usize>,
}

/// The range of the members that determine a result's fingerprint, if they are contiguous.
#[derive(Default)]
struct Run {
    start: Option<u32>,
    end: Option<u32>,
    parted: bool,
}

impl Run {
    /// Records such a member, and where its name begins.
    fn begin(&mut self, name: u32) {
        self.parted |= self.end.is_some();
        self.start = self.start.or(Some(name - 1)); // with the quote, which no `Sent` begins with
    }

    /// Records where another member begins.
    fn end(&mut self, start: u32) {
        if self.start.is_some() {
            self.end = self.end.or(Some(start - 1));
        }
    }

    /// The range in the text.
    fn together(&self) -> Option<(u32, u32)> {
        if self.parted {
            return None;
        }
        self.start.zip(self.end)
    }
}
