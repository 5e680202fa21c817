"""aiokafka and Redis: the first loop that anybody writes, with a Redis call for every result.

A turn is a Redis hash of its results and labels. After each event it is read whole and counted, so
that neither order nor repetition matters; how the figures changed is added to those of its agent.
"""

from __future__ import annotations

from typing import Any

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.reading import Event, read
from benchmarks.peers.turns import (
    FIGURES,
    Figures,
    add_label,
    add_result,
    difference,
    labels_of,
    members_of,
    new_turn,
)

NOTHING = orjson.dumps([0] * len(FIGURES))


async def run(given: Task) -> None:
    """Read both topics to their end."""
    meter = Meter(given.records)
    consumer = AIOKafkaConsumer(
        *given.topics,
        bootstrap_servers=given.bootstrap,
        group_id=given.name,
        auto_offset_reset="earliest",
    )
    redis = Redis.from_url(given.redis_url, decode_responses=True)
    await consumer.start()
    try:
        async for message in consumer:
            meter.record()
            event = read(orjson.loads, message.key, message.value)
            if event is None:
                meter.invalid += 1
            else:
                await take(redis, event)
            if meter.done:
                break
        meter.end()
        meter.report(await totals_of(redis))
    finally:
        await consumer.stop()
        await redis.aclose()


async def take(redis: Redis, event: Event) -> None:
    """Store an event and count its turn."""
    turn = f"turn:{event['conversation_id']}:{event['turn']}"
    if event["type"] == "search_iteration":
        await redis.hset(turn, "agent", event.get("agent", "default"))
    for search in event.get("searches") or ():
        for member, keys in members_of(event, search):
            await redis.hset(turn, f"result:{member[-1]}", orjson.dumps([member, keys]))
    labels: dict[Any, Any] = {
        f"label:{result_id}:{label[1]}": orjson.dumps([result_id, label])
        for result_id, label in labels_of(event)
    }
    if labels:
        await redis.hset(turn, mapping=labels)
    await count(redis, turn)


async def count(redis: Redis, turn: str) -> None:
    """Count a turn from all that is stored of it, and add the change to its agent's figures."""
    stored: dict[str, Any] = await redis.hgetall(turn)  # type: ignore[assignment]
    agent = stored.pop("agent", None)
    if agent is None:
        return
    counted = new_turn()
    for name, value in stored.items():
        add = add_result if name.startswith("result:") else add_label
        add(counted, *orjson.loads(value))
    figures = counted["figures"]
    before = await redis.set(f"figures:{turn}", orjson.dumps(figures), get=True)
    change = difference(figures, orjson.loads(before or NOTHING))
    for name, more in zip(FIGURES, change, strict=True):
        if more:
            await redis.hincrby(f"agent:{agent}", name, more)


async def totals_of(redis: Redis) -> dict[str, Figures]:
    """The figures of all agents."""
    totals = {}
    async for name in redis.scan_iter("agent:*"):
        stored: dict[str, Any] = await redis.hgetall(name)  # type: ignore[assignment]
        agent = name.removeprefix("agent:")
        totals[agent] = [int(stored.get(figure, 0)) for figure in FIGURES]
    return totals


if __name__ == "__main__":
    uvloop.run(run(task()))
