"""Sinks for events: a function, a file, or Kafka through an installed client.

Only one thread uses a sink. `write` may block, and returns the records to retry.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from stream_metrics_client.murmur2 import partition

SEARCH_TOPIC: Final = "search-iterations"
LABEL_TOPIC: Final = "relevance-labels"
ATTEMPT_SECONDS: Final = 30
"""The timeout of one attempt to deliver a batch to Kafka."""

_MAX_ERROR_LENGTH: Final = 500

_logger = logging.getLogger("stream_metrics_client.kafka")
_logger.setLevel(logging.CRITICAL)  # clients log repeatedly while no broker is reachable


class Record(NamedTuple):
    """An event in JSON with its key, the conversation id."""

    key: bytes
    value: bytes
    is_label: bool


@dataclass
class WriteResult:
    """The result of a batch: the records to retry, the number that failed permanently, and the
    error."""

    retry: list[Record] = field(default_factory=list)
    failed: int = 0
    error: str | None = None

    def add(self, record: Record, error: BaseException, *, permanent: bool) -> None:
        """Add a record that was not delivered."""
        self.error = describe(error)
        if permanent:
            self.failed += 1
        else:
            self.retry.append(record)


class Sink(Protocol):
    """Delivers records."""

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records in order; returns when the outcome of each is known."""

    def close(self) -> None:
        """Release the sink's resources."""


SinkOpener = Callable[[], Sink]
Target = str | os.PathLike[str] | Callable[[dict[str, Any]], object]


def make_opener(target: Target, kafka_options: Mapping[str, Any] | None = None) -> SinkOpener:
    """A function that opens the sink of `target`, to be called in the thread that uses it.

    Raises:
        ValueError: The URL names no sink.
        FileNotFoundError: The folder of the file does not exist.
        IsADirectoryError: The path is that of a folder.
        ImportError: The Kafka client is not installed.
    """
    if callable(target):
        return lambda: CallableSink(target)
    text = os.fspath(target)
    scheme = text.partition("://")[0] if "://" in text else "file"
    if scheme == "kafka":
        return _kafka_opener(text, kafka_options or {})
    if scheme != "file":
        raise ValueError(
            f"the sink {text!r} must be kafka://host:port, file:///path, a path or a function"
        )
    path = _file_path(text)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it first")
    return lambda: FileSink(path)


def _file_path(text: str) -> Path:
    if "://" not in text:
        return Path(text)
    host, slash, path = text.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ValueError(f"the sink {text!r} must be file:///path, with three slashes, or a path")
    return Path("/" + unquote(path))


