"""The pages of conversations as HTML: one to read, and the latest ones.

The templates escape every value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stream_metrics import __version__
from stream_metrics.core.engine.reading import (
    Reading,
    ReadIteration,
    ReadResult,
    ReadSearch,
    ReadTurn,
    TurnSummary,
)
from stream_metrics.core.engine.row import Row
from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.metrics.labels import LABEL_METRICS, nothing_labelled
from stream_metrics.core.metrics.registry import BY_NAME, METRICS
from stream_metrics.core.unicode import visible

LINES: Final = 100
"""The lines of a page: iterations, searches and results."""
TURNS_AROUND: Final = 10
"""How many turns are named before and after the one that is shown."""
_TILES: Final = ("srr", "sre", "repeated_searches", "gain")
_COUNTS: Final = {
    "n": "Iterations that searched",
    "searches": "Searches",
    "queried_searches": "Searches with a query",
    "results": "Results",
    "unique": "Documents",
    "duplicates": "Repeated results",
    "labelled": "Documents with a label",
    "good_unique": "Good documents",
    "gain": "Gain of the good documents",
}
_BLOCKS: Final = ("gate", "routing", "reranking")
_UNLABELLED: Final = "No document has a label."


class Links:
    """The addresses of the pages, relative to each of them."""

    @staticmethod
    def conversation(conversation_id: str, turn: int | None = None, page: int = 1) -> str:
        """A page of a conversation: of its last turn without ``turn``."""
        asked: dict[str, str | int] = {"id": conversation_id}
        if turn is not None:
            asked["turn"] = turn
        if page != 1:
            asked["page"] = page
        return f"conversation?{urlencode(asked)}"

    @staticmethod
    def latest(agent: str | None = None) -> str:
        """The latest conversations, of an agent or of all."""
        return "conversations" if agent is None else f"conversations?{urlencode({'agent': agent})}"


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages have in common.

    ``home`` is the name of the page at the root. Without ``texts``, texts are left out. ``trace``
    gives the address of a conversation's trace.
    """

    home: str
    texts: bool = True
    trace: Callable[[str], str | None] = lambda _: None


class Found(NamedTuple):
    """A conversation in the list of the latest ones; ``time_us`` is that of its newest event."""

    conversation_id: str
    agents: Sequence[str]
    time_us: int


class Figure(NamedTuple):
    """A figure as it is shown."""

    title: str
    value: str
    about: str = ""


@dataclass(slots=True)
class ShownSearch:
    """A search, as far as it is on a page; ``begins``: its head is."""

    search: ReadSearch
    begins: bool
    results: list[ReadResult] = field(default_factory=list)


@dataclass(slots=True)
class ShownIteration:
    """An iteration, as far as it is on a page; ``begins``: its head is."""

    iteration: ReadIteration
    begins: bool
    searches: list[ShownSearch] = field(default_factory=list)


