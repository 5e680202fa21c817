"""The bridge on a real Kafka: what it tells, through workers, equals a replay of its topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.services.bridged import BridgedSystem, bridged
from tests.services.live import said
from tests.sessions import records, traces

pytestmark = pytest.mark.service


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> BridgedSystem:
    """A system with empty topics."""
    return await bridged(kafka, redis_server, tmp_path)


async def live_equals_replay(system: BridgedSystem) -> bytes:
    """Compare the export of the state with a replay of the topic of traces; the rows."""
    now = "1800000000000000"
    out = {}
    for name, arguments in (
        ("live", ["export"]),
        ("replayed", ["replay", f"kafka:{system.traces}"]),
    ):
        folder = system.folder / name
        code, text = await said(system, *arguments, "--out", str(folder), "--now", now)
        assert code == 0, text
        out[name] = [
            (folder / file).read_bytes() for file in ("conversations.jsonl", "windows.json")
        ]
    assert out["live"] == out["replayed"]
    return out["live"][0]


async def test_what_the_bridge_tells_equals_a_replay_of_its_topic(system: BridgedSystem) -> None:
    """Byte for byte, with spans in disorder, split over payloads and repeated."""
    number = await system.send(records(traces(1, 40), seed=1))
    bridge = await system.bridge()
    await system.start_workers(1)
    await system.told(number)
    await system.counted()

    rows = await live_equals_replay(system)

    assert rows.count(b"\n") == 40
    assert await bridge.figure("streammetrics_bridge_late_spans_total") == 0
    assert await bridge.stop() == 0
