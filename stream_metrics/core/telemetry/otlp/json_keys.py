"""Keys of OTLP's JSON: which signal a value has, and which keys of it would be lost.

OTLP writes keys in lower camel case, takes no others (unlike Protobuf's own JSON), and has
receivers ignore keys that they do not know. What stands under a key that is only spelt otherwise,
or that was OTLP's own in earlier versions, would be lost that way, so such keys are errors.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeVar, get_args

import msgspec

from stream_metrics.core.telemetry.otlp.spans import OtlpError

BOM: Final = b"\xef\xbb\xbf"
HEAD_BYTES: Final = 4 << 10
"""The bytes of an incomplete value whose keys are looked at."""

T = TypeVar("T", bound=msgspec.Struct)

SIGNALS: Final = ("spans", "metrics", "logs", "profiles")
_MENTIONED: Final = re.compile(rb'esource_?[SsMmLlPp][a-z]+"\s*:')
_TOKEN: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)(?:"\s*+(:?)|\\?\Z)|[{}\[\]]', re.DOTALL)
_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode

_OLD: Final = {
    "instrumentationlibraryspans": "scopeSpans",
    "instrumentationlibrarylogs": "scopeLogs",
    "instrumentationlibrary": "scope",
}
"""Keys of OTLP before 0.15, as ``_plain`` has them, and what they are called now."""


def signal_of(value: bytes) -> str | None:
    """The OTLP signal that a value in JSON has, one of ``SIGNALS``; None if it has none.

    The value may be a list of payloads, and may be incomplete: then its beginning decides. Keys may
    be spelt wrongly, since reading the payload says so.

    >>> signal_of(b'{"schemaUrl": "", "resourceSpans": []}'), signal_of(b'[{"resource_logs": [')
    ('spans', 'logs')
    >>> signal_of(b'{"type": "forget", "about": "resourceSpans"}') is None
    True
    """
    if _MENTIONED.search(value) is None:
        return None
    keys = {_plain(key) for key in top_keys(value)}
    return next((signal for signal in SIGNALS if f"resource{signal}" in keys), None)


def top_keys(value: bytes) -> list[str]:
    """The keys of an object, or of the first object of a list; of an incomplete value those at its
    beginning."""
    value = value.removeprefix(BOM)
    try:
        if value.lstrip()[:1] == b"[":
            return top_keys(bytes(next(iter(_ITEMS(value)), b"")))
        return list(_KEYS(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_first_keys(value[:HEAD_BYTES]))


def _first_keys(head: bytes) -> Iterator[str]:
    """The keys of the outermost object, which a list may hold, as far as they can be seen."""
    opened = ""
    for found in _TOKEN.finditer(head):
        if found[1] is None:
            bracket = found[0].decode()
            opened = opened[:-1] if bracket in "}]" else opened + bracket
            if not opened:
                return
        elif found[2] and opened in ("{", "[{"):
            yield found[1].decode(errors="replace")


def items_of(value: bytes) -> list[bytes]:
    """The payloads of a value in JSON: those of a list, or itself; raises what msgspec does."""
    value = value.removeprefix(BOM)
    if value.lstrip()[:1] != b"[":
        return [value]
    return [bytes(item) for item in _ITEMS(value)]


def decode_checked(
    value: bytes, kind: type[T], decode: Callable[[bytes], T], is_sure: Callable[[T], bool]
) -> T:
    """A payload as ``decode`` reads it, which refuses unknown keys; without those to be ignored.

    ``is_sure`` is whether no key can have come twice in one object. Raises ``OtlpError`` for keys
    whose values would be lost, and what msgspec does.
    """
    try:
        found = decode(value)
        if is_sure(found):
            return found
    except msgspec.ValidationError:
        pass  # an unknown key, or a value of the wrong type
    msgspec.json.decode(value)  # which is stricter than json about everything but repeated keys
    content = json.loads(value, object_pairs_hook=_Object)
    return msgspec.convert(_known(content, kind, ""), kind)


class _Object(dict[str, Any]):
    """An object with the keys that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(pairs) > len(self) else {}
        self.twice = {key for key, number in counts.items() if number > 1}


def _known(content: Any, kind: type[msgspec.Struct], path: str) -> Any:
    """The content of a message without the keys to be ignored; raises ``OtlpError``."""
    if isinstance(content, list):
        return [_known(item, kind, f"{path}[{place}]") for place, item in enumerate(content)]
    if not isinstance(content, _Object):
        return content
    known, spellings, found = _fields(kind), _spellings(kind), {}
    for key, value in content.items():
        place = f"{path}.{key}" if path else key
        if key in content.twice:
            raise OtlpError(f"{place} is there twice in one object; write each key once")
        if key in known:
            inner = known[key]
            found[key] = value if inner is None else _known(value, inner, place)
            continue
        plain = _plain(key)
        meant = spellings.get(plain) or _OLD.get(plain)
        if meant is not None:
            raise OtlpError(
                f"{place}: OTLP's JSON has `{meant}` instead; write it with the Collector's "
                "file or Kafka exporter, or rename the key"
            )
        if "stringValue" in known or _has_spans(value):
            raise OtlpError(f"{place}: OTLP has no such key here, and its value would be lost")
    return found


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """The keys of a message, each with the message that its value is, or is a list of."""
    return {
        one.encode_name: next(_messages(one.type), None) for one in msgspec.structs.fields(kind)
    }


@cache
def _spellings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The keys of a message by what their spellings have in common."""
    return {_plain(name): name for name in _fields(kind)}


def _messages(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for inner in get_args(annotation):
        yield from _messages(inner)


def _has_spans(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_spans, value))
    return isinstance(value, dict) and (
        any(_plain(key) == "spanid" for key in value) or any(map(_has_spans, value.values()))
    )


def _plain(key: str) -> str:
    """A key without what spellings differ in.

    >>> _plain("start_time_unix_nano") == _plain("StartTimeUnixNano")
    True
    """
    return key.replace("_", "").replace("-", "").casefold()