class Pager:
    """Divides a turn into pages of so many lines."""

    def __init__(self, turn: ReadTurn, lines: int = LINES) -> None:
        self._turn, self._lines = turn, lines
        self._line_of: list[int] = []  # of each result
        line = 0
        for iteration in turn.iterations:
            line += 1
            for search in iteration.searches:
                line += 1
                self._line_of += range(line, line + len(search.results))
                line += len(search.results)
        self.pages = max(1, -(-line // lines))

    def page_of(self, position: int) -> int:
        """The page that has a result, from 1."""
        return self._line_of[position] // self._lines + 1

    def page(self, number: int) -> list[ShownIteration]:
        """What a page has."""
        first = (number - 1) * self._lines
        after = first + self._lines
        found: list[ShownIteration] = []
        for line, iteration, search, result in self._each_line():
            if line < first:
                continue
            if line >= after:
                break
            if not found or found[-1].iteration is not iteration:
                found.append(ShownIteration(iteration, search is None))
            if search is None:
                continue
            shown = found[-1].searches
            if not shown or shown[-1].search is not search:
                shown.append(ShownSearch(search, result is None))
            if result is not None:
                shown[-1].results.append(result)
        return found

    def _each_line(
        self,
    ) -> Iterator[tuple[int, ReadIteration, ReadSearch | None, ReadResult | None]]:
        line = 0
        for iteration in self._turn.iterations:
            yield line, iteration, None, None
            line += 1
            for search in iteration.searches:
                yield line, iteration, search, None
                line += 1
                for result in search.results:
                    yield line, iteration, search, result
                    line += 1


def conversation_page(
    reading: Reading,
    site: Site,
    turn: int | None = None,
    page: int = 1,
    kept_since_ms: int | None = None,
) -> str | None:
    """A page of a conversation; None if it has no such turn or page.

    ``kept_since_ms`` is the time of the oldest event that is kept, if older ones were deleted.
    """
    turns = reading.turns()
    if turn is None:
        turn = turns[-1].number if turns else None
    elif all(one.number != turn for one in turns):
        return None
    read = None if turn is None else reading.turn(turn)
    pager = None if read is None else Pager(read)
    if page > (1 if pager is None else pager.pages):
        return None
    own = reading.conversation.conversation_id
    return _render(
        "conversation.html",
        site,
        title=f"Conversation {own}",
        conversation_id=own,
        trace=site.trace(own),
        reading=reading,
        notices=[*_notices(reading, read, kept_since_ms)],
        turns=_around(turns, turn),
        turns_number=len(turns),
        turn=read,
        page=page,
        pager=pager,
        shown=[] if pager is None else pager.page(page),
        tiles=[] if read is None or read.row is None else _tiles(read.row),
        figures=[] if read is None or read.row is None else [*_figures(read.row)],
    )


def latest_page(
    found: Sequence[Found], site: Site, agent: str | None = None, *, looked_at: str = ""
) -> str:
    """The latest conversations; ``looked_at`` says among what they were found."""
    return _render(
        "conversations.html",
        site,
        title="Latest conversations" if agent is None else f"Latest conversations of {agent}",
        found=found,
        agent=agent,
        agents=sorted({name for one in found for name in one.agents}),
        looked_at=looked_at,
    )


def problem_page(site: Site, title: str, text: str) -> str:
    """A page that says why there is none."""
    return _render("problem.html", site, title=title, text=text)


def _around(turns: Sequence[TurnSummary], number: int | None) -> Sequence[TurnSummary]:
    """The turns to name: those around the one that is shown, and the first and the last."""
    at = next((place for place, one in enumerate(turns) if one.number == number), 0)
    near = {*range(at - TURNS_AROUND, at + TURNS_AROUND + 1), 0, len(turns) - 1}
    return [one for place, one in enumerate(turns) if place in near]


def _notices(reading: Reading, turn: ReadTurn | None, kept_since_ms: int | None) -> Iterator[str]:
    """What makes figures or texts incomplete."""
    if kept_since_ms is not None:
        yield (
            f"Events from before {_moment(kept_since_ms * 1000)} are deleted. If the conversation "
            "had any, they are neither shown here nor in the figures beside it."
        )
    if reading.forgotten_us is not None:
        yield (
            f"A forget event has erased what the conversation had up to "
            f"{_moment(reading.forgotten_us)}."
        )
    if turn is not None and turn.row is not None and turn.row["over_limit"]:
        yield "The turn grew beyond a limit: its figures leave out what is listed at the end."


def _tiles(row: Row) -> list[Figure]:
    return [_figure(name, row) for name in _TILES]


def _figure(name: str, row: Row) -> Figure:
    unlabelled = nothing_labelled(row["unique"], row["labelled"])
    if name == "gain":
        value = "–" if unlabelled else _number(row["gain"])
        return Figure(_COUNTS[name], value, _UNLABELLED if unlabelled else "")
    metric = BY_NAME[name]
    if name in LABEL_METRICS:
        value = "–" if unlabelled else _value(row[metric.key], metric.high == 1)
        share = f"{row['labelled']:,} of {_plural(row['unique'], 'document')} have a label."
        return Figure(metric.title, value, _UNLABELLED if unlabelled else share)
    return Figure(metric.title, _value(row[metric.key], metric.high == 1), metric.help)


def _figures(row: Row) -> Iterator[Figure]:
    """All figures of a row: counts, then metrics by the registry."""
    unlabelled = nothing_labelled(row["unique"], row["labelled"])
    for name, title in _COUNTS.items():
        value = "–" if unlabelled and name == "gain" else _number(row[name])
        yield Figure(title, value)
    for metric in METRICS:
        if metric.place == "iteration":
            continue
        block = row[metric.place] if metric.place in _BLOCKS else row
        value = _value(block[metric.key], metric.high == 1)
        if unlabelled and metric.name in LABEL_METRICS:
            value = "–"
        yield Figure(metric.title, value, metric.help)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _value(value: float | None, share: bool) -> str:
    """A figure as text.

    >>> _value(None, True), _value(0.125, True), _value(3, False), _value(1.25, False)
    ('–', '12.5%', '3', '1.250')
    """
    if value is None:
        return "–"
    if share:
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _moment(time_us: int) -> str:
    """A time, to the second.

    >>> _moment(1_718_020_800_005_000)
    '2024-06-10 12:00:00 UTC'
    """
    date, time = rfc3339(time_us)[:19].split("T")
    return f"{date} {time} UTC"


def _plural(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _displayable(value: Any) -> Any:
    """Text without what is invisible or changes the direction of what follows.

    Raises:
        TypeError: The value is None.
    """
    if value is None:
        raise TypeError("a template received no value")
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


ENVIRONMENT: Final = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_displayable,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "moment": _moment,
    "turn_text": turn_text,
    "plural": _plural,
    "share": lambda value: _value(value, share=True),
    "number": lambda value: _value(value, share=False),
}


def _render(template: str, site: Site, **values: Any) -> str:
    found = ENVIRONMENT.get_template(template)
    return found.render(site=site, links=Links, version=__version__, **values)
