"""``DeadLetters`` in the SQLite file. A letter that is sent again is stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from stream_metrics.core.events.record import DeadLetter
from stream_metrics.live.local.database import Database
from stream_metrics.live.worker.clock import wall_ms


class LocalDeadLetters:
    """Stores letters; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, database: Database, clock: Callable[[], int] = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """See ``DeadLetters.send``."""
        now_ms = self._clock()
        rows = [
            (
                now_ms,
                letter.record.topic,
                letter.record.offset,
                letter.record.timestamp_ms,
                letter.record.key,
                letter.record.value,
                letter.reason,
                letter.message,
                _digest(letter),
            )
            for letter in letters
        ]
        statement = (
            'INSERT OR IGNORE INTO letters (written_ms, topic, "offset", timestamp_ms, key, value, '
            "reason, message, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        await self._database.write(lambda at: at.executemany(statement, rows))


def _digest(letter: DeadLetter) -> bytes:
    """Of what tells letters about one record apart: a trace may have several."""
    state = hashlib.blake2b(digest_size=16)
    texts = letter.reason.encode(), letter.message.encode("utf-8", "surrogatepass")
    for part in (letter.record.key, letter.record.value, *texts):
        state.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return state.digest()
