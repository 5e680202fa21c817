"""Replays on Spark write the files of ``stream-metrics replay``, byte for byte."""

from __future__ import annotations

import codecs
import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.recording import recording
from stream_metrics.spark import read_lines, replay
from tests.spark.recordings import (
    NOON_S,
    PARTITIONS,
    event,
    files_of,
    in_topics,
    lines,
    recorded,
    replayed,
)
from tests.strategies import KeyedRecord, arrivals, streams

LINES = "file string, line bigint, value string"
TOPICS = "topic string, partition int, offset bigint, timestamp bigint, key binary, value binary"
FEW_DRAWS = Settings(evaluation={"resamples": 20})
DAY_S = 86_400
FEW = "STREAM_METRICS_EVALUATION__RESAMPLES"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intervals of most tests come from few resamples."""
    monkeypatch.setenv(FEW, "20")


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_partitions_do_not_change_the_files(
    spark: SparkSession, folder: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are those of a replay with 1,000 resamples, with everything that is counted."""
    monkeypatch.delenv(FEW)
    (folder / "events.jsonl").write_bytes(lines(recorded()))
    whole = replayed("whole", "events.jsonl")
    records = read_lines(spark, folder / "events.jsonl").repartition(partitions)

    replay(records, partitions=partitions).report("spark")

    assert files_of(folder / "spark") == whole
    counts = json.loads(whole["report.json"])["counts"]
    assert min(counts[one] for one in ("invalid", "stale", "forgotten", "orphan_labels")) > 0


def test_recorded_topics_are_read_in_any_order(spark: SparkSession, folder: Path) -> None:
    """Records that cannot be used are named by topic, partition and offset."""
    with recording("topics.parquet") as out:
        for record in in_topics(recorded()):
            out.write(record)
    whole = replayed("whole", "topics.parquet")

    replay(spark.read.parquet(str(folder / "topics.parquet")), names=["topics.parquet"]).report(
        "spark"
    )

    assert files_of(folder / "spark") == whole
    bad = json.loads(whole["report.json"])["bad_records"]["first"]
    places = [(one["source"], one["partition"], one["offset"]) for one in bad]
    assert places == sorted(places)
    assert len(places) > 4


def test_topics_are_named_as_those_of_kafka(spark: SparkSession, folder: Path) -> None:
    """Without names, the source is what a replay of the topics themselves would name."""
    with recording("topics.parquet") as out:
        for record in in_topics(recorded(20)):
            out.write(record)

    report = replay(spark.read.parquet(str(folder / "topics.parquet"))).report("spark")

    assert report["source"] == ["kafka:labels,searches"]


def test_options_are_those_of_the_command(spark: SparkSession, folder: Path) -> None:
    """Metrics, strata, turns, windows and answers are chosen alike."""
    (folder / "events.jsonl").write_bytes(lines(recorded()))
    arguments = [
        "--metric", "ndcg@10", "--metric", "recall@2", "--turn-scope", "all", "--no-generation",
        "--stratify", "agent", "--stratify", "language", "--now", "1742290000000000",
    ]  # fmt: skip
    whole = replayed("whole", "events.jsonl", *arguments)

    result = replay(
        read_lines(spark, folder / "events.jsonl"),
        FEW_DRAWS,
        metrics=["ndcg@10", "recall@2"],
        turn_scope="all",
        generation=False,
        now_us=1_742_290_000_000_000,
    )
    result.report("spark", stratify=["agent", "language"], processes=2)

    assert files_of(folder / "spark") == whole


