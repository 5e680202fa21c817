"""Stored fingerprints that are damaged are refused, or can be stored again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.events.wire import Result
from tests.twins.fingerprints import SEARCHES, compiled

pytestmark = pytest.mark.kernel


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SEARCHES, st.data())
def test_malformed_bytes_are_refused(searches: list[list[Result]], data: st.DataObject) -> None:
    """Cut or changed bytes give a ``ValueError``, or fingerprints that can be packed."""
    kernel = compiled(DedupRules(), b"")
    packed = kernel.pack([kernel.fingerprints(search) for search in searches])
    cut = data.draw(st.integers(0, len(packed) - 1))
    for broken in (packed[:cut], packed + b"\xc0"):
        with pytest.raises(ValueError):
            kernel.unpack(broken)
    changed = bytearray(packed)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    for broken in (bytes(changed), data.draw(st.binary(max_size=50))):
        try:
            unpacked = kernel.unpack(broken)
        except ValueError:
            continue
        kernel.pack(unpacked)
