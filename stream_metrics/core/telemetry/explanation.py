"""Explains what the interpretation of a trace made of each span that searched, or may have.

The rows that it proposes are settings as TOML. Nothing here knows whether they help: whoever shows
them interprets the traces again with each.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    documents_in_attributes,
    documents_in_value,
)
from stream_metrics.core.telemetry.contents.messages import question_of
from stream_metrics.core.telemetry.interpret import Details
from stream_metrics.core.telemetry.interpretation import (
    Interpretation,
    Reason,
    Refusal,
    Result,
    agent_of,
    rows_to_copy,
)
from stream_metrics.core.telemetry.retrieval.searches import (
    INPUTS,
    Routes,
    document_lists,
    from_span,
    query_of,
    tool_results,
)
from stream_metrics.core.telemetry.retrieval.tools import (
    MAX_LISTS,
    ToolResult,
    keys_of,
    lists_in,
    named_search,
    recorded_at,
)
from stream_metrics.core.telemetry.roles.mapping import SETTINGS, Role, Row, SpanMapping
from stream_metrics.core.telemetry.roles.presets.rows import QUESTION, TOOL_INPUT
from stream_metrics.core.telemetry.roles.scopes import scopes_table
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.shapes.reading import Reading, plain_text, read_result
from stream_metrics.core.telemetry.shapes.users import tool_name
from stream_metrics.core.telemetry.spans import (
    MAX_NAME_LENGTH,
    MIN_TEXT_LENGTH,
    Span,
    has_text,
    service_of,
    text,
)
from stream_metrics.core.telemetry.turns.unseen import UnseenSearches, passed_over, row_for

NO_SEARCH: Final = "if it is no search"
TO_RECORD: Final = "app.results"
"""The attribute in which a search that records nothing may record its documents."""
_FINDING: Final = (Role.SEARCH, Role.TOOL, Role.RERANKER, Role.JOINER)
_SCOPES: Final = re.compile(r"otlp\.scopes = \{.*\}")
_MAY_IDENTIFY: Final = re.compile(r"(^|[._-])(id|ids|key|uid|uuid|uri|path|slug)$|Id$|ID$|Key$")
_OF_LISTS: Final = re.compile(r"\.\d+\..*")
_SEPARATORS: Final = {"\n\n": "blank lines", "\n---\n": "rules", "\n": "lines"}

Kind = Literal["tool", "retriever", "reranker", "span", "turn"]
Outcome = Literal["search", "inside", "around", "no search", "refused"]


class Proposal(NamedTuple):
    """A setting that may help, as TOML, and what has to be true of the span for it."""

    row: str
    condition: str


class Seen(NamedTuple):
    """A span that searched, or may have, and what the interpretation made of it.

    Attributes:
        agent, kind, name: Whose it is. A name has no text of a user.
        outcome: A search that counts; one that is inside or replaced by another; what is around
            one; no search; refused itself, or with its turn.
        own: Whether a refusal is about it, and not about something else in its turn.
        reason, message: Why it is refused.
        fault: The name of what its turn is refused for, if that is not the span itself.
        role, why: What it is taken for, and what decided on that.
        shape, place: By what its result was read, and where that stood; None if it was not.
        results: The documents that were read; None if there is no reading.
        identified: By what each of the results is identified.
        recorded: The beginning of what it returned, if that was not read.
        rows: Settings that may help.
        to_record: The setting for a search that does not record its documents, once it does.
    """

    agent: str | None
    kind: Kind
    name: str
    trace_id: str
    span_id: str
    outcome: Outcome
    own: bool = False
    reason: Reason | None = None
    message: str = ""
    fault: str = ""
    role: str = ""
    why: str = ""
    shape: str | None = None
    place: str | None = None
    results: tuple[Document, ...] | None = None
    identified: tuple[str, ...] = ()
    recorded: str | None = None
    rows: tuple[Proposal, ...] = ()
    to_record: str | None = None


def explain(
    given: Sequence[Span], mapping: SpanMapping, details: Details, interpretation: Interpretation
) -> Iterator[Seen]:
    """What became of the spans of a trace that searched, or may have, and of what is refused.

    Args:
        given: The spans of the trace.
        mapping: The rows with which it was interpreted.
        details: What the interpretation filled in.
        interpretation: The interpretation.
    """
    if details.tree is None:
        for refusal in interpretation.refusals:
            yield _of_refusal(refusal)
        return
    yield from _Explanation(given, mapping, details.tree, details, interpretation).all()


class _Explanation:
    """The explanation of one trace."""

    def __init__(
        self,
        given: Sequence[Span],
        mapping: SpanMapping,
        tree: SpanTree,
        details: Details,
        interpretation: Interpretation,
    ) -> None:
        self._tree, self._mapping, self._details = tree, mapping, details
        self._interpretation = interpretation
        self._given = {span.span_id: span for span in given}
        self._results = tool_results(tree, mapping)
        self._routes = Routes(tree, mapping)
        self._texts = [*_texts_of_users(tree)]
        self._counted = {
            search.span_id: (turn, search)
            for turn in interpretation.turns
            for search in turn.searches
        }
        self._refused: dict[str, Refusal] = {}
        self._refused_turns: dict[str, Refusal] = {}
        for refusal in interpretation.refusals:
            self._refused.setdefault(refusal.span_id, refusal)
            turn = details.of_turn.get(refusal.span_id, refusal.span_id)
            self._refused_turns.setdefault(turn, refusal)
        self._unseen = self._unseen_spans()
        self._around = tree.ancestors(details.replaced_by)

    def all(self) -> Iterator[Seen]:
        """Each span with a role that finds something, and each other one that is refused."""
        told: set[str] = set()
        for span in self._tree.ordered:
            if span.span_id in self._tree.ignored:
                continue
            role = self._tree.role(span)
            if role in _FINDING:
                told.add(span.span_id)
                yield self._finding(span, self._tree.rows[span.span_id])
            elif span.span_id in self._unseen or (
                span.span_id in self._refused and role in (None, Role.OTHER, Role.POSTPROCESSOR)
            ):
                told.add(span.span_id)
                yield self._other(span)
        for refusal in self._interpretation.refusals:
            unseen = refusal.reason == "unseen_searches" and refusal.span_id in self._unseen
            if refusal.span_id not in told and not unseen:
                place = self._tree.by_id.get(refusal.span_id)
                role = None if place is None else self._tree.role(place)
                yield _of_refusal(
                    refusal,
                    "" if place is None else self._name(place),
                    role.value if role else "span",
                    self._rows_of_turn(refusal),
                )

    def _unseen_spans(self) -> dict[str, str]:
        """The spans that may have searched in turns without a search, with the rows that say that
        they did not."""
        refused = [one for one in self._interpretation.refusals if one.reason == "unseen_searches"]
        if not refused:
            return {}
        found = UnseenSearches(self._tree, self._mapping)
        rows: dict[str, str] = {}
        for refusal in refused:
            turn = self._details.of_turn.get(refusal.span_id)
            members = [
                span
                for span in self._tree.ordered
                if self._details.of_turn.get(span.span_id) == turn
            ]
            asked = self._question(turn)
            rows |= {id: one.row for id, one in found.of(members, asked).items()}
            rows.setdefault(refusal.span_id, row_for(self._tree.by_id[refusal.span_id], None))
        return rows

    def _question(self, turn: str | None) -> str | None:
        span, row = self._tree.by_id.get(turn or ""), self._tree.rows.get(turn or "")
        return question_of(span, row.query) if span is not None and row is not None else None

    def _agent(self, span: Span) -> str | None:
        if span.span_id in self._counted:
            return self._counted[span.span_id][0].agent
        if span.span_id in self._refused:
            return self._refused[span.span_id].agent
        turn = self._details.of_turn.get(span.span_id, "")
        return self._details.agents.get(turn, agent_of(self._interpretation))

    def _name(self, span: Span) -> str:
        """The name of a span without the texts of users."""
        return without_texts(span.name, self._texts)

    def _finding(self, span: Span, row: Row) -> Seen:
        """What became of a retriever, tool or reranker."""
        id, role = span.span_id, self._tree.role(span)
        result = self._results.get(id)
        kind: Kind = "tool" if result else "retriever" if role is Role.SEARCH else "reranker"
        outcome, own, refusal = self._outcome(span)
        reason, message = (None, "") if refusal is None else self._why_refused(refusal)
        shape, place, documents = self._reading(span, row, result)
        identified: tuple[str, ...] = ()
        if id in self._counted:
            results = self._counted[id][1].results
            documents = tuple(one.document for one in results)
            identified = tuple(map(_identity_of_result, results))
        elif documents:
            identified = tuple(map(_identity_of_document, documents))
        recorded = self._recorded(span, row) if own and documents is None else None
        if result is not None:
            name = without_texts(tool_name(span), self._texts)
        else:
            asked = query_of(span, row.query)
            name = (
                span.text(*self._mapping.route)
                or from_span(span, asked)
                or self._routes.of(span, asked)
                or "without a name"
            )
            name = without_texts(name, self._texts)
        return Seen(
            self._agent(span),
            kind,
            name[:MAX_NAME_LENGTH],
            span.trace_id,
            id,
            outcome,
            own,
            reason,
            message,
            "" if own or refusal is None else self._named(refusal.span_id),
            self._role(span, result, outcome),
            self._why(span, row, result, outcome),
            shape,
            place,
            documents,
            identified,
            recorded,
            tuple(
                chain(self._rows(span, row, result, reason), rows_of_ids(documents or (), reason))
                if own
                else self._rows_of_passed_over(span, row, result, outcome)
            ),
        )

    def _outcome(self, span: Span) -> tuple[Outcome, bool, Refusal | None]:
        """The outcome, and whether a refusal is about the span itself, and which one."""
        id = span.span_id
        if id in self._counted:
            return "search", False, None
        if id in self._refused:
            return "refused", True, self._refused[id]
        turn = self._refused_turns.get(self._details.of_turn.get(id, id))
        if id in self._unseen and turn is not None:
            return "refused", True, turn
        other = self._details.replaced_by.get(id, "")
        if other and other != id:
            return "inside", False, None
        if turn is None and not self._interpretation.turns:
            turn = next(iter(self._interpretation.refusals), None)
        if turn is not None and (other or self._tree.role(span) is Role.SEARCH):
            return "refused", False, turn
        return "around" if id in self._around else "no search", False, None

    def _named(self, id: str) -> str:
        """The name of a tool or another span."""
        span = self._tree.by_id.get(id)
        if span is None:
            return ""
        name = tool_name(span) if id in self._results else span.name
        return without_texts(name, self._texts)[:MAX_NAME_LENGTH]

    def _role(self, span: Span, result: ToolResult | None, outcome: Outcome) -> str:
        if result is None:
            return "search" if self._tree.role(span) is Role.SEARCH else "reranker"
        if outcome in ("around", "no search"):
            return "tool"
        return "search" if outcome == "search" or result.searches else "tool"

    def _why_refused(self, refusal: Refusal) -> tuple[Reason, str]:
        return refusal.reason, without_texts(refusal.message, self._texts)

    def _why(self, span: Span, row: Row, result: ToolResult | None, outcome: Outcome) -> str:
        """What decided on the role of the span."""
        if result is None:
            if span.span_id not in self._given:
                return "the model's provider searched"
            return how(row, span)
        if outcome == "around":
            return "what is inside it searches"
        if result.certain:
            return f"{result.certain} says that it searches"
        signs = [_SIGNS[sign] for sign in result.signs]
        if not signs:
            return "nothing says that it searches"
        listed = f"{', '.join(signs[:-1])} and {signs[-1]}" if len(signs) > 1 else signs[0]
        if result.searches:
            return f"{listed} say that it searches"
        if len(signs) > 1:
            return f"{listed} say that it searches, which its results do not confirm"
        return f"only {listed} {'say' if signs[0].endswith('s') else 'says'} that it searches"

    def _reading(
        self, span: Span, row: Row, result: ToolResult | None
    ) -> tuple[str | None, str | None, tuple[Document, ...] | None]:
        """The form and place of the span's result, and its documents; None if it is not read."""
        if result is not None:
            for place, value in recorded_at(span, row):
                for known, reading in result.readings:
                    if known is value:
                        return reading.source, self._place(span, place), reading.documents
            return None, None, None
        for name in row.documents:
            value = span.value(name)
            if value is None:
                found = documents_in_attributes(span, name)
                place = f"{name}.*"
            else:
                found = documents_in_value(value)
                place = name
                if not isinstance(found, list) and isinstance(read := read_result(value), Reading):
                    return read.source, self._place(span, place), read.documents
            if isinstance(found, list):
                return "documents", self._place(span, place), tuple(found)
        return None, None, None

    def _place(self, span: Span, place: str) -> str:
        """Where a result stood, as far as the span itself has it."""
        original = self._given.get(span.span_id)
        if original is None:
            tool = self._tree.role(span) is Role.TOOL
            return (
                "the messages of the next model call; the call has no span"
                if tool
                else "the model's answer"
            )
        name = place.removesuffix(".*")
        if name in span.attributes and name not in original.attributes:
            return "messages of the turn, by the call's id"
        if place == name and name not in span.attributes:
            event = next((one.name for one in span.events if name in one.attributes), None)
            return place if event is None else f"{place} of the event {event}"
        return place

    def _recorded(self, span: Span, row: Row) -> str | None:
        """What the span returned, where it was not read, as a text."""
        for _, value in recorded_at(span, row):
            if isinstance(value, str):
                return plain_text(value) or value
            try:
                return json.dumps(value, ensure_ascii=False)
            except (TypeError, ValueError, RecursionError):
                return None
        return None

    def _rows(
        self, span: Span, row: Row, result: ToolResult | None, reason: Reason | None
    ) -> Iterator[Proposal]:
        """Rows that may read the span's result, or say what the tool is."""
        if reason == "two_scopes":
            yield from self._rows_of_scopes(span, self._refused[span.span_id])
        elif reason == "outside_turn":
            yield from self._rows_of_turn(self._refused[span.span_id])
        elif result is None:
            yield from self._rows_of_span(span, row)
        elif reason in ("unrecognised", "ambiguous_documents", "unseen_searches", "content_off"):
            tool = tool_name(span)
            named = f"otlp.tools = {{{toml(tool)} = "
            none = Proposal(f'{named}"other"}}', NO_SEARCH)
            if not result.searches:
                yield none
            if result.readings:
                yield Proposal(f'{named}"search"}}', "if it searches")
            if not result.readings or reason == "ambiguous_documents":
                unless = "" if result.searches else "it searches, and "
                for shape, condition in shapes_for(span, row):
                    written = toml({"tool": _pattern(tool), **shape})
                    yield Proposal(f"otlp.shapes = [{written}]", f"if {unless}{condition}")
            yield from self._rows_of_span(span, row)
            if result.searches:
                yield none

    def _rows_of_passed_over(
        self, span: Span, row: Row, result: ToolResult | None, outcome: Outcome
    ) -> Iterator[Proposal]:
        """Rows that may make a search of a tool that counts as none in a turn with searches."""
        if result is None or outcome != "no search" or not [*passed_over(self._tree, [span], ())]:
            return
        for one in self._rows(span, row, result, "unrecognised"):
            if not one.row.endswith('"other"}'):
                yield one

    def _rows_of_span(self, span: Span, row: Row | None) -> Iterator[Proposal]:
        """Rows that name the attributes in which the span has documents."""
        named = () if row is None else (*row.documents, *row.inputs, *row.query)
        known = {*named, *INPUTS, *TOOL_INPUT, *QUESTION}
        by_name: dict[str, None] = {}
        for name in span.attributes:
            prefix = _OF_LISTS.sub("", name)
            if prefix not in known and (
                document_lists(span, (name,))
                or (prefix != name and isinstance(documents_in_attributes(span, prefix), list))
            ):
                by_name[prefix] = None
        for name in [*by_name][:MAX_LISTS]:
            about: dict[str, Any] = {
                "role": "search",
                **self._which(span, row),
                "documents": [name],
            }
            asked = () if row is None else row.query
            if queries := [one for one in asked if span.value(one) is not None]:
                about["query"] = queries
            yield Proposal(
                f"otlp.rows = [{toml(about)}]", f"if it searches, and {name} has what it found"
            )

    def _which(self, span: Span, row: Row | None) -> dict[str, Any]:
        """What of a row fits this span and others like it."""
        named = [name for name in self._mapping.tool if span.text(name) is not None]
        if named and row is not None and row.role is Role.TOOL:
            return {"when": {named[0]: _pattern(str(span.attributes.get(named[0])))}}
        scope = {"scope": span.scope} if span.scope else {}
        return {**scope, "span": _pattern(self._name(span), keep="*")}

    def _rows_of_scopes(self, span: Span, refusal: Refusal) -> Iterator[Proposal]:
        """Rows that choose the scope that the refusal names, or one of this trace."""
        service = service_of(span)
        of = f" of service.name {service}" if service else ""
        if (named := _SCOPES.search(refusal.message)) is not None:
            listed = named[0].rpartition("[")[2].strip('"]}')
            scope = listed if '"' not in listed else "the other scope"
            yield Proposal(named[0], f"if {scope} is the one to use{of}")
        spans = self._tree.with_role(*_FINDING, Role.TURN)
        for scope in dict.fromkeys(one.scope for one in spans if service_of(one) == service):
            row = scopes_table(service or "", [scope])
            yield Proposal(row, f"if {scope or 'the scope without a name'} is the one to use{of}")

    def _other(self, span: Span) -> Seen:
        """A span without a role that finds something, and that may have searched."""
        refusal = self._refused.get(span.span_id)
        turn = self._refused_turns.get(self._details.of_turn.get(span.span_id, span.span_id))
        because = refusal or turn
        row = self._tree.rows.get(span.span_id)
        rows = [*self._rows_of_span(span, row)] if because is not None else []
        to_record = None
        if because is not None and because.reason in ("unrecognised", "unseen_searches"):
            searches = named_search(self._name(span))
            if searches and not rows:
                about = {"role": "search", **self._which(span, row), "documents": [TO_RECORD]}
                to_record = f"otlp.rows = [{toml(about)}]"
            doubt = ", though its name says that it searches" if searches else ""
            none = self._unseen.get(span.span_id, row_for(span, row, self._question_around(span)))
            if none:
                rows.append(Proposal(rows_to_copy([none]), f"{NO_SEARCH}{doubt}"))
        reason, message = (None, "") if because is None else self._why_refused(because)
        if reason == "unseen_searches":
            message = "it may have searched, and does not tell what it found"
        return Seen(
            self._agent(span),
            "span",
            self._name(span)[:MAX_NAME_LENGTH],
            span.trace_id,
            span.span_id,
            "refused",
            True,
            reason,
            message,
            role="without a role" if row is None else row.role.value,
            why="no row of the table or the settings matches it" if row is None else how(row, span),
            rows=tuple(rows),
            to_record=to_record,
        )

    def _question_around(self, span: Span) -> str | None:
        return self._question(self._details.of_turn.get(span.span_id))

    def _rows_of_turn(self, refusal: Refusal) -> tuple[Proposal, ...]:
        """Settings that may help against a refusal that is about no search."""
        match refusal.reason:
            case "incomplete":
                row = 'otlp.missing_parents = "root"'
                return (Proposal(row, "if the spans above are not exported"),)
            case "outside_turn" | "unrecognised":
                return (Proposal('otlp.turn = "trace"', "if each trace is one turn"),)
            case "two_scopes":
                span = self._tree.by_id.get(refusal.span_id)
                return () if span is None else tuple(self._rows_of_scopes(span, refusal))
            case "no_conversation":
                return tuple(
                    Proposal(
                        f"otlp.conversation = [{toml(name)}]", f"if {name} names the conversation"
                    )
                    for name in self._mapping.conversation
                    if len({span.text(name) for span in self._tree.ordered} - {None}) == 1
                )
        return ()


