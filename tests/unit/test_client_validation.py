"""The client's rules equal the worker's: the same verdict with the same message."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_metrics_client.contract import Limits
from stream_metrics_client.validation import refusal

from stream_metrics.core.events import BadRecord, decode
from stream_metrics.core.events import Limits as WorkerLimits
from tests.corpus import FIELDS, FULL, TOKENS, Field, cases
from tests.helpers import examples
from tests.unit.test_bad_input import TABLE, Row

MILLISECONDS = 1_718_020_800_000


TIGHT = {
    "record_bytes": 2_000, "json_levels": 6, "searches_per_event": 1, "results_per_event": 2,
    "labels_per_event": 3, "relevant_per_event": 1, "ids_per_result": 2, "fields_per_result": 4,
    "values_per_list": 2, "url_bytes": 18,
}  # fmt: skip


def verdicts(
    value: bytes,
    limits: Limits = Limits(),  # noqa: B008
    worker_limits: WorkerLimits = WorkerLimits(),  # noqa: B008
    **record: Any,
) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """The refusals of the client and the worker: a reason and a message, or None.

    The message for malformed JSON depends on the JSON library, so only the reason is compared.
    """
    ours = refusal(value, limits=limits, **record)
    event = decode(value, limits=worker_limits, **record)
    theirs = (event.reason, event.message) if isinstance(event, BadRecord) else None
    if ours is not None and theirs is not None and ours.reason == theirs[0] == "not_json":
        return (ours.reason, ours.message[:17]), (theirs[0], theirs[1][:17])
    return ours, theirs


@pytest.mark.parametrize("row", [row for row in TABLE if row.value], ids=lambda row: row.name)
def test_bad_records_get_the_workers_messages(row: Row) -> None:
    """Both refuse each hostile record with the same message."""
    assert row.value is not None
    ours, theirs = verdicts(
        row.value, key=row.key, timestamp_ms=row.timestamp_ms, require_key=row.require_key
    )
    assert ours == theirs


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_any_value_in_any_field_gets_the_workers_message(field: Field) -> None:
    """Each field of each event, with each type of JSON value, or missing."""
    for case in cases(field):
        ours, theirs = verdicts(case.text.encode())
        assert ours == theirs, case.text[:500]


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A full event of any type in which up to four values are replaced."""
    event = json.loads(json.dumps(draw(st.sampled_from(list(FULL.values())))))
    values = [*TOKENS, '["1","2","3"]', '{"a":1,"b":2,"c":3}', '"https://host.example/long"']
    spliced: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        node: Any = event
        while True:
            keys = [*node] if isinstance(node, dict) else [*range(len(node))]
            keys = [*keys, "unknown"] if isinstance(node, dict) else keys
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = node.get(key) if isinstance(node, dict) else node[key]
            if isinstance(inner, dict | list) and draw(st.booleans()):
                node = inner
                continue
            if draw(st.integers(0, 4)) == 0:
                if isinstance(node, list) or key in node:
                    del node[key]
            else:
                node[key] = f"@@{len(spliced)}@@"
                spliced.append(draw(st.sampled_from(values)))
            break
    text = json.dumps(event)
    for number, token in enumerate(spliced):
        text = text.replace(f'"@@{number}@@"', token)
    cut = draw(st.integers(0, 20))
    return text.encode()[:-1] if cut == 0 else text.encode()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(400))
@given(
    broken(),
    st.sampled_from([None, b"conv-1", b"other"]),
    st.booleans(),
    st.sampled_from([None, -1, MILLISECONDS, 0]),
    st.booleans(),
)
def test_several_errors_in_one_event_get_the_workers_message(
    value: bytes, key: bytes | None, require_key: bool, timestamp_ms: int | None, tight: bool
) -> None:
    """Both report the same error first, under default and other limits."""
    ours, theirs = verdicts(
        value,
        Limits(**TIGHT) if tight else Limits(),
        WorkerLimits(**TIGHT) if tight else WorkerLimits(),
        key=key,
        require_key=require_key,
        timestamp_ms=timestamp_ms,
    )
    assert ours == theirs


@settings(max_examples=examples(200))
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0123dab \n1e9.-', max_size=40))
def test_no_bytes_are_accepted_by_one_of_the_two_only(value: bytes | str) -> None:
    """Any bytes get the same reason from both, and neither raises."""
    ours, theirs = verdicts(value if isinstance(value, bytes) else value.encode())
    assert ours == theirs


def test_the_limits_of_the_client_are_the_defaults_of_the_worker() -> None:
    """The client's default limits equal those of a worker without settings."""
    worker = WorkerLimits()

    assert asdict(Limits()) == {name: getattr(worker, name) for name in TIGHT}
