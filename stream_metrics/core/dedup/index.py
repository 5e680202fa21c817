"""The candidate index of one turn, which assigns results to documents.

Results are appended in canonical order. Each is compared with the earlier ones that share a
candidate key. It joins the document of the first one that is verified as a duplicate, unless its
identifiers contradict another result of that document.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from stream_metrics.core.dedup.digests import Name
from stream_metrics.core.dedup.fingerprint import Fingerprint, Fingerprinter, Identifiers
from stream_metrics.core.dedup.verify import URL, compare_ids, identifiers_of, text_verdict, verify


class DedupCounts:
    """Counts of deduplication for the operational metrics.

    ``candidates``: candidate pairs by kind of key. ``verdicts``: verified pairs by (entity type,
    step, verdict). The others count results.
    """

    __slots__ = ("candidates", "contradictions", "other_text", "truncated", "verdicts")

    def __init__(self) -> None:
        self.candidates: Counter[str] = Counter()
        self.verdicts: Counter[tuple[str, str, str]] = Counter()
        self.truncated = 0
        self.contradictions = 0
        self.other_text = 0


class _Search(Protocol):
    @property
    def each(self) -> list[Fingerprint]: ...


class PlainIndex:
    """The index in Python.

    ``partners`` has, for each result that was appended as a duplicate, the earlier one with which
    it was verified. Both are numbered in the order of the turn.
    """

    __slots__ = (
        "_by_key", "_counts", "_documents", "_fingerprinter", "_firsts", "_results", "_views",
        "partners",
    )  # fmt: skip

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        self._fingerprinter = fingerprinter
        self._counts = DedupCounts()
        self._by_key: dict[str, dict[bytes, list[int]]] = {}
        self._results: list[Fingerprint] = []
        self._documents: list[int] = []  # of each result
        self._firsts: list[int] = []  # of each document, its first result
        self._views: dict[int, _Members] = {}  # of documents with several members
        self.partners: dict[int, int] = {}

    def append(self, results: _Search, counts: DedupCounts) -> tuple[list[int], list[str]]:
        """Assign the results of the next search; returns their documents and evidence."""
        self._counts = counts
        documents: list[int] = []
        evidences: list[str] = []
        for result in results.each:
            document, evidence = self._append(result)
            documents.append(document)
            evidences.append(evidence)
        return documents, evidences

    def append_decided(self, results: _Search, documents: list[int]) -> None:
        """Add the next search, whose documents are already decided."""
        self._counts = DedupCounts()
        for result, document in zip(results.each, documents, strict=True):
            self._append_decided(result, document)

    def _append(self, result: Fingerprint) -> tuple[int, str]:
        limit = self._fingerprinter.rules.max_candidates
        sharing = self._enter(result)
        decision = self._decide(result, sharing, limit) if sharing else None
        if decision is None:
            decision = (len(self._firsts), "")
            self._firsts.append(len(self._results))
        self._results.append(result)
        self._documents.append(decision[0])
        return decision

    def _append_decided(self, result: Fingerprint, document: int) -> None:
        self._enter(result)
        if document == len(self._firsts):
            self._firsts.append(len(self._results))
        else:
            members = self._views.get(document)
            if members is None:
                first = self._results[self._firsts[document]]
                members = self._views[document] = _Members(identifiers_of(first))
            members.join(identifiers_of(result))
        self._results.append(result)
        self._documents.append(document)

    def _enter(self, result: Fingerprint) -> list[list[int]]:
        """Add the next result under its keys; returns the earlier results by shared key.

        A key keeps one more result than may be verified, to detect that candidates were omitted.
        """
        by_key = self._by_key.get(result.type)
        if by_key is None:
            by_key = self._by_key[result.type] = {}
        position = len(self._results)
        limit = self._fingerprinter.rules.max_candidates
        found: list[list[int]] = []
        for key_kind, key in result.keys(self._fingerprinter.canonical_type(result.type)):
            sharing = by_key.get(key)
            if sharing is None:
                by_key[key] = [position]
            elif sharing[-1] != position:
                self._counts.candidates[key_kind] += len(sharing)
                found.append(sharing)
                if len(sharing) <= limit:
                    sharing.append(position)
        return found

    def _decide(
        self, result: Fingerprint, sharing: list[list[int]], limit: int
    ) -> tuple[int, str] | None:
        rules, counts = self._fingerprinter.rules, self._counts
        kind = self._fingerprinter.canonical_type(result.type)
        position = len(self._results)
        candidates = sharing[0] if len(sharing) == 1 else sorted(set().union(*sharing))
        if candidates[-1] == position:
            candidates = candidates[:-1]
        for position in candidates[:limit]:
            other = self._results[position]
            verdict = verify(result, other, kind, rules)
            counts.verdicts[result.type, verdict.step, verdict.verdict] += 1
            if verdict.evidence is None:
                continue
            document = self._documents[position]
            members = self._views.get(document)
            mine = identifiers_of(result)
            if members is not None:
                against = compare_ids(mine, members.view(), kind, rules)
                if against is not None and against.evidence is None:
                    counts.contradictions += 1
                    continue
            else:
                members = self._views[document] = _Members(identifiers_of(other))
            members.join(mine)
            if (verdict.evidence == URL or verdict.step == "ids") and text_verdict(
                result, other, rules
            ) is False:
                counts.other_text += 1
            self.partners[len(self._results)] = position
            return document, verdict.evidence
        if len(candidates) > limit:
            counts.truncated += 1
        return None


class _Members:
    """The combined identifiers of the results of a document."""

    __slots__ = ("contents", "definitive", "docs", "ids")

    def __init__(self, first: Identifiers) -> None:
        self.ids: dict[Name, set[bytes]] = {name: set(found) for name, found in first.ids.items()}
        self.docs = set(first.docs)
        self.definitive = first.definitive
        self.contents = set(first.contents)

    def join(self, member: Identifiers) -> None:
        """Add the identifiers of another result."""
        for name, digests in member.ids.items():
            self.ids.setdefault(name, set()).update(digests)
        self.docs.update(member.docs)
        self.contents.update(member.contents)
        self.definitive = self.definitive or member.definitive

    def view(self) -> Identifiers:
        """The identifiers in the form that verification compares."""
        return Identifiers(self.ids, self.docs, self.definitive, self.contents)
