"""The Kafka sink that a URL names, and what the sinks of all Kafka clients share: the reasons that
they give while Kafka takes no events."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from stream_metrics_client.records import Record, Report, SinkOpener, WriteResult, describe

SEARCH_TOPIC: Final = "search-iterations"
LABEL_TOPIC: Final = "relevance-labels"
CLIENT_ID: Final = "stream-metrics-client"
ATTEMPT_SECONDS: Final = 30
"""The timeout of one attempt to deliver a batch to Kafka."""

LOOK_SECONDS: Final = 2.0
"""After how long without an outcome a sink looks for the reason."""

ANSWER_SECONDS: Final = 1.0
"""For how long it then waits for brokers, and for connections."""

_ASK_AGAIN_SECONDS: Final = 5.0
"""For how long a topic is not asked for again, so that a missing one does not delay others."""

_DEFAULT_PORT: Final = 9092

_CLIENTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "confluent": ("confluent_kafka", "confluent_sink", "ConfluentSink"),
    "aiokafka": ("aiokafka", "python_sinks", "AiokafkaSink"),
    "kafka-python": ("kafka", "python_sinks", "KafkaPythonSink"),
}
"""For each client, what it is imported as, and the module and the class of its sink."""


@dataclass(frozen=True)
class KafkaTarget:
    """Brokers as `host:port`, the two topics, and options under the client's own names."""

    brokers: tuple[str, ...]
    searches: str
    labels: str
    options: Mapping[str, Any]

    def topic(self, record: Record) -> str:
        """The topic of a record."""
        return self.labels if record.is_label else self.searches


def make_kafka_opener(url: str, options: Mapping[str, Any]) -> SinkOpener:
    """A function that opens the sink of a `kafka://` URL.

    Raises:
        ValueError: The URL names no sink.
        ImportError: The Kafka client is not installed.
    """
    parts = urlsplit(url)
    brokers = tuple(one for one in parts.netloc.split(",") if one)
    topics = [unquote(one) for one in parts.path.strip("/").split(",") if one]
    query = parse_qs(parts.query)
    wanted = query.pop("client", [None])[-1]
    if "@" in parts.netloc:  # the message must not repeat a password
        raise ValueError("the sink's URL takes no user and password; set them in kafka_options")
    if not brokers or len(topics) > 2 or query or "/" in parts.path.strip("/"):
        raise ValueError(
            f"the sink {url!r} must be kafka://host:port[,host:port][/topic[,topic of labels]]"
            "[?client=confluent|aiokafka|kafka-python]"
        )
    if wanted is not None and wanted not in _CLIENTS:
        raise ValueError(f"the client {wanted!r} must be one of {', '.join(_CLIENTS)}")
    for name in _CLIENTS if wanted is None else (wanted,):
        library, module, sink = _CLIENTS[name]
        if importlib.util.find_spec(library) is not None:
            names = topics or [SEARCH_TOPIC, LABEL_TOPIC]
            target = KafkaTarget(brokers, names[0], names[-1], options)
            sinks = importlib.import_module(f"stream_metrics_client.{module}")
            return lambda report: getattr(sinks, sink)(target, report)
    extra = wanted or "confluent"
    raise ImportError(
        "no Kafka client is installed. In a clone of stream-metrics, run: "
        f"pip install './client[{extra}]'"
    )


