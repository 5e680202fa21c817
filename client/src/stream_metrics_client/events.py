"""The contents of events, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple
from uuid import UUID

from stream_metrics_client.documents import (
    JsonObject,
    as_result,
    baseline_ranks,
    digest,
    listed,
    number,
    plain,
    text_id,
    whole,
    without_texts,
)

_LONGEST_ID: Final = 128


class Searched(NamedTuple):
    """The ids under which a search was recorded: labels refer to them.

    `result_ids` are in the order of the results. Both are empty if the search was not recorded.
    """

    search_id: str
    result_ids: tuple[str, ...]


NOTHING: Final = Searched("", ())


class Search:
    """A search on its way to being an event; `ids` are known once there is the content."""

    def __init__(
        self,
        iteration: int,
        place: int,
        search_id: str | None,
        query: str | None,
        routing: Callable[[], JsonObject],
    ) -> None:
        self._iteration, self._place, self._search_id = iteration, place, search_id
        self._query, self._routing = query, routing
        self.ids = NOTHING

    def content(
        self,
        documents: Sequence[Any],
        scores: Sequence[float | None] | None,
        before: Sequence[Any] | None,
        ranks: Sequence[int | None] | None,
        texts: bool,
    ) -> JsonObject:
        if self._search_id is None:
            search_id = f"{whole(self._iteration)}.{self._place}"
        else:
            search_id = text_id(self._search_id)
        results = [as_result(document) for document in listed(documents, "results", ordered=True)]
        if scores is not None:
            _set(results, "score", [number(score) for score in listed(scores, "scores")])
        if before is not None:
            earlier = listed(before, "before", ordered=True)
            _set(results, "baseline_rank", baseline_ranks(results, earlier))
        if ranks is not None:
            known = listed(ranks, "baseline_ranks")
            _set(results, "baseline_rank", [whole(rank) for rank in known])
        if not texts:
            results = [without_texts(result) for result in results]
        for rank, result in enumerate(results, 1):
            given = result.get("result_id")
            result["result_id"] = _result_id(search_id, rank) if given is None else text_id(given)
        self.ids = Searched(search_id, tuple(one["result_id"] for one in results))
        search = without_none(
            search_id=search_id,
            ordinal=self._place - 1,
            query=self._query,
            routing=self._routing() or None,
            results=results,
        )
        return {"searches": [search]}


def _result_id(search_id: str, rank: int) -> str:
    made = f"{search_id}.{rank}"
    return made if len(made) <= _LONGEST_ID else digest(made)


def _set(results: list[JsonObject], name: str, values: Sequence[Any]) -> None:
    for result, value in zip(results, values, strict=True):
        if value is not None:
            result[name] = value


def without_none(**fields: Any) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def numbers(values: Mapping[str, float] | None) -> JsonObject | None:
    return None if values is None else {name: number(value) for name, value in values.items()}


def relevant_documents(relevant: Any) -> Any:
    if isinstance(relevant, Mapping):
        return {text_id(doc_id): whole(grade) for doc_id, grade in relevant.items()}
    if relevant is None:
        return None
    return [text_id(doc_id) for doc_id in listed(relevant, "relevant")]


def strata(dimensions: Any) -> JsonObject | None:
    """The dimensions of a turn.

    Raises:
        TypeError: They are not a mapping. `dict` would also take a list of pairs, but reads each
            pair to its end, and an iterator may have none.
    """
    if dimensions is None:
        return None
    if not isinstance(dimensions, Mapping):
        raise TypeError(f"dimensions must be a mapping, not {type(dimensions).__name__}")
    return dict(dimensions)


def _other(value: Any) -> Any:
    """Values in `fields` that JSON does not have: ids, dates and NumPy's numbers."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    found = plain(value)
    found = number(found) if found is value else found
    if found is value:
        raise TypeError(f"an event cannot hold a {type(value).__name__}")
    return found


_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other
).encode


def encode(event: JsonObject) -> bytes:
    """The event as a record's value.

    Raises:
        TypeError: It holds something that JSON does not have.
        ValueError: It holds NaN, or half of a surrogate pair.
    """
    return _ENCODE(event).encode()
