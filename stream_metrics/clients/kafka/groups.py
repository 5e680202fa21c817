"""The members of consumer groups."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,
    NotCoordinatorForGroupError,
    for_code,
)

from stream_metrics.clients.kafka.options import open_admin
from stream_metrics.clients.kafka.settings import KafkaSettings

TRANSIENT_ERRORS: Final = (  # of a cluster that has had no group yet, or is moving its coordinator
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
RETRY_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group: its client id and the host it connects from."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.lstrip('/')}"


async def members(settings: KafkaSettings, group: str) -> list[Member]:
    """The current members of a group; empty if the group does not exist.

    Raises aiokafka's errors while the brokers do not answer, or if the user may not describe the
    group. Waits for a coordinator without a timeout: the caller sets one.
    """
    async with open_admin(settings) as admin:
        while True:
            try:
                return await _members(admin, group)
            except TRANSIENT_ERRORS:
                await asyncio.sleep(RETRY_SECONDS)


async def _members(admin: AIOKafkaAdminClient, group: str) -> list[Member]:
    # One group per call: the client reads only the first of an answer.
    answers = await admin.describe_consumer_groups([group])
    found_members: list[Member] = []
    for error_code, _, _, _, _, found, *_ in (each for a in answers for each in a.groups):
        error = for_code(error_code)
        if error is not NoError:
            raise error(group)
        found_members += (Member(client_id, host) for _, client_id, host, *_ in found)
    return found_members
