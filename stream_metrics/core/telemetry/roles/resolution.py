"""The resolution of clocks: SDKs of JavaScript start spans at whole milliseconds.

They measure how long a span took more finely. So a tool that took 0.4 ms seems to end after a span
that began 0.1 ms later, but in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from stream_metrics.core.telemetry.spans import Span

MILLISECOND: Final = 1_000_000


def at_resolution(spans: Sequence[Span]) -> tuple[list[Span], frozenset[str]]:
    """The spans of a trace, with ends in whole milliseconds where starts are; and their ids.

    A process starts spans at whole milliseconds if all of its spans do, and not all of them end so.
    """
    if not any(span.end_ns % MILLISECOND and not span.start_ns % MILLISECOND for span in spans):
        return list(spans), frozenset()
    fine: set[str] = set()
    processes = [repr(sorted(span.resource.items(), key=str)) for span in spans]
    for span, process in zip(spans, processes, strict=True):
        if span.start_ns % MILLISECOND:
            fine.add(process)
    coarse = frozenset(
        span.span_id for span, process in zip(spans, processes, strict=True) if process not in fine
    )
    return [
        replace(span, end_ns=span.end_ns - span.end_ns % MILLISECOND)
        if span.span_id in coarse
        else span
        for span in spans
    ], coarse