_SIGNS: Final = {"name": "its name", "query": "its arguments", "scores": "its scores"}


def _of_refusal(
    refusal: Refusal, name: str = "", role: str = "span", rows: tuple[Proposal, ...] = ()
) -> Seen:
    """A refusal of a turn or a trace, with the role of the span that it names."""
    return Seen(
        refusal.agent,
        "turn",
        name[:MAX_NAME_LENGTH],
        refusal.trace_id,
        refusal.span_id,
        "refused",
        True,
        refusal.reason,
        refusal.message,
        role=role,
        rows=rows,
    )


def how(row: Row, span: Span) -> str:
    """How the row knows its spans, and with which values this one.

    >>> span = Span("", "", "", 0, 0, False, {"mlflow.spanType": "CHAIN"}, {})
    >>> how(Row(Role.OTHER, (("mlflow.spanType", ""),), "MLflow"), span)
    'mlflow.spanType = CHAIN'
    """
    if row.source == SETTINGS:
        return "a row of the settings"
    parts = []
    for name, value in row.when:
        found = value or span.attributes.get(name)
        known = isinstance(found, str) and len(found) <= MAX_NAME_LENGTH
        parts.append(f"{name} = {found}" if known else name)
    parts += [f"scope {row.scope}"] if row.scope else []
    parts += [f"span {row.span}"] if row.span != "*" else []
    return ", ".join(parts) or row.source