def test_data_frames_have_the_rows_of_the_files(spark: SparkSession, folder: Path) -> None:
    """Rows, searches, answers and window sums are the same, with types."""
    (folder / "events.jsonl").write_bytes(lines(recorded()))
    whole = replayed("whole", "events.jsonl")
    result = replay(read_lines(spark, folder / "events.jsonl"))

    for frame, name in (
        (result.rows, "conversations.jsonl"),
        (result.queries, "queries.jsonl"),
        (result.turns, "turns.jsonl"),
    ):
        expected = [json.loads(line) for line in whole[name].splitlines()]
        found = [row.asDict(recursive=True) for row in frame.collect()]
        for row in found:
            if row.get("labelled_by", "") is None:  # a frame has the column always
                del row["labelled_by"]
        assert counted(found) == counted(expected)
    sums = [
        {name: value for name, value in row.asDict().items() if value is not None}
        for row in result.windows.collect()
    ]
    assert counted(sums) == counted(json.loads(whole["windows.json"])["sums"])
    result.unpersist()


def counted(rows: Any) -> Counter[str]:
    """Rows in any order, with their values as text."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


@given(st.data())
def test_any_stream_gives_the_same_files(spark: SparkSession, data: st.DataObject) -> None:
    """This holds for small streams in which collisions and near misses are common."""
    stream: list[KeyedRecord] = data.draw(streams())
    arrived = [record for batch in data.draw(arrivals(stream)) for record in batch]
    # Both refuse an input without a usable record, which is a test of its own.
    decoded = (
        decode(value, key=key, timestamp_ms=stamp, limits=Limits()) for key, value, stamp in arrived
    )
    assume(any(not isinstance(one, BadRecord) for one in decoded))
    rows = [("events", 0, at, stamp, key, value) for at, (key, value, stamp) in enumerate(arrived)]
    with tempfile.TemporaryDirectory() as name:
        with recording(f"{name}/events.jsonl") as out:
            for topic, partition, offset, stamp, key, value in rows:
                out.write(Record(value, key, stamp, topic, partition, offset))
        whole = replayed(f"{name}/whole", f"{name}/events.jsonl")

        result = replay(spark.createDataFrame(rows, TOPICS), FEW_DRAWS, names=["events.jsonl"])
        result.report(f"{name}/spark")

        assert files_of(Path(name, "spark")) == whole


def test_a_conversation_may_be_larger_than_a_piece(spark: SparkSession, folder: Path) -> None:
    """Pieces end between conversations: one with 5,000 events is in one piece with its texts."""
    (folder / "events.jsonl").write_bytes(lines([*recorded(), *skewed(5_000)]))
    whole = replayed("whole", "events.jsonl")

    replay(read_lines(spark, folder / "events.jsonl"), piece_bytes=10_000).report("spark")

    assert files_of(folder / "spark") == whole


def test_a_result_larger_than_a_fetch_is_put_together_again(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fetches the pieces of all partitions in many parts, in their order."""
    (folder / "events.jsonl").write_bytes(lines(recorded()))
    whole = replayed("whole", "events.jsonl")
    monkeypatch.setattr("stream_metrics.spark.FETCH_BYTES", 20_000)
    records = read_lines(spark, folder / "events.jsonl")

    replay(records, partitions=3, piece_bytes=30_000).report("spark")

    assert files_of(folder / "spark") == whole


