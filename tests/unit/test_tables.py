"""The built-in deduplication tables: numbered, immutable, and part of the state's identity."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Set
from dataclasses import MISSING, asdict, fields, replace
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from stream_metrics.cli.options import identity, settings_for_state
from stream_metrics.cli.settings import Settings
from stream_metrics.core.compiled import INTERFACE
from stream_metrics.core.dedup import address, normalise, tables
from stream_metrics.core.dedup.digests import KNOWN_NAMES
from stream_metrics.core.dedup.tables import (
    EntityType,
    Tables,
    newest,
    publish,
    published,
    tables_text,
)
from stream_metrics.core.engine.codec import decode_conversation
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.worker.ownership.identity import OtherIdentity, check_identity
from tests.golden import TOPIC
from tests.later_release import second, work

# What was published never changes. A difference here means that rows were edited, and state that
# was built by them would go on under other rules: publish the rows under the next number instead.
DIGESTS = {1: "e0dc237e55e16cab", 2: "378ce8c2705f2558", 3: "50639577faebc7c5"}
KERNELS = ["python", ""]
NEWEST = newest().number
NEXT = NEWEST + 1


def digest(content: object) -> str:
    """A digest of plain data that is the same in every process."""

    def plain(value: object) -> list[Any]:
        assert isinstance(value, Set)
        return sorted(value)

    text = json.dumps(content, default=plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def later(kernel: str, *arguments: str, given: object = None) -> dict[str, Any]:
    """Simulates a later release, with tables that this one lacks."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.later_release", *arguments],
        input=json.dumps(given),
        env={**os.environ, "STREAM_METRICS_KERNEL": kernel},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@cache
def built(kernel: str) -> dict[str, Any]:
    """What a later release builds under its own tables."""
    return later(kernel)


