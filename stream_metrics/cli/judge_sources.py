"""The turns of a random sample in recordings and topics, for the commands about judges."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import structs

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import KAFKA, Sources
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.labels import LABELLER
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurns, Work
from stream_metrics.live.local.folder import KEY, is_log

_ALL_READ: Final = 1 << 62


def keyed_records(
    sources: Sequence[str], settings: Settings, since: str, until: str
) -> Generator[Record, None, None]:
    """The records of all sources that are events, with their conversations as keys.

    Without a source, those of the input topics.
    """
    limits = settings.limits.in_force()
    source = Sources(sources or [KAFKA], settings, since, until)
    with closing(source.records()) as records:
        for record in records:
            key = key_of(record.value, record.timestamp_ms, limits)
            if not isinstance(key, BadRecord):
                yield structs.replace(record, key=key)


def sampled_turns(
    sources: Sequence[str], settings: Settings, since: str, until: str, rate: float
) -> Iterator[Work]:
    """What is to be graded of the turns of a sample; raises ``UsageError`` if it has none.

    Labels that judges have written do not count: all documents are to be graded.
    """
    sampler = Sampler(settings.state.key())
    turns = OpenTurns(settings.engine_config(), sampler, f"{LABELLER}:", Times(0, 0))
    read = 0
    for record in keyed_records(sources, settings, since, until):
        read += 1
        turns.add(record, rate)
    found = 0
    for turn in turns.due(_ALL_READ):
        work = turn.work()
        if work is not None:
            found += 1
            yield work
    if not found:
        named = ", ".join(sources) or "the input topics"
        raise UsageError(
            f"{named}: no turn is in a sample of {rate:.2%} of the conversations of {read:,} events"
        )


def with_key(settings: Settings, sources: Sequence[str]) -> Settings:
    """The settings, if they name no digest key with that of the folder that is read."""
    folders = [Path(source) for source in sources if is_log(Path(source))]
    if settings.state.key() or settings.state.allow_empty_key or not folders:
        return settings
    state = settings.state.model_copy(update={"digest_key_file": folders[0] / KEY})
    return settings.model_copy(update={"state": state})


def check_key(settings: Settings) -> None:
    """Raise ``UsageError`` without the digest key, with which judges draw the sample."""
    if settings.state.missing_key():
        raise UsageError(
            "the sample is drawn with the digest key, and none is set: set state.digest_key_file "
            "(STREAM_METRICS_STATE__DIGEST_KEY_FILE) to that of the workers and judges"
        )
