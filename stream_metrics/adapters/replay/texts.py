"""A piece's events again, texts included, conversation by conversation.

The engine keeps digests. What needs texts (token overlap, answers) has a pass of its own, after the
engine has been over the piece: ``conversations_with_events`` gives each conversation as the engine
has it, and beside it the events that it was made of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from stream_metrics.adapters.replay.spool import Piece, read_one, read_spool, spool_path
from stream_metrics.engine.state import Conversation
from stream_metrics.events.decode import BadRecord, Event, decode
from stream_metrics.events.limits import Limits
from stream_metrics.events.wire import Forget
from stream_metrics.ports import Record
from stream_metrics.worker.replay import Replay


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
    """A conversation, and its searches and ends of turns by turn.

    Events are by version, each content once, also those that later ones have replaced: whoever
    needs the standing one compares its digest with the carriers of the conversation. What a
    ``forget`` erases is not among them. None: they were not asked for.
    """

    conversation: Conversation
    events: dict[int, list[Event]] | None


def conversations_with_events(
    records: Again, engine: Replay, limits: Limits, wanted: Collection[str] | None = None
) -> Iterator[Told]:
    """Every conversation of ``engine``, which has been fed ``records``, by code point of its id.

    With ``wanted`` only those of these ids come with events. In memory are the events of one
    conversation.
    """
    for conversation in engine.conversations():
        name = conversation.conversation_id
        if wanted is not None and name not in wanted:
            yield Told(conversation, None)
            continue
        yield Told(conversation, _by_turn(map(records.at, engine.telling.get(name, ())), limits))


def _by_turn(records: Iterator[Record], limits: Limits) -> dict[int, list[Event]]:
    events: dict[tuple[int, str, bytes], Event] = {}
    forgotten = (-1, "")
    for record in records:
        found = decode(
            record.value, key=record.key, timestamp_ms=record.timestamp_ms, limits=limits
        )
        if isinstance(found, BadRecord):
            continue
        if isinstance(found.payload, Forget):
            forgotten = max(forgotten, found.version[:2])
        else:
            events[found.version] = found
    by_turn: dict[int, list[Event]] = {}
    for version, event in sorted(events.items()):
        if version[:2] > forgotten:
            by_turn.setdefault(event.turn, []).append(event)
    return by_turn
