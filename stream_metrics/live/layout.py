"""The layout of a namespace: the document that lists its generations of state.

A *generation* is the state built from the log with one identity (settings, schema, topics). One is
live; another may be built at the same time and replace it. Every change is a pure function from one
document to the next, and stores replace the document by compare-and-set.

```
building -> fencing -> live -> retired
    |
    v
abandoned
```

During ``fencing``, a generation has replaced another one, whose writers are being fenced. Neither
is exported then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

State = Literal["building", "fencing", "live", "retired", "abandoned"]

FORMAT: Final = 1
IN_FORCE: Final = ("live", "fencing")
ENDED: Final = ("retired", "abandoned")
STATES: Final = ("building", "fencing", "live", "retired", "abandoned")  # later ones come later


@dataclass(frozen=True, slots=True)
class Identity:
    """The settings and topics that a generation is built with.

    ``settings`` are those that the fingerprint covers, as a JSON object by name, to report
    differences. ``partition_counts`` are those of the topics that are read.
    """

    group: str
    schema_version: int
    fingerprint: str
    partition_counts: Mapping[str, int]
    settings: str = field(default="", compare=False)

    @property
    def count(self) -> int:
        """The number of state partitions."""
        return max(self.partition_counts.values(), default=0)


class Generation(Struct, frozen=True):
    """The state of one identity.

    ``number`` increases with each generation of a namespace. ``mark`` is random, and keeps the data
    of two generations apart if the store loses one and its number is used again. ``since_ms`` is
    the time of the last change of ``state``, except for the end of ``fencing`` and of the
    generation. ``places`` are the store's names of the state partitions, by number; only the store
    reads them. ``retained`` means that the log may begin later than the windows reach back.
    ``purged`` means that an ended generation is deleted except for the marks that keep its
    partitions frozen.
    """

    number: int
    mark: str
    state: State
    identity: Identity
    since_ms: int = 0
    retained: bool = False
    purged: bool = False
    places: tuple[str, ...] = ()

    @property
    def in_force(self) -> bool:
        """Whether this is the generation that replaced all others."""
        return self.state in IN_FORCE

    @property
    def ended(self) -> bool:
        """Whether no worker may write to it."""
        return self.state in ENDED

    def joined_with(self, stored: Generation) -> Generation:
        """The later one of two entries; its schema is the later one, and it is purged if the store
        says so."""
        later = max(stored, self, key=lambda g: (g.ended, g.since_ms, STATES.index(g.state)))
        schema = max(self.identity.schema_version, stored.identity.schema_version)
        identity = replace_fields(later.identity, schema_version=schema)
        return replace(later, purged=stored.purged, identity=identity)

    @property
    def group(self) -> str:
        """Its consumer group in Kafka; the first one has the name from the settings."""
        return self.identity.group if self.number == 1 else f"{self.identity.group}.{self.number}"


class InvalidTransition(Exception):
    """The document does not allow this change; the message says why."""


class Layout(Struct, frozen=True):
    """The generations of a namespace, oldest first, and what they share.

    ``version`` counts changes. ``last`` is the highest number that a generation was ever given.
    ``names`` are the agents, releases and routes that have their own series, by kind, in the order
    of admission. ``grown`` has, by topic, the time since when its partition count is known to
    differ from that of a generation, in milliseconds of Unix time. ``origin`` is the mark of the
    first generation: another one tells that the namespace was begun anew.
    """

    format: int = FORMAT
    version: int = 0
    last: int = 0
    generations: tuple[Generation, ...] = ()
    names: dict[str, tuple[str, ...]] = {}
    grown: dict[str, int] = {}
    origin: str = ""

    # -- what there is --------------------------------------------------------------------------

    def of(self, number: int) -> Generation | None:
        """The generation with this number; None if there is none."""
        return next((g for g in self.generations if g.number == number), None)

    @property
    def in_force(self) -> Generation | None:
        """The generation that is live, or is fencing the previous one."""
        return next((g for g in self.generations if g.in_force), None)

    @property
    def building(self) -> Generation | None:
        """The generation that is being built."""
        return next((g for g in self.generations if g.state == "building"), None)

    @property
    def to_purge(self) -> tuple[Generation, ...]:
        """Generations that have ended but are not purged."""
        return tuple(g for g in self.generations if g.ended and not g.purged)

    # -- what may happen ------------------------------------------------------------------------

    def begun(self, identity: Identity, mark: str, now_ms: int) -> Layout:
        """Create the first generation, which is live."""
        if self.in_force is not None or self.building is not None:
            raise InvalidTransition("the namespace has state")
        first = Generation(self.last + 1, mark, "live", identity, now_ms)
        return replace(self.with_last(first), origin=mark)

    def registered(
        self, identity: Identity, mark: str, now_ms: int, *, retained: bool = False
    ) -> Layout:
        """Begin to build another generation; purged ones are removed."""
        if self.building is not None:
            raise InvalidTransition(f"generation {self.building.number} is being built")
        current = self.in_force
        if current is None:
            raise InvalidTransition("there is no state (any more): start the workers")
        if current.state != "live" or self.to_purge:
            raise InvalidTransition(
                "no generation is live yet, or one that has ended is not purged yet"
            )
        kept = tuple(g for g in self.generations if not g.purged)
        new = Generation(self.last + 1, mark, "building", identity, now_ms, retained)
        return replace(self, generations=kept).with_last(new)

    def switched(self, number: int, now_ms: int) -> Layout:
        """Replace the live generation by the one that is being built."""
        new, old = self._known(number), self.in_force
        if new.in_force:
            return self
        if new.state != "building" or old is None or old.state != "live":
            raise InvalidTransition(f"generation {number} is not being built beside a live one")
        new = replace(new, state="fencing", since_ms=max(now_ms, new.since_ms + 1))
        return self._changed(replace(old, state="retired"), new)

    def unmuted(self, number: int) -> Layout:
        """Mark a generation as live after all writers of the previous one are fenced."""
        new = self._known(number)
        if new.state == "live" or new.ended:
            return self
        if new.state != "fencing":
            raise InvalidTransition(f"generation {number} has not taken any other's place")
        return self._changed(replace(new, state="live"))

    def abandoned(self, number: int) -> Layout:
        """Abandon a build."""
        generation = self._known(number)
        if generation.state == "abandoned":
            return self
        if generation.state != "building":
            raise InvalidTransition(f"generation {number} is not being built (any more)")
        return self._changed(replace(generation, state="abandoned"))

    def purged(self, number: int) -> Layout:
        """Mark an ended generation as deleted, except for the marks of its partitions."""
        generation = self.of(number)
        if generation is None or generation.purged:
            return self
        if not generation.ended:
            raise InvalidTransition(f"generation {number} is in use")
        return self._changed(replace(generation, purged=True))

    def emptied(self) -> Layout:
        """The namespace was purged.

        Its version tells that from a store that has lost the document, for which a worker that
        slept meanwhile would put it back.
        """
        return self if self == Layout(version=self.version) else Layout(version=self.version + 1)

    @property
    def is_emptied(self) -> bool:
        """Whether the namespace was purged: no more is left than that there was state."""
        return self.version > 0 and self == Layout(version=self.version)

    @property
    def is_lost(self) -> bool:
        """Whether there is no generation, although nobody has purged the namespace.

        Names may have been admitted since the store lost the document.
        """
        return not self.generations and not self.is_emptied

    def with_schema(self, number: int, schema: int) -> Layout:
        """Allow parts of a generation to be written in a later schema."""
        generation = self._known(number)
        if generation.identity.schema_version >= schema:
            return self
        return self._changed(
            replace(generation, identity=replace_fields(generation.identity, schema_version=schema))
        )

    def admitted(
        self, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
    ) -> Layout:
        """New names have series of their own, as long as there is room, and state."""
        if self.is_emptied:
            return self
        known = self.names.get(kind, ())
        chosen = self.chosen(kind, configured, limit)
        for name in names:
            if name not in chosen and len(chosen) < limit:
                known = (*known, name)
                chosen |= {name}
        if known == self.names.get(kind, ()):
            return self
        return self._next(names={**self.names, kind: known})

    def chosen(self, kind: str, configured: Sequence[str], limit: int) -> frozenset[str]:
        """Names with their own series: configured ones, then admitted ones, up to ``limit``."""
        chosen = dict.fromkeys(configured)
        for name in self.names.get(kind, ()):
            if len(chosen) < limit:
                chosen.setdefault(name)
        return frozenset(chosen)

    def has_grown(self, topics: Sequence[str], now_ms: int) -> Layout:
        """Record that the partition counts of these topics have changed."""
        if self.is_emptied:
            return self
        new = {topic: now_ms for topic in topics if topic not in self.grown}
        return self._next(grown={**self.grown, **new}) if new else self

    def put_back(self, stored: Layout, now_ms: int) -> Layout:
        """``stored`` with what it lacks of this layout, because the store went back to it.

        Returns ``stored`` if it lacks nothing, or if others have decided otherwise since: the
        namespace was purged or begun anew, or the build given up. Names that were admitted since
        stay, because sums may be stored under them.

        Where ``stored`` has lost which generation is in force, workers of earlier ones may have
        started since. All steps of the switch are then repeated: that generation is ``fencing``
        again, and the earlier ones are to be purged again.
        """
        begun_anew = stored.generations and stored.origin != self.origin
        if not self.generations or stored.is_emptied or begun_anew:
            return stored
        kept = dict[int, Generation]()
        for known in self.generations:
            held = stored.of(known.number)
            if held is not None and held.mark != known.mark:
                return stored
            if held is not None:
                kept[known.number] = known.joined_with(held)
            elif known.number > stored.last:
                kept[known.number] = replace(known, purged=False)
        for held in stored.generations:
            kept.setdefault(held.number, self._forgotten(held))
        current = next((g for g in kept.values() if g.in_force), None)
        if current is None:
            return stored
        held = stored.of(current.number)
        replaced = any(g.state == "retired" for g in kept.values())
        if replaced and (held is None or held.since_ms != current.since_ms):
            since_ms = max(now_ms, current.since_ms + 1)
            kept[current.number] = replace(current, state="fencing", since_ms=since_ms)
        again = replace(
            stored,
            last=max(self.last, stored.last),
            generations=tuple(kept[number] for number in sorted(kept)),
            names={
                kind: _all_names(self.names.get(kind, ()), stored.names.get(kind, ()))
                for kind in self.names | stored.names
            },
            grown=self.grown | stored.grown,
            origin=self.origin,
        )
        return stored if again == stored else replace(again, version=stored.version + 1)

    def _forgotten(self, held: Generation) -> Generation:
        """An entry that this layout does not have: it is later, or was removed after its end."""
        if held.number > self.last or self.in_force is None:
            return held
        earlier = held.number < self.in_force.number
        was_live = held.state not in ("building", "abandoned")
        return replace(held, state="retired" if earlier and was_live else "abandoned")

    def _known(self, number: int) -> Generation:
        generation = self.of(number)
        if generation is None:
            raise InvalidTransition(f"there is no generation {number} (any more)")
        return generation

    def with_last(self, new: Generation) -> Layout:
        return self._next(generations=(*self.generations, new), last=new.number)

    def _changed(self, *changed: Generation) -> Layout:
        by_number = {g.number: g for g in (*self.generations, *changed)}
        return self._next(generations=tuple(by_number[n] for n in sorted(by_number)))

    def _next(self, **changes: object) -> Layout:
        return replace(self, version=self.version + 1, **changes)


def _all_names(known: tuple[str, ...], stored: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are stored, if none is missing; else all, those that were known first."""
    return stored if set(known) <= set(stored) else tuple(dict.fromkeys((*known, *stored)))


NOTHING: Final = Layout()


class UnreadableLayout(Exception):
    """A later release has written the document, or none; the message says what to do."""


def encode(layout: Layout) -> bytes:
    """The document as it is stored.

    >>> decode(encode(NOTHING)) == NOTHING
    True
    """
    return json.dumps(msgspec.to_builtins(layout), separators=(",", ":")).encode()


def decode(data: bytes) -> Layout:
    """What ``encode`` made; raises ``UnreadableLayout``, and ``ValueError`` for anything else."""
    content = json.loads(data)
    stored = content.get("format") if isinstance(content, dict) else None
    if isinstance(stored, int) and stored > FORMAT:
        raise UnreadableLayout(
            f"the layout of the state is stored in format {stored}, but this release reads "
            f"{FORMAT}. Use the release that wrote it, or a later one"
        )
    return msgspec.convert(content, Layout)