class CallableSink:
    """Calls a function with each event as a dict. If it raises, the event has failed."""

    def __init__(self, function: Callable[[dict[str, Any]], object]) -> None:
        self._function = function

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Call the function for each record."""
        written = WriteResult()
        for record in records:
            try:
                self._function(json.loads(record.value))
            except BaseException as error:  # SystemExit would end the sending thread
                written.add(record, error, permanent=True)
        return written

    def close(self) -> None:
        """There is nothing to release."""


class FileSink:
    """Appends each event as a line of JSON. Several processes may append to one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._torn = False

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Append the records, after ending a line that an earlier error cut off."""
        lines = b"".join(record.value + b"\n" for record in records)
        left = memoryview(b"\n" + lines if self._torn else lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
                self._torn = bool(left)
        except OSError as error:
            missing = bytes(left).count(b"\n") - (len(left) > len(lines))
            return WriteResult(failed=missing, error=describe(error))
        return WriteResult()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


# --- Kafka ------------------------------------------------------------------------------------


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


def _kafka_opener(url: str, options: Mapping[str, Any]) -> SinkOpener:
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
        module, sink = _CLIENTS[name]
        if importlib.util.find_spec(module) is not None:
            names = topics or [SEARCH_TOPIC, LABEL_TOPIC]
            target = KafkaTarget(brokers, names[0], names[-1], options)
            return lambda: sink(target)
    extra = wanted or "confluent"
    raise ImportError(f"no Kafka client is installed: pip install 'stream-metrics-client[{extra}]'")


class ConfluentSink:
    """Writes to Kafka with confluent-kafka."""

    def __init__(self, target: KafkaTarget) -> None:
        from confluent_kafka import KafkaError, KafkaException, Producer

        self._target, self._exception = target, KafkaException
        self._permanent = {
            KafkaError.MSG_SIZE_TOO_LARGE,
            KafkaError.INVALID_MSG,
            KafkaError.RECORD_LIST_TOO_LARGE,
            KafkaError.INVALID_RECORD,
        }
        options = {
            "bootstrap.servers": ",".join(target.brokers),
            "client.id": "stream-metrics-client",
            "acks": "all",
            **target.options,
            "message.timeout.ms": ATTEMPT_SECONDS * 1000,
            "partitioner": "murmur2_random",
        }
        self._producer = Producer(options, logger=_logger)

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        written, done = WriteResult(), [False] * len(records)
        for index, record in enumerate(records):

            def delivered(error: Any, _: Any, index: int = index, record: Record = record) -> None:
                done[index] = True
                if error is not None:
                    problem = self._exception(error)
                    written.add(record, problem, permanent=error.code() in self._permanent)

            topic = self._target.topic(record)
            try:
                self._producer.produce(topic, record.value, record.key, on_delivery=delivered)
            except BufferError as error:
                done[index] = True
                written.add(record, error, permanent=False)
            except self._exception as error:
                done[index] = True
                permanent = error.args[0].code() in self._permanent
                written.add(record, error, permanent=permanent)
        self._producer.flush(ATTEMPT_SECONDS + 5)
        for index, record in enumerate(records):
            if not done[index]:
                written.add(record, TimeoutError("no answer from Kafka"), permanent=False)
        return written

    def close(self) -> None:
        """There is nothing to release: no write is in progress."""


def _partition_of(key: bytes, partitions: Sequence[int], _: Sequence[int]) -> int:
    """The partition of a key, for the Python clients."""
    return sorted(partitions)[partition(key, len(partitions))]


_TOO_LARGE: Final = frozenset(
    {
        "MessageSizeTooLargeError",
        "RecordListTooLargeError",
        "RecordTooLargeError",
        "InvalidRecordError",
    }
)


class _InlineExecutor(ThreadPoolExecutor):
    """Resolves host names in the event loop's thread, since an ending process cannot start
    threads."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call the function immediately."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class AiokafkaSink:
    """Writes to Kafka with aiokafka, on an event loop in the sending thread."""

    def __init__(self, target: KafkaTarget) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_InlineExecutor())
        self._producer: Any = None

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        return self._loop.run_until_complete(self._write(records))

    async def _write(self, records: Sequence[Record]) -> WriteResult:
        if self._producer is None:
            self._producer = await self._start_producer()
        sent = [self._send(record) for record in records]
        return await _gather(records, sent)

    async def _start_producer(self) -> Any:
        from aiokafka import AIOKafkaProducer

        options = {"client_id": "stream-metrics-client", "acks": "all", **self._target.options}
        producer = AIOKafkaProducer(
            bootstrap_servers=list(self._target.brokers), **options, partitioner=_partition_of
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def _send(self, record: Record) -> None:
        topic = self._target.topic(record)
        async with asyncio.timeout(ATTEMPT_SECONDS):
            await (await self._producer.send(topic, record.value, record.key))

    def close(self) -> None:
        """Stop the producer and its loop."""
        try:
            if self._producer is not None:
                self._loop.run_until_complete(self._producer.stop())
        finally:
            self._loop.close()


async def _gather(records: Sequence[Record], sent: Sequence[Awaitable[None]]) -> WriteResult:
    written = WriteResult()
    for record, error in zip(
        records, await asyncio.gather(*sent, return_exceptions=True), strict=True
    ):
        if error is not None:
            written.add(record, error, permanent=type(error).__name__ in _TOO_LARGE)
    return written


class KafkaPythonSink:
    """Writes to Kafka with kafka-python."""

    def __init__(self, target: KafkaTarget) -> None:
        from kafka import KafkaProducer

        self._target = target
        options = {"client_id": "stream-metrics-client", "acks": "all", **target.options}
        self._producer = KafkaProducer(
            bootstrap_servers=list(target.brokers),
            **{"max_block_ms": ATTEMPT_SECONDS * 1000, **options},
        )

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        written, sent, until = WriteResult(), [], time.monotonic() + ATTEMPT_SECONDS
        known: dict[str, list[int] | Exception] = {}
        for record in records:
            topic = self._target.topic(record)
            try:
                partitions = self._partitions(topic, known)
                place = _partition_of(record.key, partitions, partitions)
                future = self._producer.send(topic, record.value, record.key, partition=place)
            except Exception as error:
                written.add(record, error, permanent=type(error).__name__ in _TOO_LARGE)
            else:
                sent.append((record, future))
        for record, future in sent:
            try:
                future.get(max(0.0, until - time.monotonic()))
            except Exception as error:
                written.add(record, error, permanent=type(error).__name__ in _TOO_LARGE)
        return written

    def _partitions(self, topic: str, known: dict[str, list[int] | Exception]) -> list[int]:
        """The partitions of a topic; a missing topic is awaited once per batch."""
        if topic not in known:
            try:
                known[topic] = sorted(self._producer.partitions_for(topic))
            except Exception as error:
                known[topic] = error
        found = known[topic]
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """Close the connections."""
        self._producer.close(0)


_CLIENTS: Final[Mapping[str, tuple[str, Callable[[KafkaTarget], Sink]]]] = {
    "confluent": ("confluent_kafka", ConfluentSink),
    "aiokafka": ("aiokafka", AiokafkaSink),
    "kafka-python": ("kafka", KafkaPythonSink),
}


def describe(error: BaseException) -> str:
    """The type of an error, and the beginning of its message if it has one."""
    name = type(error).__name__
    try:
        said = str(error)[:_MAX_ERROR_LENGTH]
        return said if said.startswith(name) else f"{name}: {said}" if said else name
    except Exception:
        return name
