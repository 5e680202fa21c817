"""Compare URLs from tables 2 on: what may be another page is one where the results differ.

``normalise.parse_url`` has the rules of tables 1. The reference page about deduplication lists the
names below for users.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from stream_metrics.core import unicode
from stream_metrics.core.dedup.normalise import (
    MAX_URL_PARAMETERS,
    SHORT_URL,
    Url,
    normal_triplets,
)

DEFAULT_PORTS: Final = {"http": "80", "https": "443", "": None}
"""The schemes of the web, which are one. ``//host`` has none."""

TRACKING_PARAMETERS: Final = frozenset(
    ("gclid", "fbclid", "msclkid", "srsltid", "mc_cid", "mc_eid", "igshid", "ref_src")
)
"""Parameters that never name a page, beside those that begin with ``utm_``."""

WEAK_PARAMETERS: Final = frozenset(("web", "preview", "auth", "token", "session", "ref"))
"""Parameters that count only where the results differ in something else."""

WEAK_UNLESS_ALONE: Final = frozenset(("view", "action"))
"""The same, if the URL has other parameters that count."""

PLACES_BY_NUMBER: Final = frozenset(
    (
        "page", "zoom",  # RFC 8118
        "t", "xywh", "track",  # Media Fragments URI 1.0
        "char", "line",  # RFC 5147
        "row", "col", "cell",  # RFC 7111
    )
)  # fmt: skip
"""Names in fragments that point into one document if their values begin with a digit."""

PLACES_IN_A_PAGE: Final = PLACES_BY_NUMBER | {
    "nameddest", "pagemode",  # RFC 8118
    "heading", "bookmark", "slide",  # of editors in the browser
}  # fmt: skip
"""All names in fragments that point into one document."""

LABELS: Final = (
    "alg", "app", "chap", "cite", "def", "eq", "eqn", "fig", "fn", "fnref", "lem", "lst", "ref",
    "sec", "subsec", "tab", "tbl", "thm",
)  # fmt: skip
"""What stands before the colon of a label in a page, such as ``sec:intro``."""

_PLACE_IN_A_PAGE: Final = re.compile(
    rf"(?:epubcfi|xpointer|element|svgView)\(|(?:{'|'.join(LABELS)}):"
)
_ROUTE: Final = re.compile(r".*[/@=].*|[A-Za-z]\w*:.*|eyJ.*", re.ASCII | re.DOTALL)
_PORT: Final = re.compile(r"[0-9]*")
_PLAIN_HOST: Final = re.compile(r"(?!.*xn--)[a-z0-9.-]+")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._~-]*")
_IN_PATH: Final = "/%:@!$&'()*+,;=-._~"
_IN_FRAGMENT: Final = _IN_PATH + "?"
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 255


