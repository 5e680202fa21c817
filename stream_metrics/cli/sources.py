"""Where commands get recorded records from: files, and topics of Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from aiokafka.errors import KafkaError

from stream_metrics.adapters.files import InputError, expand, numbered_records
from stream_metrics.adapters.kafka.errors import KafkaRefused, UnreadableBatch
from stream_metrics.adapters.kafka.reading import RecordsGone
from stream_metrics.adapters.kafka.source import TopicReader
from stream_metrics.adapters.kafka.span import EARLIEST, END, Mark, parse_mark
from stream_metrics.adapters.kafka.topics import TopicsMissing
from stream_metrics.adapters.otlp.following import PartitionRange, TopicAssembler, UnreadableRecord
from stream_metrics.adapters.otlp.payloads import is_payload, other_signal
from stream_metrics.adapters.otlp.spans import OtlpError, OtlpNotInstalled
from stream_metrics.adapters.otlp.traces import TraceCounts, TraceStore
from stream_metrics.adapters.replay.manifest import file_identity
from stream_metrics.cli.common import UsageError, kafka_reason, printable
from stream_metrics.events.record import Record
from stream_metrics.settings.whole import Settings
from stream_metrics.telemetry import HELP, ConflictingScopes, Evaluation, Event, UnusedScore
from stream_metrics.telemetry.assembly import ClosedTrace

KAFKA: Final = "kafka:"
STDIN: Final = "-"
NAMED_AGENTS: Final = 10
SEEN_RECORDS: Final = 100
"""Of the beginning of a topic: whether it has traces is told by these."""
TRACES: Final = "OTLP traces"

Placed = tuple[str, int, Record]
"""The name of a source, the line (row, payload) of a record in it or its count, and the record."""

SinceOption = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to start in each partition of a topic: a time in RFC 3339, an age such as "
        "[bold]-2h[/bold], an offset, or [bold]earliest[/bold].",
    ),
]
UntilOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="Where to stop (exclusive), in the same forms. [bold]end[/bold] is the end of the "
        "partition when reading starts.",
    ),
]


def parse_marks(since: str, until: str) -> tuple[Mark, Mark]:
    """``--from`` and ``--to``; raises ``UsageError``."""
    now_ms = time.time_ns() // 1_000_000
    marks = []
    for option, text in (("--from", since), ("--to", until)):
        try:
            marks.append(parse_mark(text, now_ms))
        except ValueError as error:
            raise UsageError(f"{option} {error}") from error
    first, last = marks
    if first.kind == last.kind and first.value > last.value:
        raise UsageError(f"--from {since} is after --to {until}: there is nothing between them")
    return first, last


@contextmanager
def reading_kafka(settings: Settings) -> Iterator[None]:
    """Kafka's errors, missing topics, rights and records as ``UsageError``."""
    try:
        yield
    except (KafkaRefused, TopicsMissing) as error:
        raise UsageError(str(error)) from error
    except RecordsGone as error:
        raise UsageError(
            f"{error}. Run this again to start from the earliest record left"
        ) from error
    except UnreadableBatch as error:
        raise UsageError(
            f"{error.message}. If it is too large and memory allows, raise "
            "`kafka.max_batch_bytes`; otherwise continue after it with --from"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        where = settings.kafka.bootstrap_servers
        raise UsageError(f"kafka {where}: {kafka_reason(settings, error)}") from error


class Topics:
    """Topics of Kafka as a source."""

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        marks: tuple[Mark, Mark],
        around_ms: int = 0,
    ) -> None:
        self.names = tuple(topics)
        self._settings = settings
        self._marks = marks
        self._source = TopicReader(settings.kafka, topics, *marks, around_ms)

    @property
    def offsets(self) -> int:
        """How many offsets there are to read; 0 before reading has begun."""
        return self._source.offsets

    @property
    def spans(self) -> dict[str, dict[str, list[int]]]:
        """What was read: by topic and partition the first offset, and the one after the last."""
        found: dict[str, dict[str, list[int]]] = {}
        for (topic, number), span in sorted(self._source.spans.items()):
            found.setdefault(topic, {})[str(number)] = [span.first, span.end]
        return found

    @property
    def missed(self) -> list[str]:
        """Of which partitions records were asked for that are gone, as sentences."""
        return [
            f"{topic}/{number} begins at offset {span.first}: {span.missed:,} before it are gone"
            for (topic, number), span in sorted(self._source.spans.items())
            if span.missed
        ]

    def part(self, record: Record) -> PartitionRange:
        """What is read of the record's partition."""
        place = record.topic, record.partition
        first = self._source.logs[place].first
        is_cut = self._source.starts[place] == first > 0
        span = self._source.spans[place]
        return PartitionRange(span.first, span.end, is_cut)

    @property
    def are_traces(self) -> bool:
        """Whether OTLP traces are among the first records; raises ``UsageError``."""
        source = TopicReader(self._settings.kafka, self.names, *self._marks)
        with reading_kafka(self._settings), closing(source.records()) as records:
            return any(is_payload(record.value) for record in islice(records, SEEN_RECORDS))

    def records(self) -> Generator[Record, None, None]:
        """The records in the order of their times; raises ``UsageError``."""
        with closing(self.numbered()) as numbered:
            for _, record in numbered:
                yield record

    def numbered(self) -> Generator[tuple[int, Record], None, None]:
        """The same, counted from 1."""
        with reading_kafka(self._settings), closing(self._source.records()) as records:
            yield from enumerate(records, 1)


