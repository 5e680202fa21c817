"""Transactions of producers, read by a whole worker on real servers."""

from __future__ import annotations

import json

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.helpers import wait_until
from tests.services.test_watchdog import SOON, offset, producer, working

pytestmark = pytest.mark.service

START_S = 1_718_020_800


def iteration(conversation_id: str) -> bytes:
    """A search iteration without results."""
    event = {"type": "search_iteration", "event_id": "e1", "occurred_at": START_S, "turn": 1}
    return json.dumps({**event, "conversation_id": conversation_id, "iteration": 1}).encode()


async def test_aborted_records_count_nowhere(kafka: Kafka, redis_server: RedisServer) -> None:
    """Only the conversation of the committed one of two transactions counts."""
    async with working(kafka, redis_server, "aborted") as (runtime, topic):
        async with producer(kafka, transactional_id=topic) as sender:
            await sender.begin_transaction()
            await sender.send_and_wait(topic, iteration("aborted"), key=b"aborted")
            await sender.abort_transaction()
            await sender.begin_transaction()
            await sender.send_and_wait(topic, iteration("done"), key=b"done")
            await sender.commit_transaction()
        await wait_until(lambda: offset(runtime) >= 3, SOON, "the records are not read")

        assert runtime.store is not None
        assert (await runtime.store.describe(0)).conversations == 1
