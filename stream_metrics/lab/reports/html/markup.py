"""Render pages and their parts from the templates in this package.

Jinja escapes every value that is not ``Markup``. Invisible characters and those that change the
writing direction are replaced before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stream_metrics.core.unicode import visible

_BREAKS: Final = re.compile(r"(?=[(@=])|(?<=_)")
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

Cell = str
"""Text to escape, or ``Markup`` to insert unchanged."""


def displayable(value: Any) -> Any:
    r"""Replace invisible and direction-changing characters in a text.

    Raises:
        TypeError: The value is None.

    >>> displayable("a\x00b"), displayable(Markup("<b>")), displayable(3)
    ('a\ufffdb', Markup('<b>'), 3)
    """
    if value is None:
        raise TypeError("a template received no value")
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def coordinate(value: float) -> str:
    """Format a coordinate of an SVG picture.

    >>> coordinate(3), coordinate(2.25)
    ('3', '2.2')
    """
    return f"{value:.1f}".removesuffix(".0")


ENVIRONMENT: Final = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=displayable,
    keep_trailing_newline=True,
)
ENVIRONMENT.filters |= {"pieces": _BREAKS.split, "at": coordinate}


@lru_cache
def parts(template: str = "parts.html.j2") -> Any:
    """The macros of a template; each returns ``Markup``."""
    return ENVIRONMENT.get_template(template).module


class Section(NamedTuple):
    """A section of the page, with the heading for the table of contents."""

    title: str
    body: Markup


def section(title: str, *children: Markup | None, lead: str | None = None) -> Section:
    """A section with its heading."""
    return Section(title, parts().section(title, lead, [one for one in children if one]))


def card(*children: Markup | None) -> Markup:
    """A card."""
    return box("card", *children)


def box(class_: str, *children: Markup | None) -> Markup:
    """A box with a CSS class."""
    found: Markup = parts().box([one for one in children if one], class_)
    return found


def name(value: str) -> Markup:
    """A name from the input, isolated from the surrounding writing direction.

    >>> name("<b>")
    Markup('<bdi><code>&lt;b&gt;</code></bdi>')
    """
    found: Markup = parts().name(value)
    return found


def table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, words: int = 1
) -> Markup:
    """A table that scrolls if it is too wide; the first cell of a row is its header.

    Args:
        caption: The caption for screen readers.
        titles: The column titles.
        rows: The cells of each row.
        words: The number of columns from the left that contain text instead of numbers.
    """
    found: Markup = parts().table(caption, titles, rows, words)
    return found


def folded(title: str, summary: str, *children: Markup | None) -> Markup:
    """A card that shows its title and a summary and opens on demand; it is open in print."""
    found: Markup = parts().folded(title, summary, [one for one in children if one])
    return found


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page: its first section, the table of contents, then the other sections."""
    return ENVIRONMENT.get_template("page.html.j2").render(
        title=title, lead=lead, sections=sections, policy=POLICY, style=_style()
    )


@lru_cache
def _style() -> Markup:
    colours = files("stream_metrics.live.page") / "static" / "colours.css"
    style = files(__package__) / "static" / "report.css"
    # Trusted content; entities are not allowed in a style element.
    return Markup(colours.read_text(encoding="utf-8") + style.read_text(encoding="utf-8"))  # noqa: S704
