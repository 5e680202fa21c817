"""The sinks of aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from stream_metrics_client.kafka import (
    ANSWER_SECONDS,
    ATTEMPT_SECONDS,
    CLIENT_ID,
    LOOK_SECONDS,
    KafkaSink,
    KafkaTarget,
    explain,
    listen,
    missing,
    names_topic,
    stop_listening,
    unreachable,
)
from stream_metrics_client.records import Record, Report, WriteResult

_Answer = TypeVar("_Answer")


_TOO_LARGE: Final = frozenset(
    {
        "MessageSizeTooLargeError",
        "RecordListTooLargeError",
        "RecordTooLargeError",
        "InvalidRecordError",
    }
)
_TIMED_OUT: Final = frozenset({"TimeoutError", "KafkaTimeoutError", "RequestTimedOutError"})


class _PythonSink(KafkaSink):
    """What the Python clients share."""

    def _settle(
        self, written: WriteResult, record: Record, error: BaseException, reason: str | None
    ) -> None:
        """Add a record that an error kept from being delivered, and for a timeout its reason."""
        name = type(error).__name__
        said = explain(name, self._target.topic(record), error)
        if name in _TOO_LARGE:
            written.add_failed(said)
        else:
            written.add_retry(record, reason if reason and name in _TIMED_OUT else said)

    def _problems_in(self, metadata: Any, topics: Iterable[str]) -> list[str]:
        """What a client's current metadata say of the topics."""
        found = []
        for topic in topics:
            if topic in metadata.unauthorized_topics:
                found.append(explain("TopicAuthorizationFailedError", topic, PermissionError()))
            elif metadata.partitions_for_topic(topic) is None:
                found.append(missing(topic))
        return found


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