def skewed(count: int) -> list[Record]:
    """One conversation with this many events."""
    found = []
    for number in range(count):
        search = {"search_id": "s", "results": [{"result_id": "r", "title": f"text {number % 7}"}]}
        kind = "search_iteration"
        fields = {"turn": 1 + number // 50 % 900, "iteration": 1 + number % 50}
        found.append(event(kind, "skewed", number, searches=[search], **fields))
    return found


def test_small_partitions_are_joined(spark: SparkSession, folder: Path) -> None:
    """A small recording is not computed in as many pieces as Spark has partitions by default."""
    (folder / "events.jsonl").write_bytes(lines(recorded(20)))

    rows = replay(read_lines(spark, folder / "events.jsonl")).rows
    rows.count()

    assert rows.rdd.getNumPartitions() < int(spark.conf.get("spark.sql.shuffle.partitions") or "")


def test_files_are_read_as_by_the_command(spark: SparkSession, folder: Path) -> None:
    """Plain or compressed, whatever their names say; and those without lines are named, too."""
    records = recorded()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(records[:150])))
    (folder / "b.jsonl").write_bytes(gzip.compress(lines(records[150:300])))
    with recording("c.jsonl.zst") as out:
        for record in in_topics(records[300:]):
            out.write(record)
    (folder / "d.jsonl").write_bytes(codecs.BOM_UTF8 + b"\r\n" + (records[0].value or b""))
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(b""))
    names = ("a.jsonl.gz", "b.jsonl", "c.jsonl.zst", "d.jsonl", "e.jsonl.gz")
    whole = replayed("whole", *names)

    replay(read_lines(spark, *(folder / name for name in reversed(names)))).report("spark")

    assert files_of(folder / "spark") == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n"resourceSpans": [\n]}', "bad.jsonl: OTLP traces, not lines of events"),
        (b'{"resourceLogs": []}', "bad.jsonl: OTLP logs"),
        (b"PAR1", "bad.jsonl: a Parquet file"),
        (
            gzip.compress(b"{}\n" * 100)[:-9],
            "bad.jsonl, after line .*: the gzip data ends in the middle",
        ),
    ],
)
def test_files_that_have_no_lines_are_refused(
    spark: SparkSession, folder: Path, content: bytes, message: str
) -> None:
    """The error names the file."""
    (folder / "bad.jsonl").write_bytes(content)

    with pytest.raises(PythonException, match=message):
        read_lines(spark, folder / "bad.jsonl").collect()


def test_paths_that_spark_would_pass_over_are_refused(spark: SparkSession) -> None:
    """Their records would be missing from the report."""
    with pytest.raises(ValueError, match=r"_day\.jsonl: Spark passes over"):
        read_lines(spark, "in/_day.jsonl")
    with pytest.raises(ValueError, match="at least one file"):
        read_lines(spark)
    with pytest.raises(TypeError, match="is not a path"):
        read_lines(spark, ["a", "b"])  # type: ignore[arg-type]


def test_files_of_one_name_are_read_and_named_each(spark: SparkSession, folder: Path) -> None:
    """Names may have blanks and signs that URLs encode."""
    paths = [folder / name / "day 1% +\u00e4.jsonl" for name in ("a b", "a%20b")]
    for path, records in zip(paths, (recorded()[:200], recorded()[200:]), strict=True):
        path.parent.mkdir()
        path.write_bytes(lines(records))
    whole = replayed("whole", *map(str, paths))

    replay(read_lines(spark, folder / "a b", folder / "a%20b")).report("spark")

    assert files_of(folder / "spark") == whole
    assert json.loads(whole["report.json"])["source"] == [path.name for path in paths]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no file: no record to replay"),
        ([("a.jsonl", 3, "{")], r"each of 1 was rejected; a\.jsonl:3: not_json"),
    ],
)
def test_an_input_without_a_usable_record_is_refused(
    spark: SparkSession, folder: Path, rows: list[Any], message: str
) -> None:
    """The report is written, as by the command, and the error says why its figures mean nothing."""
    with pytest.raises(UsageError, match=message):
        replay(spark.createDataFrame(rows, LINES)).report("spark")

    counts = json.loads((folder / "spark" / "report.json").read_bytes())["counts"]
    assert (counts["events"], counts["results"]) == (len(rows), 0)
    assert (folder / "spark" / "conversations.jsonl").read_bytes() == b""


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "bigint"])
def test_times_are_those_of_utc_in_any_time_zone(
    spark: SparkSession, folder: Path, kind: str
) -> None:
    """An event is valid up to a day after its record, and not a second longer."""
    search = {"search_id": "s", "results": [{"result_id": "r"}]}
    with recording("topics.parquet") as out:
        for offset, late in enumerate((0, 1)):
            found = event("search_iteration", "c", late, iteration=1, searches=[search])
            out.write(Record(found.value, b"c", (NOON_S - DAY_S) * 1_000, "searches", 0, offset))
    whole = replayed("whole", "topics.parquet")
    assert json.loads(whole["report.json"])["counts"]["invalid"] == 1
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = spark.read.parquet(str(folder / "topics.parquet"))
    stamps = F.unix_millis("timestamp") if kind == "bigint" else F.col("timestamp").cast(kind)
    found.withColumn("timestamp", stamps).write.parquet(str(folder / "copied"))

    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        copied = spark.read.parquet(str(folder / "copied"))
        replay(copied, names=["topics.parquet"]).report("spark")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")

    assert copied.schema["timestamp"].dataType.simpleString() == kind
    assert files_of(folder / "spark") == whole