class Sources:
    """What a command was told to read, one after the other, and then the searches of OTLP traces.

    ``folder`` is where their spans are kept meanwhile; without one where temporary files are.
    """

    def __init__(
        self,
        sources: Sequence[str],
        settings: Settings,
        since: str,
        until: str,
        folder: Path | None = None,
    ) -> None:
        marks = parse_marks(since, until)
        self._mapping, self._options = (
            settings.otlp.mapping(),
            settings.otlp.options(settings.labels.grading),
        )
        self._folder = folder
        self._limits = settings.engine_config().limits
        self._traces: TraceStore | None = None
        self._bounds = settings.bridge.bounds(settings.otlp)
        self._following: TopicAssembler | None = None
        self._close: Callable[[Iterable[ClosedTrace]], None]
        self._others = False  # whether there were records that may be events
        self._stdin: Generator[tuple[int, Record], None, None] | None = None  # begun already
        self._parts: list[Topics | str] = []
        self.names: list[str] = []
        for source in sources:
            if source.startswith(KAFKA):
                topics = source.removeprefix(KAFKA).split(",") if source != KAFKA else None
                topics = topics or list(settings.kafka.topics)
                if not all(topics):
                    raise UsageError(f"{source!r}: write kafka:TOPIC or kafka:TOPIC,TOPIC")
                # What lies around the marks tells which traces began there, and closes some.
                self._parts.append(Topics(settings, topics, marks, settings.bridge.known_ms))
                self.names.append(KAFKA + ",".join(topics))
            else:
                paths = expand([source])
                self._parts += paths
                self.names += [Path(path).name for path in paths]
        if marks != (EARLIEST, END) and not self._topics:
            raise UsageError(
                "--from and --to apply only to topics: give a source such as kafka:TOPIC"
            )

    @property
    def _topics(self) -> list[Topics]:
        return [part for part in self._parts if isinstance(part, Topics)]

    @property
    def topics(self) -> set[str]:
        """The topics among them."""
        return {name for topics in self._topics for name in topics.names}

    @property
    def offsets(self) -> int:
        """How many offsets of Kafka there are to read, as far as that is known."""
        return sum(topics.offsets for topics in self._topics)

    @property
    def identity(self) -> list[Any] | None:
        """What tells the files from others; None if topics or standard input are among them."""
        paths = [part for part in self._parts if isinstance(part, str)]
        return None if self._topics else file_identity(paths)

    @property
    def read(self) -> dict[str, Any]:
        """What was read of Kafka and of OTLP traces, for ``run.json``."""
        found: dict[str, Any] = {}
        if self._topics:
            found["kafka"] = [topics.spans for topics in self._topics]
        if self._traces is not None and self._traces.counts.payloads:
            found["otlp"] = asdict(self._traces.counts)
        return found

    @property
    def missed(self) -> list[str]:
        """What was asked for and is gone, or could not be used of OTLP traces, as sentences."""
        lines = [line for topics in self._topics for line in topics.missed]
        if self._traces is not None and self._traces.counts.payloads:
            lines += _told(self._traces.counts)
        return lines

    @property
    def are_traces(self) -> bool:
        """Whether a source begins with OTLP traces; raises ``UsageError``."""
        return any(map(self._is_of_traces, self._parts))

    def _is_of_traces(self, source: Topics | str) -> bool:
        if isinstance(source, Topics):
            return source.are_traces
        records = numbered_records(source)
        try:
            first = next(records, None)
        except InputError:
            if source == STDIN:
                raise
            return False  # the reading that follows says so
        if source == STDIN:  # which cannot be read again
            self._stdin = _from_the_first(first, records)
        else:
            records.close()
        return first is not None and is_payload(first[1].value)

    def records(self) -> Generator[Record, None, None]:
        """All records, searches of OTLP traces last; raises ``UsageError`` and ``InputError``."""
        with closing(self.placed()) as placed:
            for _, _, record in placed:
                yield record

    def label_events(
        self, evaluations: Sequence[Evaluation]
    ) -> tuple[list[Event], list[UnusedScore], int]:
        """Labels of the results in the traces, as events, and the evaluations that give none.

        Third is how many records there were that are no traces. Raises ``UsageError`` and
        ``InputError``.
        """
        self._following = TopicAssembler(self._bounds)
        with TraceStore(self._mapping, self._options, self._limits, self._folder) as self._traces:
            self._close = self._traces.store_closed
            others = sum(1 for _ in self._without_traces())
            self._close(self._following.finish())
            self._following.count(self._traces.counts)
            if not self._traces.counts.payloads:
                raise UsageError(f"{', '.join(self.names)}: there are no OTLP traces in it")
            try:
                return (*self._traces.label_events(evaluations), others)
            except ConflictingScopes as error:
                raise UsageError(str(error)) from error

    def placed(self) -> Generator[Placed, None, None]:
        """The same, each behind where it stands."""
        self._following = TopicAssembler(self._bounds)
        with TraceStore(self._mapping, self._options, self._limits, self._folder) as self._traces:
            self._close = self._traces.add_closed
            yield from self._without_traces()
            self._close(self._following.finish())
            self._following.count(self._traces.counts)
            try:
                for number, record in enumerate(self._traces.records(), 1):
                    yield TRACES, number, record
            except ConflictingScopes as error:
                raise UsageError(str(error)) from error
            if not self._others:
                check_told(self._traces.counts)

    def _without_traces(self) -> Generator[Placed, None, None]:
        """The records that are no OTLP traces; the others are taken; raises ``InputError``.

        A damaged payload ends the reading of a file. Of a topic it is a bad record like any other.
        """
        for source in self._parts:
            if not isinstance(source, Topics):
                records = numbered_records(source)
                if source == STDIN and self._stdin is not None:
                    records, self._stdin = self._stdin, None
                yield from self._of_part(source, records, None)
            else:
                yield from self._of_part(",".join(source.names), source.numbered(), source)

    def _of_part(
        self, name: str, records: Generator[tuple[int, Record], None, None], topics: Topics | None
    ) -> Generator[Placed, None, None]:
        with closing(records):
            for number, record in records:
                part = None if topics is None else topics.part(record)
                try:
                    is_taken = self._is_taken(record, part)
                except OtlpNotInstalled as error:
                    raise UsageError(str(error)) from error
                except OtlpError as error:
                    if not record.topic:
                        raise InputError(f"{name}, payload {number}: {error}") from error
                    is_taken = False
                if not is_taken and (part is None or part.first <= record.offset < part.end):
                    yield name, number, record

    def _is_taken(self, record: Record, part: PartitionRange | None) -> bool:
        """Take a record of traces; False for others. Raises ``OtlpError`` for a damaged one.

        A topic whose records have keys is followed as the bridge does. Without a key nothing tells
        where the other spans are, so that these are held until all is read, as those of files.
        """
        assert self._traces is not None
        is_known = is_payload(record.value)
        if not is_known:
            self._others |= other_signal(record.value or b"") is None
        if self._following is None or part is None or record.key is None:
            if is_known and (part is None or part.first <= record.offset < part.end):
                self._traces.add_payload(record.value or b"")
            return is_known
        try:
            closed = (self._following.read if is_known else self._following.refuse)(record, part)
        except UnreadableRecord as error:
            closed, is_known = error.closed, False
        self._close(closed)
        return is_known


