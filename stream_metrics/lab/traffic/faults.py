"""Faults between producer and topic: late, duplicated and invalid records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from stream_metrics.lab.traffic.profile import Ledger, Stream, TrafficProfile

_MS = 1_000


class Arrival(NamedTuple):
    """A record and the time ``at_us`` at which it reaches its topic, in Unix microseconds."""

    at_us: int
    stream: Stream
    key: bytes
    value: bytes
    valid: bool = True


class ReorderBacklog:
    """The number of out-of-order records still to be produced, shared by all conversations.

    A record can only be out of order if a later one of its conversation and stream follows.
    """

    __slots__ = ("owed",)

    def __init__(self) -> None:
        self.owed = 0


class Faults:
    """Applies faults to the records of one conversation, in the order of their creation."""

    def __init__(
        self, profile: TrafficProfile, rng: Random, ledger: Ledger, backlog: ReorderBacklog
    ) -> None:
        valid = 1.0 - profile.invalid
        self._late = profile.out_of_order
        self._again = profile.redelivered
        self._broken = profile.invalid / valid if valid > 0 else 0.0
        self._rng = rng
        self._ledger = ledger
        self._debt = backlog
        self._held: dict[Stream, Arrival] = {}

    def apply(self, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """The records that reach their topic, given those that were sent."""
        out: list[Arrival] = []
        chance = self._rng.random
        for arrival in arrivals:
            held = self._held.get(arrival.stream)
            if held is not None and held.at_us < arrival.at_us:
                del self._held[arrival.stream]
                self._ledger.out_of_order += 1
                lag = 1 + int(chance() * 400)
                self._send(held._replace(at_us=max(held.at_us, arrival.at_us + lag * _MS)), out)
            elif held is None and self._late and (chance() < self._late or self._debt.owed):
                self._debt.owed = max(0, self._debt.owed - 1)
                self._held[arrival.stream] = arrival
                continue
            self._send(arrival, out)
        return out

    def finish(self, now_us: int) -> list[Arrival]:
        """Release the records still held back at the end of the conversation, in order."""
        out: list[Arrival] = []
        for arrival in self._held.values():
            self._debt.owed += 1
            self._send(arrival._replace(at_us=max(arrival.at_us, now_us)), out)
        self._held.clear()
        return out

    def _send(self, arrival: Arrival, out: list[Arrival]) -> None:
        chance = self._rng.random
        out.append(arrival)
        if self._again and chance() < self._again:
            self._ledger.redelivered += 1
            lag = 50 + int(chance() ** 3 * 30_000)
            out.append(arrival._replace(at_us=arrival.at_us + lag * _MS))
        if self._broken and chance() < self._broken:
            kind, broken = corrupt(arrival, chance())
            self._ledger.invalid[kind] += 1
            out.append(broken._replace(at_us=arrival.at_us + int(chance() * 500) * _MS))


Event = dict[str, Any]


def _without_conversation(event: Event) -> Event:
    return {name: value for name, value in event.items() if name != "conversation_id"}


def _without_type(event: Event) -> Event:
    return {name: value for name, value in event.items() if name != "type"}


def _long_url(event: Event) -> Event:
    page = "https://files.brightharbor.example/" + "archive/" * 1_100
    result = {"result_id": "long-url", "url": page}
    search = {"search_id": "long-url", "results": [result]}
    return {**event, "type": "search_iteration", "iteration": 1, "searches": [search]}


def _bad_gain(event: Event) -> Event:
    labels = [{"result_id": "t1r1", "gain": 5}]
    return {**event, "type": "relevance_labels", "labels": labels}


def _doc_id_in_ids(event: Event) -> Event:
    search = {"search_id": "x", "results": [{"result_id": "x", "ids": {"doc_id": "HB-1"}}]}
    return {**event, "type": "search_iteration", "iteration": 1, "searches": [search]}


def _deep(event: Event) -> Event:
    nested: object = "bottom"
    for _ in range(70):
        nested = [nested]
    return {**event, "debug": nested}


_BROKEN: dict[str, Callable[[Event], Event]] = {
    "missing_conversation": _without_conversation,
    "missing_type": _without_type,
    "turn_is_text": lambda event: {**event, "turn": "one"},
    "turn_is_zero": lambda event: {**event, "turn": 0},
    "unknown_type": lambda event: {**event, "type": "search_started"},
    "unknown_version": lambda event: {**event, "version": 9},
    "time_without_offset": lambda event: {**event, "occurred_at": "2025-03-18T09:30:00"},
    "time_too_early": lambda event: {**event, "occurred_at": 86_400},
    "url_over_limit": _long_url,
    "gain_out_of_range": _bad_gain,
    "doc_id_in_ids": _doc_id_in_ids,
    "too_deep": _deep,
}
_RAW: dict[str, Callable[[bytes], bytes]] = {
    "cut_short": lambda value: value[: len(value) * 2 // 3],
    "not_utf8": lambda value: b"\xff\xfe" + value,
    "empty": lambda value: b"",
    "not_an_object": lambda value: b'["ping"]',
}
INVALID_KINDS = (*_BROKEN, *_RAW, "key_mismatch")


def corrupt(arrival: Arrival, chance: float) -> tuple[str, Arrival]:
    """An invalid variant of a record with its own event id, and the kind of fault."""
    kind = INVALID_KINDS[int(chance * len(INVALID_KINDS))]
    if kind in _RAW:
        return kind, arrival._replace(value=_RAW[kind](arrival.value), valid=False)
    event: Event = json.loads(arrival.value)
    event["event_id"] = f"{event['event_id']}-bad"
    key = arrival.key
    if kind == "key_mismatch":
        key += b"-other"
    else:
        event = _BROKEN[kind](event)
    value = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    return kind, arrival._replace(key=key, value=value, valid=False)
