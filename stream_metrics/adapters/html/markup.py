"""HTML from Python: elements whose text is always escaped, and a page around them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
_BREAKS: Final = re.compile(r"(?=[(@=])|(?<=_)")
_VOID: Final = ("br", "wbr", "line", "rect", "path", "circle", "col")
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def text(value: str) -> Safe:
    r"""Text as HTML, without what no reader sees or what would turn the writing round.

    >>> text("<b>&\x00")
    '&lt;b&gt;&amp;\ufffd'
    """
    return Safe(html.escape(_UNSEEN.sub("\ufffd", value), quote=True))


def joined(*children: Child) -> Safe:
    """Several as one; what is not ``Safe`` is escaped."""
    parts = []
    for child in children:
        if isinstance(child, Safe):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(text(child))
        elif child is not None:
            parts.append(joined(*child))
    return Safe("".join(parts))


def element(tag: str, *children: Child, **attributes: str | float | None) -> Safe:
    """An element; ``class_`` is ``class``, ``aria_label`` is ``aria-label``.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Safe(f"<{tag}{given}/>" if tag not in ("br", "wbr", "col") else f"<{tag}{given}>")
    return Safe(f"<{tag}{given}>{joined(*children)}</{tag}>")


def name(value: str) -> Safe:
    """A name out of the input, whose direction of writing stays its own."""
    return element("bdi", element("code", value))


def linked(content: Safe, address: str | None) -> Safe:
    """The content as a link; without an address the content alone."""
    if address is None:
        return content
    return element("a", content, href=address, rel="noreferrer")


def table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[Child]], *, words: int = 1
) -> Safe:
    """A table that scrolls where it is too wide; the first cell of a row is its head.

    Args:
        caption: What a screen reader says of it.
        titles: Of the columns.
        rows: Their cells.
        words: How many columns from the left are no numbers.
    """

    def of(at: int) -> str | None:
        return None if at < words else "number"

    head = [
        element("th", breakable(title), scope="col", class_=of(at))
        for at, title in enumerate(titles)
    ]
    body = [
        element(
            "tr",
            *(
                element("td", cell, class_=of(at)) if at else element("th", cell, scope="row")
                for at, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    content = element(
        "table",
        element("caption", caption, class_="hidden-text"),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=caption)


def breakable(title: str) -> Safe:
    """A title or name that may go on in another line, before options and behind underscores.

    >>> breakable("rbp(p=0.5)@10")
    'rbp<wbr>(p<wbr>=0.5)<wbr>@10'
    """
    first, *others = _BREAKS.split(title)
    return joined(first, *((element("wbr"), one) for one in others))


class Section(NamedTuple):
    """A part of the page, and the heading that the contents list."""

    title: str
    body: Safe


def section(title: str, *children: Child, lead: str | None = None) -> Section:
    """A part of the page, with its heading."""
    about = None if lead is None else element("p", lead, class_="muted lead")
    return Section(title, joined(element("h2", title), about, *children))


def folded(title: str, summary: str, *children: Child) -> Safe:
    """A card that shows its title and a summary, and opens on demand; print shows it open."""
    head = element("summary", element("h3", title), element("span", summary, class_="muted"))
    return element("details", head, *children, class_="card folded")


def card(*children: Child) -> Safe:
    """A box."""
    return element("div", *children, class_="card")


def page(title: str, lead: Child, sections: Sequence[Section]) -> str:
    """The whole page: its first section, then the contents, then the other sections."""
    numbered = [(f"part-{number}", one) for number, one in enumerate(sections, start=1)]
    links = [element("a", one.title, href=f"#{anchor}") for anchor, one in numbered[1:]]
    contents = element(
        "nav",
        element("h2", "Contents"),
        element("ul", *(element("li", link) for link in links)),
        aria_label="Contents",
        class_="contents",
    )
    first, *others = (element("section", one.body, id=anchor) for anchor, one in numbered)
    return (
        "<!doctype html>\n"
        + element(
            "html",
            element(
                "head",
                Safe('<meta charset="utf-8">'),
                Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
                Safe(f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">'),
                Safe('<meta name="color-scheme" content="light dark">'),
                element("title", title),
                Safe(f"<style>{_style()}</style>"),
            ),
            element(
                "body",
                element("header", element("h1", title), element("p", lead, class_="muted")),
                element("main", first, contents if others else None, *others),
                element(
                    "footer", "Made by stream-metrics from the files beside it.", class_="muted"
                ),
            ),
            lang="en",
        )
        + "\n"
    )


@lru_cache
def _style() -> str:
    colours = files("stream_metrics.adapters.page") / "static" / "colours.css"
    style = files(__package__) / "static" / "report.css"
    return colours.read_text(encoding="utf-8") + style.read_text(encoding="utf-8")
