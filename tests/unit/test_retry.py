"""Retries until the store is back or the worker stops, with the reason in the health status."""

from __future__ import annotations

import asyncio
import time

import pytest

from stream_metrics.live.health import Health
from stream_metrics.live.ports import DeadLettersUnavailable, StoreUnavailable
from stream_metrics.live.worker.retry import RetryPolicy, Stopped


def retry(health: Health) -> RetryPolicy:
    """A policy with delays of a few milliseconds."""
    return RetryPolicy(
        health, lambda: None, first_seconds=0.001, cap_seconds=0.002, grace_seconds=0.05
    )


@pytest.mark.parametrize(
    ("error", "name"),
    [(StoreUnavailable("loading"), "redis"), (DeadLettersUnavailable("full"), "dead_letters")],
)
async def test_the_reason_is_shown_while_it_waits(error: Exception, name: str) -> None:
    """A call is repeated until it succeeds; then the reason is cleared."""
    health, reasons = Health(reasons={}), []

    async def third_time() -> str:
        reasons.append(dict(health.reasons))
        if len(reasons) < 3:
            raise error
        return "done"

    assert await retry(health)(third_time) == "done"
    assert reasons == [{}, {name: str(error)}, {name: str(error)}]
    assert health.reasons == {}


async def test_a_stop_ends_a_wait() -> None:
    """A stop ends the retries of a call that fails again and again."""
    health = Health(reasons={})
    waiting = retry(health)

    async def never() -> None:
        waiting.stop()
        raise StoreUnavailable("gone")

    with pytest.raises(Stopped):
        await waiting(never)


async def test_a_stop_ends_a_call_that_hangs() -> None:
    """A stop cancels a hanging call after the grace period."""
    waiting = retry(Health(reasons={}))
    began = asyncio.Event()

    async def hangs() -> None:
        began.set()
        await asyncio.Event().wait()

    call = asyncio.ensure_future(waiting(hangs))
    await began.wait()
    started = time.monotonic()
    waiting.stop()
    with pytest.raises(Stopped):
        await call
    assert time.monotonic() - started < 5


async def test_a_stop_lets_a_call_finish() -> None:
    """A call that ends within the grace period succeeds, so that the current batch is completed."""
    waiting = retry(Health(reasons={}))
    release = asyncio.Event()

    async def soon() -> str:
        waiting.stop()
        release.set()
        await release.wait()
        return "written"

    assert await waiting(soon) == "written"
