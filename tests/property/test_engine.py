"""The engine against a brute-force reference that shares no code with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.engine.row import canonical
from stream_metrics.ports import Record
from stream_metrics.worker.replay import Replay
from tests import oracle
from tests.strategies import arrivals, streams


def replayed(batches: list[list[tuple[bytes, bytes, int | None]]], scope: str = "last") -> Replay:
    """The engine's state after ``batches``, each applied as one."""
    engine = Replay(turn_scope=scope)
    for batch in batches:
        for key, value, timestamp_ms in batch:
            engine.feed(Record(value, key, timestamp_ms))
        engine.flush()
    return engine


@given(st.data())
def test_any_arrival_gives_the_rows_and_windows_of_the_reference(data: st.DataObject) -> None:
    """Permuted, repeated and split streams give the reference's rows and windows, byte for byte."""
    stream = data.draw(streams())
    expected = oracle.evaluate([oracle.Record(v, k, t) for k, v, t in stream], turn_scope="all")

    engine = replayed(data.draw(arrivals(stream)), "all")

    rows = engine.rows()
    assert [canonical(row) for row in rows] == expected.rows
    assert canonical(engine.windows()) + "\n" == expected.windows()
