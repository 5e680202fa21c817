"""Finds turns that two instrumentations recorded in traces of their own.

In one trace such turns are merged (``searches.merge_duplicates``). In two traces the second one is
refused: told as well, the same searches would count twice. Turns of other programs of one name, or
of the old and the new release during a deployment, are no such pair: their searches are others.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stream_metrics.core.telemetry.contents.documents import Document
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice, scopes_setting, scopes_table
from stream_metrics.core.telemetry.spans import Span, service_of, text

if TYPE_CHECKING:
    from stream_metrics.core.telemetry.interpretation import Interpretation
    from stream_metrics.core.telemetry.retrieval.searches import Retrieval

MAX_REMEMBERED: Final = 25_000
"""The most searches of one service, and turns without one, that are remembered."""
TOTAL_RATIO: Final = 2  # of those of all services to those of one
SOON_NS: Final = 900 * 10**9
"""How long after a search its second recording may come: the default of ``bridge.trace_max``."""
MAX_COMPARED: Final = 64
"""The most remembered searches to compare with a new one: those that began nearest to it."""
MAX_SCOPE_LENGTH: Final = 256
PROCESS: Final = (
    "service.version",
    "host.id",
    "host.name",
    "container.id",
    "k8s.pod.uid",
    "k8s.pod.name",
    "process.pid",
)
"""Attributes of resources that tell processes apart. ``service.instance.id`` is not among them,
because SDKs make one up for each tracer provider, and one process may have several."""

_Key = tuple[str, str, bytes]  # service, what is compared, its digest


class RecordedSearch(NamedTuple):
    """A search, by digests: ``ids``, ``texts`` and ``addresses`` are of all its documents, and None
    unless each of them has one."""

    start_ns: int
    end_ns: int
    query: bytes | None
    documents: int
    ids: bytes | None
    texts: bytes | None
    addresses: bytes | None

    def is_recorded_in(self, other: RecordedSearch) -> bool:
        """Whether the other may be the same search: they overlap in time, their queries do not
        differ, and neither do their documents. If the documents do not compare, or neither found
        any, the queries must be equal."""
        if self.start_ns > other.end_ns or other.start_ns > self.end_ns:
            return False
        asked = self.query is not None and self.query == other.query
        if not asked and None not in (self.query, other.query):
            return False
        if self.documents != other.documents:
            return False
        if self.documents:
            for mine, its in (
                (self.ids, other.ids),
                (self.texts, other.texts),
                (self.addresses, other.addresses),
            ):
                if mine is not None and its is not None:
                    return mine == its
        return asked


class Recording(NamedTuple):
    """A turn as one instrumentation recorded it; ``process`` has digests of the attributes that
    tell processes apart, as far as its resource has them. ``scopes`` has the service and scope of
    each search that is told."""

    trace_id: str
    span_id: str
    service: str
    scope: str
    process: dict[str, bytes]
    start_ns: int
    end_ns: int
    searches: tuple[RecordedSearch, ...]
    scopes: frozenset[tuple[str, str]] = frozenset()

    def may_share_process(self, other: Recording) -> bool:
        """Whether one process may have recorded both."""
        return all(other.process.get(name, value) == value for name, value in self.process.items())


def recording_of(turn: Span, found: Sequence[Retrieval]) -> Recording:
    """The recording of a turn that begins with the span and has these searches."""
    first = min(found, key=lambda one: (one.start_ns, one.span.span_id)).span if found else turn
    values = {name: text(first.resource.get(name)) for name in PROCESS}
    return Recording(
        turn.trace_id,
        turn.span_id,
        service_of(first) or "",
        _short(first.scope),
        {name: _digest(value) for name, value in values.items() if value is not None},
        turn.start_ns,
        turn.end_ns,
        tuple(map(_recorded, found)),
        frozenset((service_of(one.span) or "", _short(one.span.scope)) for one in found),
    )


def refuse_two_scopes(interpretation: Interpretation, choice: ScopeChoice) -> None:
    """Refuse the turns of a trace in which two scopes of a service have searches that were not
    merged: they may be the same searches, or others. If the choice names the service, it says."""
    scopes: dict[str, set[str]] = {}
    for recording in interpretation.recordings:
        for service, scope in recording.scopes:
            scopes.setdefault(service, set()).add(scope)
    both = {
        service: sorted(found)
        for service, found in scopes.items()
        if len(found) > 1 and not choice.names(service)
    }
    agents = {turn.span_id: turn.agent for turn in interpretation.turns}
    refused = set()
    for recording in interpretation.recordings:
        for service in sorted({service for service, _ in recording.scopes} & both.keys()):
            refused.add(recording.span_id)
            found = both[service]
            message = (
                f"{' and '.join(name or 'a tracer without a name' for name in found)} recorded "
                "searches in its trace; set otlp.scopes to the one to use, or to all if their "
                f"searches are not the same: {scopes_table(service, found)}"
            )
            interpretation.refuse(
                "two_scopes", recording.span_id, message, agents[recording.span_id]
            )
    if refused:
        interpretation.drop_turns(refused)


def _recorded(one: Retrieval) -> RecordedSearch:
    documents = one.documents
    return RecordedSearch(
        one.start_ns,
        one.end_ns,
        None if one.query is None else _digest(one.query),
        len(documents),
        _digest_all(document.id for document in documents),
        _digest_all(document.text for document in documents),
        _digest_all(map(_address, documents)),
    )


def _address(document: Document) -> str | None:
    return document.url or document.page


def _short(scope: str) -> str:
    """The scope, or of a longer one than any instrumentation has the beginning and a digest."""
    if len(scope) <= MAX_SCOPE_LENGTH:
        return scope
    return f"{scope[:MAX_SCOPE_LENGTH]}… ({_digest(scope).hex()})"


def _digest(value: str) -> bytes:
    return hashlib.blake2b(value.encode(), digest_size=16).digest()


def _digest_all(values: Iterable[str | None]) -> bytes | None:
    """A digest of the texts in their order; None if one of them is missing."""
    found = hashlib.blake2b(digest_size=16)
    for value in values:
        if value is None:
            return None
        encoded = value.encode()
        found.update(b"%d:" % len(encoded))
        found.update(encoded)
    return found.digest()


class _Entry(NamedTuple):
    recording: Recording
    search: RecordedSearch | None  # None stands for a turn without a search

    @property
    def start_ns(self) -> int:
        return (self.search or self.recording).start_ns


class Recordings:
    """The turns of the latest traces, to compare with those of further ones.

    ``most`` searches of a service, and turns without one, are remembered; of all services
    ``TOTAL_RATIO`` times as many. So a service with many leaves room for others. ``forgotten_soon``
    counts what was forgotten of services with several scopes although another one may still record
    it, and both would then be told.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self.forgotten_soon = 0
        self._number = 0
        self._of_service: dict[str, deque[_Entry]] = {}  # the latest service is last
        self._scopes: dict[str, set[str]] = {}  # up to two by service, those refused among them
        self._by_key: dict[_Key, list[_Entry]] = {}  # in order of start
        self._rivals: dict[tuple[str, str, str], None] = {}  # service, two scopes seen to conflict

    def refuse_repeated(self, interpretation: Interpretation) -> None:
        """Refuse the turns that another instrumentation recorded in a remembered trace, and
        remember the others."""
        repeated: set[str] = set()
        agents = {turn.span_id: turn.agent for turn in interpretation.turns}
        for recording in interpretation.recordings:
            other = self._recorded_in(recording)
            scopes = self._scopes.setdefault(recording.service, set())
            if len(scopes) < 2:
                scopes.add(recording.scope)
            if other is None:
                self._remember(recording)
                continue
            self._note_rivals(recording, other)
            repeated.add(recording.span_id)
            interpretation.refuse(
                "two_scopes", recording.span_id, _message(recording, other),
                agents[recording.span_id],
            )  # fmt: skip
        if repeated:
            interpretation.drop_turns(repeated)

    def _recorded_in(self, recording: Recording) -> Recording | None:
        """The remembered turn of another scope that has one of the recording's searches.

        Turns without a search have nothing to compare. They count as one if they overlap, and a
        search showed before that both instrumentations record the same calls.
        """
        for search in recording.searches:
            for key in _keys(recording, search):
                for entry in self._candidates(key, recording, search.start_ns):
                    if entry.search is not None and search.is_recorded_in(entry.search):
                        return entry.recording
        if not recording.searches:
            key = _turn_key(recording)
            for entry in self._candidates(key, recording, recording.start_ns):
                other = entry.recording
                if (
                    recording.start_ns <= other.end_ns
                    and other.start_ns <= recording.end_ns
                    and _pair(recording, other) in self._rivals
                ):
                    return other
        return None

    def _candidates(self, key: _Key, recording: Recording, start_ns: int) -> Iterator[_Entry]:
        entries = self._by_key.get(key, [])
        at, half = bisect_left(entries, start_ns, key=_start_of), MAX_COMPARED // 2
        near = entries[max(0, at - half) : at + half]
        for entry in sorted(near, key=lambda one: abs(one.start_ns - start_ns)):
            other = entry.recording
            if other.scope != recording.scope and recording.may_share_process(other):
                yield entry

    def _remember(self, recording: Recording) -> None:
        mine = self._of_service.pop(recording.service, deque())
        self._of_service[recording.service] = mine
        for search in recording.searches or (None,):
            entry = _Entry(recording, search)
            mine.append(entry)
            self._number += 1
            for key in _keys_of(entry):
                insort(self._by_key.setdefault(key, []), entry, key=_start_of)
        while len(mine) > self._most:
            self._forget_oldest(recording.service, recording.start_ns)
        while self._number > TOTAL_RATIO * self._most:
            self._forget_oldest(next(iter(self._of_service)), recording.start_ns)

    def _forget_oldest(self, service: str, now_ns: int) -> None:
        entries = self._of_service[service]
        entry = entries.popleft()
        self._number -= 1
        if len(self._scopes[service]) > 1 and now_ns - entry.start_ns < SOON_NS:
            self.forgotten_soon += 1
        if not entries:
            del self._of_service[service], self._scopes[service]
        for key in _keys_of(entry):
            same = self._by_key[key]
            at = bisect_left(same, entry.start_ns, key=_start_of)
            while same[at] is not entry:
                at += 1
            del same[at]
            if not same:
                del self._by_key[key]

    def _note_rivals(self, recording: Recording, other: Recording) -> None:
        if recording.searches:
            self._rivals[_pair(recording, other)] = None
            if len(self._rivals) > self._most:
                del self._rivals[next(iter(self._rivals))]


def _start_of(entry: _Entry) -> int:
    return entry.start_ns


def _pair(one: Recording, other: Recording) -> tuple[str, str, str]:
    first, second = sorted((one.scope, other.scope))
    return one.service, first, second


def _keys_of(entry: _Entry) -> Iterable[_Key]:
    if entry.search is None:
        return (_turn_key(entry.recording),)
    return _keys(entry.recording, entry.search)


def _turn_key(recording: Recording) -> _Key:
    return recording.service, "turn", b""


def _keys(recording: Recording, search: RecordedSearch) -> Iterator[_Key]:
    """What two recordings of one search have in common: at least one of these."""
    if search.query is not None:
        yield recording.service, "query", search.query
    if search.documents:
        for name, digest in (
            ("ids", search.ids),
            ("texts", search.texts),
            ("addresses", search.addresses),
        ):
            if digest is not None:
                yield recording.service, name, digest


def _message(recording: Recording, other: Recording) -> str:
    return (
        f"{other.scope or 'a tracer without a name'} recorded it, too, in trace {other.trace_id}, "
        f"span {other.span_id}; {scopes_setting(recording.service, other.scope)}"
    )
