"""The sources of recorded records for commands: files and Kafka topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stream_metrics.cli.common import UsageError, printable
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.trace_files import OtherRecords
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import HELP, Evaluation, Event, UnusedScore, page_ids_message
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.interpretation import EXPLAINED, FIXED, FOLLOWING, rows_to_copy
from stream_metrics.core.telemetry.otlp.payloads import is_payload, other_signal
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.files import EVENT, FileRange, expand, file_ranges, numbered_records
from stream_metrics.lab.sources.kafka.mark import EARLIEST, END, Mark, parse_mark
from stream_metrics.lab.sources.otlp.topics import (
    PartitionRange,
    TopicAssembler,
    UnreadableRecord,
)
from stream_metrics.lab.sources.otlp.traces import TraceCounts, TraceStore
from stream_metrics.lab.sources.place import LocatedRecord
from stream_metrics.lab.sources.unchanged import InputError, InputFile
from stream_metrics.live.local.folder import is_log
from stream_metrics.live.local.tables import EVENTS

if TYPE_CHECKING:
    from stream_metrics.cli.log_source import LogSource
    from stream_metrics.cli.topic_source import TopicSource
    from stream_metrics.lab.sources.otlp.explanation import Explanation

KAFKA: Final = "kafka:"
NAMED_AGENTS: Final = 10
TRACES: Final = "OTLP traces"

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


class Sources:
    """The sources of a command, read one after the other, and then the events of OTLP traces.

    ``folder`` is where spans are stored temporarily; the default is that of temporary files.
    ``topic`` is what is read of the log in a folder of ``stream-metrics serve``.
    """

    def __init__(
        self,
        sources: Sequence[str],
        settings: Settings,
        since: str,
        until: str,
        folder: Path | None = None,
        topic: str = EVENTS,
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
        self._assembler: TopicAssembler | None = None
        self._close: Callable[[Iterable[ClosedTrace]], None]
        self._others = False  # whether there were records other than traces
        # Pipes and standard input, which cannot be read twice, after a look at their first record.
        self._started: dict[InputFile, Generator[tuple[int, Record], None, None]] = {}
        self._parts: list[TopicSource | LogSource | InputFile] = []
        self.names: list[str] = []
        for source in sources:
            if source.startswith(KAFKA):
                from stream_metrics.cli.topic_source import TopicSource  # imports a Kafka client

                topics = source.removeprefix(KAFKA).split(",") if source != KAFKA else None
                topics = topics or list(settings.kafka.topics)
                if not all(topics):
                    raise UsageError(f"{source!r}: write kafka:TOPIC or kafka:TOPIC,TOPIC")
                # Records around the marks show which traces began there, and close some.
                self._parts.append(TopicSource(settings, topics, marks, settings.bridge.known_ms))
                self.names.append(KAFKA + ",".join(topics))
            elif is_log(Path(source)):
                from stream_metrics.cli.log_source import LogSource

                self._parts.append(
                    LogSource(Path(source), [topic], marks, settings.bridge.known_ms)
                )
                self.names.append(source)
            else:
                files = [InputFile.at(path) for path in expand([source])]
                self._parts += files
                self.names += [Path(file.path).name for file in files]
        if marks != (EARLIEST, END) and not self._topics:
            raise UsageError(
                "--from and --to apply only to topics: give a source such as kafka:TOPIC, or the "
                "folder of `stream-metrics serve`"
            )

    @property
    def _topics(self) -> list[TopicSource | LogSource]:
        return [part for part in self._parts if not isinstance(part, InputFile)]

    @property
    def topics(self) -> set[str]:
        """The names of all topics among the sources."""
        return {name for topics in self._topics for name in topics.names}

    @property
    def kafka_topics(self) -> set[str]:
        """Those of them that are topics of Kafka."""
        return {name for topics in self._topics if topics.in_kafka for name in topics.names}

    @property
    def offsets(self) -> int:
        """The number of offsets to read, as far as it is known."""
        return sum(topics.offsets for topics in self._topics)

    @property
    def logs(self) -> list[LogSource]:
        """The folders of ``stream-metrics serve``."""
        return [
            part
            for part in self._parts
            if not isinstance(part, InputFile) and part.in_kafka is False
        ]

    @property
    def _files(self) -> list[InputFile]:
        return [part for part in self._parts if isinstance(part, InputFile)]

    @property
    def identity(self) -> list[Any] | None:
        """The paths and states of the files; None if not all sources are regular files."""
        if self._topics or not all(file.can_be_read_again for file in self._files):
            return None
        return [(os.path.realpath(path), state) for path, state in self._files]

    def ranges(self, range_bytes: int) -> list[FileRange]:
        """Divide the sources into ranges of so many bytes; none if not all are plain files."""
        return [] if self._topics else file_ranges(self._files, range_bytes)

    @property
    def read(self) -> dict[str, Any]:
        """What was read from Kafka and from OTLP traces, for ``run.json``."""
        found: dict[str, Any] = {}
        for name, in_kafka in (("kafka", True), ("log", False)):
            if spans := [part.spans for part in self._topics if part.in_kafka is in_kafka]:
                found[name] = spans
        if self._traces is not None and self._traces.counts.payloads:
            found["otlp"] = asdict(self._traces.counts)
        return found

    @property
    def missed(self) -> list[str]:
        """Messages about records that no longer exist, and about the use of OTLP traces."""
        lines = [line for topics in self._topics for line in topics.missed]
        if self._traces is not None and self._traces.counts.payloads:
            lines += summary_lines(self._traces.counts)
        return lines

    @property
    def unread(self) -> list[str]:
        """Messages about records that no longer exist, and about spans that cannot be used."""
        lines = [line for topics in self._topics for line in topics.missed]
        return lines if self._traces is None else lines + unread_lines(self._traces.counts)

    @property
    def has_traces(self) -> bool:
        """Whether a source begins with OTLP traces; raises ``UsageError``."""
        return any(map(self._is_of_traces, self._parts))

    def _is_of_traces(self, source: TopicSource | LogSource | InputFile) -> bool:
        if not isinstance(source, InputFile):
            return source.has_traces
        if source in self._started:
            return False  # named twice
        records = numbered_records(source.path, known=source.state)
        try:
            first = next(records, None)
        except InputError:
            if not source.can_be_read_again:
                raise
            return False  # reading the file reports the error
        if not source.can_be_read_again:
            self._started[source] = _from_the_first(first, records)
        else:
            records.close()
        return first is not None and is_payload(first[1].value)

    def records(self) -> Generator[Record, None, None]:
        """All records, those of OTLP traces last; raises ``UsageError`` and ``InputError``."""
        with closing(self.located_records()) as located:
            for _, _, record in located:
                yield record

    def label_events(
        self,
        evaluations: Sequence[Evaluation],
        source: str | None = None,
        sample: str | None = None,
    ) -> tuple[list[Event], list[UnusedScore], int]:
        """Labels for results in the traces as events, the unused evaluations, and the number of
        records that are not traces. All events say ``source`` and ``sample``, if given.

        Raises ``UsageError`` and ``InputError``.
        """
        self._assembler = TopicAssembler(self._bounds)
        with TraceStore(self._mapping, self._options, self._limits, self._folder) as self._traces:
            self._close = self._traces.store_closed
            others = sum(1 for _ in self._without_traces())
            self._close(self._assembler.finish())
            self._assembler.count(self._traces.counts)
            if not self._traces.counts.payloads:
                raise UsageError(f"{', '.join(self.names)}: there are no OTLP traces in it")
            return (*self._traces.label_events(evaluations, source, sample), others)

    def explain(self, explanation: Explanation) -> OtherRecords:
        """Explain the traces; returns what the other records are.

        Raises ``UsageError`` and ``InputError``.
        """
        self._assembler = TopicAssembler(self._bounds)
        others = OtherRecords()
        with TraceStore(self._mapping, self._options, self._limits, self._folder) as self._traces:
            self._close = partial(self._keep_closed, self._traces, explanation)
            for name, _, record in self._without_traces():
                others.add(name, record.value or b"", self._limits)
            self._close(self._assembler.finish())
            self._assembler.count(self._traces.counts)
            explanation.read(self._traces)
        return others

    def _keep_closed(
        self, store: TraceStore, explanation: Explanation, closed: Iterable[ClosedTrace]
    ) -> None:
        for one in closed:
            if one.reason is not None:
                explanation.add_refused(one.interpret(self._mapping, self._options))
            store.store_closed([one])

    def located_records(self) -> Generator[LocatedRecord, None, None]:
        """As ``records``, each with its source and number."""
        self._assembler = TopicAssembler(self._bounds)
        with TraceStore(self._mapping, self._options, self._limits, self._folder) as self._traces:
            self._close = self._traces.add_closed
            yield from self._without_traces()
            self._close(self._assembler.finish())
            self._assembler.count(self._traces.counts)
            for number, record in enumerate(self._traces.records(), 1):
                yield TRACES, number, record
            if not self._others:
                check_usable(self._traces.counts)

    def _without_traces(self) -> Generator[LocatedRecord, None, None]:
        """The records other than OTLP traces, which are stored; raises ``InputError``.

        A damaged payload in a file raises an error; in a topic it counts as a bad record.
        """
        for source in self._parts:
            if isinstance(source, InputFile):
                path, known = source
                records = self._started.pop(source, None) or numbered_records(
                    path, places=True, known=known
                )
                yield from self._of_part(path, records, None)
            else:
                yield from self._of_part(",".join(source.names), source.numbered(), source)

    def _of_part(
        self,
        name: str,
        records: Generator[tuple[int, Record], None, None],
        topics: TopicSource | LogSource | None,
    ) -> Generator[LocatedRecord, None, None]:
        with closing(records):
            for number, record in records:
                part = None if topics is None else topics.part(record)
                try:
                    is_taken = self._is_taken(record, part)
                except OtlpError as error:
                    if not record.topic:
                        # Raised by the reader, which tells instead if the file has changed.
                        records.throw(InputError(f"{name}, payload {number}: {error}"))
                    is_taken = False
                if not is_taken and (part is None or part.first <= record.offset < part.end):
                    yield name, number, record

    def _is_taken(self, record: Record, part: PartitionRange | None) -> bool:
        """Store a record of traces; False for other records. Raises ``OtlpError`` if damaged.

        Traces of records with keys are assembled as the bridge does. Without keys, the spans of a
        trace may be anywhere, so they are kept until everything is read, as those of files are.
        """
        assert self._traces is not None
        # A line of a file that is an event needs no look for traces, which most lines would fail.
        if part is None and record.value is not None and record.value.startswith(EVENT):
            self._others = True
            return False
        is_known = is_payload(record.value)
        if not is_known:
            self._others |= other_signal(record.value or b"") is None
        if self._assembler is None or part is None or record.key is None:
            if is_known and (part is None or part.first <= record.offset < part.end):
                self._traces.add_payload(record.value or b"")
            return is_known
        try:
            closed = (self._assembler.read if is_known else self._assembler.refuse)(record, part)
        except UnreadableRecord as error:
            closed, is_known = error.closed, False
        self._close(closed)
        return is_known


def _from_the_first(
    first: tuple[int, Record] | None, others: Generator[tuple[int, Record], None, None]
) -> Generator[tuple[int, Record], None, None]:
    """The first record, which has been read already, and the others; empty if there is none."""
    with closing(others):
        if first is not None:
            yield first
            yield from others


def check_usable(counts: TraceCounts) -> None:
    """Raise ``UsageError`` if there were spans, but no turn could be built from them."""
    if not counts.spans or counts.turns:
        return
    kinds = "; ".join(f"{number:,} × {kind}" for kind, number in _most_frequent(counts.kinds)[:20])
    refused = "; ".join(_refused(counts)) or "no span is a search or a turn"
    raise UsageError(
        f"nothing in {counts.spans:,} spans of OTLP traces can be used: {refused}. "
        f"The spans: {kinds}. {EXPLAINED}"
    )


def _most_frequent(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _refused(counts: TraceCounts) -> list[str]:
    """Refused items by reason, each with its agents and what to do."""
    helps = {str(reason): words for reason, words in HELP.items()}
    lines = []
    for reason, number in _most_frequent(counts.refused):
        of = {agent: n for agent, by in counts.refused_of.items() if (n := by.get(reason))}
        agents = ", ".join(
            f"{printable(agent)}: {n:,}" for agent, n in _most_frequent(of)[:NAMED_AGENTS]
        )
        more = f" and {len(of) - NAMED_AGENTS:,} more" if len(of) > NAMED_AGENTS else ""
        lines.append(f"{number:,} {reason} ({helps[reason]}; by agent: {agents}{more})")
    return lines


def _unseen(counts: TraceCounts) -> list[str]:
    """What may have searched in turns without a search, and the rows to copy if it did not."""
    if not counts.unseen:
        return []
    found = sorted(counts.unseen, key=lambda one: (-one.turns, one))
    named = ", ".join(
        f"{printable(one.what)} (turns: {one.turns:,})" for one in found[:NAMED_AGENTS]
    )
    more = f" and {len(found) - NAMED_AGENTS:,} more, which run.json names"
    rows = printable(rows_to_copy(one.row for one in found[:NAMED_AGENTS]))
    copied = f"; if none of them is a search: {rows}" if rows else ""
    return [
        "turns without a search are no decision not to search where something else may have "
        f"searched: {named}{more if len(found) > NAMED_AGENTS else ''}{copied}"
    ]


def unread_lines(counts: TraceCounts) -> list[str]:
    """Messages about spans that belong to no trace that is read."""
    lines = []
    if counts.late:
        lines.append(f"{counts.late:,} spans arrived after their traces were closed: not used")
    if counts.early:
        lines.append(
            f"{counts.early:,} spans are of traces that may have begun before what was read, and "
            "are not used"
        )
    return lines


def summary_lines(counts: TraceCounts) -> list[str]:
    """Messages with the counts of spans by outcome."""
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
    for agent, names in [*counts.page_ids.items()][:NAMED_AGENTS]:
        lines.append(printable(page_ids_message(agent, names)))
    if len(counts.page_ids) > NAMED_AGENTS:
        more = len(counts.page_ids) - NAMED_AGENTS
        lines.append(f"ids of {more:,} more agents name pages, too; run.json names them")
    if counts.following:
        lines.append(
            f"{counts.following:,} turns follow one of another agent in their trace; {FOLLOWING}"
        )
    if counts.unnamed:
        lines.append(
            f"{counts.unnamed:,} turns are in traces that name no conversation, so that each trace "
            "counts as one: name the attribute in `otlp.conversation`, or refuse such traces with "
            "`otlp.require_conversation`"
        )
    if counts.labels:
        lines.append(f"{counts.labels:,} relevance labels of evaluations in the traces")
    lines += unread_lines(counts)
    if counts.turn_conflicts:
        lines.append(
            f"{counts.turn_conflicts:,} turns share their number with another of their conversation"
        )
    if counts.forgotten:
        lines.append(
            f"{counts.forgotten:,} searches were forgotten before another instrumentation's trace "
            "of them could come, which then counts, too: name the scope to use in `otlp.scopes`"
        )
    if counts.limits:
        named = ", ".join(
            f"{number:,} by {limit if limit == FIXED else f'`{limit}`'}"
            for limit, number in _most_frequent(counts.limits)
        )
        lines.append(f"turns or traces left out because of limits: {named}")
    lines += _unseen(counts)
    if counts.passed_over:
        named = ", ".join(
            f"{printable(name)} ({number:,})"
            for name, number in _most_frequent(counts.passed_over)[:NAMED_AGENTS]
        )
        lines.append(
            f"calls of tools in turns with searches that count as no search: {named}; if one "
            'searches, call it "search" in `otlp.tools`, and if none does, "other"'
        )
    if counts.refused:
        refused = "; ".join(_refused(counts))
        lines.append(f"set aside: {refused}; run.json has the first spans; {EXPLAINED}")
    if counts.empty:
        lines.append(
            f"{counts.empty:,} traces have neither a search nor a turn in which a model answered"
        )
    if counts.rejected:
        lines.append(f"{counts.rejected:,} events of them cannot be used; run.json has the reasons")
    return lines