def without_texts(name: str, texts: Iterable[str]) -> str:
    """The name with ``*`` in place of what users wrote.

    >>> without_texts("desk.Where is my order?.run", ["Where is my order?"])
    'desk.*.run'
    """
    for one in texts:
        if one in name:
            name = name.replace(one, "*")
        elif has_text(name, one):
            return "*"
    return name


def names_of(tree: SpanTree, spans: Iterable[Span]) -> Iterator[str]:
    """The names of spans without the texts of users."""
    texts = [*_texts_of_users(tree)]
    for span in spans:
        yield without_texts(span.name, texts)[:MAX_NAME_LENGTH]


def _texts_of_users(tree: SpanTree) -> Iterator[str]:
    """Questions and queries that are long enough to be told from names."""
    found: dict[str, None] = {}
    for span in tree.ordered:
        row = tree.rows.get(span.span_id)
        if row is None or not row.query:
            continue
        asked = question_of(span, row.query), query_of(span, row.query)
        found |= dict.fromkeys(one for one in asked if one and len(one) >= MIN_TEXT_LENGTH)
    return iter(found)


def _identity_of_result(result: Result) -> str:
    if result.passage:
        return "id and text" if result.doc_id else "text"
    if result.doc_id:
        return "id"
    return "address" if result.url else "otlp.ids"


