"""SRR and SRE of a recording with pandas and with polars, as their users would write them.

Both read each line with orjson and know documents by the keys of ``peers.identity``, as the live
peers do; then everything is a data frame. A frame has a row for each result and one for each label.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.peers.reading import Event, read_line
from benchmarks.peers.turns import FIGURES, GOOD_GAIN, Figures, labels_of, members_of
from benchmarks.rivals import serve

ORDER: Final = ("iteration", "ordinal", "time", "search", "rank", "result")
LABEL_ORDER: Final = ("label_time", "label_event")

Rows = list[tuple[Any, ...]]


def rows_of(path: str) -> tuple[Rows, Rows]:
    """The results and the labels of a recording; of a repeated search only the first results."""
    results: Rows = []
    labels: Rows = []
    searches = set()
    for event in _events(path):
        turn = f"{event['conversation_id']}/{event['turn']}"
        for search in event.get("searches") or ():
            if (turn, search["search_id"]) not in searches:
                searches.add((turn, search["search_id"]))
                agent = event.get("agent", "default")
                for member, keys in members_of(event, search):
                    results.append((turn, agent, *member, keys))
        labels += [(turn, result, *label) for result, label in labels_of(event)]
    return results, labels


def _events(path: str) -> Iterator[Event]:
    with Path(path).open("rb") as file:
        for line in file:
            event = read_line(orjson.loads, line)
            if event is not None:
                yield event


def with_pandas(path: str) -> dict[str, Figures]:
    """The figures by agent."""
    import pandas as pd

    found, judged = rows_of(path)
    results = pd.DataFrame(found, columns=["turn", "agent", *ORDER, "key"])
    results = results.sort_values(list(ORDER), ignore_index=True)
    keys = results[["turn", "key"]].explode("key")
    document = pd.Series(results.index)
    while True:
        keys["document"] = document
        first = keys.groupby(["turn", "key"])["document"].transform("min")
        merged = first.groupby(level=0).min()
        if merged.equals(document):
            break
        document = merged
    labels = pd.DataFrame(judged, columns=["turn", "result", *LABEL_ORDER, "gain"])
    labels = labels.sort_values(list(LABEL_ORDER)).drop_duplicates(["turn", "result"], keep="last")
    results["document"] = document
    results = results.merge(labels[["turn", "result", "gain"]], how="left", on=["turn", "result"])
    results["duplicate"] = results["document"] != results.index
    by_agent = results.groupby("agent")["duplicate"].agg(["size", "sum"])
    documents = results.groupby("document").agg({"agent": "first", "gain": "first"})
    documents["good"] = documents["gain"] >= GOOD_GAIN
    documents["good_gain"] = documents["gain"].where(documents["good"], 0)
    judged_by_agent = documents.groupby("agent").agg(
        {"gain": "count", "good": "sum", "good_gain": "sum"}
    )
    counted = by_agent.join(judged_by_agent).astype(int)
    return {str(agent): list(map(int, row)) for agent, *row in counted.itertuples()}


def with_polars(path: str) -> dict[str, Figures]:
    """The figures by agent."""
    import polars as pl

    found, judged = rows_of(path)
    results = pl.DataFrame(found, ["turn", "agent", *ORDER, "key"], orient="row")
    results = results.sort(ORDER).with_row_index("position")
    results = results.with_columns(document=pl.col("position"))
    keys = results.select("position", "turn", "key").explode("key")
    while True:
        merged = (
            keys.join(results.select("position", "document"), on="position")
            .with_columns(pl.col("document").min().over("turn", "key"))
            .group_by("position")
            .agg(pl.col("document").min())
        )
        before = results["document"]
        results = results.drop("document").join(
            merged, on="position", how="left", maintain_order="left"
        )
        results = results.with_columns(pl.col("document").fill_null(pl.col("position")))
        if results["document"].equals(before):
            break
    labels = pl.DataFrame(judged, ["turn", "result", *LABEL_ORDER, "gain"], orient="row")
    labels = labels.sort(LABEL_ORDER).unique(["turn", "result"], keep="last", maintain_order=True)
    results = results.join(
        labels.select("turn", "result", "gain"),
        on=["turn", "result"],
        how="left",
        maintain_order="left",
    )
    documents = results.group_by("document", maintain_order=True).agg(
        pl.col("agent").first(), pl.col("gain").drop_nulls().first()
    )
    good = pl.col("gain") >= GOOD_GAIN
    counted = (
        results.group_by("agent")
        .agg(pl.len(), (pl.col("document") != pl.col("position")).sum().alias("duplicates"))
        .join(
            documents.group_by("agent").agg(
                pl.col("gain").count().alias("labelled"),
                good.sum().alias("good"),
                pl.col("gain").filter(good).sum().alias("good_gain"),
            ),
            on="agent",
        )
    )
    assert len(counted.columns) == len(FIGURES) + 1
    return {agent: list(map(int, row)) for agent, *row in counted.iter_rows()}


if __name__ == "__main__":
    serve({"pandas": with_pandas, "polars": with_polars})