class KafkaSink(ABC):
    """A sink that says within seconds why Kafka takes no events."""

    client: str
    """The name of the Kafka client."""

    loggers: tuple[str, ...] = ()
    """The loggers, with those below them, by which the client tells why a connection fails."""

    def __init__(self, target: KafkaTarget, report: Report) -> None:
        self._target, self._report = target, report
        self._refused: dict[str, tuple[str, float]] = {}
        self.heard: str | None = None
        """What the client said last of a connection; None since all events were accepted."""

    @abstractmethod
    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def known_brokers(self) -> Iterable[str]:
        """The brokers that the cluster has named, as `host:port`."""
        return ()

    # --- why Kafka takes no events ------------------------------------------------------------

    def trouble(self, problems: Collection[str] | None) -> str:
        """A sentence that says why Kafka does not take the events.

        Args:
            problems: What brokers say is wrong with topics; None if no broker has answered.
        """
        if problems:
            return "; ".join(problems)
        away = unreachable({*self._target.brokers, *self.known_brokers()})
        if away:
            return f"nothing answers at {', '.join(away)}"
        brokers = ", ".join(self._target.brokers)
        said = f"; it says: {self.heard}" if self.heard else ""
        if problems is None:
            return (
                f"{brokers} accepts connections, but {self.client} cannot use Kafka there; "
                f"check that Kafka responds, and the protocol and the login in kafka_options{said}"
            )
        return f"Kafka at {brokers} answers {self.client}, but has not accepted the events{said}"

    def topics(self, records: Iterable[Record]) -> set[str]:
        """The topics of records."""
        return {self._target.topic(record) for record in records}

    def refusal(self, topic: str) -> str | None:
        """What was wrong with a topic a moment ago; None if it has to be asked for."""
        reason, until = self._refused.get(topic, ("", 0.0))
        return reason if time.monotonic() < until else None

    def refuse(self, topic: str, reason: str) -> str:
        """Remember for a moment what is wrong with a topic."""
        self._refused[topic] = reason, time.monotonic() + _ASK_AGAIN_SECONDS
        return reason


def missing(topic: str) -> str:
    """The reason of a topic that does not exist."""
    return f"the topic {topic!r} does not exist; create it, or name another one in the sink's URL"


_TOPIC_ERRORS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"), missing),
    "UnknownTopicOrPartitionError": missing,
    **dict.fromkeys(
        ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"),
        lambda topic: f"no right to write to the topic {topic!r}; grant it to the agent's user",
    ),
    **dict.fromkeys(
        ("TOPIC_EXCEPTION", "InvalidTopicError"),
        lambda topic: f"the topic {topic!r} cannot exist; name another one in the sink's URL",
    ),
}
"""What an error means for a topic, by its name in librdkafka or its class in Python clients."""


def explain(name: str, topic: str, error: BaseException) -> str:
    """What an error with this name means for a topic."""
    if name in _TOPIC_ERRORS:
        return _TOPIC_ERRORS[name](topic)
    return describe(error)


def names_topic(error: BaseException) -> bool:
    """Whether an error of a Python client is about a topic, and so a broker's answer."""
    return type(error).__name__ in _TOPIC_ERRORS


def unreachable(brokers: Iterable[str]) -> list[str]:
    """The brokers that accept no connection, as `host:port (reason)`.

    Those that were not tried within `ANSWER_SECONDS` are left out.
    """
    found = []
    until = time.monotonic() + ANSWER_SECONDS
    for broker in sorted(brokers):
        left = until - time.monotonic()
        if left <= 0:
            break
        host, colon, port = broker.rpartition(":")
        if not colon or port.endswith("]"):  # an IPv6 address has colons of its own
            host, port = broker, str(_DEFAULT_PORT)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=left).close()
        except (OSError, OverflowError, ValueError) as error:
            found.append(f"{broker} ({getattr(error, 'strerror', None) or error})")
    return found


# --- what the clients log -----------------------------------------------------------------------

_sinks_by_thread: weakref.WeakValueDictionary[int | str, KafkaSink] = weakref.WeakValueDictionary()


def listen(sink: KafkaSink, module: str, threads: Iterable[int | str]) -> None:
    """Hear what a client's module logs in these threads, which are given by identity or name.

    It is not shown, because it would repeat the same errors many times a second.
    """
    for thread in threads:
        _sinks_by_thread[thread] = sink
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and f"{name}.".startswith(f"{module}."):
            logger.addFilter(_hear)


def stop_listening(sink: KafkaSink) -> None:
    """Show again what clients log in threads that used to be the sink's."""
    for thread, one in list(_sinks_by_thread.items()):
        if one is sink:
            del _sinks_by_thread[thread]


def _hear(record: logging.LogRecord) -> bool:
    """A filter of logs: whether to show a message. All are shown at the debug level."""
    threads = record.thread or 0, record.threadName or ""
    sink = _sinks_by_thread.get(threads[0]) or _sinks_by_thread.get(threads[1])
    if sink is None or record.levelno < logging.WARNING:
        return True
    if f"{record.name}.".startswith(tuple(f"{name}." for name in sink.loggers)):
        said = record.getMessage().rstrip(": ")
        if said.startswith("<"):  # kafka-python puts the connection's state first
            said = said.partition(">: ")[2] or said
        sink.heard = said
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
