"""Opens the store for a command, and converts its errors into messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from stream_metrics.cli.client_options import redis_options
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.live.ports import StoreRefused, StoreUnavailable
from stream_metrics.live.redis.connect import connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.identity import OtherIdentity


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[RedisStore]:
    """The store of the settings, which is closed at the end."""
    store = connect(redis_options(settings))
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def redis_errors(settings: Settings, advice: str = "") -> Iterator[None]:
    """Convert the store's errors, which ``advice`` follows, and other settings' state into
    ``UsageError``."""
    try:
        yield
    except (StoreUnavailable, StoreRefused) as error:
        raise UsageError(f"redis {mask_url(settings.redis.url)}: {error}{advice}") from error
    except OtherIdentity as error:
        raise UsageError(str(error)) from error
