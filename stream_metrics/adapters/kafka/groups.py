"""What Kafka says of consumer groups."""

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

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.settings.kafka import KafkaSettings

PASSING: Final = (  # a cluster that never had a group, or is moving it
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
AGAIN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group: the name that it gave itself, and from where it came."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.lstrip('/')}"


async def members(settings: KafkaSettings, group: str) -> list[Member]:
    """The consumers that the group has now; none for one that is not known.

    Raises aiokafka's errors while the brokers do not answer, or if they may not tell. How long to
    wait for a coordinator is the caller's to say.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        while True:
            try:
                return await _members(admin, group)
            except PASSING:
                await asyncio.sleep(AGAIN_SECONDS)
    finally:
        await admin.close()


async def _members(admin: AIOKafkaAdminClient, group: str) -> list[Member]:
    # one group a call: the client reads the first of an answer only
    answers = await admin.describe_consumer_groups([group])
    there: list[Member] = []
    for error_code, _, _, _, _, found, *_ in (each for a in answers for each in a.groups):
        error = for_code(error_code)
        if error is not NoError:
            raise error(group)
        there += (Member(client_id, host) for _, client_id, host, *_ in found)
    return there
