"""Checks that consumer groups have no members, for commands that need all workers stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka.errors import KafkaError

from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.groups import members

ANSWER_WITHIN_SECONDS: Final = 15
LISTED: Final = 5


async def describe_group_members(settings: Settings, groups: Sequence[str]) -> str:
    """A message about the first group that has members or cannot be described; empty if none."""
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