def careful_url(url: str) -> Url | None:
    """The comparable parts of ``url``; None if it cannot be parsed, or has no host.

    >>> careful_url("HTTP://me@Example.org:80/b/../a%7eb/?utm_source=x&B=1&ref=2#top")
    Url(address=('example.org', '/a~b'), parameters=(('b', '1'),), route='', weak=(('ref', '2'),))
    >>> careful_url("s3://Bucket/a%7Eb").address, careful_url("https://mail.example/#inbox/1").route
    (('s3://Bucket', '/a~b'), 'inbox/1')
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme in DEFAULT_PORTS:
        host = _web_host(parts.netloc, DEFAULT_PORTS[parts.scheme])
    else:
        host = parts.netloc and f"{parts.scheme}://{normal_triplets(parts.netloc)}"
    if not host:
        return None
    path = _path(parts.path)
    route = ""
    if parts.fragment:
        fragment = parts.fragment.partition(":~:")[0]  # the rest is for the browser only
        if fragment[:1] in ("/", "!"):
            path = f"{path}#{_spelled(fragment, _IN_FRAGMENT)}"
        elif parts.scheme not in DEFAULT_PORTS or _is_route(fragment):
            route = _spelled(fragment, _IN_FRAGMENT)
    if not parts.query:
        return Url((host, path), (), route)
    # Bytes that are not UTF-8 become surrogates, each byte another one.
    pairs = parse_qsl(parts.query, keep_blank_values=True, errors="surrogateescape")
    if len(pairs) > MAX_URL_PARAMETERS:
        return None
    counted, weak = _parameters(pairs)
    return Url((host, path), counted, route, weak)


_remembered = lru_cache(maxsize=16_384)(careful_url)


def remembered_careful_url(url: str) -> Url | None:
    """``careful_url``, which remembers recent short URLs; the kernel does that by itself."""
    return _remembered(url) if len(url) <= SHORT_URL else careful_url(url)


def _web_host(netloc: str, default_port: str | None) -> str:
    if _PLAIN_HOST.fullmatch(netloc) is not None:
        return netloc
    whole = netloc.rpartition("@")[2]
    host, colon, port = whole.rpartition(":")
    if not colon or _PORT.fullmatch(port) is None:
        host, port = whole, ""
    if host:
        host = _host_name(host)
    return f"{host}:{port}" if host and port and port != default_port else host


def _host_name(host: str) -> str:
    """The Unicode form of a host name; it is equal for spellings that IDNA makes equal."""
    lower = unicode.lower(host)
    if lower.isascii() and "xn--" not in lower and "%" not in lower:
        return lower
    import idna  # its tables are large, and rarely needed

    try:
        name = unquote(host, errors="strict")
        if len(name) > _LONGEST_NAME or not all(map(unicode.is_assigned, name)):
            return unicode.nfc(lower)
        name = idna.uts46_remap(name, std3_rules=False, transitional=False)
        return ".".join(map(_label, name.split(".")))
    except (UnicodeError, idna.IDNAError):  # no name of a host; compared as it is
        return unicode.nfc(lower)


def _label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > _LONGEST_LABEL:
        return label
    return unicode.nfc(label[4:].encode("ascii").decode("punycode"))


def _path(path: str) -> str:
    """The path, the same for spellings that RFC 3986 and RFC 3987 make equal."""
    if not path or path == "/":
        return "/"
    if _PLAIN_PATH.fullmatch(path) is None:
        path = _spelled(path, _IN_PATH)
    if "/." in path:
        path = _without_dot_segments(path)
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def _without_dot_segments(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _is_route(fragment: str) -> bool:
    """Whether a fragment may be a page of an application, and not a place in a page."""
    if _ROUTE.fullmatch(fragment) is None or _PLACE_IN_A_PAGE.match(fragment):
        return False
    return not all(map(_is_place, fragment.split("&")))


def _is_place(part: str) -> bool:
    name, _, value = part.partition("=")
    name = name.lower()
    return name in PLACES_IN_A_PAGE and (name not in PLACES_BY_NUMBER or value[:1].isdigit())


def _spelled(part: str, safe: str) -> str:
    """A part of a URL with all that no URL may have in percent triplets."""
    return normal_triplets(quote(part, safe=safe, errors="surrogatepass"))


_Pairs = tuple[tuple[str, str], ...]


def _parameters(pairs: list[tuple[str, str]]) -> tuple[_Pairs, _Pairs]:
    """The sorted pairs that count, and those that count only where something else differs."""
    counted: list[tuple[str, str]] = []
    weak: list[tuple[str, str]] = []
    for sent, value in pairs:
        name = sent.lower() if sent.isascii() else unicode.casefold(sent)
        if name in WEAK_PARAMETERS:
            weak.append((name, value))
        elif name not in TRACKING_PARAMETERS and not name.startswith("utm_"):
            counted.append((name, value))
    if any(name not in WEAK_UNLESS_ALONE for name, _ in counted):
        weak += [pair for pair in counted if pair[0] in WEAK_UNLESS_ALONE]
        counted = [pair for pair in counted if pair[0] not in WEAK_UNLESS_ALONE]
    return tuple(sorted(counted)), tuple(sorted(weak))
