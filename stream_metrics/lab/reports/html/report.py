"""``report.html``: the results of a replay or an evaluation on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.metrics.labels import MODEL_OFF, by_model_text
from stream_metrics.lab.choices import CONFIDENCE
from stream_metrics.lab.evaluation.estimates import LANGUAGE
from stream_metrics.lab.evaluation.observations import MACRO, uses_labels
from stream_metrics.lab.evaluation.report_figures import (
    beyond_limit_of,
    figures_of_report,
    without_ids_of,
    without_labels,
)
from stream_metrics.lab.evaluation.shown_estimates import (
    ABOUT,
    COLUMNS,
    TITLE,
    corrects_sre,
    shown_estimates,
)
from stream_metrics.lab.evaluation.summaries import (
    Conversations,
    RowSummaries,
    Stratum,
    most_telling_first,
)
from stream_metrics.lab.evaluation.wording import interval_title, number
from stream_metrics.lab.metrics.generation import BY_NAME as ANSWERS
from stream_metrics.lab.reports.files import QUERIES, ROWS, write_text
from stream_metrics.lab.reports.html.charts import Line, histogram, lines
from stream_metrics.lab.reports.html.figures import (
    figures_table,
    language_first,
    strata_of,
    stratified,
    tile,
)
from stream_metrics.lab.reports.html.markup import (
    Section,
    box,
    card,
    folded,
    name,
    page,
    parts,
    section,
    table,
)
from stream_metrics.lab.reports.html.rankings import (
    EVALUATION_TITLES,
    REPLAY_TITLES,
    Link,
    any_judged,
    no_link,
    retrieval,
)
from stream_metrics.lab.reports.run_directory import add_rows, read_report
from stream_metrics.lab.sources.place import place_text
from stream_metrics.lab.sources.unchanged import InputError

PAGE: Final = "report.html"
NO_VALUE: Final = {"mean": None, "ci_low": None, "ci_high": None}
Report = Mapping[str, Any]


def write_report_page(
    directory: Path, summaries: RowSummaries | None = None, link: Link = no_link
) -> Path:
    """Write ``report.html`` for the report and rows in a directory; returns its path.

    Args:
        directory: The directory of the report.
        summaries: The summaries of the rows of a replay, if they have already been read.
        link: Returns the URL of a conversation's trace by its id.

    Raises:
        InputError: There is no report, or a row is malformed.
    """
    report = read_report(directory)
    if not report:
        raise InputError(f"{directory}: no report.json to make a page of")
    path = directory / PAGE
    write_text(path, report_page(directory, report, summaries, link))
    return path


def report_page(
    directory: Path, report: Report, summaries: RowSummaries | None = None, link: Link = no_link
) -> str:
    """The page as HTML."""
    source = ", ".join(map(str, report.get("source") or ())) or "unknown"
    sections: list[Section] = []
    ci = _interval_title(report)
    replayed = report.get("aggregate") is not None
    rows, searches = summaries or (None, None)
    if rows is None and replayed:
        rows = add_rows(directory / ROWS, Conversations(), "conversations")
    if rows is not None:
        sections += [_headline(report, rows, ci), *_replay(report, rows, ci, link)]
    if report.get("retrieval") is not None:
        titles = REPLAY_TITLES if replayed else EVALUATION_TITLES
        path = directory / QUERIES
        sections += retrieval(report["retrieval"], path, ci, titles, searches, link)
    if report.get("generation") is not None:
        sections += _generation(report["generation"], ci)
    if rows is not None:
        sections.append(_quality(report, rows))
    sections.append(_settings(report))
    title = f"Report of {'a replay' if replayed else 'an evaluation'}"
    return page(title, Markup("Of {}.").format(parts().isolated(source)), sections)


def _interval_title(report: Report) -> str:
    """The title of intervals, from the settings of the report."""
    chosen = (report.get("config") or {}).get("evaluation") or {}
    if not chosen.get("confidence_intervals", True):
        return interval_title(None)
    return interval_title(chosen.get("confidence", CONFIDENCE))


# -- of a replay ------------------------------------------------------------------------------


def _headline(report: Report, rows: Conversations, ci: str) -> Section:
    """The most important figures and the size of the input."""
    figures = figures_of_report(report)
    context = _context(report)
    block = report.get("retrieval")
    ranked = most_telling_first(list(block["metrics"]))[:1] if block and any_judged(block) else []
    shown = ["srr", "sre", "avg_gain", *ranked, *context]
    tiles = [
        tile(one, figures[one], ci, context.get(one))
        for one in dict.fromkeys(shown)
        if figures[one]["value"] is not None or one in context
    ]
    counts = report["counts"]
    lead = (
        f"{counts['conversations']:,} conversations, {counts['results']:,} results, "
        f"{counts['duplicates']:,} of them duplicates."
    )
    languages = (report["strata"].get(LANGUAGE) or {}).get("strata") or ()
    if languages:
        lead += (
            f" They are in {len(languages)} languages, and a mean over languages says little "
            "about any of them: the means by language are under “Rows by stratum”."
        )
    beyond = beyond_limit_of(report, BeyondLimit(rows.over_limit))
    said = [beyond.text()] if beyond.turns else []
    remarks = [f"{text}." for text in (*said, *without_ids_of(report).texts())]
    note = None
    if remarks:
        alone = len(remarks) == 1
        shown_remarks = parts().classed(*remarks, None) if alone else parts().bullets(remarks)
        note = box("card notes", shown_remarks)
    return section("Headline", note, box("tiles", *tiles), _estimates(report), lead=lead)


def _estimates(report: Report) -> Markup | None:
    """A card with the estimates from random samples; None without any."""
    rows = [
        (f"{one.figure}, {one.by}", one.value, one.interval, one.conversations)
        for one in shown_estimates(report)
    ]
    if not rows:
        return None
    listed = table(TITLE, COLUMNS, rows)
    return card(parts().heading(TITLE), parts().paragraph(ABOUT), listed)


def _context(report: Report) -> dict[str, str]:
    """Remarks on how many labels some figures are based on, by figure."""
    counts, gate = report["counts"], report.get("gate") or {}
    context = {}
    if counts["unique"]:
        said = f"{counts['labelled']:,} of {counts['unique']:,} documents have a label"
        if by_model := by_model_text(counts):
            said += f"{by_model}. {MODEL_OFF}"
        context = dict.fromkeys(("sre", "avg_gain"), said)
        if corrects_sre(report):
            context["sre"] += " Read SRE, combined, of the headline's estimates."
    if gate.get("labelled"):
        saved = gate["correct_skip"]
        context["gate_efficiency"] = (
            f"{saved:,} of {saved + gate['wasted']:,} searches that were not "
            f"needed were skipped; {gate['labelled']:,} decisions have a label"
        )
    return context


def _replay(report: Report, rows: Conversations, ci: str, link: Link) -> list[Section]:
    """The sections about rows; strata by language come first."""
    figures = figures_of_report(report)
    elsewhere = {*ANSWERS, *((report.get("retrieval") or {}).get("metrics") or {})}
    shown = [one for one in figures if not one.startswith("counts.") and one not in elsewhere]
    table_ = figures_table(shown, figures, ci, context=_context(report))
    unlabelled = f" {rows.unlabelled:,} without any label have no SRE." if rows.unlabelled else ""
    sections = [
        section(
            "Figures",
            card(table_),
            lead="SRR, SRE, AvgGain, RG, the labelled share and the figures of gate and routing "
            "are computed from totals over all rows; the others are means over rows."
            + (" SRE and gains have no value without labels." if without_labels(report) else ""),
        ),
        section(
            "Distributions",
            box(
                "charts",
                *(
                    histogram(one, f"Rows by the share of results {what}.", bins.labelled(), "rows")
                    for one, what, bins in (
                        ("SRR", "seen before", rows.srr),
                        ("SRE", "that were new and good", rows.sre),
                    )
                    if any(bins.counts)
                ),
            ),
            lead=f"{rows.rows:,} rows; {rows.without_search:,} without any search have no value."
            + unlabelled,
        ),
    ]  # fmt: skip
    if rows.by_iteration():
        sections.append(_iterations(rows))
    sections.append(_worst_conversations(rows, link))
    strata = [
        stratified(dimension, _by_metric(report["strata"][dimension]), MACRO, "Rows by")
        for dimension in language_first(report["strata"])
    ]
    sums = {dimension: rows.strata(dimension) for dimension in ("agent", "release")}
    strata += [_strata(dimension, found) for dimension, found in sums.items() if found]
    if strata:
        sections.append(section("Rows by stratum", *strata))
    return sections


def _iterations(rows: Conversations) -> Section:
    found = rows.by_iteration()
    behind = table(
        "By iteration", ("Iteration", "Rows", "SRR", "SRE"),
        [(str(one.i), f"{one.rows:,}", number(one.srr), number(one.sre)) for one in found],
    )  # fmt: skip
    several = [Line("SRR", 3, [one.srr for one in found])]
    if any(one.sre is not None for one in found):
        several.append(Line("SRE", 1, [one.sre for one in found]))
    about = "SRR@i and SRE@i, means over the rows that have an iteration i."
    return section(
        "By iteration",
        box(
            "charts",
            lines("SRR and SRE", about, [str(one.i) for one in found], several, behind),
        ),
        lead="Fewer rows have later iterations: the table shows how many.",
    )


def _worst_conversations(rows: Conversations, link: Link) -> Section:
    titles = ("Conversation", "Agent", "Turn", "Iterations", "Results", "Duplicates", "SRR", "SRE")

    def of(caption: str, found: Sequence[Mapping[str, Any]]) -> Markup:
        cells = [
            (
                parts().linked(name(row["conversation_id"]), link(row["conversation_id"])),
                name(row["agent"]), turn_text(row["turn"]), str(row["n"]), f"{row['results']:,}",
                f"{row['duplicates']:,}", number(row["srr"]), number(row["sre"]),
            )
            for row in found
        ]  # fmt: skip
        if not cells:
            return card(parts().heading(caption), parts().paragraph("None."))
        return card(parts().heading(caption), table(caption, titles, cells, words=2))

    return section(
        "Worst conversations",
        of("Highest SRR", rows.redundant),
        of("Lowest SRE", rows.inefficient),
        lead="Only rows with results and, for SRE, with a label. Among equal rows, those with more "
        "duplicates, or results, come first. The command “stream-metrics read” shows each of them, "
        "with the texts of its searches and results, while the input is there.",
    )


def _strata(dimension: str, strata: Sequence[Stratum]) -> Markup:
    rows = [
        (
            name(one.name), f"{one.rows:,}", f"{one.results:,}",
            number(one.srr), number(one.sre),
        )
        for one in strata
    ]  # fmt: skip
    caption = f"Sums by {dimension}"
    listed = table(caption, (dimension.title(), "Rows", "Results", "SRR", "SRE"), rows)
    return folded(caption, f"{len(strata)} strata", listed)


def _by_metric(found: Report) -> Report:
    """Convert a dimension in ``strata`` of a report to the form of other blocks.

    Figures that depend on labels have no value in a stratum without labels, and none over strata.
    """
    strata = found["strata"]
    unlabelled = {one for one, block in strata.items() if block["micro"]["labelled"]["value"] == 0}

    def of(stratum: str, metric: str) -> Report:
        unknown = stratum in unlabelled and uses_labels(metric)
        return NO_VALUE if unknown else strata[stratum]["macro"][metric]

    def across(key: str, metric: str) -> float | None:
        return None if unlabelled and uses_labels(metric) else found[key][metric]

    return {
        "units": {one: block["conversations"] for one, block in strata.items()},
        "notes": {one: block["note"] for one, block in strata.items() if block["note"]},
        "metrics": {
            metric: {
                "strata": {one: of(one, metric) for one in strata},
                "stratum_average": across("stratum_average", metric),
                "cross_stratum_variance": across("cross_stratum_variance", metric),
            }
            for metric in MACRO
        },
    }


_QUALITY: Final = {
    "events": "Records read",
    "invalid": "Records that could not be used",
    "stale": "Events of a turn before the last",
    "forgotten": "Events of forgotten conversations",
    "labelled": "Unique documents with a label",
    "unlabelled": "Unique documents without a label",
    "orphan_labels": "Labels without their result",
}


def _quality(report: Report, rows: Conversations) -> Section:
    counts = report["counts"]
    cells = [(title, f"{counts[one]:,}") for one, title in _QUALITY.items()]
    cells.append(("Rows over a limit", f"{rows.over_limit:,}"))
    bad = (report.get("bad_records") or {}).get("first") or []
    listed = None
    if bad:
        found = [
            (name(place_text(one)), name(str(one["reason"])), parts().isolated(str(one["message"])))
            for one in bad[:20]
        ]
        titles = ("Record", "Reason", "Message")
        listed = card(
            parts().heading("First records that could not be used"),
            table("First records that could not be used", titles, found, words=3),
        )
    return section("Data quality", card(table("Data quality", ("What", "Count"), cells)), listed)


# -- of answers -------------------------------------------------------------------------------


def _generation(block: Report, ci: str) -> list[Section]:
    """The sections about answers and their strata."""
    names = list(block["metrics"])
    figures = figures_of_report({"generation": block})
    means = section(
        "Answers",
        card(figures_table(names, figures, ci, "Answers with intervals")),
        card(table("Turns with an answer", ("What", "Count"), _answered(block))),
        lead="Answers compared with reference answers, the question and retrieved texts; means "
        "over turns. Support is the overlap of words, not of meaning.",
    )
    strata = strata_of("Answers by", block["strata"], names)
    return [means, *strata]


def _answered(block: Report) -> list[tuple[str, str]]:
    languages = ", ".join(f"{one}: {n:,}" for one, n in block["languages"].items())
    return [
        ("Turns with an answer", f"{block['turns']:,}"),
        ("Empty answers", f"{block['turns_with_empty_answer']:,}"),
        ("Turns without reference answers", f"{block['turns_without_reference']:,}"),
        ("Turns without retrieved texts", f"{block['turns_without_text']:,}"),
        ("Languages of articles and stopwords", languages),
    ]


# -- of both ----------------------------------------------------------------------------------


def _settings(report: Report) -> Section:
    cells = [(name(key), name(value)) for key, value in _flat(report.get("config") or {}, "")]
    if not cells:
        return section("Settings", card(parts().paragraph("The report has none.")))
    inside = table("Settings", ("Setting", "Value"), cells, words=2)
    return section("Settings", folded("What figures depend on", f"{len(cells)} settings", inside))


def _flat(config: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    found = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((prefix + str(key), shown))
    return found
