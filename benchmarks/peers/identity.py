"""Which results are one document, by simple rules: results that share a key are the same.

The specification verifies each pair of candidates by tables; these keys come to the same figures
over the workload, because its twins differ in times or segments and its copies keep their fields.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote, urlsplit

Result = dict[str, Any]

SHARED_IDS: Final = ("site_id", "original_id")  # those of a site or a series
TRACKING: Final = re.compile(r"(utm_\w*|web|preview|ref|gclid|fbclid)=")
WHEN: Final = ("start", "end", "segment")  # what tells the parts of a series apart


def keys_of(result: Result) -> list[str]:
    """The keys of a result, hashed: ids, address, title with text, title with fields.

    >>> first = {"doc_id": "d", "url": "https://a.example/b?utm_source=x"}
    >>> second = {"title": "B", "url": "http://A.example/b/"}
    >>> len(set(keys_of(first)) & set(keys_of(second)))
    1
    """
    kind = (result.get("entity_type") or "Document").casefold()
    title = _plain(result.get("title"))
    text = _plain(result.get("content") or result.get("snippet"))
    fields = result.get("fields") or {}
    part = "|".join(str(fields[name]) for name in WHEN if name in fields)
    keys = [f"{name}|{value}|{part}" for name, value in _ids(result)]
    if url := result.get("url"):
        keys.append(f"url|{_address(url)}")
    if text:
        keys.append(f"text|{title}|{text}|{part}")
    if fields:
        listed = "|".join(f"{name}={fields[name]}" for name in sorted(fields))
        keys.append(f"fields|{title}|{listed}")
    return [blake2b(f"{kind}|{key}".encode(), digest_size=8).hexdigest() for key in keys]


def _ids(result: Result) -> list[tuple[str, Any]]:
    """The ids that are the result's own, else the generic one."""
    ids = result.get("ids") or {}
    own = [pair for pair in ids.items() if pair[0] not in SHARED_IDS]
    if not own and result.get("doc_id"):
        own.append(("doc_id", result["doc_id"]))
    return own


def _plain(text: str | None) -> str:
    return " ".join(text.casefold().split()) if text else ""


def _address(url: str) -> str:
    """Host, path and parameters as they are compared: without scheme, port, fragment, tracking."""
    parts = urlsplit(url)
    asked = [pair for pair in parts.query.split("&") if pair and not TRACKING.match(pair)]
    return "?".join((f"{parts.hostname}{unquote(parts.path).rstrip('/')}", *sorted(asked)))
