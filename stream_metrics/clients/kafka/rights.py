"""Checks the access rights of the Kafka user, and explains why Kafka rejects it."""

from __future__ import annotations

import asyncio
import os
import socket
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

from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.groups import RETRY_SECONDS, TRANSIENT_ERRORS
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.producer import TRANSACTION_TIMEOUT_MS, transactional_prefix
from stream_metrics.clients.kafka.requests import GroupRights, TopicRights
from stream_metrics.clients.kafka.settings import KafkaSettings

ANSWER_WITHIN_SECONDS: Final = 10.0
DENIED: Final = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
TRANSACTIONS: Final = "transactional-id"
_NO_BOOTSTRAP: Final = "Unable to bootstrap from"  # aiokafka, if no broker answers
_OPERATION_BITS: Final = {"READ": 3, "WRITE": 4}
_NOT_CONNECTION_OPTIONS: Final = ("bootstrap_servers", "metadata_max_age_ms")


class Right(NamedTuple):
    """An operation on a ``topic``, ``group`` or ``transactional-id``; it implies DESCRIBE.

    A name that ends in ``*`` is a prefix.
    """

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


def worker_rights(settings: KafkaSettings) -> list[Right]:
    """The rights of a worker; ``docs/guides/security.md`` has the same list as commands."""
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
    """The rights of a bridge that reads with these settings and writes to the topics ``events``."""
    return [*worker_rights(traces), *(Right("WRITE", "topic", topic) for topic in events)]


def judge_rights(settings: KafkaSettings, budget_topic: str) -> list[Right]:
    """The rights of a judge that reads with these settings and writes labels."""
    return [
        *(Right("READ", "topic", topic) for topic in settings.state_topics),
        Right("WRITE", "topic", settings.topics[-1]),
        Right("READ", "topic", budget_topic),
        Right("WRITE", "topic", budget_topic),
        Right("READ", "group", settings.group_id),
    ]


def rights_error(settings: KafkaSettings, missing: Iterable[Right]) -> str:
    """The error message for missing rights: the user, the rights, and what to do."""
    user = settings.sasl_username
    named = f"user {user!r}" if user and settings.security_protocol[:4] == "SASL" else "this client"
    rights = ", ".join(map(str, missing))
    return f"Kafka denies {named}: {rights}. Grant it (docs/guides/security.md has the commands)"


async def missing_rights(settings: KafkaSettings, rights: Sequence[Right]) -> list[Right]:
    """Those of ``rights`` that the user lacks; none with brokers before 2.3, which cannot tell.

    No right is reported for a topic that does not exist, if the user may see that. Raises
    aiokafka's errors while the brokers do not answer; the caller sets a timeout.
    """
    client = AIOKafkaClient(**client_options(settings))
    try:
        await client.bootstrap()
        topics = {right.name for right in rights if right.kind == "topic"}
        allowed = await _topic_operations(client, topics)
        for group in {right.name for right in rights if right.kind == "group"}:
            allowed["group", group] = await _group_operations(client, group)
        for name in {right.name for right in rights if right.kind == TRANSACTIONS}:
            allowed[TRANSACTIONS, name] = await _transaction_operations(client, name)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return []
    finally:
        await client.close()
    return [
        right for right in rights if not _is_allowed(allowed.get(right[1:], -1), right.operation)
    ]


def _is_allowed(bits: int, operation: str) -> bool:
    return bool(bits & 1 << _OPERATION_BITS[operation])


async def _topic_operations(
    client: AIOKafkaClient, names: Collection[str]
) -> dict[tuple[str, str], int]:
    """Allowed operations as bits, by resource; topics that do not exist are left out."""
    answer = await client.send(client.get_random_node(), TopicRights(sorted(names)))
    allowed = {}
    for code, name, *_, bits in answer.topics:
        error = for_code(code)
        if error is TopicAuthorizationFailedError:
            allowed["topic", name] = 0
        elif error is NoError:
            allowed["topic", name] = bits
    return allowed


async def _group_operations(client: AIOKafkaClient, name: str) -> int:
    while True:
        try:
            node = await client.coordinator_lookup(CoordinationType.GROUP, name)
            answer = await client.send(node, GroupRights([name]))
            [(code, *_, bits)] = answer.groups
            if for_code(code) is not NoError:
                raise for_code(code)(name)
        except GroupAuthorizationFailedError:
            return 0
        except TRANSIENT_ERRORS:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return int(bits)


async def _transaction_operations(client: AIOKafkaClient, name: str) -> int:
    """Allowed operations as bits.

    Kafka has no request for these, so this initializes a producer with an id that no worker uses.
    """
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
        except (*TRANSIENT_ERRORS, ConcurrentTransactions):  # another worker may be starting too
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return -1


async def describe_missing_rights(settings: KafkaSettings, rights: Sequence[Right] = ()) -> str:
    """A message that names the rights that the user lacks; empty if there are none.

    ``rights`` defaults to those of a worker. Raises aiokafka's errors and ``TimeoutError`` while
    the brokers do not answer.
    """
    async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
        missing = await missing_rights(settings, rights or worker_rights(settings))
    return rights_error(settings, missing) if missing else ""


async def check_rights(settings: KafkaSettings, rights: Sequence[Right] = ()) -> None:
    """Raise ``KafkaRefused`` if the user lacks one of ``rights``, by default those of a worker."""
    if why := await describe_missing_rights(settings, rights):
        raise KafkaRefused(why)


async def explain(settings: KafkaSettings, error: Exception) -> str:
    """The cause of a client error, which by itself may only say that no broker can be reached.

    Raises ``KafkaRefused`` if the brokers reject the user or the SASL mechanism.
    """
    if isinstance(error, KafkaConnectionError):
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                error = await _connection_error(settings) or error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the brokers' certificate is not trusted ({error.verify_message})"
    if isinstance(error, (KafkaConnectionError, ConnectionError, TimeoutError, socket.gaierror)):
        return f"{error_text(error)}. Check `kafka.bootstrap_servers`, and whether the brokers run"
    return error_text(error)


def error_text(error: Exception) -> str:
    """What the system or the client says of an error, on one line and without a full stop."""
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer"
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)  # asyncio puts the address in its place
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    name = type(error).__name__
    said = error.strerror if isinstance(error, OSError) else None
    text = " ".join(str(said or error).split()).removeprefix(name).lstrip(": ")
    if text.startswith(_NO_BOOTSTRAP):
        return "no answer"
    return f"{name}: {text}".rstrip(": .")


async def _connection_error(settings: KafkaSettings) -> Exception | None:
    """Try to connect to each broker; the first error, or None if one accepts the connection."""
    found: Exception | None = None
    options = client_options(settings)
    shared = {name: options[name] for name in options if name not in _NOT_CONNECTION_OPTIONS}
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
