"""Whether the steps of a program hand on what its searches returned, as these returned it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stream_metrics.telemetry.documents import Document, emptied
from stream_metrics.telemetry.searches import INPUTS, OUTPUTS, UNKNOWN, Doubt, Got, held
from stream_metrics.telemetry.spans import Span
from stream_metrics.telemetry.tree import Tree

MOST_COMPARED: Final = 100_000  # lists that steps of a turn hand on, times those of searches


def changed(
    tree: Tree, members: Iterable[Span], aside: set[str], got: Sequence[Got]
) -> Iterable[Doubt]:
    """Spans that hand on documents of searches otherwise than these returned them.

    Somebody filtered, joined or reordered them, and no row says so; or the documents are of a
    search that no span tells. Spans in ``aside`` are parts of searches, have these inside, or say
    what they do.
    """
    returned = _Returned(got)
    for span in members:
        if tree.role(span) not in UNKNOWN or span.span_id in aside:
            continue
        lists = held(span) or [[] for name in OUTPUTS if emptied(span.value(name))]
        given = [_Listed(documents) for documents in held(span, INPUTS)] if lists else []
        for documents in lists:
            one = _Listed(documents)
            fed = [each for each in given if one.of(each)]
            if not documents:
                if not any(each.names & returned.names for each in given):
                    continue
                message = f"{span.name!r} left nothing of what was found; no row says what it is"
            elif returned.names.isdisjoint(one.names):
                if fed:
                    continue
                message = f"{span.name!r} hands on documents of no search"
            elif returned.explain(one, span.end_ns) and (
                not fed or any(one.same(each) for each in fed)
            ):
                continue
            elif returned.compared > MOST_COMPARED:
                message = f"its steps hand on more than {MOST_COMPARED:,} lists to compare"
                yield Doubt(span, "too_large", message)
                return
            else:
                message = f"{span.name!r} changed what was found; no row says what it is"
            yield Doubt(span, "unrecognised", message)
            break


class _Listed:
    """A list of documents by their ids and by their texts."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.ids = tuple(document.id for document in documents)
        self.texts = tuple(document.text for document in documents)
        self.names = {name for name in (*self.ids, *self.texts) if name}

    def same(self, other: _Listed) -> bool:
        """Whether both are the same documents in the same order."""
        if None not in self.ids and None not in other.ids:
            return self.ids == other.ids
        return None not in self.texts and self.texts == other.texts

    def of(self, other: _Listed) -> bool:
        """Whether all its documents are among the other's."""
        if None not in self.ids and None not in other.ids:
            return set(self.ids) <= set(other.ids)
        return None not in self.texts and set(self.texts) <= set(other.texts)


class _Returned:
    """What the searches of a turn returned; ``compared`` counts the lists that were looked at."""

    def __init__(self, got: Sequence[Got]) -> None:
        self.compared = 0
        self.names: set[str] = set()
        self._since: dict[tuple[str | None, ...], int] = {}
        self._beginning: dict[str, list[tuple[int, int, _Listed]]] = {}
        order = sorted(got, key=lambda one: (one.start_ns, one.span.span_id))
        for place, one in enumerate(order):
            listed = _Listed(one.documents)
            self.names |= listed.names
            for names in (listed.ids, listed.texts):
                self._since.setdefault(names, one.start_ns)
            for name in {names[0] for names in (listed.ids, listed.texts) if names} - {None}:
                entry = (place, one.start_ns, listed)
                self._beginning.setdefault(str(name), []).append(entry)

    def explain(self, one: _Listed, until_ns: int) -> bool:
        """Whether it is what some had returned, one after the other, or each of it once."""
        forms = [names for names in (one.ids, one.texts) if None not in names]
        if any(self._since.get(names, until_ns + 1) <= until_ns for names in forms):
            return True
        found: dict[int, _Listed] = {}
        for name in one.names:
            for place, start_ns, listed in self._beginning.get(name, ()):
                self.compared += 1
                if self.compared > MOST_COMPARED:
                    return False
                if start_ns <= until_ns and listed.of(one):
                    found[place] = listed
        whole = [found[place] for place in sorted(found)]
        return any(
            None not in mine and (_in_a_row(mine, lists) or _each_once(mine, lists))
            for mine, lists in (
                (one.ids, [each.ids for each in whole]),
                (one.texts, [each.texts for each in whole]),
            )
        )


def _in_a_row(names: tuple[str | None, ...], lists: Sequence[tuple[str | None, ...]]) -> bool:
    """Whether the names are some of the lists, each whole, one after the other."""
    parts: dict[str | None, set[tuple[str | None, ...]]] = {}
    for each in lists:
        parts.setdefault(each[0], set()).add(each)
    ends = {0}
    for place, name in enumerate(names):
        if place in ends:
            ends |= {
                place + len(part)
                for part in parts.get(name, ())
                if names[place : place + len(part)] == part
            }
    return len(names) in ends


def _each_once(names: tuple[str | None, ...], lists: Sequence[tuple[str | None, ...]]) -> bool:
    return names == tuple(dict.fromkeys(name for each in lists for name in each))