def test_a_result_is_kept_again_after_it_was_freed(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is used of it next computes it once more. Spark's settings are as they were."""
    (folder / "events.jsonl").write_bytes(lines(recorded(20)))
    whole = replayed("whole", "events.jsonl")
    result = replay(read_lines(spark, folder / "events.jsonl"))
    result.rows.count()
    freed = result.rows
    result.unpersist()

    freed.explain()
    assert "InMemoryTableScan" not in capsys.readouterr().out
    result.rows.explain()
    assert "InMemoryTableScan" in capsys.readouterr().out
    result.report("spark")

    assert files_of(folder / "spark") == whole
    assert spark.conf.get("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", None) is None


def test_other_columns_are_refused(spark: SparkSession) -> None:
    """The error names the columns that there are, and both kinds that are read."""
    with pytest.raises(ValueError, match=r"the columns of the records are text\. Name them topic"):
        replay(spark.createDataFrame([("{}",)], "text string"))


def test_traces_are_refused(spark: SparkSession, folder: Path) -> None:
    """The error says where they are and what reads them. A damaged payload is a bad record."""
    result = replay(spark.createDataFrame([("traces.jsonl", 4, '{"resourceSpans": []}')], LINES))
    with pytest.raises(PythonException, match=r"traces\.jsonl:4: OTLP traces"):
        result.report("spark")

    records = in_topics([*recorded(20), Record(b'{"resourceSpans": [1]}')])
    with recording("topics.parquet") as out:
        for record in records:
            out.write(record)
    whole = replayed("whole", "topics.parquet")
    topics = spark.read.parquet(str(folder / "topics.parquet"))
    replay(topics, names=["topics.parquet"]).report("damaged")
    assert files_of(folder / "damaged") == whole


def test_columns_of_other_types_are_refused(spark: SparkSession) -> None:
    """The error names the column, its type, and what it must be."""
    with pytest.raises(ValueError, match=r"line is string, not whole numbers$"):
        replay(spark.createDataFrame([], "file string, line string, value binary"))
    with pytest.raises(ValueError, match="timestamp is double, not times, or milliseconds"):
        replay(spark.createDataFrame([], TOPICS.replace("timestamp bigint", "timestamp double")))


def test_records_without_a_place_are_refused(spark: SparkSession) -> None:
    """They could not be named in the report."""
    of_lines = spark.createDataFrame([(None, 1, "{}")], LINES)
    of_topics = spark.createDataFrame([("", 0, 1, 1, b"", b"{}")], TOPICS)
    for records, column in ((of_lines, "file"), (of_topics, "topic")):
        with pytest.raises(PythonException, match=f"a record has no {column}"):
            replay(records).report("spark")


def test_a_text_is_not_taken_for_several(spark: SparkSession, folder: Path) -> None:
    """Its letters would be names, metrics or dimensions."""
    records = spark.createDataFrame([("a.jsonl", 1, "{}")], LINES)
    for texts in ({"names": "day"}, {"metrics": "ndcg@10"}):
        with pytest.raises(TypeError, match="is a text; give a list of texts"):
            replay(records, **texts)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"stratify=\['agent'\]"):
        replay(records).report("spark", stratify="agent")
    assert not (folder / "spark").exists()


def test_pieces_have_bytes(spark: SparkSession) -> None:
    """Without, no record would ever be taken."""
    with pytest.raises(ValueError, match="piece_bytes is 0"):
        replay(spark.createDataFrame([], LINES), piece_bytes=0)