def _identity_of_document(document: Document) -> str:
    if document.id is not None:
        return "id"
    return "address" if document.address else "text" if document.text else "nothing"


def rows_of_ids(documents: Sequence[Document], reason: Reason | None) -> Iterator[Proposal]:
    """Names in documents without an identity that tell them apart, and may be ids."""
    if reason != "no_identity" or not documents:
        return
    for name in documents[0].fields:
        found = {text(document.fields.get(name)) for document in documents}
        if found in ({*map(str, range(len(found)))}, {*map(str, range(1, len(found) + 1))}):
            continue  # ranks
        if _MAY_IDENTIFY.search(name) and None not in found and len(found) == len(documents):
            yield Proposal(f"otlp.ids = [{toml(name)}]", f"if {name} identifies a document")


def shapes_for(span: Span, row: Row) -> Iterator[tuple[dict[str, str], str]]:
    """Rows of ``otlp.shapes`` that may read what a tool returned, without the tool, and what has to
    be true for each."""
    for _, value in recorded_at(span, row):
        written = plain_text(value)
        if written is not None:
            for separator, name in _SEPARATORS.items():
                if separator in written.strip():
                    yield {"split": separator}, f"{name} divide its results"
                    break
            yield {"split": "whole"}, "each text is one result"
            return
        lists = [*lists_in(value)][:MAX_LISTS]
        for path, items in lists:
            place = f"in {path}" if path != "[]" else "the items of its list"
            yield {"items": path, **keys_of(items, path)}, f"its results are {place}"
        if lists:
            return


