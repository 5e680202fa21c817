"""Traces of the conformance programs, from a real Collector through Kafka, bridge and worker."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Collector, RedisServer
from deploy.local.traces import COLLECTOR_CONFIG
from tests.conformance.keep import CAPTURES
from tests.conformance.verdicts import of_account
from tests.services.bridged import bridged, rows
from tests.services.live import recorded, said
from tests.services.test_collector import JSON

pytestmark = pytest.mark.service

ACCOUNTS: Final = json.loads((CAPTURES / "accounts.json").read_text())
PROGRAMS: Final = sorted(
    name for name, one in ACCOUNTS.items() if one["verdict"] == ["right", ""] and "skip" not in name
)


def exports(program: str) -> list[bytes]:
    """The exports of a program, with its own service name and sessions."""
    text = gzip.decompress((CAPTURES / f"{program}.jsonl.gz").read_bytes()).decode()
    found = []
    for line in text.splitlines():
        export: dict[str, Any] = json.loads(line.replace("sess-", f"{program}/sess-"))
        for one in export["resourceSpans"]:
            attributes = one["resource"].setdefault("attributes", [])
            kept = [each for each in attributes if each["key"] != "service.name"]
            name = {"key": "service.name", "value": {"stringValue": program}}
            one["resource"]["attributes"] = [*kept, name]
        found.append(json.dumps(export).encode())
    return found


async def test_rows_of_all_programs_equal_their_recorded_figures(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """For programs of each framework and instrumentation, all at once, the worker's figures equal
    those that the programs recorded."""
    system = await bridged(kafka, redis_server, tmp_path)
    sent = [export for program in PROGRAMS for export in exports(program)]
    server = Collector(
        tmp_path / "collector", COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=system.traces
    )
    async with server as collector:
        answers = await asyncio.gather(*(collector.export(one, JSON) for one in sent))
        assert set(answers) == {200}, collector.log_tail()
    await system.bridge()
    await system.start_workers(1)
    await system.interpreted(len(await recorded(kafka, [system.traces])))
    await system.counted()

    out = tmp_path / "live"
    code, text = await said(system, "export", "--out", str(out))

    assert code == 0, text
    found = sorted(
        (row["conversation_id"], len(row["iterations"]), row["results"], row["srr"])
        for row in map(json.loads, rows(out))
    )
    assert found == sorted(
        (f"{program}/{session}", *figures)
        for program in PROGRAMS
        for session, *figures in of_account(ACCOUNTS[program]["account"])
    )
