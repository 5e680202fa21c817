"""Reread a piece's events with their texts, conversation by conversation.

The engine keeps digests only. What needs texts (token overlap, answers) has a pass of its own after
the engine has processed the piece. It reads the events that it needs where they were read before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, Final, Protocol

import msgspec

from stream_metrics.core.engine.registers import BY_CODE
from stream_metrics.core.engine.state import Conversation, WinningEvent
from stream_metrics.core.engine.state import Search as WinningSearch
from stream_metrics.core.events.canonical import decode_json
from stream_metrics.core.events.decode import TYPED
from stream_metrics.core.events.fields import convert
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import (
    Payload,
    Result,
    Search,
    SearchIteration,
)
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.recorded import Recorded, words_version
from stream_metrics.lab.sources.place import LocatedRecord

_Decoders = Mapping[str, Callable[[bytes], Payload]]
"""Decoders by event type."""


class RereadableRecords(Protocol):
    """The records of a piece, which can be read more than once."""

    def each(self) -> Iterator[tuple[int, LocatedRecord]]:
        """All records, each preceded by its position."""

    def at(self, position: int) -> Record:
        """The record at a position."""


class InMemoryRecords:
    """Records in memory."""

    def __init__(self, records: Sequence[LocatedRecord]) -> None:
        self._records = records

    def each(self) -> Iterator[tuple[int, LocatedRecord]]:
        """All records, each preceded by its index."""
        return enumerate(self._records)

    def at(self, position: int) -> Record:
        """The record at an index."""
        return self._records[position][2]


def recorded_of(
    records: RereadableRecords, engine: Replay, conversation: Conversation, *, whole: bool = False
) -> Recorded:
    """What was recorded of a conversation of ``engine``, which was fed ``records``.

    Results have only their texts and ``doc_id``, unless ``whole``.
    """
    positions = engine.positions.get(conversation.conversation_id, {})
    decode = TYPED if whole else _TEXTS_ONLY

    def decoded(won: WinningSearch | WinningEvent, value: bytes) -> Payload:
        kind = BY_CODE[conversation.events[won.digest].kind].name
        return reread_payload(value, kind, decode)

    return Recorded(
        lambda won: records.at(positions[won.digest]).value or b"",
        decoded,
        words_version(engine.config.rules.tables),
    )


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
    **TYPED,
    "search_iteration": msgspec.json.Decoder(_ITERATION).decode,
}


def reread_payload(value: bytes, kind: str, decode: _Decoders = TYPED) -> Payload:
    """Decode again a record that has been found to be a valid event of this type."""
    try:
        return decode[kind](value)
    except ValueError:  # unknown fields; a repeated key may hide an invalid value
        return convert(decode_json(value)[0], kind)[0]