def together(rows: Iterable[str]) -> str:
    """The settings of several rows, as TOML.

    >>> print(together(['otlp.tools = {"a" = "other"}', 'otlp.tools = {"b" = "search"}']))
    otlp.tools = {a = "other", b = "search"}
    """
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in tomllib.loads(row)["otlp"].items():
            mine = found.get(name)
            if isinstance(mine, dict) and isinstance(value, dict):
                found[name] = mine | value
            elif isinstance(mine, list) and isinstance(value, list):
                found[name] = mine + [one for one in value if one not in mine]
            else:
                found[name] = value
    return "\n".join(f"otlp.{name} = {toml(value)}" for name, value in found.items())


def toml(value: Any) -> str:
    r"""The value in TOML, on one line.

    >>> toml({"tool": "a\tb", "when": {"tool.name": ["x"]}})
    '{tool = "a\\tb", when = {"tool.name" = ["x"]}}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    written = json.dumps(str(value), ensure_ascii=False)
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else f"\\U{ord(c):08x}"
        for c in written
    )


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def _pattern(name: str, keep: str = "") -> str:
    """A pattern that only the name fits; ``keep`` are wildcards that it has already.

    >>> _pattern("a[1]*")
    'a[[]1][*]'
    """
    return "".join(f"[{c}]" if c in "[*?" and c not in keep else c for c in name)
