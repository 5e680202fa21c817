"""The Python deduplicator has no fast decoder."""

from __future__ import annotations

from stream_metrics.core.dedup.deduplicator import PlainDeduplicator
from stream_metrics.core.dedup.tables import DedupRules, newest
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.events import Limits
from tests.unit.test_bad_input import raw


def test_the_plain_twin_has_no_fast_way() -> None:
    """Without the kernel's deduplicator, the slow decoder handles all records."""
    decoder = RecordDecoder(
        PlainDeduplicator(DedupRules(), b""), "a key's name", newest(), Limits()
    )

    assert decoder.decode_fast(raw("search_iteration"), None, None) is None
    assert isinstance(decoder.decode(raw("search_iteration")), DigestedEvent)