class AiokafkaSink(_PythonSink):
    """Writes to Kafka with aiokafka, on an event loop in the sending thread."""

    client = "aiokafka"
    loggers = ("aiokafka",)

    def __init__(self, target: KafkaTarget, report: Report) -> None:
        super().__init__(target, report)
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_InlineExecutor())
        self._producer: Any = None
        self._reason: str | None = None

    def known_brokers(self) -> Iterable[str]:
        """The brokers that the cluster has named, as `host:port`."""
        known = () if self._producer is None else self._producer.client.cluster.brokers()
        return [f"{broker.host}:{broker.port}" for broker in known]

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        return self._loop.run_until_complete(self._write(records))

    async def _write(self, records: Sequence[Record]) -> WriteResult:
        written = WriteResult()
        self._reason = None
        if self._producer is None:
            try:
                self._producer = await self._telling(self._start_producer(), set())
            except (ConnectionError, TimeoutError):
                return WriteResult(list(records), self.trouble(None))
        refused = {topic: await self._refusal(topic) for topic in self.topics(records)}
        sent = []
        for record in records:
            reason = refused[self._target.topic(record)]
            if reason is None:
                sent.append(record)
            else:
                written.add_retry(record, reason)
        waits = (self._send(record) for record in sent)
        outcomes = await self._telling(
            asyncio.gather(*waits, return_exceptions=True), self.topics(sent)
        )
        for record, error in zip(sent, outcomes, strict=True):
            if error is not None:
                self._settle(written, record, error, self._reason)
        if not written.retry:
            self.heard = None
        return written

    async def _start_producer(self) -> Any:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaConnectionError
        from aiokafka.partitioner import DefaultPartitioner

        listen(self, "aiokafka", [threading.get_ident()])
        options = {"client_id": CLIENT_ID, "acks": "all", **self._target.options}
        options["partitioner"] = DefaultPartitioner()  # murmur2
        producer = AIOKafkaProducer(bootstrap_servers=list(self._target.brokers), **options)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await producer.start()
        except BaseException as error:
            await producer.stop()
            if isinstance(error, KafkaConnectionError):  # it names no reason
                raise ConnectionError from error
            raise
        return producer

    async def _send(self, record: Record) -> None:
        topic = self._target.topic(record)
        async with asyncio.timeout(ATTEMPT_SECONDS):
            await (await self._producer.send(topic, record.value, record.key))

    async def _telling(self, work: Awaitable[_Answer], topics: Collection[str]) -> _Answer:
        """Wait for work, and say again and again what keeps it waiting."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            self._reason = self.trouble(await self._problems(topics))
            self._report(self._reason)
        return task.result()

    async def _refusal(self, topic: str) -> str | None:
        """Why a topic takes no events; None if it does, or if that is not known."""
        known = self.refusal(topic)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._producer.partitions_for(topic)
        except TimeoutError:
            return self.refuse(topic, self.trouble(await self._problems([topic])))
        except Exception as error:
            return self.refuse(topic, explain(type(error).__name__, topic, error))
        return None

    async def _problems(self, topics: Collection[str]) -> list[str] | None:
        """What the brokers say of the topics; None if they do not answer."""
        if self._producer is None:
            return None
        client = self._producer.client
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if not await client.force_metadata_update():
                    return None
        except TimeoutError:
            return None
        return self._problems_in(client.cluster, topics)

    def close(self) -> None:
        """Stop the producer and its loop."""
        stop_listening(self)
        try:
            if self._producer is not None:
                self._loop.run_until_complete(self._producer.stop())
        finally:
            self._loop.close()


class KafkaPythonSink(_PythonSink):
    """Writes to Kafka with kafka-python."""

    client = "kafka-python"
    loggers = ("kafka.net.connection", "kafka.conn")
    _number = itertools.count(1)

    def __init__(self, target: KafkaTarget, report: Report) -> None:
        super().__init__(target, report)
        number = next(self._number)  # the names of the client's threads tell sinks apart
        self._options: dict[str, Any] = {
            "client_id": CLIENT_ID if number == 1 else f"{CLIENT_ID}-{number}",
            "acks": "all",
            "max_block_ms": int(LOOK_SECONDS * 1000),
            "enable_idempotence": False,  # such a producer never recovers from a missing right
            **target.options,
        }
        self._producer: Any = None
        self._bootstrap_seconds = LOOK_SECONDS

    def known_brokers(self) -> Iterable[str]:
        """The brokers that the cluster has named, as `host:port`."""
        known = () if self._producer is None else self._metadata.brokers()
        return [f"{broker.host}:{broker.port}" for broker in known]

    @property
    def _metadata(self) -> Any:
        """What the client knows of the cluster. It is private, but nothing public tells a topic
        that does not exist from a broker that does not answer."""
        return self._producer._metadata  # noqa: SLF001

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        if self._producer is None:
            try:
                self._producer = self._connect()
            except ConnectionError:
                return WriteResult(list(records), self.trouble(None))
        written, sent, until = WriteResult(), [], time.monotonic() + ATTEMPT_SECONDS
        refused = {topic: self._refusal(topic) for topic in self.topics(records)}
        for record in records:
            topic = self._target.topic(record)
            reason = refused[topic]
            if reason is not None:
                written.add_retry(record, reason)
                continue
            try:
                future = self._producer.send(topic, record.value, record.key)
            except Exception as error:
                self._settle(written, record, error, None)
            else:
                sent.append((record, future))
        topics, reason = self.topics(record for record, _ in sent), None
        for record, future in sent:
            while True:
                left = until - time.monotonic()
                try:
                    future.get(max(0.0, min(LOOK_SECONDS, left)))
                except Exception as error:
                    if left > 0 and not future.is_done:
                        reason = self.trouble(self._problems(topics))
                        self._report(reason)
                        continue
                    self._settle(written, record, error, reason)
                break
        if not written.retry:
            self.heard = None
        return written

    def _connect(self) -> Any:
        from kafka import KafkaProducer
        from kafka.partitioner import DefaultPartitioner

        name = self._options["client_id"]
        listen(self, "kafka", [threading.get_ident(), f"kafka-io-{name}", f"{name}-network-thread"])
        proxied = self._options.get("proxy_url") or self._options.get("socks5_proxy")
        if not proxied and len(unreachable(self._target.brokers)) == len(self._target.brokers):
            raise ConnectionError  # the client itself would try for as long as it may
        options = {**self._options, "partitioner": DefaultPartitioner()}  # murmur2
        if "bootstrap_timeout_ms" in KafkaProducer.DEFAULT_CONFIG:
            options.setdefault("bootstrap_timeout_ms", int(self._bootstrap_seconds * 1000))
            self._bootstrap_seconds = ATTEMPT_SECONDS
        try:
            return KafkaProducer(bootstrap_servers=list(self._target.brokers), **options)
        except Exception as error:
            if type(error).__name__ in {*_TIMED_OUT, "NoBrokersAvailable"}:
                raise ConnectionError from error
            raise

    def _refusal(self, topic: str) -> str | None:
        """Why a topic takes no events; None if it does."""
        known = self.refusal(topic)
        if known is not None:
            return known
        try:
            self._producer.partitions_for(topic)
        except Exception as error:
            name = type(error).__name__
            if name in _TIMED_OUT:
                return self.refuse(topic, self.trouble(self._problems([topic])))
            return self.refuse(topic, explain(name, topic, error))
        return None

    def _problems(self, topics: Collection[str]) -> list[str] | None:
        """What the brokers say of the topics; None if they do not answer."""
        ended = threading.Event()
        update = self._metadata.request_update()
        update.add_both(lambda _: ended.set())
        ended.wait(ANSWER_SECONDS)
        if update.succeeded() or (update.failed() and names_topic(update.exception)):
            return self._problems_in(self._metadata, topics)
        return None

    def close(self) -> None:
        """Close the connections."""
        stop_listening(self)
        if self._producer is not None:
            self._producer.close(0)
