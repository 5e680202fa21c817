"""Pathway without Python functions: from JSON to figures by its own expressions and reducers.

State is in memory. What the expressions cannot do is replaced by rules that give equal figures for
the workload:

- JSON is parsed by the connector, which then does not give a record's key: keys are not compared.
- An array can only become rows, without numbers: an invalid result or label is left out by itself
  instead of with its event, and ``result_id`` takes the place of a rank.
- Members of an object cannot be listed: ``ids`` are one key as a whole.
- Nothing folds case, splits a text, matches a pattern or reads a URL: texts are lower-cased, and
  the spellings of spaces and URLs that the workload has are replaced by name.
"""

from __future__ import annotations

from typing import Any, Final

import pathway as pw
from pathway import this

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.pathway_run import both_topics, run_to_end
from benchmarks.peers.reading import EARLIEST, MAX_GAIN, MAX_URL_BYTES, TYPES
from benchmarks.peers.turns import GOOD_GAIN

NOTHING: Final = pw.Json(None)
RFC_3339: Final = '"%Y-%m-%dT%H:%M:%S%.fZ"'

Expression = Any


class Event(pw.Schema):  # type: ignore[misc]
    """The members of an event, as JSON where an invalid event has another type."""

    type: str = pw.column_definition(default_value="")
    version: int = pw.column_definition(default_value=1)
    event_id: str = pw.column_definition(default_value="")
    occurred_at: pw.Json = pw.column_definition(default_value=NOTHING)
    conversation_id: str = pw.column_definition(default_value="")
    turn: pw.Json = pw.column_definition(default_value=NOTHING)
    agent: str = pw.column_definition(default_value="default")
    iteration: int = pw.column_definition(default_value=0)
    searches: pw.Json = pw.column_definition(default_value=pw.Json([]))
    labels: pw.Json = pw.column_definition(default_value=pw.Json([]))


def valid(records: pw.Table) -> pw.Table:
    """The events that can be counted, with ``time`` in Unix seconds and ``turn`` as a name."""
    written = this.occurred_at.to_string()
    moment = written.dt.strptime(RFC_3339).dt.timestamp(unit="s")
    number = written.str.parse_float(optional=True)
    read = records.with_columns(
        turn=pw.fill_error(this.turn.as_int(default=0), 0),
        time=pw.fill_error(
            pw.if_else(written.str.startswith('"'), moment, pw.coalesce(number, 0.0)), 0.0
        ),
    )
    known = (this.type == TYPES[0]) | (this.type == TYPES[1]) | (this.type == TYPES[2])
    counted = read.filter(
        known
        & (this.version == 1)
        & (this.conversation_id != "")
        & (this.event_id != "")
        & (this.turn >= 1)
        & (this.time >= EARLIEST)
    )
    return counted.with_columns(turn=this.conversation_id + "/" + this.turn.to_string())


def results_of(events: pw.Table) -> pw.Table:
    """The results of all searches, of a repeated search once, with their places and evidence."""
    iterations = events.filter(this.type == "search_iteration")
    searches = iterations.flatten(this.searches).select(
        this.turn,
        search_id=this.searches["search_id"].as_str(unwrap=True),
        came=pw.make_tuple(
            this.agent,
            this.iteration,
            this.searches["ordinal"].as_int(default=0),
            this.time,
            this.searches["results"],
        ),
    )
    once = searches.groupby(this.turn, this.search_id).reduce(
        this.turn, this.search_id, came=pw.reducers.any(this.came)
    )
    place = pw.make_tuple(this.came[1], this.came[2], this.came[3], this.search_id)
    results = once.select(this.turn, agent=this.came[0], place=place, result=this.came[4])
    read = results.flatten(this.result).select(
        this.turn,
        this.agent,
        this.place,
        result_id=this.result["result_id"].as_str(unwrap=True),
        gain=this.result["gain"].as_int(),
        kind=this.result["entity_type"].as_str(default="Document").str.lower(),
        ids=this.result["ids"],
        doc_id=this.result["doc_id"].to_string(),
        url=this.result["url"].as_str(default=""),
        title=this.result["title"].as_str(default="").str.lower(),
        text=pw.coalesce(this.result["content"].as_str(), this.result["snippet"].as_str(), ""),
        fields=this.result["fields"],
    )
    possible = read.filter((this.url.str.len() <= MAX_URL_BYTES) & (this.ids["doc_id"] == NOTHING))
    return possible.select(
        this.turn,
        this.agent,
        this.result_id,
        this.gain,
        this.kind,
        place=pw.make_tuple(this.place, this.result_id),
        evidence=evidence(),
    )


def evidence() -> Expression:
    """The keys of a result as in ``identity``; None for those that it has not."""
    ids = pw.if_else(this.ids == NOTHING, this.doc_id, this.ids.to_string())
    text, fields = plain(this.text), this.fields.to_string()
    when = [this.fields[name].to_string() for name in ("start", "end", "segment")]
    return pw.make_tuple(
        key(ids != "null", "ids", ids, *when),
        key(this.url != "", "url", address(this.url)),
        key(this.text != "", "text", this.title, text, *when),
        key(this.fields != NOTHING, "fields", this.title, fields),
    )


