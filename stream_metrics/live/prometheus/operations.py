"""The operational metrics of a worker: what it reads, decides and writes, and how long that takes.

All counters start at 0 with the process. Label sets are closed, and their series exist from the
start, so that rates are defined before the first event; only topics and partitions appear later.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    Info,
)

from stream_metrics import __version__
from stream_metrics.core.alerts.obstacles import WORKER
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.dedup.verify import VERDICTS
from stream_metrics.core.engine.changes import OUTCOMES, Observations
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.decode import REASONS
from stream_metrics.core.events.wire import PAYLOADS
from stream_metrics.live.ports import OutputMessage
from stream_metrics.live.prometheus.catalogue import (
    BATCH_BOUNDS,
    CONVERSATION_SOURCES,
    COUNTS,
    DELAY_BOUNDS,
    ENTITY_TYPES,
    KEY_KINDS,
    LATENCY_BOUNDS,
    MAX_UNKNOWN_FIELDS,
    PREFIX,
    STAGE_BOUNDS,
    STAGES,
)
from stream_metrics.live.prometheus.evidence import EvidenceGauges
from stream_metrics.live.prometheus.histogram import FastHistogram
from stream_metrics.live.prometheus.service_metrics import (
    ENDS_TOLD,
    UNKNOWN,
    Reading,
    ServiceMetrics,
)
from stream_metrics.live.runaways import STILL_MS, RunawayTurn, RunawayTurns

WINDOWS: Final = tuple(window.name for window in DEFAULT_WINDOWS)


class Operations(ServiceMetrics):
    """What the worker reports about itself; all calls come from the event loop's thread.

    ``topics`` (the input topics) and ``windows`` (their names) have series from the start.
    ``dimension`` is the name of the label for agents, ``pools`` what agents share, by agent.
    ``runaways`` are the turns that run away in the state in force, ``evidence`` is that of figures.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        topics: Iterable[str] = (),
        windows: Iterable[str] = WINDOWS,
        dimension: str = "agent",
        pools: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(registry)
        self.evidence = EvidenceGauges(registry, dimension)
        self.runaways = RunawayTurns()
        self._longest = self._gauge(
            "runaway_turn_iterations",
            "Iterations of the longest turn that has alerts.runaway_iterations or more and had "
            f"another one in the last {STILL_MS // 60_000} minutes; 0 without one.",
            dimension,
        )
        self._measured: set[str] = set()
        self._count_events(windows)
        self._count_delivery(topics)
        self._measure_reading(topics)
        self._measure_batches()
        self._describe_worker()
        pool = self._gauge("agent_pool", "1 for an agent and its pool.", "agent", "agent_pool")
        for pair in (pools or {}).items():
            pool.labels(*pair).set(1)

    def _histogram(self, name: str, help: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, help, labels, buckets=bounds, registry=self._registry)

    def _count_events(self, windows: Iterable[str]) -> None:
        counter = self._counter
        events = counter("events", "Valid events read, by outcome.", "type", "outcome")
        self._events = {
            pair: events.labels(*pair) for pair in product(PAYLOADS, (*OUTCOMES, OTHER))
        }
        dead = counter("dead_letters", "Records rejected as dead letters, by reason.", "reason")
        self._dead = {reason: dead.labels(reason) for reason in (*REASONS, OTHER)}
        output = counter(
            "output_messages",
            "Messages sent to the output topic: rows, and nulls for forgotten conversations.",
            "type",
        )
        self._output = {name: output.labels(name) for name in ("row", "null")}
        candidates = counter(
            "dedup_candidates",
            "Pairs of results that share a candidate key, by kind of key.",
            "key",
        )
        self._candidates = {kind: candidates.labels(kind) for kind in KEY_KINDS}
        verdicts = counter(
            "dedup_verdicts",
            "Pairs of results compared, by deciding step and verdict.",
            "entity_type", "step", "verdict",
        )  # fmt: skip
        self._verdicts = {
            (kind, verdict.step, verdict.verdict): verdicts.labels(
                kind, verdict.step, verdict.verdict
            )
            for kind, verdict in product(ENTITY_TYPES, VERDICTS)
        }
        self._truncated = counter(
            "dedup_truncated", "Results with too many candidates to compare all."
        )
        self._contradictions = counter(
            "dedup_contradictions",
            "Documents of which a result matched one member and contradicted another.",
        )
        self._other_text = counter(
            "same_document_other_text", "Duplicates by identifier or URL whose texts differ."
        )
        self._unknown = counter(
            "unknown_fields",
            "Valid events with a field that is not in the schema, by path; other counts unusual "
            f"names and names after the first {MAX_UNKNOWN_FIELDS}.",
            "field",
        )
        self._fields = {OTHER: self._unknown.labels(OTHER)}
        self._counts = {key: counter(name, help) for key, (name, help) in COUNTS.items()}
        self._label_delay = FastHistogram(
            PREFIX + "label_delay_seconds",
            "Event time between a search and a label for one of its results.",
            DELAY_BOUNDS, self._registry,
        )  # fmt: skip
        late = counter(
            "late_changes",
            "Iterations and turns that changed too late to count in the window.",
            "window",
        )
        self._late = {window: late.labels(window) for window in windows}

    def _count_delivery(self, topics: Iterable[str]) -> None:
        counter, gauge = self._counter, self._gauge
        self._assigned = gauge("assigned_partitions", "State partitions that this worker owns.")
        self._partition_total = self._known_gauge(
            "state_partitions", f"State partitions of all workers together; {UNKNOWN}."
        )
        self._rebalances = counter("rebalances", "Rebalances of the consumer group.")
        self._fenced = counter(
            "fenced_writes", "Writes refused because another worker owns the partition."
        )
        told = counter(
            "notifications", "Notifications to notify.url; each that fails is tried again.",
            "outcome",
        )  # fmt: skip
        self._notifications = {name: told.labels(name) for name in ("delivered", "failed")}
        self._rewinds = counter("rewinds", "Partitions re-read because the stored state was older.")
        self._repartitioned = counter(
            "repartitioned_records", "Records copied to the internal topic.", "topic"
        )
        for topic in topics:
            self._repartitioned.labels(topic)
        self._keyed_differently = gauge(
            "topics_keyed_differently",
            "1 if input topics are keyed by different partitioners, else 0.",
        )
        self._holes = counter(
            "offset_holes", "Offsets without a record; normal with compaction and transactions."
        )
        self._state_bytes = self._known_gauge(
            "redis_memory_bytes", "Memory used by Redis; no sample while Redis does not answer."
        )
        self._state_limit = self._known_gauge(
            "redis_memory_limit_bytes",
            "maxmemory of Redis; 0 means no limit. No sample while Redis does not answer.",
        )
        self._redis_errors = counter("redis_errors", "Redis calls that failed or were refused.")
        self._written = counter("state_written_bytes", "Approximate bytes of state sent to Redis.")

    def _measure_reading(self, topics: Iterable[str]) -> None:
        """How far reading is; of a state that is being built by other names, so that whoever asks
        how far the figures are need not leave it out."""
        counter, gauge, place = self._counter, self._gauge, ("topic", "partition")
        self._live = self._reading = Reading(
            gauge("consumer_lag_records", f"Unread records of the partition; {UNKNOWN}.", *place),
            gauge("consumer_lag_seconds", f"Age of the next record to read; {UNKNOWN}.", *place),
            self._known_gauge(
                "complete_until_timestamp_seconds",
                f"Time up to which all partitions of this worker have been read; {UNKNOWN}.",
            ),
            self._known_gauge("log_ends_timestamp_seconds", ENDS_TOLD),
            counter(
                "offset_gaps", "Times that records needed next were missing from the log.", "topic"
            ),
        )
        self._built = Reading(
            gauge(
                "building_consumer_lag_records",
                "Unread records of the partition, for the state that is being built.",
                *place,
            ),
            gauge(
                "building_consumer_lag_seconds",
                "Age of the next record to read, for the state that is being built.",
                *place,
            ),
            self._known_gauge(
                "building_complete_until_timestamp_seconds",
                "Time up to which this worker has read all its partitions for the state that is "
                f"being built; {UNKNOWN}, or if it builds none.",
            ),
            self._known_gauge("building_log_ends_timestamp_seconds", ENDS_TOLD),
            counter(
                "building_offset_gaps",
                "Times that records needed next for the state that is being built were missing "
                "from the log; the worker then builds the partition from the start of the log.",
                "topic",
            ),
        )
        for topic in topics:
            self._live.gaps.labels(topic)
            self._built.gaps.labels(topic)
        generation = gauge(
            "generation",
            "Number of the generation of state that this worker works on, under its state; 0 under "
            "the other one.",
            "state",
        )
        self._generation = {state: generation.labels(state) for state in ("live", "building")}

    def _measure_batches(self) -> None:
        histogram = self._histogram
        self._batch = histogram("batch_records", "Records per batch.", BATCH_BOUNDS)
        stages = histogram(
            "batch_seconds", "Time a batch spends in each stage.", STAGE_BOUNDS, "stage"
        )
        self._stages = {name: stages.labels(name) for name in STAGES}
        self._latency = FastHistogram(
            PREFIX + "event_to_metric_latency_seconds",
            "Time from a record's timestamp until the windows include it.",
            LATENCY_BOUNDS, self._registry,
        )  # fmt: skip
        self._redis = histogram(
            "redis_round_trip_seconds", "Time until Redis replies to a call.", STAGE_BOUNDS
        )

    def notified(self, delivered: bool) -> None:
        """A notification was delivered, or has to be tried again."""
        self._notifications["delivered" if delivered else "failed"].inc()

    def _describe_worker(self) -> None:
        gauge = self._gauge
        found = self._counter(
            "conversations_opened",
            "Conversations needed by a batch, by where they were found: cache, store (in whole or "
            "in part), or nowhere (new).",
            "found",
        )
        self._opened = {where: found.labels(where) for where in CONVERSATION_SOURCES}
        self._conversations = gauge("open_conversations", "Conversations in this worker's cache.")
        self._results = gauge("open_results", "Size of the conversations in the cache, in results.")
        self._progress = gauge(
            "last_progress_timestamp_seconds",
            "Time of the worker loop's last pass, with or without records; 0 before the first.",
        )
        self._ready = gauge("ready", "1 if this worker is reading and writing, else 0.")
        self._stuck = gauge(
            "stuck",
            "1 if the worker makes no progress despite lag and no known reason to wait, else 0.",
        )
        obstacles = gauge(
            "obstacles",
            "1 if this reason keeps the worker from reading and writing, else 0.",
            "reason",
        )
        self._obstacles = {reason: obstacles.labels(reason) for reason in WORKER}
        self._halted = gauge("halted_partitions", "State partitions that are halted.")
        Info(PREFIX + "build", "Version and build of this worker.", registry=self._registry).info(
            {
                "version": __version__,
                "python": platform.python_version(),
                "engine": ENGINE,
            }
        )

    # -- per batch ------------------------------------------------------------------------------

    def observe(self, observations: Observations) -> None:
        """Add the observations of a batch; call it once for each ``Observations``."""
        for (kind, outcome), n in observations.events.items():
            self._events.get((kind, outcome), self._events[kind, OTHER]).inc(n)
        for key, n in observations.counts.items():
            counter = self._counts.get(key)
            if counter is not None:
                counter.inc(n)
        for path, n in observations.unknown_fields.items():
            if path not in self._fields and len(self._fields) <= MAX_UNKNOWN_FIELDS:
                self._fields[path] = self._unknown.labels(path)
            self._fields.get(path, self._fields[OTHER]).inc(n)
        dedup = observations.dedup
        for key, n in dedup.candidates.items():
            self._candidates[key].inc(n)
        for (entity_type, step, verdict), n in dedup.verdicts.items():
            child = self._verdicts.get((entity_type, step, verdict))
            (child or self._verdicts[OTHER, step, verdict]).inc(n)
        self._truncated.inc(dedup.truncated)
        self._contradictions.inc(dedup.contradictions)
        self._other_text.inc(dedup.other_text)
        for delay_us, n in observations.label_delays_us.items():
            self._label_delay.observe(delay_us / 1e6, n)
        for window, late in self._late.items():
            late.inc(observations.late[window])
        for where, opened in self._opened.items():
            opened.inc(observations.opened[where])

    def published(self, messages: Sequence[OutputMessage]) -> None:
        """Messages of a batch were written to the output topic."""
        nulls = sum(message.value is None for message in messages)
        self._output["null"].inc(nulls)
        self._output["row"].inc(len(messages) - nulls)

    def batch(self, records: int) -> None:
        """A batch of ``records`` records was finished."""
        self._batch.observe(records)

    def stage(self, name: str, seconds: float) -> None:
        """A batch spent ``seconds`` in one of ``STAGES``."""
        self._stages[name].observe(seconds)

    def agents_known(self, agents: Iterable[str]) -> None:
        """Have a gauge of each agent, which is read from ``runaways`` at each scrape."""
        for agent in set(agents) - self._measured:
            self._measured.add(agent)
            self._longest.labels(agent).set_function(partial(self._longest_of, agent))

    def _longest_of(self, agent: str) -> int:
        found = (one.iterations for one in self.runaways.going_on() if one.agent == agent)
        return max(found, default=0)

    def ran_away(self, turns: Sequence[RunawayTurn]) -> None:
        """These turns have many iterations, and have just had another.

        Not those that a build reads: the workers of the live state tell them.
        """
        if self._reading is not self._live:
            return
        self.runaways.note(turns)
        self.agents_known(one.agent for one in turns)

    def forgotten(self, conversation_id: str) -> None:
        """A conversation was erased."""
        self.runaways.forget(conversation_id)

    def counted(self, now_ms: int, timestamps_ms: Iterable[int]) -> None:
        """Records of these timestamps count in the windows from ``now_ms`` on."""
        for timestamp_ms in timestamps_ms:
            self._latency.observe((now_ms - timestamp_ms) / 1000)

    # -- delivery -------------------------------------------------------------------------------

    def assigned(self, count: int) -> None:
        """The worker owns ``count`` state partitions."""
        self._assigned.set(count)

    def partition_total(self, count: int) -> None:
        """All workers together have ``count`` state partitions."""
        self._partition_total.set(count)

    def rebalanced(self) -> None:
        """The group was rebalanced."""
        self._rebalances.inc()

    def fenced(self) -> None:
        """A write was refused because another worker owns the state partition."""
        self._fenced.inc()

    def rewound(self) -> None:
        """A partition is read again from older, stored offsets."""
        self._rewinds.inc()

    def keyed_differently(self, differently: bool) -> None:
        """Whether two input topics are known to be keyed by different partitioners."""
        self._keyed_differently.set(differently)

    def offset_holes(self, n: int) -> None:
        """``n`` offsets had no record."""
        self._holes.inc(n)

    def memory(self, used_bytes: int | None, limit_bytes: int | None) -> None:
        """Memory that Redis uses, and its limit, 0 if it has none; None if they are unknown."""
        self._state_bytes.set(used_bytes)
        self._state_limit.set(limit_bytes)

    def state_written(self, sent_bytes: int) -> None:
        """``sent_bytes`` of state were written to Redis."""
        self._written.inc(sent_bytes)

    def redis(self, seconds: float) -> None:
        """Redis answered after ``seconds``."""
        self._redis.observe(seconds)

    def redis_error(self) -> None:
        """Redis did not answer, or with an error."""
        self._redis_errors.inc()

    # -- the worker -----------------------------------------------------------------------------

    def generation(self, number: int, *, building: bool) -> None:
        """The worker works on this generation of state, which is live or being built."""
        self._generation["live"].set(0 if building else number)
        self._generation["building"].set(number if building else 0)
        reading = self._built if building else self._live
        if reading is not self._reading:
            self._reading.reset()
            self._reading = reading

    def cache(self, conversations: int, results: int) -> None:
        """The size of the cache, in conversations and in results."""
        self._conversations.set(conversations)
        self._results.set(results)

    def progressed(self, unix_seconds: float) -> None:
        """A batch was finished at this Unix time."""
        self._progress.set(unix_seconds)

    def stuck(self, stuck: bool) -> None:
        """Whether the watchdog sees no progress."""
        self._stuck.set(stuck)

    def obstructed(self, reasons: Iterable[str]) -> None:
        """The reasons that keep the worker from reading and writing, as ``/readyz`` names them."""
        found = tuple(reasons)
        super().obstructed(found)
        self._halted.set(sum(self._obstacle(reason) == "halted" for reason in found))