def _from_the_first(
    first: tuple[int, Record] | None, others: Generator[tuple[int, Record], None, None]
) -> Generator[tuple[int, Record], None, None]:
    """Records of which the first one has been read; none if there was none."""
    with closing(others):
        if first is not None:
            yield first
            yield from others


def check_told(counts: TraceCounts) -> None:
    """Raises ``UsageError`` if there were spans, and none told anything."""
    if not counts.spans or counts.turns:
        return
    kinds = "; ".join(f"{number:,} × {kind}" for kind, number in _most(counts.kinds)[:20])
    refused = "; ".join(_refused(counts)) or "no span is a search or a turn"
    raise UsageError(
        f"nothing in {counts.spans:,} spans of OTLP traces can be used: {refused}. "
        f"The spans: {kinds}"
    )


def _most(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _refused(counts: TraceCounts) -> list[str]:
    """What was set aside by reason, each with the agents that it is of, and what would help."""
    helps = {str(reason): words for reason, words in HELP.items()}
    lines = []
    for reason, number in _most(counts.refused):
        of = {agent: n for agent, by in counts.refused_of.items() if (n := by.get(reason))}
        agents = ", ".join(f"{printable(agent)}: {n:,}" for agent, n in _most(of)[:NAMED_AGENTS])
        more = f" and {len(of) - NAMED_AGENTS:,} more" if len(of) > NAMED_AGENTS else ""
        lines.append(f"{number:,} {reason} ({helps[reason]}; by agent: {agents}{more})")
    return lines


def _told(counts: TraceCounts) -> list[str]:
    """What became of the spans, as sentences."""
    lines = [
        f"{counts.searches:,} searches in {counts.turns:,} turns of {counts.spans:,} spans of OTLP "
        f"traces; passed over: {counts.nested:,} inside another search, {counts.reranked:,} that "
        f"were reranked or joined, {counts.duplicate:,} told by another instrumentation, "
        f"{counts.repeated:,} repeated spans"
    ]
    if counts.iterations_inferred:
        lines.append(
            f"{counts.iterations_inferred:,} turns have no model calls or steps that tell their "
            "iterations apart for certain, so that times do (iterations_inferred); SRR and SRE "
            "hold"
        )
    if counts.unnamed:
        lines.append(
            f"{counts.unnamed:,} turns are in traces that name no conversation, so that each trace "
            "counts as one: name the attribute in `otlp.conversation`, or refuse such traces with "
            "`otlp.require_conversation`"
        )
    if counts.labels:
        lines.append(f"{counts.labels:,} relevance labels of evaluations in the traces")
    if counts.late:
        lines.append(f"{counts.late:,} spans arrived after their traces were closed: not used")
    if counts.early:
        lines.append(
            f"{counts.early:,} spans are of traces that may have begun before what was read, and "
            "are not used"
        )
    if counts.turn_conflicts:
        lines.append(
            f"{counts.turn_conflicts:,} turns share their number with another of their conversation"
        )
    if counts.refused:
        lines.append("set aside: " + "; ".join(_refused(counts)) + "; run.json has the first spans")
    if counts.empty:
        lines.append(
            f"{counts.empty:,} traces have neither a search nor a turn in which a model answered"
        )
    if counts.rejected:
        lines.append(f"{counts.rejected:,} events of them cannot be used; run.json has the reasons")
    return lines
