"""What a Kafka user may do, and why Kafka turns one away."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    ConcurrentTransactions,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NoError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.protocol.transaction import InitProducerIdRequest

from stream_metrics.adapters.kafka.errors import KafkaRefused
from stream_metrics.adapters.kafka.groups import AGAIN_SECONDS, PASSING
from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.adapters.kafka.produce import TRANSACTION_TIMEOUT_MS, transactional_prefix
from stream_metrics.adapters.kafka.requests import GroupRights, TopicRights
from stream_metrics.settings.kafka import KafkaSettings

ANSWER_WITHIN_SECONDS: Final = 10.0
DENIED: Final = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
TRANSACTIONS: Final = "transactional-id"
_BITS: Final = {"READ": 3, "WRITE": 4}
_NOT_OF_A_CONNECTION: Final = ("bootstrap_servers", "metadata_max_age_ms")


class Right(NamedTuple):
    """An operation on a ``topic``, ``group`` or ``transactional-id`` of that name; it includes
    DESCRIBE. A name that ends in ``*`` stands for all that begin with what is before."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


def worker_rights(settings: KafkaSettings) -> list[Right]:
    """All that a worker needs; ``docs/guides/security.md`` has the same list as commands."""
    letters = [topic + settings.dead_letter_suffix for topic in settings.topics]
    rights = [
        *(Right("READ", "topic", topic) for topic in settings.topics),
        *(Right("WRITE", "topic", topic) for topic in letters),
        Right("READ", "group", settings.group_id),
    ]
    if settings.output_topic is not None:
        rights.append(Right("WRITE", "topic", settings.output_topic))
        rights.append(Right("WRITE", TRANSACTIONS, transactional_prefix(settings.group_id) + "*"))
    if settings.repartition_topic is not None:
        rights.append(Right("READ", "topic", settings.repartition_topic))
        rights.append(Right("WRITE", "topic", settings.repartition_topic))
        rights.append(Right("READ", "group", settings.repartition_group))
    return rights


def bridge_rights(traces: KafkaSettings, events: Sequence[str]) -> list[Right]:
    """All that a bridge needs that reads by these settings and writes to the topics ``events``."""
    return [*worker_rights(traces), *(Right("WRITE", "topic", topic) for topic in events)]


def refusal(settings: KafkaSettings, missing: Iterable[Right]) -> str:
    """The sentence that names user, rights and resources."""
    user = settings.sasl_username
    named = f"user {user!r}" if user and settings.security_protocol[:4] == "SASL" else "this client"
    rights = ", ".join(map(str, missing))
    return f"Kafka denies {named}: {rights}. Grant it (docs/guides/security.md has the commands)"


async def missing_rights(settings: KafkaSettings, rights: Sequence[Right]) -> list[Right]:
    """Those of ``rights`` that the user lacks; none where the brokers cannot tell (before 2.3).

    A topic that does not exist lacks nothing, if the user may see that it does not. Raises
    aiokafka's errors while the brokers do not answer; how long to wait is the caller's to say.
    """
    client = AIOKafkaClient(**client_options(settings))
    try:
        await client.bootstrap()
        topics = {right.name for right in rights if right.kind == "topic"}
        allowed = await _topics(client, topics)
        for group in {right.name for right in rights if right.kind == "group"}:
            allowed["group", group] = await _group(client, group)
        for name in {right.name for right in rights if right.kind == TRANSACTIONS}:
            allowed[TRANSACTIONS, name] = await _transactions(client, name)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return []
    finally:
        await client.close()
    return [right for right in rights if not _has(allowed.get(right[1:], -1), right.operation)]


def _has(bits: int, operation: str) -> bool:
    return bool(bits & 1 << _BITS[operation])


async def _topics(client: AIOKafkaClient, names: Collection[str]) -> dict[tuple[str, str], int]:
    """Operations as bits, by resource; topics that do not exist are left out."""
    answer = await client.send(client.get_random_node(), TopicRights(sorted(names)))
    allowed = {}
    for code, name, *_, bits in answer.topics:
        error = for_code(code)
        if error is TopicAuthorizationFailedError:
            allowed["topic", name] = 0
        elif error is NoError:
            allowed["topic", name] = bits
    return allowed


async def _group(client: AIOKafkaClient, name: str) -> int:
    while True:
        try:
            node = await client.coordinator_lookup(CoordinationType.GROUP, name)
            answer = await client.send(node, GroupRights([name]))
            [(code, *_, bits)] = answer.groups
            if for_code(code) is not NoError:
                raise for_code(code)(name)
        except GroupAuthorizationFailedError:
            return 0
        except PASSING:
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return int(bits)


async def _transactions(client: AIOKafkaClient, name: str) -> int:
    """Kafka does not tell of these; so a producer begins, under a name that no worker uses."""
    example = name.replace("*", "check")
    while True:
        try:
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, example)
            request = InitProducerIdRequest(example, TRANSACTION_TIMEOUT_MS)
            answer = await client.send(node, request)
            if for_code(answer.error_code) is not NoError:
                raise for_code(answer.error_code)(example)
        except TransactionalIdAuthorizationFailed:
            return 0
        except (*PASSING, ConcurrentTransactions):  # the latter if workers start together
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return -1


async def lacking(settings: KafkaSettings, rights: Sequence[Right] = ()) -> str:
    """Which of the rights, or else of those of a worker, the user lacks, as a sentence.

    It is empty if none. Raises aiokafka's errors and ``TimeoutError`` while the brokers do not
    answer.
    """
    async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
        missing = await missing_rights(settings, rights or worker_rights(settings))
    return refusal(settings, missing) if missing else ""


async def check_rights(settings: KafkaSettings, rights: Sequence[Right] = ()) -> None:
    """Raise ``KafkaRefused`` unless the user has the rights, or else all that a worker needs."""
    if why := await lacking(settings, rights):
        raise KafkaRefused(why)


async def explain(settings: KafkaSettings, error: Exception) -> str:
    """What is behind an error of the client, whose own says only that no broker can be reached.

    Raises ``KafkaRefused`` for a user that the brokers do not know.
    """
    if isinstance(error, KafkaConnectionError):
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                error = await _why_not(settings) or error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the brokers' certificate is not trusted ({error.verify_message})"
    said = error.strerror if isinstance(error, OSError) else None
    return " ".join(f"{type(error).__name__}: {said or error}".split()).removesuffix(":")


async def _why_not(settings: KafkaSettings) -> Exception | None:
    """Why no broker lets us connect; None if one does."""
    found: Exception | None = None
    options = client_options(settings)
    shared = {name: options[name] for name in options if name not in _NOT_OF_A_CONNECTION}
    for host, port, _ in collect_hosts(options["bootstrap_servers"]):
        try:
            connection = await create_conn(host, port, **shared)
        except SaslAuthenticationFailed as error:
            raise KafkaRefused(
                f"Kafka rejects user {settings.sasl_username!r}: the user is unknown, or the "
                "password is wrong. Check `kafka.sasl_username` and its password"
            ) from error
        except UnsupportedSaslMechanismError as error:
            raise KafkaRefused(
                f"Kafka does not accept {settings.sasl_mechanism}; check `kafka.sasl_mechanism`"
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            found = found or error
        else:
            connection.close()
            return None
    return found
