"""Builds the content of events, and encodes them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple
from uuid import UUID

from stream_metrics_client.documents import (
    JsonObject,
    as_float,
    as_int,
    as_list,
    as_result,
    baseline_ranks,
    digest,
    python_scalar,
    separate_chunks,
    text_id,
    without_texts,
)

_MAX_ID_LENGTH: Final = 128


class RecordedSearch(NamedTuple):
    """The ids of a recorded search, to which labels refer.

    `result_ids` are in the order of the results. Both are empty if the search was not recorded.
    """

    search_id: str
    result_ids: tuple[str, ...]


NOT_RECORDED: Final = RecordedSearch("", ())


class Search:
    """A search to be recorded.

    `ids` are set once `content` has been called, and `named`: whether a result has a `doc_id`; None
    without results. So is `of_pages`: whether ids of the results turned out to be those of pages.
    """

    def __init__(
        self,
        iteration: int,
        place: int,
        search_id: str | None,
        query: str | None,
        routing: Callable[[], JsonObject],
    ) -> None:
        self._iteration, self._number, self._search_id = iteration, place, search_id
        self._query, self._routing = query, routing
        self.ids = NOT_RECORDED
        self.named: bool | None = None
        self.of_pages = False

    def content(
        self,
        documents: Sequence[Any],
        scores: Sequence[float | None] | None,
        before: Sequence[Any] | None,
        ranks: Sequence[int | None] | None,
        texts: bool,
    ) -> JsonObject:
        if self._search_id is None:
            search_id = f"{as_int(self._iteration)}.{self._number}"
        else:
            search_id = text_id(self._search_id)
        documents = as_list(documents, "results", ordered=True)
        results = [as_result(document) for document in documents]
        if scores is not None:
            _set(results, "score", [as_float(score) for score in as_list(scores, "scores")])
        if before is not None:
            earlier = as_list(before, "before", ordered=True)
            _set(results, "baseline_rank", baseline_ranks(results, earlier))
        if ranks is not None:
            known = as_list(ranks, "baseline_ranks")
            _set(results, "baseline_rank", [as_int(rank) for rank in known])
        self.named = any(one.get("doc_id") for one in results) if results else None
        self.of_pages = separate_chunks(documents, results)
        if not texts:
            results = [without_texts(result) for result in results]
        for rank, result in enumerate(results, 1):
            given = result.get("result_id")
            result["result_id"] = _result_id(search_id, rank) if given is None else text_id(given)
        self.ids = RecordedSearch(search_id, tuple(one["result_id"] for one in results))
        search = without_none(
            search_id=search_id,
            ordinal=self._number - 1,
            query=self._query,
            routing=self._routing() or None,
            results=results,
        )
        return {"searches": [search]}


def _result_id(search_id: str, rank: int) -> str:
    made = f"{search_id}.{rank}"
    return made if len(made) <= _MAX_ID_LENGTH else digest(made)


def _set(results: list[JsonObject], name: str, values: Sequence[Any]) -> None:
    for result, value in zip(results, values, strict=True):
        if value is not None:
            result[name] = value


def without_none(**fields: Any) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def as_floats(values: Mapping[str, float] | None) -> JsonObject | None:
    return None if values is None else {name: as_float(value) for name, value in values.items()}


def relevant_documents(relevant: Any) -> Any:
    if isinstance(relevant, Mapping):
        return {text_id(doc_id): as_int(grade) for doc_id, grade in relevant.items()}
    if relevant is None:
        return None
    return [text_id(doc_id) for doc_id in as_list(relevant, "relevant")] or {}  # [] is left out


def turn_dimensions(dimensions: Any) -> JsonObject | None:
    """The dimensions of a turn.

    Raises:
        TypeError: They are not a mapping. `dict` would also accept a list of pairs, but reads each
            pair to its end, and an iterator may have none.
    """
    if dimensions is None:
        return None
    if not isinstance(dimensions, Mapping):
        raise TypeError(f"dimensions must be a mapping, not {type(dimensions).__name__}")
    return dict(dimensions)


def _other(value: Any) -> Any:
    """Convert values in `fields` that JSON lacks: ids, dates and NumPy numbers."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    found = python_scalar(value)
    found = as_float(found) if found is value else found
    if found is value:
        raise TypeError(f"an event cannot hold a {type(value).__name__}")
    return found


_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other
).encode


def encode(event: JsonObject) -> bytes:
    """Encode an event as a record's value.

    Raises:
        TypeError: It contains a value that JSON lacks.
        ValueError: It contains NaN or a lone surrogate.
    """
    return _ENCODE(event).encode()
