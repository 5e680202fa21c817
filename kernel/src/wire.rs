//! Events of `stream_metrics.core.events.wire`, read directly from the record.
//!
//! Reads records that are certainly valid. The result for invalid and unusual ones is None, and
//! Python decides.

mod bounds;
mod searches;
mod tape;

use bounds::{COUNT, GAIN, NAME};
use searches::Reading;
use tape::Tape;

pub use bounds::{Bounds, HANDLE};
pub use searches::{Parts, Search, SentResult};
pub use tape::Text;

use crate::dedup::memo::Memo;
use crate::dedup::sent::Sent;
use crate::json::Canonical;
use crate::names::Known;

const TURN: i64 = (1 << 53) - 1;

/// The payload of a `search_iteration`; of searches with the same id the first.
#[derive(Default)]
pub struct SearchIteration<'a> {
    pub conversation_id: Text<'a>,
    pub event_id: Text<'a>,
    pub turn: i64,
    pub iteration: i64,
    pub agent: Option<Text<'a>>,
    pub release: Option<Text<'a>>,
    pub gate: Option<&'a str>,
    pub searches: Vec<Search<'a>>,
    /// The paths of fields that the contract does not have, each once.
    pub unknown: Vec<String>,
    /// The parts of results whose fingerprints are not cached.
    pub sent: Sent,
}

impl<'a> SearchIteration<'a> {
    /// Reads the payload of a scanned event, without its envelope.
    pub fn read(
        found: &Canonical<'a>,
        bounds: &Bounds,
        mut memo: Option<&mut Memo>,
    ) -> Option<Self> {
        if let Some(memo) = &mut memo {
            memo.expect(bounds.of_results());
        }
        let mut tape = Tape::new(found);
        let mut reading = Reading {
            sent: Sent::default(),
            bounds,
            memo,
        };
        let mut event = SearchIteration::default();
        for _ in 0..tape.object()? {
            match tape.name()? {
                Known::ConversationId => event.conversation_id = tape.text(HANDLE)?,
                Known::EventId => event.event_id = tape.text(HANDLE)?,
                Known::Turn => event.turn = tape.integer(1, TURN)?,
                Known::Iteration => event.iteration = tape.integer(1, COUNT)?,
                Known::Agent => event.agent = tape.optional(|tape| tape.text(NAME))?,
                Known::Release => event.release = tape.optional(|tape| tape.text(NAME))?,
                Known::Gate => event.gate = tape.optional(Tape::gate)?,
                Known::Searches => {
                    let searches = tape.optional(|tape| tape.searches(&mut reading))?;
                    event.searches = searches.unwrap_or_default();
                }
                Known::Type | Known::Version | Known::OccurredAt => tape.skip()?,
                _ => tape.unknown("")?,
            }
        }
        let complete = !event.conversation_id.is_empty()
            && !event.event_id.is_empty()
            && event.turn > 0
            && event.iteration > 0
            && tape.is_at_end();
        event.sent = reading.sent;
        event.unknown = tape.unknown_paths();
        complete.then_some(event)
    }
}

/// The payload of `relevance_labels`.
#[derive(Default)]
pub struct RelevanceLabels<'a> {
    pub conversation_id: Text<'a>,
    pub event_id: Text<'a>,
    pub turn: i64,
    /// Gains of results by id; a label without one is withdrawn.
    pub results: Vec<(Text<'a>, Option<i64>)>,
    /// The best route of searches, by id.
    pub routing: Vec<(Text<'a>, Option<Text<'a>>)>,
    /// Whether a search was needed in an iteration, by number.
    pub gate: Vec<(i64, Option<bool>)>,
    pub labeller: Option<Text<'a>>,
    /// Whether the labels are a model's; None if the event does not say it.
    pub by_model: Option<bool>,
    /// Whether the turn belongs to the random sample of the source.
    pub random: bool,
    /// The paths of fields that the contract does not have, each once.
    pub unknown: Vec<String>,
}

impl<'a> RelevanceLabels<'a> {
    /// Reads the payload of a scanned event, without its envelope.
    pub fn read(found: &Canonical<'a>, bounds: &Bounds) -> Option<Self> {
        let mut tape = Tape::new(found);
        let mut event = RelevanceLabels::default();
        for _ in 0..tape.object()? {
            match tape.name()? {
                Known::ConversationId => event.conversation_id = tape.text(HANDLE)?,
                Known::EventId => event.event_id = tape.text(HANDLE)?,
                Known::Turn => event.turn = tape.integer(1, TURN)?,
                Known::Labeller => event.labeller = tape.optional(Tape::any_text)?,
                Known::Source => {
                    event.by_model = tape.optional(|tape| tape.either("human", "model"))?;
                }
                Known::Sample => {
                    let random = tape.optional(|tape| tape.either("chosen", "random"))?;
                    event.random = random.unwrap_or(false);
                }
                Known::Labels => {
                    event.results = tape.labels(
                        "labels.",
                        Known::ResultId,
                        Tape::handle,
                        Known::Gain,
                        |tape| tape.integer(0, GAIN),
                    )?
                }
                Known::Routing => {
                    event.routing = tape.labels(
                        "routing.",
                        Known::SearchId,
                        Tape::handle,
                        Known::Optimal,
                        Tape::any_text,
                    )?;
                }
                Known::Gate => {
                    event.gate = tape.labels(
                        "gate.",
                        Known::Iteration,
                        |tape| tape.integer(1, COUNT),
                        Known::SearchNeeded,
                        Tape::truth,
                    )?
                }
                Known::Type | Known::Version | Known::OccurredAt => tape.skip()?,
                Known::Agent | Known::Release => tape.skip()?, // ignored, whatever they are
                _ => tape.unknown("")?,
            }
        }
        let count = event.results.len() + event.routing.len() + event.gate.len();
        let certain = !event.conversation_id.is_empty()
            && !event.event_id.is_empty()
            && event.turn > 0
            && count <= bounds.labels
            && tape.is_at_end();
        event.unknown = tape.unknown_paths();
        certain.then_some(event)
    }
}
