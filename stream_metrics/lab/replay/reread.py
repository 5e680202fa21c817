"""Reread a piece's events with their texts, conversation by conversation.

The engine keeps digests only. What needs texts (token overlap, answers) has a pass of its own after
the engine has processed the piece: ``conversations_with_events`` yields each conversation of the
engine with the events that it was built from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from stream_metrics.core.engine.registers import BY_CODE
from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.engine.state import END, Conversation
from stream_metrics.core.events.canonical import decode_json
from stream_metrics.core.events.decode import Event
from stream_metrics.core.events.fields import convert
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import (
    PAYLOADS,
    Payload,
    Result,
    Search,
    SearchIteration,
)
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.spool import Piece, read_one, read_spool, spool_path

_Decoders = Mapping[str, Callable[[bytes], Payload]]
"""Decoders by event type."""


class RereadableRecords(Protocol):
    """The records of a piece, which can be read more than once."""

    def each(self) -> Iterator[tuple[int, int, Record]]:
        """All records, each preceded by its position and its number in the input."""

    def at(self, place: int) -> Record:
        """The record at a position."""


class InMemoryRecords:
    """Records in memory, each preceded by its number in the input."""

    def __init__(self, records: Sequence[tuple[int, Record]]) -> None:
        self._records = records

    def each(self) -> Iterator[tuple[int, int, Record]]:
        """All records, each preceded by its index and its number in the input."""
        return ((place, *found) for place, found in enumerate(self._records))

    def at(self, place: int) -> Record:
        """The record at an index."""
        return self._records[place][1]


class SpooledRecords:
    """The records of a piece of the spool in ``folder``; a context manager."""

    def __init__(self, folder: Path, piece: Piece) -> None:
        self._path, self._piece = spool_path(folder, piece.shard), piece
        self._file = self._path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def each(self) -> Iterator[tuple[int, int, Record]]:
        """All records, each preceded by its offset and number; raises ``SpoolDamaged``."""
        for offset, spooled in read_spool(self._path, self._piece.size):
            if self._piece.has(spooled):
                yield offset, spooled.number, spooled.record

    def at(self, place: int) -> Record:
        """The record at an offset; raises ``SpoolDamaged``."""
        self._file.seek(place)
        return read_one(self._file, self._path).record


class ConversationEvents(NamedTuple):
    """A conversation, and the winning searches and ends of its turns that have a row.

    ``events`` is None if they were not requested.
    """

    conversation: Conversation
    events: list[Event] | None


def conversations_with_events(
    records: RereadableRecords, engine: Replay, wanted: Collection[str] | None = None
) -> Iterator[ConversationEvents]:
    """Every conversation of ``engine``, which was fed ``records``, sorted by id.

    With ``wanted``, only conversations with these ids have events, and results have only their
    texts and ``doc_id``. The events of one conversation are in memory at a time.
    """
    decode = _WHOLE if wanted is None else _TEXTS_ONLY
    for conversation in engine.conversations():
        name = conversation.conversation_id
        if wanted is not None and name not in wanted:
            yield ConversationEvents(conversation, None)
            continue
        yield ConversationEvents(
            conversation, list(_events_of(records, engine, conversation, decode))
        )


def _events_of(
    records: RereadableRecords, engine: Replay, conversation: Conversation, decode: _Decoders
) -> Iterator[Event]:
    """Reread the events that still apply, without those replaced or erased by a ``forget``."""
    name = conversation.conversation_id
    for turn in shown_turns(conversation, engine.options.turn_scope):
        digests = {search.digest: None for search in turn.order}
        digests |= {end.digest: None for end in turn.winners[END].values()}
        for digest in digests:
            event = conversation.events[digest]
            kind = BY_CODE[event.kind].name
            record = records.at(engine.positions[name][digest])
            payload = reread_payload(record.value or b"", kind, decode)
            yield Event(*event.version, name, turn.number, payload)


_WHOLE: Final[_Decoders] = {
    kind: msgspec.json.Decoder(PAYLOADS[kind]).decode
    for kind in ("search_iteration", "turn_completed")
}


def _with_raw_fields(kind: type[msgspec.Struct], names: Sequence[str], **lists: Any) -> Any:
    """A subtype that leaves the named fields undecoded; ``lists`` are fields of other items."""
    raw = [(name, msgspec.Raw, msgspec.Raw()) for name in names]
    typed = [(name, GenericAlias(list, of) | None, None) for name, of in lists.items()]
    return msgspec.defstruct(
        kind.__name__, [*raw, *typed], bases=(kind,), gc=False, frozen=True, kw_only=True
    )


_RESULT: Final = _with_raw_fields(Result, ["ids", "fields"])
_SEARCH: Final = _with_raw_fields(Search, ["routing"], results=_RESULT)
_ITERATION: Final = _with_raw_fields(SearchIteration, ["gate"], searches=_SEARCH)
_TEXTS_ONLY: Final[_Decoders] = {
    **_WHOLE,
    "search_iteration": msgspec.json.Decoder(_ITERATION).decode,
}


def reread_payload(value: bytes, kind: str, decode: _Decoders = _WHOLE) -> Payload:
    """Decode again a record that has been found to be a valid event of this type."""
    try:
        return decode[kind](value)
    except ValueError:  # unknown fields; a repeated key may hide an invalid value
        return convert(decode_json(value)[0], kind)[0]