def key(present: Expression, name: str, *parts: Expression) -> Expression:
    """A key made of its parts, or None."""
    whole: Expression = name
    for part in parts:
        whole = whole + "|" + part
    return pw.if_else(present, whole, None)


def plain(text: Expression) -> Expression:
    """A text in lower case, up to four spaces or line ends as one space."""
    return text.str.lower().str.replace("\n", " ").str.replace("  ", " ").str.replace("  ", " ")


def address(url: Expression) -> Expression:
    """A URL without scheme, port, fragment and tracking, which comes last in the workload."""
    short = url.str.lower().str.removeprefix("https://").str.removeprefix("http://")
    for end in ("#", "?utm_", "&utm_"):
        short = short.str.slice(0, (short + end).str.find(end))
    for spelled, usual in ((":443/", "/"), ("%2d", "-"), ("/?", "?")):
        short = short.str.replace(spelled, usual)
    return short.str.strip("/")


def with_documents(results: pw.Table) -> pw.Table:
    """The results with their documents: the first place of those that share a key."""
    keys = results.select(this.turn, this.kind, this.place, key=this.evidence)
    keys = keys.flatten(this.key, origin_id="result").filter(this.key.is_not_none())
    shared = keys.groupby(this.turn, this.kind, this.key).reduce(
        times=pw.reducers.count(),
        document=pw.reducers.min(this.place),
        result=pw.reducers.tuple(this.result),
    )
    copies = shared.filter(this.times > 1).flatten(this.result)
    of_result = copies.groupby(id=this.result).reduce(document=pw.reducers.min(this.document))
    found = of_result.ix(results.id, allow_misses=True).document
    return results.select(
        this.turn,
        this.agent,
        this.place,
        this.result_id,
        document=pw.coalesce(found, this.place),
    )


def labels_of(events: pw.Table, results: pw.Table) -> pw.Table:
    """The gain of each result's last label."""
    early = results.filter(this.gain.is_not_none()).select(
        this.turn, this.result_id, label=pw.make_tuple(0.0, "", pw.unwrap(this.gain))
    )
    late = events.flatten(this.labels).select(
        this.turn,
        result_id=this.labels["result_id"].as_str(unwrap=True),
        label=pw.make_tuple(this.time, this.event_id, this.labels["gain"].as_int(default=-1)),
    )
    labels = early.concat_reindex(late.filter(this.label[2] <= MAX_GAIN))
    last = labels.groupby(this.turn, this.result_id).reduce(
        this.turn, this.result_id, label=pw.reducers.max(this.label)
    )
    return last.select(this.turn, this.result_id, gain=this.label[2]).filter(this.gain >= 0)


def figures_of(results: pw.Table, labels: pw.Table) -> pw.Table:
    """The figures of each agent."""
    counted = results.groupby(this.agent).reduce(
        this.agent,
        results=pw.reducers.count(),
        duplicates=pw.reducers.sum(pw.cast(int, this.document != this.place)),
    )
    judged = results.join(
        labels, pw.left.turn == pw.right.turn, pw.left.result_id == pw.right.result_id
    ).select(
        pw.left.turn,
        pw.left.document,
        pw.left.agent,
        first=pw.make_tuple(pw.left.place, pw.right.gain),
    )
    documents = judged.groupby(this.turn, this.document).reduce(
        agent=pw.reducers.any(this.agent), first=pw.reducers.min(this.first)
    )
    gains = documents.select(this.agent, gain=this.first[1])
    good = pw.cast(int, this.gain >= GOOD_GAIN)
    of_agent = gains.groupby(this.agent).reduce(
        labelled=pw.reducers.count(),
        good=pw.reducers.sum(good),
        gain=pw.reducers.sum(this.gain * good),
    )
    found = of_agent.ix_ref(counted.agent, allow_misses=True)
    return counted.with_columns(
        labelled=pw.coalesce(found.labelled, 0),
        good=pw.coalesce(found.good, 0),
        gain=pw.coalesce(found.gain, 0),
    )


def run(given: Task) -> None:
    """Read both topics to their end.

    Records are counted by a table and, if they are not JSON, by the connector's log of errors.
    """
    meter = Meter(given.records)

    def count(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        meter.taken += row["records"] if is_addition else -row["records"]

    def refuse(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        meter.taken += 1
        meter.invalid += 1

    with pw.local_error_log() as refused:
        records = both_topics(given, format="json", schema=Event)
    pw.io.subscribe(records.reduce(records=pw.reducers.count()), count)
    pw.io.subscribe(refused, refuse)
    events = valid(records)
    results = results_of(events)
    by_agent = figures_of(with_documents(results), labels_of(events, results))
    run_to_end(by_agent, meter, terminate_on_error=False)  # by default one such record ends the run


if __name__ == "__main__":
    run(task())
