"""The turns of a random sample in recordings and topics, for the commands about judges."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import structs

from stream_metrics.cli.common import UsageError, load_settings
from stream_metrics.cli.folder import check_folder, settings_of_folder
from stream_metrics.cli.places import mention_folder
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import KAFKA, Sources
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.labels import LABELLER
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurns, Work
from stream_metrics.live.local.folder import is_log

_ALL_READ: Final = 1 << 62


def settings_and_sources(
    config: Path | None, sources: Sequence[str] | None, data: Path | None
) -> tuple[Settings, list[str]]:
    """The settings, and what to read: ``sources``, the folder ``data``, or the input topics.

    Where a folder of ``stream-metrics serve`` is read and no topic, the settings are those of it,
    with its digest key. Raises ``UsageError``.
    """
    read = list(sources or [])
    if data is not None:
        if read:
            raise UsageError("--data names what is read: leave out SOURCES, or name it there")
        check_folder(data)
        read = [str(data)]
    topics = not read or any(one.startswith(KAFKA) for one in read)
    settings = load_settings(config, connects=topics)
    if not read:
        mention_folder(settings)
    folder = next((Path(one) for one in read if is_log(Path(one))), None)
    if folder is not None and not topics:
        settings = settings_of_folder(settings, folder)
    return settings, read or [KAFKA]


def named(sources: Sequence[str]) -> str:
    """The sources, for messages."""
    return "the input topics" if [*sources] == [KAFKA] else ", ".join(sources)


def keyed_records(
    sources: Sequence[str], settings: Settings, since: str, until: str
) -> Generator[Record, None, None]:
    """The records of all sources that are events, with their conversations as keys."""
    limits = settings.limits.in_force()
    source = Sources(sources, settings, since, until)
    with closing(source.records()) as records:
        for record in records:
            key = key_of(record.value, record.timestamp_ms, limits)
            if not isinstance(key, BadRecord):
                yield structs.replace(record, key=key)


def sampled_turns(
    sources: Sequence[str], settings: Settings, since: str, until: str, rate: float
) -> tuple[int, Iterator[Work]]:
    """How many conversations are read, and what is to be graded of the turns of a sample of them.

    Raises ``UsageError`` if the sample has none, once all is taken.
    Labels that judges have written do not count: all documents are to be graded.
    """
    sampler = Sampler(settings.state.key())
    turns = OpenTurns(settings.engine_config(), sampler, f"{LABELLER}:", Times(0, 0))
    read, conversations = 0, set[bytes | None]()
    for record in keyed_records(sources, settings, since, until):
        read += 1
        conversations.add(record.key)
        turns.add(record, rate)

    def works() -> Iterator[Work]:
        found = 0
        for turn in turns.due(_ALL_READ):
            work = turn.work()
            if work is not None:
                found += 1
                yield work
        if not found:
            raise UsageError(
                f"{named(sources)}: no turn is in a sample of {rate:.2%} of the conversations "
                f"of {read:,} events"
            )

    return len(conversations), works()


def check_key(settings: Settings) -> None:
    """Raise ``UsageError`` without the digest key, with which judges draw the sample."""
    if settings.state.missing_key():
        raise UsageError(
            "the sample is drawn with the digest key, and none is set: set state.digest_key_file "
            "(STREAM_METRICS_STATE__DIGEST_KEY_FILE) to that of the workers and judges"
        )
