"""Sessions of an agent as traces: one trace for each turn, several for each session."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.otlp import SpanSpec, as_json, as_protobuf, documents

KINDS = "openinference.span.kind"
SCOPE = "openinference.instrumentation.langchain"


@dataclass(frozen=True)
class Sent:
    """A record for the topic of traces; ``after_ms`` is its delay after the first."""

    key: bytes | None
    value: bytes
    after_ms: int = 0


def trace(
    number: int, chance: random.Random, *, sessions: int, searches: int, start_ms: int
) -> list[SpanSpec]:
    """A turn: a model call before each search, some concurrent searches, and an answer."""
    session = {"session.id": f"session-{chance.randrange(sessions)}"}
    resource = {"service.name": "assistant", "service.version": "7"}
    of: dict[str, Any] = {"scope": SCOPE, "resource": resource}
    spans: list[SpanSpec] = []

    def span(parent: int, at: int, end: int, **attributes: object) -> int:
        id = len(spans) + 2
        spans.append(SpanSpec(number, id, parent, start_ms + at, start_ms + end, attributes, **of))
        return id

    at = 1
    for _ in range(searches):
        span(1, at, at + 4, **{KINDS: "LLM", "output.value": "I search."})
        at += 5
        for _ in range(chance.choice((1, 1, 2))):
            found = chance.sample(range(40), chance.randrange(5))
            texts = documents(*found, content="what it says")
            asked = {"input.value": f"question {chance.randrange(9)}"}
            if not found:
                texts = {"output.value": '{"documents": []}'}
            span(1, at + 1, at + 8, **{KINDS: "RETRIEVER"}, **asked, **texts)
        at += 10
    span(1, at, at + 4, **{KINDS: "LLM", "output.value": "The answer."})
    ends = start_ms + at + 5
    turn = {KINDS: "AGENT", "input.value": "a question", "output.value": "an answer", **session}
    return [*spans, SpanSpec(number, 1, 0, start_ms, ends, turn, **of)]


def traces(seed: int, number: int, *, sessions: int = 0, searches: int = 3) -> list[list[SpanSpec]]:
    """Traces with ids from the seed on."""
    chance = random.Random(seed)
    return [
        trace(
            seed * 1_000_000 + at + 1,
            chance,
            sessions=sessions or max(1, number // 4),
            searches=chance.randint(0, searches),
            start_ms=seed % 1_000 * 60_000 + at * 50,
        )
        for at in range(number)
    ]


def trace_of(number: int, scope: str = SCOPE) -> list[SpanSpec]:
    """A turn with a search, in its own session; the last span is the root."""
    of: dict[str, Any] = {"scope": scope, "resource": {"service.name": "assistant"}}
    start = number * 1_000
    turn = {KINDS: "AGENT", "session.id": f"session of {number}"}
    found = {KINDS: "RETRIEVER", **documents(1, 2)}
    return [
        SpanSpec(number, 2, 1, start + 1, start + 2, {KINDS: "LLM"}, **of),
        SpanSpec(number, 3, 1, start + 3, start + 4, found, **of),
        SpanSpec(number, 1, 0, start, start + 9, turn, **of),
    ]


def payloads(
    spans: Sequence[SpanSpec], chance: random.Random, most: int = 6, repeated: float = 0.2
) -> Iterator[bytes]:
    """The spans of a trace split over payloads, shuffled, and some of them repeated."""
    left = list(spans)
    chance.shuffle(left)
    while left:
        size = chance.randint(1, most)
        part, left = left[:size], left[size:]
        value = as_json(part) if chance.random() < 0.3 else as_protobuf(part)
        yield value
        if chance.random() < repeated:
            yield value


def records(made: Iterable[Sequence[SpanSpec]], seed: int, open_at_once: int = 8) -> Iterator[Sent]:
    """Records of traces, several of which are interleaved."""
    chance = random.Random(seed)
    waiting = iter(made)
    under_way: list[tuple[bytes, list[bytes]]] = []
    while True:
        while len(under_way) < open_at_once and (spans := next(waiting, None)) is not None:
            key = spans[0].trace_id.hex().encode()
            under_way.append((key, list(payloads(spans, chance))))
        if not under_way:
            return
        key, left = one = chance.choice(under_way)
        yield Sent(key, left.pop())
        if not left:
            under_way.remove(one)
