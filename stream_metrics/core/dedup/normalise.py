"""Normalise texts, URLs and field values for comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from stream_metrics.core import unicode
from stream_metrics.core.events.times import parse_rfc3339

LONG_TEXT: Final = 50  # code points from which an equal text is evidence
IDENTICAL_TEXT: Final = 200  # code points from which an equal content is the same document
SNIPPET_PREFIX: Final = 100
CONTENT_PREFIX: Final = 500
TITLE_PREFIX: Final = 100
MAX_URL_PARAMETERS: Final = 500
SHORT_URL: Final = 512  # longer URLs are not cached

IDENTITY_PARAMETERS: Final = frozenset(("id", "itemid", "version", "sourcedoc", "docid", "v", "p"))
DROPPED_PARAMETERS: Final = frozenset(
    (
        "web", "preview", "auth", "token", "session", "gclid", "fbclid", "msclkid",
        "srsltid", "mc_cid", "mc_eid", "igshid", "ref", "ref_src",
    )
)  # fmt: skip
DROPPED_UNLESS_ALONE: Final = frozenset(("view", "action"))

_UUID_FORM = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PERCENT_TRIPLET = re.compile(r"%[0-9a-fA-F]{2}")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

Scalar = str | bool | int | float
TextForm = Callable[[str], str]


def normalise_text(text: str) -> str:
    """Casefold, strip, and replace every run of white space by one space (tables 1).

    >>> normalise_text("  Groß\\u00a0 und\\tKLEIN ")
    'gross und klein'
    """
    return " ".join(text.casefold().split())


def fold(text: str) -> str:
    """Casefold, so that canonically equivalent texts have one form.

    >>> fold("Zu\\u0308rich") == fold("Z\\xdcRICH")
    True
    """
    if text.isascii():
        return text.lower()
    return unicode.nfc(unicode.casefold(unicode.nfc(text)))


def canonical_text(text: str) -> str:
    """Fold, strip, and replace every run of white space by one space (from tables 2 on).

    >>> canonical_text(" Zu\\u0308rich\\u00a0 WEST") == canonical_text("z\\xfcrich west")
    True
    """
    return " ".join(fold(text).split())


def folded_page(page: int) -> tuple[list[str | None], bytes]:
    """The folded forms of 256 characters and their combining classes, for the kernel.

    A form is None if that of a text with this character depends on the characters around it; it is
    "" for white space. Other forms can be joined if the text is in canonical order.

    >>> forms, classes = folded_page(3)
    >>> forms[0x01], forms[0x35], classes[0x35]  # an acute accent, and an overlay
    (None, '̵', 1)
    """
    characters = [chr(code) for code in range(256 * page, 256 * (page + 1))]
    return [_folded(c) for c in characters], bytes(map(unicode.combining, characters))


def _folded(character: str) -> str | None:
    if character.isspace():
        return ""
    folded = unicode.casefold(character)
    if not (unicode.is_alone(character) and all(map(unicode.is_alone, folded))):
        return None
    if folded != character and any(map(unicode.combining, character + folded)):
        return None
    return folded


def is_uuid_form(value: str) -> bool:
    """Whether ``value`` is a UUID (8-4-4-4-12 hexadecimal digits), which is compared caseless."""
    return len(value) == 36 and _UUID_FORM.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Url:
    """The comparable parts of a URL.

    Attributes:
        address: Host and path.
        parameters: The sorted (name, value) pairs that are not dropped.
        route: A fragment that may name a page of its own; "" if there is none.
        weak: The sorted pairs that count only where the results differ in something else.
    """

    address: tuple[str, str]
    parameters: tuple[tuple[str, str], ...]
    route: str = ""
    weak: tuple[tuple[str, str], ...] = ()


def parse_url(url: str) -> Url | None:
    """The comparable parts of ``url`` by the rules of tables 1; None if it cannot be parsed.

    >>> parse_url("HTTP://me@Example.org:80/a%7eb/?utm_source=x&B=1#top")
    Url(address=('example.org', '/a~b'), parameters=(('b', '1'),), route='', weak=())
    >>> parse_url("http://[broken/") is None
    True
    """
    return _parse_short_url(url) if len(url) <= SHORT_URL else _parse_url(url)


def _parse_url(url: str) -> Url | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.netloc.casefold()
    if "@" in host:
        host = host.rpartition("@")[2]
    if host.endswith(":80"):
        host = host[:-3]
    elif host.endswith(":443"):
        host = host[:-4]
    if not host:
        return None
    path = parts.path or "/"
    if len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    if "%" in path:
        path = normal_triplets(path)
    if parts.fragment[:1] in ("/", "!"):
        path = f"{path}#{parts.fragment}"
    if not parts.query:
        return Url((host, path), ())
    pairs = [
        (name.casefold(), value) for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    if len(pairs) > MAX_URL_PARAMETERS:
        return None
    return Url((host, path), _kept_parameters(pairs))


_parse_short_url = lru_cache(maxsize=16_384)(_parse_url)


def normal_triplets(text: str) -> str:
    """Percent triplets in upper case, and those of unreserved characters decoded (RFC 3986).

    >>> normal_triplets("/a%7eb%2f")
    '/a~b%2F'
    """
    return _PERCENT_TRIPLET.sub(_normal_triplet, text)


def _normal_triplet(match: re.Match[str]) -> str:
    triplet = match.group().upper()
    character = chr(int(triplet[1:], 16))
    return character if character in _UNRESERVED else triplet


def _kept_parameters(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    kept = [p for p in pairs if p[0] not in DROPPED_PARAMETERS and not p[0].startswith("utm_")]
    if any(name not in DROPPED_UNLESS_ALONE for name, _ in kept):
        kept = [p for p in kept if p[0] not in DROPPED_UNLESS_ALONE]
    return tuple(sorted(kept))


def scalar_form(value: Scalar | None, text_form: TextForm = normalise_text) -> str | None:
    """The comparable form of a field value; None if it is absent.

    The first character is the kind, so that a text never equals a number, time or boolean that
    looks like it.

    >>> scalar_form(1) == scalar_form(1.0), scalar_form(1) == scalar_form("1")
    (True, False)
    >>> scalar_form("2024-01-01T01:00:00+01:00") == scalar_form("2024-01-01T00:00:00Z")
    True
    """
    kind = type(value)
    if kind is str:
        text = text_form(value)  # type: ignore[arg-type]
        if not text:
            return None
        if text[0] in "0123456789" and (instant := parse_rfc3339(text)) is not None:
            return f"t{instant}"
        return "s" + text
    if value is None:
        return None
    if kind is bool:
        return "b1" if value else "b0"
    if kind is float:
        if value.is_integer():  # type: ignore[union-attr]
            return f"n{int(value)}"
        return f"n{value!r}"
    return f"n{value}"


def field_form(
    value: Scalar | list[Scalar | None] | None, text_form: TextForm = normalise_text
) -> str | None:
    """The comparable form of a field: the sorted entries of a list; a single entry equals itself.

    >>> field_form(["b", "a", None]) == field_form(["a", "b"]), field_form(["a"]) == field_form("A")
    (True, True)
    """
    if type(value) is not list:
        return scalar_form(value, text_form)  # type: ignore[arg-type]
    forms = sorted(form for item in value if (form := scalar_form(item, text_form)) is not None)
    if not forms:
        return None
    if len(forms) == 1:
        return forms[0]
    return "l" + "".join(f"{len(form)}:{form}" for form in forms)


def single_text(
    value: Scalar | list[Scalar | None] | None, text_form: TextForm = normalise_text
) -> str | None:
    """The normalised text of a field that is a text or a list with one text; None otherwise."""
    if type(value) is list:
        present = [item for item in value if scalar_form(item, text_form) is not None]
        value = present[0] if len(present) == 1 else None
    if type(value) is not str:
        return None
    return text_form(value) or None
