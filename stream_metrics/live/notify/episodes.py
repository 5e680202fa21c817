"""What is told of faults, and when: a value, and functions that return the next one.

An episode is one fault of one subject (an agent, or a worker) by one rule. It is told once it has
lasted as long as the rule wants, again every ``REPEAT_SECONDS`` while it lasts, at once where it
gets worse, and once when it has ended. A rule is told of at most every ``RULE_SECONDS``, and after
a failure everything waits, longer and longer.

The value outlives restarts as JSON, so that nothing is told twice. Times are Unix times in seconds,
and none lies in the future: where the clock is set back, what was told is taken for told just now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from stream_metrics.core.alerts.alert import CRITICAL, WARNING

REPEAT_SECONDS: Final = 4 * 3600.0
RULE_SECONDS: Final = 60.0
MAX_PAUSE_SECONDS: Final = 300.0
UNSURE_SECONDS: Final = 3600.0
"""For how long a fault goes on about which nothing can be told any more."""

_SEVERITY: Final = {"": 0, WARNING: 1, CRITICAL: 2}


class State(StrEnum):
    """What a look says of a rule and a subject."""

    FAULT = "fault"
    UNSURE = "unsure"
    FINE = "fine"


class Key(NamedTuple):
    """What an episode is of."""

    rule: str
    subject: str


class Found(NamedTuple):
    """What a look has found of a rule and a subject. ``level`` is that of a fault."""

    key: Key
    state: State
    why: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a fault lasts before it is told, and is over before it has ended, in seconds."""

    wait: float = 0.0
    keep: float = 0.0


class Episode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fault, which was found first at ``since`` and last at ``sure``.

    ``over`` is since when it is over, None while it lasts. ``told`` is the level that was told
    last, empty if none was, at ``told_at``.
    """

    rule: str
    subject: str
    level: str
    why: str
    since: float
    sure: float
    over: float | None = None
    told: str = ""
    told_at: float = 0.0

    @property
    def key(self) -> Key:
        """Rule and subject."""
        return Key(self.rule, self.subject)


class Notice(NamedTuple):
    """What is to be told of a rule: the faults that last, and those that have ended."""

    rule: str
    lasting: tuple[Episode, ...]
    ended: tuple[Episode, ...]


class Episodes(msgspec.Struct, frozen=True):
    """All episodes, when rules were last told of, and until when nothing is to be told.

    ``failures`` counts those since something was told.
    """

    episodes: tuple[Episode, ...] = ()
    tried: dict[str, float] = msgspec.field(default_factory=dict)
    failures: int = 0
    pause_until: float = 0.0

    def encoded(self) -> bytes:
        """As JSON; empty if there is nothing to remember."""
        return msgspec.json.encode(self) if self.episodes or self.tried else b""


def decoded(text: bytes) -> Episodes:
    """Episodes from JSON; none if it is empty. Raises ``ValueError``."""
    return msgspec.json.decode(text, type=Episodes) if text else Episodes()


def looked(
    before: Episodes,
    found: Iterable[Found],
    rules: Collection[str],
    now: float,
    timing: Callable[[str, str], Timing],
) -> Episodes:
    """The episodes after a look at some rules, by which all other subjects have no fault.

    ``timing`` is that of a rule and a level.
    """
    before = _clamped(before, now)
    by_key = {one.key: one for one in found if one.key.rule in rules}
    after = []
    for episode in before.episodes:
        if episode.rule in rules:
            episode = _after_look(episode, by_key.pop(episode.key, None), now)
            if episode.over is not None and not _counts(episode, timing):
                continue
        after.append(episode)
    after += [
        Episode(*one.key, one.level, one.why, now, now)
        for one in by_key.values()
        if one.state is State.FAULT
    ]
    tried = {rule: at for rule, at in before.tried.items() if now - at < RULE_SECONDS}
    return replace(before, episodes=tuple(after), tried=tried)


def due(state: Episodes, now: float, timing: Callable[[str, str], Timing]) -> Notice | None:
    """What is to be told next, the worst first; None if there is nothing, or it has to wait."""
    if now < state.pause_until:
        return None
    lasting: dict[str, list[Episode]] = {}
    ended: dict[str, list[Episode]] = {}
    for one in state.episodes:
        if now - state.tried.get(one.rule, -RULE_SECONDS) < RULE_SECONDS:
            continue
        if one.over is not None:
            if now - one.over >= timing(one.rule, one.level).keep:
                ended.setdefault(one.rule, []).append(one)
        elif _counts(one, timing) and _is_news(one, now):
            lasting.setdefault(one.rule, []).append(one)

    def worst(rule: str) -> int:
        return max((_SEVERITY[one.level] for one in lasting.get(rule, ())), default=0)

    rule = max({**lasting, **ended}, key=worst, default=None)
    if rule is None:
        return None
    return Notice(rule, tuple(lasting.get(rule, ())), tuple(ended.get(rule, ())))


def told(before: Episodes, notice: Notice, now: float) -> Episodes:
    """The episodes after a notice has been told."""
    lasting = {one.key for one in notice.lasting}
    ended = {one.key for one in notice.ended}
    after = tuple(
        replace(one, told=one.level, told_at=now) if one.key in lasting else one
        for one in before.episodes
        if one.key not in ended
    )
    return Episodes(after, {**before.tried, notice.rule: now})


def failed(before: Episodes, notice: Notice, now: float, pause: float = 0.0) -> Episodes:
    """The episodes after a notice could not be told; ``pause`` is asked for by who refused it."""
    failures = before.failures + 1
    wait = max(RULE_SECONDS * 2.0 ** min(failures - 1, 10), pause)
    return replace(
        before,
        tried={**before.tried, notice.rule: now},
        failures=failures,
        pause_until=now + min(wait, MAX_PAUSE_SECONDS),
    )


def _after_look(episode: Episode, found: Found | None, now: float) -> Episode:
    if found is not None and found.state is State.FAULT:
        return replace(episode, level=found.level, why=found.why, sure=now, over=None)
    unsure = found is not None and found.state is State.UNSURE
    if episode.over is None and unsure and now - episode.sure < UNSURE_SECONDS:
        return episode
    why = "" if found is None else found.why
    return replace(episode, why=why, over=now if episode.over is None else episode.over)


def _counts(episode: Episode, timing: Callable[[str, str], Timing]) -> bool:
    """Whether it was told, or has lasted long enough to be told."""
    wait = timing(episode.rule, episode.level).wait
    return bool(episode.told) or episode.sure - episode.since >= wait


def _is_news(episode: Episode, now: float) -> bool:
    """Whether a lasting fault is to be told: for the first time, as a worse one, or again."""
    if _SEVERITY[episode.level] > _SEVERITY[episode.told]:
        return True
    sure = now - episode.sure < RULE_SECONDS
    return sure and now - episode.told_at >= REPEAT_SECONDS


def _clamped(before: Episodes, now: float) -> Episodes:
    """The episodes without times in the future, which a clock that was set back has left."""
    return Episodes(
        tuple(
            replace(
                one,
                since=min(one.since, now),
                sure=min(one.sure, now),
                over=None if one.over is None else min(one.over, now),
                told_at=min(one.told_at, now),
            )
            for one in before.episodes
        ),
        {rule: min(at, now) for rule, at in before.tried.items()},
        before.failures,
        min(before.pause_until, now + MAX_PAUSE_SECONDS),
    )
