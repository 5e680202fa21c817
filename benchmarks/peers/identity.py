"""Which results are one document, by simple rules: results that share a key are the same.

The specification verifies each pair of candidates by tables; these keys come to the same figures
over the workload, because its twins differ in times or segments and its copies keep their fields.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

Result = dict[str, Any]

SHARED_IDS: Final = ("site_id", "original_id")  # those of a site or a series
TRACKING: Final = re.compile(r"utm_|(web|preview|ref|gclid|fbclid)$")
WHEN: Final = ("start", "end", "segment")  # what tells the parts of a series apart


def keys_of(result: Result) -> list[str]:
    """The keys of a result, hashed: ids, address, title with text, title with fields.

    >>> first = {"doc_id": "d", "url": "https://a.example/b?utm_source=x"}
    >>> second = {"title": "B", "url": "http://A.example/b/"}
    >>> len(set(keys_of(first)) & set(keys_of(second)))
    1
    """
    fields = result.get("fields") or {}
    part = [fields.get(name) for name in WHEN]
    keys: list[Any] = _ids(result, part)
    if url := result.get("url"):
        keys.append(("url", _address(url)))
    title = _plain(result.get("title"))
    if text := _plain(result.get("content") or result.get("snippet")):
        keys.append(("text", title, text, part))
    if fields:
        keys.append(("fields", title, sorted(fields.items())))
    kind = (result.get("entity_type") or "Document").casefold()
    return [blake2b(f"{kind}{key}".encode(), digest_size=8).hexdigest() for key in keys]


def _ids(result: Result, part: list[Any]) -> list[Any]:
    ids = result.get("ids") or {}
    own: list[Any] = [
        ("id", name, value, part) for name, value in ids.items() if value and name not in SHARED_IDS
    ]
    if not own and result.get("doc_id"):
        own.append(("doc_id", result["doc_id"]))
    return own


def _plain(text: str | None) -> str:
    return " ".join((text or "").casefold().split())


def _address(url: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Host, path and parameters as they are compared: without scheme, port, fragment, tracking."""
    parts = urlsplit(url)
    path = unquote(parts.path).rstrip("/")
    asked = [pair for pair in parse_qsl(parts.query) if not TRACKING.match(pair[0])]
    return (parts.hostname or "", path, sorted(asked))
