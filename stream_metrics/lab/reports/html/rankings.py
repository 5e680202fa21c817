"""The sections about rankings in the report of an evaluation or a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from stream_metrics.core.events.turns import turn_text
from stream_metrics.lab.evaluation.report_figures import figures_of_report
from stream_metrics.lab.evaluation.summaries import MOST_HISTOGRAMS, Queries
from stream_metrics.lab.evaluation.wording import number
from stream_metrics.lab.reports.html.charts import histogram
from stream_metrics.lab.reports.html.figures import figures_table, strata_of, tile
from stream_metrics.lab.reports.html.markup import Section, box, card, name, parts, section, table
from stream_metrics.lab.reports.run_directory import add_rows

Report = Mapping[str, Any]
Link = Callable[[str], str | None]
"""Returns the URL of a conversation's trace by its id; None if there is none."""
_ORDER: Final = (
    "Only rankings with a relevant document. Ties are broken by the other metrics, in the order of "
    "the figures, then by more relevant documents."
)


def no_link(_: str) -> None:
    """A ``Link`` without URLs."""


class Titles(NamedTuple):
    """The titles of the sections about rankings and of their tables."""

    headline: str
    figures: str
    distributions: str
    worst: str
    by: str
    quality: str


EVALUATION_TITLES: Final = Titles(
    "Headline",
    "Figures with intervals",
    "Distributions",
    "Worst queries",
    "By",
    "Data quality",
)
REPLAY_TITLES: Final = Titles(
    "Searches", "Searches with intervals", "Searches by score", "Worst searches",
    "Searches by", "What judges searches",
)  # fmt: skip
"""The titles in the report of a replay."""


def retrieval(
    block: Report,
    path: Path,
    ci: str,
    titles: Titles = EVALUATION_TITLES,
    summary: Queries | None = None,
    link: Link = no_link,
) -> list[Section]:
    """The sections about rankings.

    Args:
        block: The block ``retrieval`` of a report.
        path: The path of ``queries.jsonl``.
        ci: The title of intervals.
        titles: The titles of the sections.
        summary: The summary of the rows, if they have already been read.
        link: Returns the URL of a conversation's trace.

    Raises:
        InputError: A row is malformed.
    """
    if titles is REPLAY_TITLES and not any_judged(block):
        return [_judgements(block, titles.quality)]
    names = list(block["metrics"])
    rows = _read(path, names) if summary is None else summary
    shown = list(rows.bins)
    figures = figures_of_report({"retrieval": block})
    sections = [
        section(
            titles.headline,
            box("tiles", *(tile(one, figures[one], ci) for one in shown[:3])),
            card(figures_table(names, figures, ci, titles.figures)),
            lead=f"{block['queries']:,} rankings; the resampling unit is the {block['unit']}.",
        )
    ]
    if rows.bins:
        charts = [
            histogram(one, "Rankings by score.", bins.labelled(), "rankings")
            for one, bins in rows.bins.items()
        ]
        sections.append(section(titles.distributions, box("charts", *charts)))
        sections.append(_worst_queries(rows, shown, titles.worst, link))
    sections += strata_of(titles.by, block["strata"], names)
    return [*sections, _judgements(block, titles.quality)]


def any_judged(block: Report) -> bool:
    """Whether at least one ranking is judged."""
    return bool(block["queries"] != block["queries_without_judgement"])


def _read(path: Path, metrics: Sequence[str]) -> Queries:
    """The summary of the rows of a file, if it exists; raises ``InputError``."""
    found = Queries.of(metrics)
    return add_rows(path, found, "queries") if path.is_file() else found


def _worst_queries(rows: Queries, shown: Sequence[str], title: str, link: Link) -> Section:
    worst = list(rows.worst())
    shown = list(dict.fromkeys([rows.by[0], *shown]))[:MOST_HISTOGRAMS]
    of_events = any(row.get("search_id") is not None for _, row in worst)
    cells = [
        (
            parts().linked(name(query), link(query) if of_events else None),
            *((turn_text(row["turn"]), name(row["search_id"])) if of_events else ()),
            f"{row['n_retrieved']:,}", f"{row['n_judged']:,}",
            "-" if row["n_relevant"] is None else f"{row['n_relevant']:,}",
            *(number(row["scores"].get(one)) for one in shown),
        )
        for query, row in worst
    ]  # fmt: skip
    caption = f"Worst by {rows.by[0]}"
    place = ("Conversation", "Turn", "Search") if of_events else ("Query",)
    titles = (*place, "Retrieved", "Judged", "Relevant", *shown)
    listed = table(caption, titles, cells) if cells else parts().paragraph("None.")
    return section(title, card(parts().heading(caption), listed), lead=_ORDER)


def _judgements(block: Report, title: str) -> Section:
    retrieved = block["retrieved"]
    share = f"{block['judged'] / retrieved:.1%}" if retrieved else "-"
    files = {
        "Queries of the qrels that the run lacks": f"{block['queries_missing']:,}",
        "Queries of the run without qrels, left out": f"{block['queries_dropped']:,}",
    }
    cells = [
        *(files.items() if block["unit"] == "query" else ()),
        ("Rankings that nothing judges", f"{block['queries_without_judgement']:,}"),
        ("Results", f"{retrieved:,}"),
        ("Results with a judgement", f"{block['judged']:,} ({share})"),
        *((f"Relevance by {one}", f"{n:,}") for one, n in block["strategy_counts"].items() if n),
    ]
    return section(title, card(table(title, ("What", "Count"), cells)))
