"""What commands share that work on a group whose workers are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import typer
from aiokafka.errors import KafkaError
from rich.console import Console

from stream_metrics.adapters.kafka.errors import KafkaRefused, UnreadableBatch
from stream_metrics.adapters.kafka.groups import members
from stream_metrics.adapters.kafka.output import KafkaOutputs
from stream_metrics.adapters.kafka.topics import TopicsUnfit
from stream_metrics.adapters.redis.connect import connect
from stream_metrics.adapters.redis.errors import StoreRefused
from stream_metrics.adapters.redis.store import RedisStore
from stream_metrics.cli.common import UsageError, kafka_reason
from stream_metrics.engine.codec import UnknownSchema
from stream_metrics.ports import (
    LOST_HOLD,
    OnHold,
    OutputUnavailable,
    StateStore,
    StoreUnavailable,
)
from stream_metrics.runtime import redis_options
from stream_metrics.settings import Settings, mask_url
from stream_metrics.worker.identity import OtherIdentity
from stream_metrics.worker.move import Unmovable
from stream_metrics.worker.publish import Unsent

ANSWER_WITHIN_SECONDS: Final = 15
LISTED: Final = 5
AGAIN: Final = (
    "Run this again to continue, or let workers start with the current state "
    "(`stream-metrics reshard --abort`)"
)
END: Final = "Send all rows to the output topic, if there is one, and let workers start?"
NOTHING_MOVED: Final = "Nothing has been moved; fix the problem, and run this again"


def said() -> Console:
    """Where commands tell what they do."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def run(settings: Settings, work: Coroutine[Any, Any, int]) -> None:
    """Run a command's work; whatever stops it is one line, and exit code 2."""
    try:
        code = asyncio.run(work)
    except (Unmovable, OtherIdentity, UnknownSchema, OnHold, TopicsUnfit, KafkaRefused) as error:
        raise UsageError(str(error)) from error
    except (StoreUnavailable, StoreRefused) as error:
        raise UsageError(f"redis {mask_url(settings.redis.url)}: {error}. {AGAIN}") from error
    except Unsent as error:
        raise UsageError(f"{error}. {AGAIN}") from error
    except OutputUnavailable as error:
        raise UsageError(f"{error}. {NOTHING_MOVED}") from error
    except UnreadableBatch as error:
        raise UsageError(
            f"{error.message}. Nothing has been moved, and running this again would not help. If "
            "the batch is too large and memory allows, raise `kafka.max_batch_bytes`. Otherwise "
            "delete it and the records before it (kafka-delete-records.sh), and run this again "
            "with `kafka.on_offset_gap` continue, which continues after it"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise UsageError(
            f"kafka {settings.kafka.bootstrap_servers}: {kafka_reason(settings, error)}. "
            f"{NOTHING_MOVED}"
        ) from error
    if code:
        raise typer.Exit(code)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[RedisStore]:
    """The store of the settings."""
    store = connect(redis_options(settings))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def writing(settings: Settings) -> AsyncIterator[KafkaOutputs | None]:
    """The ways to the output topic, if there is one."""
    outputs = KafkaOutputs(settings.kafka) if settings.kafka.output_topic else None
    try:
        yield outputs
    finally:
        if outputs is not None:
            await outputs.stop()


async def who_is_there(settings: Settings, groups: Sequence[str]) -> str:
    """Which group has members, or is not told of; empty if none is in any."""
    for group in groups:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                found = await members(settings.kafka, group)
        except (KafkaError, OSError, TimeoutError) as error:
            return (
                f"kafka {settings.kafka.bootstrap_servers} does not tell whether a worker is in "
                f"group {group!r}: {type(error).__name__}"
            )
        if found:
            listed = ", ".join(map(str, found[:LISTED]))
            more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
            return (
                f"group {group!r} has {len(found)} members: its workers use this state. Stop them "
                f"({listed}{more}); with `kafka.group_instance_id` they are members for "
                "`kafka.session_timeout_ms` after that"
            )
    return ""


async def refuse_members(settings: Settings, store: StateStore) -> None:
    """Raise ``UsageError`` while workers are in the group, unless they are refused already.

    A namespace that is held takes no worker; those that come find that out and go. Of a hold that
    is lost only some may.
    """
    if await store.held_by() in (None, LOST_HOLD):
        there = await who_is_there(settings, [settings.kafka.group_id])
        if there:
            raise UsageError(there)


def agreed(question: str, held_by: str | None, *, yes: bool) -> bool:
    """Whether whoever typed the command wants to go on.

    ``held_by`` is another command that holds the namespace, if one does; it is told of first.
    """
    if held_by is not None:
        said().print(
            f"`stream-metrics {held_by}` was interrupted or is still running: to continue takes "
            "the state partitions over from it and deletes what it has prepared"
        )
    return yes or typer.confirm(question, err=True)


async def decided(
    store: StateStore,
    command: str,
    changes: Sequence[str],
    question: str,
    unchanged: str,
    *,
    yes: bool,
) -> int | None:
    """Tell of the changes and ask; the exit code if the command ends here, None to go on.

    Without a change there is nothing to do (``unchanged`` says why), unless a run of the command
    broke off, or one of any command behind its switch: then that has to be ended.
    """
    held_by = await store.held_by()
    if changes:
        for change in changes:
            said().print(change, markup=False)
    elif held_by == command:
        return None  # it only ends what an earlier run has asked for
    elif await store.switched():
        question = END
    else:
        said().print(f"nothing to do: {unchanged}")
        if held_by is not None:
            said().print(f"workers do not start, though: {OnHold(held_by)}")
        return 0
    return None if agreed(question, held_by, yes=yes) else 1


class Progress:
    """Says now and then how many conversations are done."""

    EVERY = 10_000

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say, self._what = say, what
        self.done = 0

    def __call__(self, more: int) -> None:
        before, self.done = self.done, self.done + more
        if self.done // self.EVERY > before // self.EVERY:
            self._say(f"{self.done:,} conversations {self._what}")
