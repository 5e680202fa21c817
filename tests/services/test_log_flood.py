"""The logs of a worker and a bridge while Kafka is away."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.cli.log_repeats import FEW, SECONDS
from tests.services.bridged import bridged
from tests.services.live import Worker

pytestmark = [pytest.mark.service, pytest.mark.long]

REPEATED = 100  # of a line within a minute, at least; the client retries about ten times a second


def lines_of(process: Worker) -> list[dict[str, Any]]:
    """The lines of its log."""
    return [json.loads(line) for line in process.log.read_text().splitlines()]


async def test_a_broker_that_is_away_is_told_in_a_few_lines_a_minute(
    kafka_factory: Callable[..., Awaitable[Kafka]], redis_server: RedisServer, tmp_path: Path
) -> None:
    """Each sentence comes a few times and then once a minute with its number, and the last numbers
    at the end of the process. Another error, such as a connection that is reset and not refused, is
    another sentence."""
    kafka = await kafka_factory()
    system = await bridged(kafka, redis_server, tmp_path)
    await system.start_workers(1)
    processes = [*system.workers, await system.bridge()]
    for process in processes:
        await wait_until(process.ready, 60, process.log_tail)
    before = {process.name: len(lines_of(process)) for process in processes}

    kafka.kill9()
    for process in processes:

        def counted(process: Worker = process) -> bool:
            lines = lines_of(process)[before[process.name] :]
            return any(line.get("repeated", 0) >= REPEATED for line in lines)

        await wait_until(counted, SECONDS + 30, process.log_tail)
    codes = [await process.stop() for process in processes]

    assert codes == [0, 0]
    for process in processes:
        lines = lines_of(process)[before[process.name] :]
        errors = [line for line in lines if line["logger"].startswith("aiokafka")]
        sentences = Counter((line["logger"], re.sub(r"\d+", "0", line["event"])) for line in errors)
        assert max(sentences.values()) <= FEW + 3, sentences
        assert any("Connection refused" in line["event"] for line in errors)
        assert sum("repeated" in line for line in errors) > 2, "the end tells of what was held"