def duplicates(state: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Pairs of duplicate results, by conversation."""
    return {row["conversation_id"]: row["duplicates_of"] for row in state["rows"]}


async def ours() -> dict[str, Any]:
    """The state of this release."""
    store = MemoryStore()
    await work.worked(Settings(), store, 0)
    return await work.told(Settings(), store)


@pytest.mark.parametrize("number", published())
def test_published_tables_never_change(number: int) -> None:
    """Each number always means the rows that were published with it."""
    of_number_1 = {f.name: f.default for f in fields(Tables) if f.default is not MISSING}
    content = {
        name: value
        for name, value in asdict(published()[number]).items()
        if name not in of_number_1 or value != of_number_1[name]
    }

    assert digest(content) == DIGESTS[number], "publish changed rows under the next number"


def test_what_all_tables_share_never_changes() -> None:
    """These rules of candidate keys apply under every number, so no number can change them."""
    shared = [
        tables.TITLE_FIELDS,
        tables.CASELESS_COMPONENTS,
        tables.SERIES_COMPONENT,
        tables.TEXT_NAMES,
        tables.OWN_NAMES,
    ]

    assert digest(shared) == "bd457e76417470c9", (
        "make it a part of Tables, and publish the next number"
    )


def test_the_names_in_careful_addresses_never_change() -> None:
    """They belong to the tables that compare addresses with care."""
    names = [
        address.TRACKING_PARAMETERS,
        address.WEAK_PARAMETERS,
        address.WEAK_UNLESS_ALONE,
        address.PLACES_IN_A_PAGE,
        address.PLACES_BY_NUMBER,
        address.LABELS,
        normalise.IDENTITY_PARAMETERS,
    ]

    assert digest(names) == "37d8bc6f67e437c6", (
        "make them a part of Tables, and publish the next number"
    )


def test_stored_names_never_change() -> None:
    """Packed fingerprints store indexes into this list, which older releases must know."""
    assert digest(KNOWN_NAMES) == "9d2a53aa9a51b604"


def test_kernels_that_know_one_table_are_refused_for_more() -> None:
    """Kernels of interface 3 may take the row of other types from number 1 in any case."""
    assert INTERFACE > 3 or set(published()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
async def test_a_release_with_more_tables_uses_those_of_the_state(kernel: str) -> None:
    """It decides and stores as the earlier release does by default, and that one can continue."""
    before = await ours()

    after = later(kernel, "on", given=before)

    assert after["tables"] == before["tables"] == NEWEST
    assert after["identity"] == before["identity"]
    same = {"LaterType-1": "LaterType-0", "Forum-1": "Forum-0"}
    assert duplicates(after) == {"c0": same, "c1": same}
    back = await work.read(after)
    await work.worked(Settings(), back, 2)
    assert duplicates(await work.told(Settings(), back)) == {"c0": same, "c1": same, "c2": same}


async def test_state_is_refused_under_other_tables_than_its_own() -> None:
    """As with any setting, a worker with another number is refused with a remedy."""
    refusal = later("python", "on", given=await ours())["refusal"]

    assert f"dedup.tables was {NEWEST}, is {NEXT}" in refusal
    assert "stream-metrics build" in refusal
    assert "newer release" not in refusal


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
async def test_new_state_is_built_under_the_newest_tables(kernel: str) -> None:
    """All of its rows apply: that of a new type, and that of types without a row."""
    state = built(kernel)

    assert state["tables"] == NEXT
    assert duplicates(state) == {"c0": {}}


@pytest.mark.slow
async def test_state_under_later_tables_is_refused_with_the_release_that_is_needed() -> None:
    """After a rollback, the error names the missing tables and the remedy."""
    store = await work.read(built("python"))

    generation = (await store.layout()).in_force
    assert generation is not None
    settings = settings_for_state(Settings(), generation.identity)

    with pytest.raises(OtherIdentity) as refused:
        check_identity(generation.identity, identity(settings, {TOPIC: 1}))
    assert f"dedup.tables was {NEXT}, is {NEWEST}. A newer release built it" in str(refused.value)
    assert f"this release has only dedup.tables {tables_text()}. Use that release" in str(
        refused.value
    )


@pytest.mark.slow
async def test_a_type_that_is_not_known_names_the_release_that_is_needed() -> None:
    """The stored code of a later type is not reported as damage."""
    store = await work.read(built("python"))
    [hot] = [parts.hot async for _, parts in store.conversations(0)]

    with pytest.raises(
        DamagedState, match=f"stored as '{second.CODE}'.* A newer release wrote it: use"
    ):
        decode_conversation("", hot, "")


async def test_codes_do_not_depend_on_the_order_of_rows() -> None:
    """A type that is inserted between others does not change their stored codes."""
    codes = {kind.name: kind.code for kind in published()[1].types}

    assert codes == {
        "File": "B", "Event": "C", "EmailMessage": "D", "TeamsMessage": "E",
        "PeopleInferenceAnswer": "F", "External": "G", "MeetingTranscript": "H",
    }  # fmt: skip


FILE = newest().types[0]


@pytest.mark.parametrize(
    ("types", "number", "why"),
    [
        (newest().types, NEWEST, f"the next tables are number {NEXT}, not {NEWEST}"),
        (newest().types, NEXT + 1, f"the next tables are number {NEXT}, not {NEXT + 1}"),
        ((replace(FILE, code="Z"),), NEXT, "File: its stored code must remain 'B'"),
        ((EntityType("New", (), (), code="B"),), NEXT, "New: the stored code 'B' is taken"),
        ((EntityType("New", (), (), code="A"),), NEXT, "New: the stored code 'A' is taken"),
        ((EntityType("New", (), ()),), NEXT, "New: its stored code must be one ASCII character"),
        (
            (FILE, EntityType("New", (), (), aliases=("file",), code="Z")),
            NEXT,
            "file: two rows of one table name it",
        ),
    ],
)
def test_tables_with_clashing_stored_codes_are_refused(
    types: tuple[EntityType, ...], number: int, why: str
) -> None:
    """A stored code belongs to one type forever."""
    before = set(published())
    with pytest.raises(ValueError, match=why):
        publish(Tables(number, types, newest().other))

    assert set(published()) == before


def test_the_number_is_part_of_the_fingerprint() -> None:
    """The number that the state has changes nothing, and unknown numbers are refused."""
    named = Settings.model_validate({"dedup": {"tables": NEWEST}})

    assert named.fingerprint() == Settings.model_validate({}).fingerprint()
    with pytest.raises(
        ValidationError, match=f"this release has tables {tables_text()}; tables {NEXT} need"
    ):
        Settings.model_validate({"dedup": {"tables": NEXT}})


async def test_state_without_tables_was_built_under_the_first() -> None:
    """Earlier releases stored no number, and the earliest stored no settings."""
    unnamed = Identity("g", 1, "fingerprint", {TOPIC: 1})

    assert settings_for_state(Settings(), unnamed).dedup.tables == 1
    assert Settings().dedup.tables is None
