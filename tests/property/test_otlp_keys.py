"""Every span of a payload in JSON is read, or the payload is refused."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.telemetry.otlp.payloads import is_payload, spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from tests.helpers import examples
from tests.otlp import SpanSpec, as_protobuf, document, documents

OLD = {
    "scopeSpans": ["instrumentationLibrarySpans", "instrumentation_library_spans"],
    "scope": ["instrumentationLibrary"],
}
SPECS = [
    SpanSpec(trace, span, span - 1, attributes={**documents("a", content="b"), "n": [1, True]})
    for trace, span in ((1, 1), (1, 2), (2, 1))
]


def spellings(key: str) -> list[str]:
    """The key, and others that some sender writes for it."""
    snake = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key)
    return [key, key, key, snake, key[:1].upper() + key[1:], key.lower(), *OLD.get(key, [])]


@st.composite
def rewritten(draw: st.DrawFn, value: Any, spelt: bool) -> Any:
    """The value with keys in another order and, if ``spelt``, some spelt otherwise."""
    if isinstance(value, list):
        return [draw(rewritten(item, spelt)) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key in draw(st.permutations([*value])):
        name = draw(st.sampled_from(spellings(key))) if spelt else key
        inner = draw(rewritten(value[key], spelt))
        found[name] = inner
        if spelt and name != key and draw(st.booleans()):
            found[key] = [] if isinstance(inner, list) else inner  # beside the wrong key
    return found


@settings(max_examples=examples(60), deadline=None)
@given(rewritten(document(SPECS), False), st.integers(0, 2), st.booleans())
def test_the_order_of_keys_does_not_matter(value: Any, indent: int, several: bool) -> None:
    """At any level, on one line or on several, in a list or not."""
    text = json.dumps([value] if several else value, indent=indent or None)

    assert spans_of(text.encode()) == spans_of(as_protobuf(SPECS))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(rewritten(document(SPECS[:1]), True), min_size=1, max_size=3), st.booleans())
def test_no_span_is_lost_by_the_spelling_of_keys(values: list[Any], first: bool) -> None:
    """What is not read as it would be in the right spelling is refused."""
    good = document(SPECS[1:])
    data = json.dumps([good, *values] if first else [*values, good]).encode()
    whole = [*SPECS[1:], *SPECS[:1] * len(values)]
    if not first:
        whole = [*SPECS[:1] * len(values), *SPECS[1:]]

    assert is_payload(data)
    try:
        found = spans_of(data)
    except OtlpError:
        return
    assert found == spans_of(as_protobuf(whole))
