"""The resolution of clocks: SDKs of JavaScript start spans at whole milliseconds.

They measure how long a span took more finely. So a tool that took 0.4 ms seems to end after a span
that began 0.1 ms later, but in the same millisecond.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from stream_metrics.core.telemetry.spans import Span

MILLISECOND: Final = 1_000_000
SEVERAL: Final = 3
"""The fewest spans of a scope that start at whole milliseconds by no accident."""


def at_resolution(spans: Sequence[Span]) -> tuple[list[Span], frozenset[str]]:
    """The spans of a trace, with ends in whole milliseconds where starts are; and their ids.

    A process starts spans at whole milliseconds if all of its spans do, and not all of them end so;
    or all of a scope, of which there are several, because others may be given other times. Those
    of a scope may be ahead of the clock, all by the same time.
    """
    if not any((span.end_ns - span.start_ns) % MILLISECOND for span in spans):
        return list(spans), frozenset()
    ahead: dict[object, set[int]] = defaultdict(set)  # by scope, of any process
    for span in spans:
        ahead[span.scope].add(span.start_ns % MILLISECOND)
    if all(0 not in found and len(found) > 1 for found in ahead.values()):
        return list(spans), frozenset()  # the usual case
    resources = [repr(sorted(span.resource.items(), key=str)) for span in spans]
    scopes = [(span.scope, of) for span, of in zip(spans, resources, strict=True)]
    number = Counter(scopes)
    for span, resource, scope in zip(spans, resources, scopes, strict=True):
        for key in (("process", resource), scope):
            ahead[key].add(span.start_ns % MILLISECOND)
    coarse = frozenset(
        span.span_id
        for span, resource, scope in zip(spans, resources, scopes, strict=True)
        if ahead["process", resource] == {0}
        or (len(ahead[scope]) == 1 and number[scope] >= SEVERAL)
    )
    return [
        replace(span, end_ns=span.end_ns - (span.end_ns - span.start_ns) % MILLISECOND)
        if span.span_id in coarse
        else span
        for span in spans
    ], coarse
