"""A piece's events again, texts included, conversation by conversation.

The engine keeps digests. What needs texts (token overlap, answers) has a pass of its own, after the
engine has been over the piece: ``conversations_with_events`` gives each conversation as the engine
has it, and beside it the events that it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from stream_metrics.adapters.replay.spool import Piece, read_one, read_spool, spool_path
from stream_metrics.engine.registers import BY_CODE
from stream_metrics.engine.row import shown_turns
from stream_metrics.engine.state import END, Conversation
from stream_metrics.events.canonical import decode_json
from stream_metrics.events.decode import Event
from stream_metrics.events.fields import convert
from stream_metrics.events.record import Record
from stream_metrics.events.wire import (
    PAYLOADS,
    Payload,
    Result,
    Search,
    SearchIteration,
)
from stream_metrics.worker.replay import Replay

_Decoders = Mapping[str, Callable[[bytes], Payload]]
"""By the type of an event."""


class Again(Protocol):
    """The records of a piece, to be read more than once."""

    def each(self) -> Iterator[tuple[int, int, Record]]:
        """All of them, each behind where it stands and its number in the input."""

    def at(self, place: int) -> Record:
        """The one that stands there."""


class Held:
    """Records that are in memory, each behind its number in the input."""

    def __init__(self, records: Sequence[tuple[int, Record]]) -> None:
        self._records = records

    def each(self) -> Iterator[tuple[int, int, Record]]:
        """All of them, each behind its place among them and its number."""
        return ((place, *found) for place, found in enumerate(self._records))

    def at(self, place: int) -> Record:
        """The one in that place."""
        return self._records[place][1]


class OnDisk:
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
        """All of them, each behind its offset and its number; raises ``SpoolDamaged``."""
        for offset, spooled in read_spool(self._path, self._piece.size):
            if self._piece.has(spooled):
                yield offset, spooled.number, spooled.record

    def at(self, place: int) -> Record:
        """The one at that offset; raises ``SpoolDamaged``."""
        self._file.seek(place)
        return read_one(self._file, self._path).record


class Told(NamedTuple):
    """A conversation, and the searches and ends of turns that stand in the turns with a row.

    None: they were not asked for.
    """

    conversation: Conversation
    events: list[Event] | None


def conversations_with_events(
    records: Again, engine: Replay, wanted: Collection[str] | None = None
) -> Iterator[Told]:
    """Every conversation of ``engine``, which has been fed ``records``, by code point of its id.

    With ``wanted`` only those of these ids come with events, and of results with texts and
    ``doc_id`` alone. In memory are the events of one conversation.
    """
    decode = _WHOLE if wanted is None else _TOLD
    for conversation in engine.conversations():
        name = conversation.conversation_id
        if wanted is not None and name not in wanted:
            yield Told(conversation, None)
            continue
        yield Told(conversation, list(_standing(records, engine, conversation, decode)))


def _standing(
    records: Again, engine: Replay, conversation: Conversation, decode: _Decoders
) -> Iterator[Event]:
    """The events, read again; what others have replaced, or a ``forget`` erased, is not."""
    name = conversation.conversation_id
    for turn in shown_turns(conversation, engine.options.turn_scope):
        digests = {search.digest: None for search in turn.order}
        digests |= {end.digest: None for end in turn.winners[END].values()}
        for digest in digests:
            event = conversation.events[digest]
            kind = BY_CODE[event.kind].name
            record = records.at(engine.telling[name][digest])
            payload = payload_again(record.value or b"", kind, decode)
            yield Event(*event.version, name, turn.number, payload)


_WHOLE: Final[_Decoders] = {
    kind: msgspec.json.Decoder(PAYLOADS[kind]).decode
    for kind in ("search_iteration", "turn_completed")
}


def _unread(kind: type[msgspec.Struct], names: Sequence[str], **lists: Any) -> Any:
    """A type of which fields of these names stay as they were sent; ``lists`` hold other types."""
    raw = [(name, msgspec.Raw, msgspec.Raw()) for name in names]
    typed = [(name, GenericAlias(list, of) | None, None) for name, of in lists.items()]
    return msgspec.defstruct(
        kind.__name__, [*raw, *typed], bases=(kind,), gc=False, frozen=True, kw_only=True
    )


_RESULT: Final = _unread(Result, ["ids", "fields"])
_SEARCH: Final = _unread(Search, ["routing"], results=_RESULT)
_ITERATION: Final = _unread(SearchIteration, ["gate"], searches=_SEARCH)
_TOLD: Final[_Decoders] = {**_WHOLE, "search_iteration": msgspec.json.Decoder(_ITERATION).decode}


def payload_again(value: bytes, kind: str, decode: _Decoders = _WHOLE) -> Payload:
    """What a record says that ``decode`` has found to be a valid event of this type."""
    try:
        return decode[kind](value)
    except ValueError:  # unknown fields; a key that stands twice may hide what no event may hold
        return convert(decode_json(value)[0], kind)[0]
