"""Pages and their parts, out of the templates beside this file.

Jinja escapes every value that is not ``Markup`` already. What no reader sees, or what would turn
the direction of writing round, is replaced before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
_BREAKS: Final = re.compile(r"(?=[(@=])|(?<=_)")
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

Cell = str
"""Text, or ``Markup`` that stands as it is."""


def seen(value: Any) -> Any:
    r"""A value as it is shown: without what no reader sees.

    Raises:
        TypeError: There is no value.

    >>> seen("a\x00b"), seen(Markup("<b>")), seen(3)
    ('a\ufffdb', Markup('<b>'), 3)
    """
    if value is None:
        raise TypeError("a template shows no value")
    if isinstance(value, str) and not isinstance(value, Markup):
        return _UNSEEN.sub("\ufffd", value)
    return value


def coordinate(value: float) -> str:
    """A coordinate of a picture.

    >>> coordinate(3), coordinate(2.25)
    ('3', '2.2')
    """
    return f"{value:.1f}".removesuffix(".0")


ENVIRONMENT: Final = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=seen,
    keep_trailing_newline=True,
)
ENVIRONMENT.filters |= {"pieces": _BREAKS.split, "at": coordinate}


@lru_cache
def parts(template: str = "parts.html.j2") -> Any:
    """The macros of a template; each gives ``Markup``."""
    return ENVIRONMENT.get_template(template).module


class Section(NamedTuple):
    """A part of the page, and the heading that the contents list."""

    title: str
    body: Markup


def section(title: str, *children: Markup | None, lead: str | None = None) -> Section:
    """A part of the page, with its heading."""
    return Section(title, parts().section(title, lead, [one for one in children if one]))


def card(*children: Markup | None) -> Markup:
    """A box."""
    return box("card", *children)


def box(class_: str, *children: Markup | None) -> Markup:
    """A box of a kind."""
    found: Markup = parts().box([one for one in children if one], class_)
    return found


def name(value: str) -> Markup:
    """A name out of the input, whose direction of writing stays its own.

    >>> name("<b>")
    Markup('<bdi><code>&lt;b&gt;</code></bdi>')
    """
    found: Markup = parts().name(value)
    return found


def table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, words: int = 1
) -> Markup:
    """A table that scrolls where it is too wide; the first cell of a row is its head.

    Args:
        caption: What a screen reader says of it.
        titles: Of the columns.
        rows: Their cells.
        words: How many columns from the left are no numbers.
    """
    found: Markup = parts().table(caption, titles, rows, words)
    return found


def folded(title: str, summary: str, *children: Markup | None) -> Markup:
    """A card that shows its title and a summary, and opens on demand; print shows it open."""
    found: Markup = parts().folded(title, summary, [one for one in children if one])
    return found


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page: its first section, then the contents, then the other sections."""
    return ENVIRONMENT.get_template("page.html.j2").render(
        title=title, lead=lead, sections=sections, policy=POLICY, style=_style()
    )


@lru_cache
def _style() -> Markup:
    colours = files("stream_metrics.adapters.page") / "static" / "colours.css"
    style = files(__package__) / "static" / "report.css"
    # Ours, and a style is no place for entities.
    return Markup(colours.read_text(encoding="utf-8") + style.read_text(encoding="utf-8"))  # noqa: S704
