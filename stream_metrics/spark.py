"""Replays on Apache Spark, for recordings that are too large for one machine.

The engine, the pieces and the merging are those of ``stream-metrics replay``; Spark takes the place
of its processes and of its spool. The files of a report are the same bytes.

PySpark is the extra ``spark``. Each executor needs this package, too.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from stream_metrics import __version__
from stream_metrics.cli.replay_options import (
    TurnScope,
    check_usable,
    conversation_link,
    replay_options,
)
from stream_metrics.cli.settings import Settings
from stream_metrics.lab.replay.batches import (
    LINE_COLUMNS,
    OUTCOME,
    PIECE_BYTES,
    PieceReceiver,
    computed_batches,
    keyed_batches,
    line_batches,
)
from stream_metrics.lab.replay.outcome import ReplayOptions, merge_outcomes
from stream_metrics.lab.replay.pieces import Job, files_of, outcome_of
from stream_metrics.lab.replay.pool import process_pool
from stream_metrics.lab.replay.report_files import ReplayScope, merged_windows
from stream_metrics.lab.replay.run import FOLDER, clear, locked, write_report_of_pieces
from stream_metrics.lab.replay.spool import Piece
from stream_metrics.lab.reports.files import PARQUET, write_text
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.reports.row_parquet import row_schema
from stream_metrics.lab.sources.parquet import COLUMNS

_KEYED: Final = (
    "id string, source string, number bigint, offset bigint, timestamp bigint, key binary, "
    "value binary"
)
_PLACE: Final = ("source", "number", "offset")
_LINES: Final = "file string, line bigint, value binary"
_CHUNKS: Final = "piece bigint, chunk bigint, file string, data binary"
_ORDER: Final = ("partition", "piece", "chunk")
FETCH_BYTES: Final = 32 << 20  # of a task's result, which the driver's heap holds several times
_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"  # Spark sets it in Python workers
_JOIN_KEPT_PARTITIONS: Final = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
_QUERIES: Final = (
    "conversation_id string, turn bigint, search_id string, agent string, "
    "dimensions map<string, string>, strategy string, n_retrieved bigint, n_judged bigint, "
    "n_relevant bigint, scores map<string, double>"
)
_TURNS: Final = (
    "conversation_id string, turn bigint, agent string, dimensions map<string, string>, "
    "n_tokens bigint, n_references bigint, n_texts bigint, scores map<string, double>"
)

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "text": (StringType,),
    "whole numbers": (IntegralType,),
    "bytes or text": (BinaryType, StringType, NullType),
    "times, or milliseconds as whole numbers": (
        TimestampType,
        TimestampNTZType,
        IntegralType,
        NullType,
    ),
}
_CASTS: Final = {"text": "string", "whole numbers": "bigint", "bytes or text": "binary"}


def read_lines(spark: SparkSession, *paths: str | Path) -> DataFrame:
    """The lines of JSONL files, plain, gzip or zstd, as ``replay`` takes them.

    A task holds a file whole, as it is stored, so that lines have numbers: at most 2 GB.

    Args:
        spark: The session.
        paths: Files, folders without their subfolders, or globs, as Spark reads them. It passes
            over files whose names begin with ``_`` or ``.``.

    Returns:
        The columns ``file`` (a URL), ``line`` (from 1) and ``value``.

    Raises:
        ValueError: No path, or one that Spark would pass over.
        TypeError: A list instead of paths.
    """
    if not paths:
        raise ValueError("name at least one file to read")
    for path in paths:
        if not isinstance(path, (str, Path)):
            raise TypeError(f"{path!r} is not a path; give each path by itself: *paths")
        if Path(path).suffix and Path(path).name.startswith(("_", ".")):
            raise ValueError(f"{path}: Spark passes over files whose names begin with _ or .")
    files = spark.read.format("binaryFile").load([str(path) for path in paths])
    named = files.select(F.col("_metadata.file_path").alias("url"), "content")
    return named.mapInArrow(line_batches, _LINES)


def replay(
    records: DataFrame,
    settings: Settings | None = None,
    *,
    metrics: Sequence[str] = (),
    names: Sequence[str] | None = None,
    turn_scope: TurnScope | None = None,
    now_us: int | None = None,
    predicate: str | None = None,
    generation: bool = True,
    partitions: int | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> SparkReplay:
    """Replay recorded events. Nothing is computed until a part of the result is used.

    Args:
        records: Records of topics in the columns ``topic``, ``partition``, ``offset``,
            ``timestamp``, ``key`` and ``value``, or lines of files in ``file``, ``line`` (from 1)
            and ``value`` (see ``read_lines``). Further columns are ignored.
        settings: The settings. None: those of the environment (``STREAM_METRICS_CONFIG`` names a
            file).
        metrics: The metrics of searches, such as ``ndcg@10``. Empty: those of the settings.
        names: The names of the input in the report. None: ``kafka:`` and the topics, or the names
            of the files without folders, sorted, for which the input is read once more.
        turn_scope: Rows of each conversation's ``last`` turn, or of ``all``. None: the settings.
        now_us: The end of the windows in microseconds since 1970. None: the largest event time.
        predicate: Your own rule of relevance, as ``module:object``, importable on all executors.
            None: that of the settings.
        generation: Whether answers are scored.
        partitions: The number of partitions that conversations are divided among. None: Spark
            chooses. The result does not depend on it.
        piece_bytes: The bytes of records that the engine takes at a time, on which the memory of
            a Python worker depends.

    Raises:
        ValueError: The columns are others, or an argument is not allowed.
        TypeError: A text is given instead of a list of texts.
        UsageError: A setting or a metric is unknown.
    """
    _check_several(metrics=metrics, names=names)
    if turn_scope not in (None, *get_args(TurnScope)):
        raise ValueError(f"turn_scope is {turn_scope!r}, but must be last or all")
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes is {piece_bytes}, but must be positive")
    settings = Settings() if settings is None else settings
    options, shown = replay_options(
        settings,
        metrics=metrics,
        predicate=predicate,
        turn_scope=turn_scope,
        now_us=now_us,
        generation=generation,
    )
    records = _selected(records)
    limits = options.config.limits

    def keyed(batches: Iterable[Any]) -> Iterator[Any]:
        return keyed_batches(batches, limits)

    def computed(batches: Iterable[Any]) -> Iterator[Any]:
        folder = os.environ.get(_LOCAL_DIRS, "").partition(",")[0] or None
        return computed_batches(batches, options, piece_bytes, folder)

    # Records without a conversation have null as their id, and are divided by place.
    conversation = F.coalesce("id", F.concat_ws("/", *_PLACE))
    divided = [conversation] if partitions is None else [partitions, conversation]
    chunks = (
        records.mapInArrow(keyed, _KEYED)
        .repartition(*divided)
        .sortWithinPartitions("id", *_PLACE)
        .mapInArrow(computed, _CHUNKS)
        .withColumn("partition", F.spark_partition_id())
    )
    return SparkReplay(records, _kept(chunks), options, shown, settings, names)


def _kept(chunks: DataFrame) -> DataFrame:
    """The frame, kept once it is computed.

    By default, Spark does not join small partitions of what it keeps: a small recording would be
    200 pieces.
    """
    settings = chunks.sparkSession.conf
    before = settings.get(_JOIN_KEPT_PARTITIONS, None)
    settings.set(_JOIN_KEPT_PARTITIONS, "true")
    try:
        return chunks.persist(StorageLevel.MEMORY_AND_DISK)
    finally:
        if before is None:
            settings.unset(_JOIN_KEPT_PARTITIONS)
        else:
            settings.set(_JOIN_KEPT_PARTITIONS, before)


def _check_several(**given: Sequence[str] | None) -> None:
    for name, value in given.items():
        if isinstance(value, str):
            raise TypeError(f"{name} is a text; give a list of texts: {name}=[{value!r}]")


def _selected(records: DataFrame) -> DataFrame:
    """The columns that a replay reads; raises ``ValueError``."""
    there = {field.name: field.dataType for field in records.schema}
    columns = next((one for one in (COLUMNS, LINE_COLUMNS) if one.keys() <= there.keys()), None)
    if columns is None:
        raise ValueError(
            f"the columns of the records are {', '.join(there)}. Name them {', '.join(COLUMNS)}, "
            f"or {', '.join(LINE_COLUMNS)}"
        )
    wrong = [
        f"{name} is {there[name].simpleString()}, not {what}"
        for name, what in columns.items()
        if not isinstance(there[name], _TYPES[what])
    ]
    if wrong:
        raise ValueError(f"the columns of the records have other types: {'; '.join(wrong)}")
    return records.select(
        *(
            F.col(name).cast(_CASTS[what]) if what in _CASTS else F.col(name)
            for name, what in columns.items()
        )
    )


class SparkReplay:
    """The result of a replay on Spark, computed when it is used and kept until ``unpersist``."""

    def __init__(
        self,
        records: DataFrame,
        chunks: DataFrame,
        options: ReplayOptions,
        shown: dict[str, Any],
        settings: Settings,
        names: Sequence[str] | None,
    ) -> None:
        self._records, self._chunks, self._settings = records, chunks, settings
        self._options, self._shown, self._names = options, shown, names

    @property
    def rows(self) -> DataFrame:
        """A row for each conversation or turn, with the columns of ``conversations.parquet``."""
        return self._lines("rows", from_arrow_schema(row_schema()))

    @property
    def queries(self) -> DataFrame:
        """A row for each search, with its scores, as in ``queries.jsonl``."""
        return self._lines("queries", _QUERIES)

    @property
    def turns(self) -> DataFrame:
        """A row for each turn with an answer, with its scores, as in ``turns.jsonl``."""
        return self._lines("turns", _TURNS)

    @cached_property
    def windows(self) -> DataFrame:
        """The window sums that are not 0, as in ``windows.json``. Computed when it is first used.

        Labels that a sum does not have are null.
        """
        with TemporaryDirectory(prefix="stream-metrics-") as name:
            folder = Path(name)
            pieces = self._fetch(folder, "buckets", OUTCOME)
            outcome = merge_outcomes(
                (outcome_of(Job(folder, self._options, ""), piece) for piece in pieces),
                self._options,
            )
            files = [files_of(folder, piece) for piece in pieces]
            sums = merged_windows(folder, self._scope([]), outcome, files)["sums"]
        first = ("name", self._options.config.dimension, "window")
        labels = sorted({label for one in sums for label in one} - {*first, "value"})
        columns = ", ".join([*(f"`{label}` string" for label in (*first, *labels)), "value bigint"])
        rows = [tuple(one.get(label) for label in (*first, *labels, "value")) for one in sums]
        return self._chunks.sparkSession.createDataFrame(rows, columns)

    def report(
        self, out: str | Path, *, stratify: Sequence[str] = (), processes: int = 1
    ) -> dict[str, Any]:
        """Write the files of ``stream-metrics replay`` to a directory of the driver.

        They are also written if no record can be used, which is an error afterwards.

        Args:
            out: The directory.
            stratify: The dimensions of the strata. Empty: as without ``--stratify``.
            processes: The number of processes that compute intervals. With more than one, the
                program must be importable (``if __name__ == "__main__"``).

        Returns:
            The content of ``report.json``.

        Raises:
            UsageError: There is no record, or each was rejected.
            UnknownDimension: No row has a dimension of ``stratify``.
            OutputInUse: Another replay writes to the directory.
            TypeError: A text is given instead of a list of texts.
        """
        _check_several(stratify=stratify)
        started = time.perf_counter()
        out = Path(out)
        names = self._source() if self._names is None else self._names
        scope = self._scope(names)
        with _work_folder(out) as folder, process_pool(processes) as pool:
            work = Job(folder, self._options, "")
            pieces = self._fetch(folder)
            content, summaries = write_report_of_pieces(
                out, scope, work, pieces, tuple(dict.fromkeys(stratify)), pool
            )
        (out / PARQUET).unlink(missing_ok=True)  # of another replay
        about = {
            "version": __version__,
            "python": platform.python_version(),
            "spark": self._chunks.sparkSession.version,
            "seconds": round(time.perf_counter() - started, 3),
        }
        write_text(out / "run.json", json.dumps(about, indent=2) + "\n")
        write_report_page(out, summaries, conversation_link(self._settings))
        check_usable(content, names)
        return content

    def unpersist(self) -> None:
        """Free what the executors keep of the result."""
        self._chunks.unpersist()

    def _scope(self, names: Sequence[str]) -> ReplayScope:
        return ReplayScope.of(names, self._shown, self._options)

    def _source(self) -> list[str]:
        """The names of the input: its topics, or its files."""
        column = "topic" if "topic" in self._records.columns else "file"
        rows = self._records.select(column).where(F.col(column).isNotNull()).distinct().collect()
        if column == "file":
            return sorted(Path(row[0]).name for row in rows) or ["no file"]
        return ["kafka:" + ",".join(sorted(row[0] for row in rows)) if rows else "no topic"]

    def _computed(self) -> DataFrame:
        """The files of all pieces, kept again after ``unpersist``."""
        return self._chunks if self._chunks.is_cached else _kept(self._chunks)

    def _lines(self, file: str, schema: Any) -> DataFrame:
        """The lines of a file as rows."""
        text = F.col("data").cast("string")
        lines = (
            self._computed()
            .where(F.col("file") == file)
            .select(F.explode(F.split(F.rtrim(text, F.lit("\n")), "\n")).alias("line"))
        )
        parsed = F.from_json("line", schema, {"mode": "FAILFAST"})
        return lines.select(parsed.alias("row")).select("row.*")

    def _fetch(self, folder: Path, *files: str) -> list[Piece]:
        """Write the files of all pieces to a folder of the driver, or only some of them."""
        chunks = self._computed()
        size = chunks.select(F.coalesce(F.sum(F.length("data")), F.lit(0))).collect()[0][0]
        if files:
            chunks = chunks.where(F.col("file").isin(*files))
        # A partition would come as one result, which may be too large for the driver.
        ranges = chunks.repartitionByRange(1 + size // FETCH_BYTES, *_ORDER)
        ordered = ranges.sortWithinPartitions(*_ORDER).select("file", "data")
        received = PieceReceiver(folder)
        for file, data in ordered.toLocalIterator(prefetchPartitions=True):
            received.take(file, data)
        return received.pieces


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    """An empty folder in the output directory, which is locked and is deleted afterwards."""
    folder = out / FOLDER
    with locked(folder):
        clear(folder)
        try:
            yield folder
        finally:
            clear(folder)
