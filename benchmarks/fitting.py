"""Fits the constants of the capacity model to measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from redis.asyncio import Redis

from benchmarks.memory import FURTHER, RESULTS, Shape, state_bytes
from benchmarks.model import REDIS, WORKER, Batches, Mix, redis_terms, worker_terms
from deploy.local.servers import RedisServer


@dataclass(frozen=True, slots=True)
class Observed:
    """The quantities of a run that the fit uses."""

    mix: Mix
    batches: Batches
    us: float
    redis_us: float


def cpu_constants(rows: Sequence[Observed]) -> dict[str, float]:
    """CPU µs of worker and Redis, by non-negative least squares of relative errors."""
    worker = _solve([worker_terms(r.mix, r.batches) for r in rows], [r.us for r in rows])
    redis = _solve([redis_terms(r.mix, r.batches) for r in rows], [r.redis_us for r in rows])
    return dict(zip((*WORKER, *REDIS), (*worker, *redis), strict=True))


def _solve(terms: Sequence[Sequence[float]], found: Sequence[float]) -> list[float]:
    """Least squares; repeatedly drops the most negative term."""
    weighed = np.asarray(terms) / np.asarray(found)[:, None]
    kept = list(range(weighed.shape[1]))
    while True:
        solved, *_ = np.linalg.lstsq(weighed[:, kept], np.ones(len(found)), rcond=None)
        if min(solved) >= 0:
            break
        del kept[int(np.argmin(solved))]
    values = dict(zip(kept, solved, strict=True))
    return [float(values.get(at, 0.0)) for at in range(weighed.shape[1])]


async def byte_constants(redis: RedisServer, client: Redis, conversations: int) -> dict[str, float]:
    """Bytes of Redis per conversation, search event, result, further value and label."""

    async def bytes_of(shape: Shape) -> float:
        return await state_bytes(redis, client, shape) / shape.conversations

    small = await bytes_of(Shape(conversations, iterations=1))
    usual = await bytes_of(Shape(conversations))
    large = await bytes_of(Shape(conversations, iterations=1, each=3 * RESULTS))
    labelled = await bytes_of(Shape(conversations, labels=True))
    further = await bytes_of(Shape(conversations, further=FURTHER))
    shape = Shape(1)
    result = (large - small) / (2 * RESULTS)
    more = shape.iterations - 1
    event = (usual - small - more * RESULTS * result) / more
    return {
        "conversation_bytes": small - event - RESULTS * result,
        "event_bytes": event,
        "result_bytes": result,
        "value_bytes": (further - usual) / (shape.results * FURTHER),
        "label_bytes": (labelled - usual) / shape.results,
    }
