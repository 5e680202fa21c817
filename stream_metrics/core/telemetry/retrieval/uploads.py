"""Where content is that an instrumentation uploaded elsewhere, and only refers to.

OpenTelemetry's GenAI conventions let a program upload what was asked and answered. Spans then have
an attribute such as ``gen_ai.output.messages_ref``, or a part of a message that is an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span, text

_MAX_LENGTH: Final = 200
_MAX_DEPTH: Final = 6
_LONGEST: Final = 2_000
"""The longest value that is looked at for an address."""
_RESULT: Final = re.compile(
    r"gen_ai\.(tool\.(call\.)?(result|output|response)|retrieval\.documents|memory\.records"
    r"|output\.messages)[._](ref|uri|url)"
)
"""Names of attributes that refer to what a tool or a search returned."""
_ANSWER: Final = re.compile(r"gen_ai\.output\.messages[._](ref|uri|url)")
_MESSAGES: Final = re.compile(r"gen_ai\.(input|output)\.messages[._](ref|uri|url)")
_ADDRESS: Final = re.compile(
    r"(?:s3|gs|gcs|oss|abfss?|wasbs?|az|azblob|file|memory|sls|hdfs)://\S+"
)
_PARTS: Final = ("uri", "file", "blob", "reference")


def uploaded_result(span: Span, values: Iterable[Any]) -> str | None:
    """Where the result of a tool or a search is by its span, in words; None if it is not said."""
    for value in values:
        if (address := address_of(value)) is not None:
            return f"it was uploaded to {address}"
    return _referred(span, _RESULT)


def uploaded_messages(span: Span, tree: SpanTree) -> str | None:
    """Where the messages are that the next model call was given, or those of the agent, in words;
    None if they are not said to be elsewhere."""
    turns = tree.nearest_ancestor(Role.TURN)
    turn = turns.get(span.span_id)
    later = [
        model
        for model in tree.with_role(Role.MODEL)
        if model.start_ns >= span.start_ns and turns.get(model.span_id) == turn
    ]
    later.sort(key=lambda model: (model.start_ns, model.span_id))
    outer = [tree.by_id[turn]] if turn is not None else []
    found = (_referred(one, _MESSAGES) for one in (*later[:1], *outer))
    return next(filter(None, found), None)


def uploaded_answer(span: Span) -> str | None:
    """Where a model's answer is, in words; None if nothing refers to it."""
    return _referred(span, _ANSWER)


def _referred(span: Span, names: re.Pattern[str]) -> str | None:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            if names.fullmatch(name) and (address := text(value)) is not None:
                return f"it was uploaded to {_shown(address)}, which {name} says"
    return None


def address_of(value: Any, depth: int = 0) -> str | None:
    """The address that a value is nothing but; None if it has content of its own.

    >>> address_of('[{"type": "uri", "uri": "gs://bucket/result.json"}]')
    'gs://bucket/result.json'
    """
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        stripped = value.strip()
        if len(stripped) > _LONGEST:
            return None
        if stripped[:1] in ("[", "{", '"'):
            inner = parse_value(stripped)
            return None if inner is None else address_of(inner, depth + 1)
        return _shown(stripped) if _ADDRESS.fullmatch(stripped) else None
    if isinstance(value, list):
        return address_of(value[0], depth + 1) if len(value) == 1 else None
    if not isinstance(value, dict):
        return None
    if value.get("type") in _PARTS and not {"content", "text"} & value.keys():
        address = next(_texts(value, ("uri", "url", "file_id", "ref")), None)
        return None if address is None else _shown(address)
    for key in ("ref", "content", "response", "result", "output", "parts"):
        if value.get(key) is not None and len(value) <= 4:
            return address_of(value[key], depth + 1)
    return None


def _texts(value: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if (found := text(value.get(name))) is not None:
            yield found


def _shown(address: str) -> str:
    """An address without what may be a secret."""
    shown = re.split(r"[?#]", address.strip(), maxsplit=1)[0]
    shown = re.sub(r"(?<=://)[^/@]*@", "", shown)
    return shown if len(shown) <= _MAX_LENGTH else f"{shown[:_MAX_LENGTH]}*"
