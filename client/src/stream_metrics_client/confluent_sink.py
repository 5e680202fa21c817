"""The sink of confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from stream_metrics_client.kafka import (
    ANSWER_SECONDS,
    ATTEMPT_SECONDS,
    CLIENT_ID,
    LOOK_SECONDS,
    KafkaSink,
    KafkaTarget,
    explain,
)
from stream_metrics_client.records import Record, Report, WriteResult

_logger = logging.getLogger("stream_metrics_client.kafka")
_logger.setLevel(logging.CRITICAL)  # librdkafka logs repeatedly while no broker is reachable


class ConfluentSink(KafkaSink):
    """Writes to Kafka with confluent-kafka."""

    client = "confluent-kafka"

    def __init__(self, target: KafkaTarget, report: Report) -> None:
        from confluent_kafka import KafkaError, KafkaException, Producer

        super().__init__(target, report)
        self._exception = KafkaException
        self._known: list[str] = []
        self._permanent = {
            KafkaError.MSG_SIZE_TOO_LARGE,
            KafkaError.INVALID_MSG,
            KafkaError.RECORD_LIST_TOO_LARGE,
            KafkaError.INVALID_RECORD,
        }
        options = {
            "bootstrap.servers": ",".join(target.brokers),
            "client.id": CLIENT_ID,
            "acks": "all",
            "topic.metadata.propagation.max.ms": int(LOOK_SECONDS * 1000),
            "error_cb": self._hear,
            **target.options,
            "message.timeout.ms": ATTEMPT_SECONDS * 1000,
            "partitioner": "murmur2_random",
        }
        self._producer = Producer(options, logger=_logger)

    def _hear(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # another error has the reason
            self.heard = error.str().partition(" (after ")[0]

    def known_brokers(self) -> Iterable[str]:
        """The brokers that the cluster has named, as `host:port`."""
        return self._known

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records, and wait for all required acknowledgements."""
        written, done = WriteResult(), [False] * len(records)
        reason = ""

        def settle(index: int, error: Any) -> None:
            done[index] = True
            record = records[index]
            if error.code() in self._permanent:
                written.add_failed(explain(error.name(), "", self._exception(error)))
            elif error.name() == "_MSG_TIMED_OUT" and reason:
                written.add_retry(record, reason)
            else:
                said = explain(error.name(), self._target.topic(record), self._exception(error))
                written.add_retry(record, said)

        for index, record in enumerate(records):

            def delivered(error: Any, _: Any, index: int = index) -> None:
                done[index] = True
                if error is not None:
                    settle(index, error)

            topic = self._target.topic(record)
            try:
                self._producer.produce(topic, record.value, record.key, on_delivery=delivered)
            except BufferError as error:
                done[index] = True
                written.add_retry(record, explain("", topic, error))
            except self._exception as error:
                settle(index, error.args[0])
        until = time.monotonic() + ATTEMPT_SECONDS + 5
        while self._producer.flush(LOOK_SECONDS) and time.monotonic() < until:
            waiting = (one for index, one in enumerate(records) if not done[index])
            reason = self.trouble(self._problems(self.topics(waiting)))
            self._report(reason)
        for index, record in enumerate(records):
            if not done[index]:
                written.add_retry(record, reason)
        if not written.retry:
            self.heard = None
        return written

    def _problems(self, topics: Collection[str]) -> list[str] | None:
        """What the brokers say of the topics; None if they do not answer."""
        found = []
        for topic in topics:
            try:
                cluster = self._producer.list_topics(topic, ANSWER_SECONDS)
            except self._exception:
                return None
            self._known = [f"{broker.host}:{broker.port}" for broker in cluster.brokers.values()]
            error = cluster.topics[topic].error
            if error is not None:
                found.append(explain(error.name(), topic, self._exception(error)))
        return found

    def close(self) -> None:
        """There is nothing to release: no write is in progress."""
