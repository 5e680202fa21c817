"""Settings of what is computed, and of how it is read from events and traces."""

from __future__ import annotations

import math
import tomllib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stream_metrics.core.dedup.tables import (
    IGNORED_FIELDS,
    DedupRules,
    EntityType,
    Need,
    Tables,
    newest,
    published,
    tables_text,
)
from stream_metrics.core.engine.cells import GROUPS
from stream_metrics.core.engine.config import MAX_AGENTS, MAX_RELEASES, MAX_RETRIEVAL, MAX_ROUTES
from stream_metrics.core.engine.series import MAX_SERIES, META_SERIES
from stream_metrics.core.engine.window import (
    DEFAULT_WINDOWS,
    Window,
    parse_duration,
    parse_window,
    series_of_agent,
    window_specs,
    without_loops,
)
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.metrics.labels import HUMAN_FIRST, Counting
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.core.telemetry import Options, Row, SpanMapping, mapping
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES, Grading
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from stream_metrics.core.telemetry.shapes.users import ToolRows, UserShape, problem_of_path


class SettingsTable(BaseModel):
    """A table of settings. The docstring of a setting is its description in the documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NeedSettings(SettingsTable):
    """Requires that at least ``count`` of ``names`` match."""

    count: int = Field(1, ge=1)
    names: tuple[str, ...]


class EntityTypeSettings(SettingsTable):
    """A row of the deduplication tables; replaces a named type of the same name."""

    name: str
    aliases: tuple[str, ...] = ()
    definitive: tuple[str, ...] | None = Field(
        (), description="components that identify a document; null: all but `not_definitive`"
    )
    not_definitive: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()
    confirms: tuple[tuple[NeedSettings, ...], ...] = ()
    parts_differ: tuple[str, ...] = ()
    title_fallback: str | None = None

    def row(self) -> EntityType:
        """The row as the engine reads it."""
        return EntityType(
            name=self.name,
            aliases=self.aliases,
            definitive=None if self.definitive is None else frozenset(self.definitive),
            not_definitive=frozenset(self.not_definitive),
            rejects=self.rejects,
            confirms=tuple(
                tuple(Need(need.count, need.names) for need in rule) for rule in self.confirms
            ),
            parts_differ=self.parts_differ,
            title_fallback=self.title_fallback,
        )


class DedupSettings(SettingsTable):
    """How duplicate documents are recognised."""

    tables: int | None = Field(None, ge=1)
    """The number of the built-in tables. By default, those under which the state was built, and
    the newest of the release for new state and for replays."""
    identical_content: Literal["duplicate", "different"] = "duplicate"
    """What equal long content means if document ids differ."""
    snippet_rejects: bool = True
    """Whether different snippets make two results different documents."""
    ignore_fields: tuple[str, ...] = IGNORED_FIELDS
    """Fields that neither reject nor confirm, for types without a table row."""
    max_candidates: int = Field(64, ge=1)
    """The most earlier results that a new one is compared with."""
    entity_types: tuple[EntityTypeSettings, ...] = Field(
        (), examples=[[{"name": "Ticket", "definitive": ["ticket_id"]}]]
    )
    """Rows for your own entity types; a row replaces the built-in one of the same name."""

    @field_validator("tables")
    @classmethod
    def _published(cls, number: int | None) -> int | None:
        if number is not None and number not in published():
            raise ValueError(
                f"this release has tables {tables_text()}; tables {number} need a newer release"
            )
        return number

    def in_force(self) -> Tables:
        """The built-in tables: those configured, else the newest."""
        return newest() if self.tables is None else published()[self.tables]

    def state_settings(self) -> dict[str, Any]:
        """The settings that change what the state holds, by name.

        State whose settings name no tables was built under number 1, also by releases that had no
        others.
        """
        held = self.model_dump(mode="json", exclude={"tables"})
        number = self.in_force().number
        return held if number == 1 else {**held, "tables": number}

    def rules(self) -> DedupRules:
        """The tables with the configured rows in them."""
        tables = self.in_force()
        rows = {kind.name.casefold(): kind for kind in tables.types}
        rows |= {row.name.casefold(): row.row() for row in self.entity_types}
        return DedupRules(
            types=tuple(rows.values()),
            ignore_fields=frozenset(self.ignore_fields),
            identical_content=self.identical_content,
            snippet_rejects=self.snippet_rejects,
            max_candidates=self.max_candidates,
            tables=tables,
        )


class OtlpRow(SettingsTable):
    """A row that assigns a role to matching spans."""

    role: Role
    """The role of the spans: a search, a tool, a reranker, a turn and so on."""
    when: dict[str, str] = {}
    """Attributes that a span must have, with their values; an empty value matches any."""
    scope: str = ""
    """The beginning of the instrumentation scope's name."""
    span: str = "*"
    """A pattern for the name of the span."""
    documents: tuple[str, ...] = ()
    """Attributes with the retrieved documents: a list, JSON, or flattened attributes."""
    inputs: tuple[str, ...] = ()
    """Attributes with the documents that a reranker was given, in the same forms."""
    query: tuple[str, ...] = ()
    """Attributes with the query, or with the question of a turn."""
    answer: tuple[str, ...] = ()
    """Attributes with the answer of a turn or model call."""

    def row(self) -> Row:
        """The row for the interpretation of traces."""
        return Row(
            self.role,
            tuple(self.when.items()),
            scope=self.scope,
            span=self.span,
            documents=self.documents,
            inputs=self.inputs,
            query=self.query,
            answer=self.answer,
        )


class OtlpShape(SettingsTable):
    """A row that says how the results of a tool are read. Paths are JMESPath."""

    tool: str = "*"
    """A pattern for the name of the tool."""
    items: str | None = None
    """Where the list of results is."""
    id: str | None = None
    """In a result: its id; without a path it is read by the usual names, as the others are."""
    url: str | None = None
    """In a result: its address."""
    title: str | None = None
    """In a result: its title."""
    text: str | None = None
    """In a result: its text."""
    score: str | None = None
    """In a result: its score."""
    split: str | None = Field(None, min_length=1)
    """The text between passages, where the result is a text; `whole` if it is one passage."""
    empty: tuple[str, ...] = ()
    """Texts that say that nothing was found."""

    @field_validator("items", "id", "url", "title", "text", "score")
    @classmethod
    def _path(cls, path: str | None) -> str | None:
        if path is not None and (problem := problem_of_path(path)) is not None:
            raise ValueError(f"{path!r} is no JMESPath: {problem}")
        return path

    @model_validator(mode="after")
    def _reads_something(self) -> OtlpShape:
        if self.items is None and self.split is None and not self.empty:
            raise ValueError("give items, split or empty")
        if self.items is not None and self.split is not None:
            raise ValueError("items is for lists and split for texts; give one of them")
        return self

    def shape(self) -> UserShape:
        """The row for the interpretation of traces."""
        return UserShape(**self.model_dump())


class OtlpSettings(SettingsTable):
    """How OTLP traces are interpreted, in addition to the built-in conventions."""

    rows: tuple[OtlpRow, ...] = Field(
        (), examples=[[{"role": "search", "span": "lookup*", "documents": ["app.hits"]}]]
    )
    """The roles of spans that the built-in conventions do not cover, or for which they differ."""
    shapes: tuple[OtlpShape, ...] = Field(
        (),
        examples=[[{"tool": "search_docs", "items": "rows[*]", "id": "key", "text": "body"}]],
    )
    """How results of tools are read that the built-in table does not know, or reads differently."""
    tools: dict[str, Literal["search", "other"]] = Field(
        {}, examples=[{"get_messages": "other", "kb": "search"}]
    )
    """Which tools search, by patterns of their names, where name, arguments and results of a tool
    do not show it."""
    scopes: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        (), examples=[{"support": ["openinference.instrumentation.langchain"]}]
    )
    """The instrumentation scopes to use: by `service.name`, such as `{support = ["langfuse-sdk"]}`,
    or a list for all services. All scopes are used of services that are not named, and of all if
    this is empty."""
    turn: Literal["span", "trace"] = "span"
    """Whether an agent's spans delimit turns, or each trace is one turn."""
    content: Literal["on", "off"] = "on"
    """Whether events contain texts; without them, documents are compared by digests only."""
    missing_parents: Literal["refuse", "root"] = "refuse"
    """Whether a trace with missing parent spans is refused, or such spans are treated as roots."""
    require_conversation: bool = False
    """Whether a trace without a conversation is refused; otherwise it is its own conversation."""
    max_spans: int = Field(100_000, ge=1)
    """The most spans of a trace; a trace with more is refused."""
    max_trace_bytes: int = Field(128 << 20, ge=1)
    """The most bytes of a trace's spans; a trace with more is refused."""
    conversation: tuple[str, ...] = Field((), examples=[["app.thread.id"]])
    """Further attributes with the conversation, read before the built-in ones on whichever span of
    a trace."""
    agent: tuple[str, ...] = Field((), examples=[["app.agent"]])
    """Further attributes with the agent, read before the built-in ones on whichever span of a
    turn."""
    release: tuple[str, ...] = Field((), examples=[["app.release"]])
    """Further attributes with the release, read before the built-in ones."""
    ids: tuple[str, ...] = Field((), examples=[["article_id"]])
    """Names in a document or its metadata to use as ID components. The number of a chunk or a page
    counts together with its document."""
    fields: tuple[str, ...] = Field((), examples=[["author", "pages"]])
    """Names in a document or its metadata to use as fields."""
    identity: dict[str, Literal["id", "id_and_text"]] = Field(
        {}, examples=[{"support": "id_and_text"}]
    )
    """What identifies the documents of an agent: `id`, or `id_and_text` if ids name pages of which
    searches return parts. Without a row for the agent, the documents of each trace decide."""

    def with_row(self, written: str) -> OtlpSettings:
        """These settings with others, written as TOML; rows come before those that are there.

        Raises ``ValueError`` if that is not valid.

        >>> OtlpSettings(tools={"a": "other"}).with_row('otlp.tools = {"b" = "search"}').tools
        {'b': 'search', 'a': 'other'}
        """
        given: dict[str, Any] = self.model_dump()
        for name, value in tomllib.loads(written).get("otlp", {}).items():
            mine = given.get(name)
            if isinstance(value, dict) and isinstance(mine, dict):
                value = value | {key: old for key, old in mine.items() if key not in value}
            elif isinstance(value, list) and isinstance(mine, tuple):
                value = [*value, *mine]
            given[name] = value
        return OtlpSettings.model_validate(given)

    def mapping(self) -> SpanMapping:
        """The rows that map spans to roles: those configured, then the built-in ones."""
        rows = [row.row() for row in self.rows]
        tools = ToolRows(tuple(row.shape() for row in self.shapes), self.tools)
        return mapping(rows, self.conversation, self.agent, self.release, tools)

    @field_validator("scopes", mode="before")
    @classmethod
    def _lists_of_scopes(cls, scopes: object) -> object:
        lists = scopes.values() if isinstance(scopes, dict) else (scopes,)
        for names in lists:
            if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
                raise ValueError(
                    'give lists of scopes by service, such as {support = ["langfuse-sdk"]}, or one '
                    "list for all services"
                )
        return scopes

    def _scope_choice(self) -> ScopeChoice:
        if isinstance(self.scopes, tuple):
            return ScopeChoice(frozenset(self.scopes))
        return ScopeChoice(by_service={name: frozenset(of) for name, of in self.scopes.items()})

    def options(self, grading: Grading) -> Options:
        """The options for the interpretation of traces."""
        return Options(
            turn=self.turn,
            content=self.content == "on",
            scopes=self._scope_choice(),
            missing_parents=self.missing_parents,
            require_conversation=self.require_conversation,
            max_spans=self.max_spans,
            max_bytes=self.max_trace_bytes,
            ids=self.ids,
            fields=self.fields,
            identity=self.identity,
            grading=grading,
        )


class LabelSettings(SettingsTable):
    """How scores of evaluators become relevance labels, and which labellers are models."""

    model_labellers: tuple[str, ...] = Field((), examples=[["judge*", "gpt-*"]])
    """Case-insensitive patterns for the labellers that are models. Labels by them are a model's
    where their event has no `source`; all others without a `source` are a person's."""

    cutoffs: dict[int, float] = Field({}, examples=[{2: 0.5, 4: 0.9}])
    """The lowest score of each gain from 1 to 4, such as `{2 = 0.5, 4 = 0.9}`; lower scores have
    gain 0."""
    grades: dict[str, Annotated[int, Field(ge=0, le=4)]] = Field(
        {}, examples=[{"relevant": 3, "irrelevant": 0}]
    )
    """The gain of each label or score that evaluators give, such as `{relevant = 3, irrelevant =
    0}`. Takes precedence over `labels.cutoffs`."""
    names: tuple[str, ...] = NO_GRADES.names
    """Case-insensitive patterns for the names of evaluations that judge the relevance of documents;
    other evaluations give no labels."""
    document: tuple[str, ...] = Field((), examples=[["metadata:document_id"]])
    """Attributes of an evaluation with the id or the text of the document; `metadata:key` is a key
    of JSON in an attribute."""
    position: tuple[str, ...] = Field((), examples=[["document.position"]])
    """Attributes of an evaluation with the position of the document in its span, from 0."""
    delay: str | None = Field(None, examples=["2d"])
    """How long after a conversation its last labels may come, such as `2d`. Those that come after
    `state.ttl` find nothing, so `state.ttl` must be at least that."""

    @field_validator("delay")
    @classmethod
    def _delay(cls, delay: str | None) -> str | None:
        if delay is not None:
            parse_duration(delay)
        return delay

    @property
    def delay_ms(self) -> int:
        """``delay`` in milliseconds; 0 if it is not set."""
        return 0 if self.delay is None else parse_duration(self.delay) // 1000

    @field_validator("cutoffs")
    @classmethod
    def _rising(cls, cutoffs: dict[int, float]) -> dict[int, float]:
        rising = [cutoffs[gain] for gain in sorted(cutoffs)]
        if not set(cutoffs) <= {1, 2, 3, 4}:
            raise ValueError("gains are 1, 2, 3 and 4; every lower score has gain 0")
        if not all(map(math.isfinite, rising)) or rising != sorted(set(rising)):
            raise ValueError("a higher gain needs a higher score")
        return cutoffs

    @property
    def grading(self) -> Grading:
        """The same settings for the interpretation of traces."""
        return Grading(
            self.names,
            tuple(self.grades.items()),
            tuple((score, gain) for gain, score in sorted(self.cutoffs.items())),
            self.document,
            self.position,
        )


class LimitSettings(SettingsTable):
    """Limits on input, and on the size of turns and conversations."""

    record_bytes: int = Field(Limits().record_bytes, ge=1)
    """Bytes in a record."""
    json_levels: int = Field(Limits().json_levels, ge=4, le=200)
    """Levels of nested JSON."""
    searches_per_event: int = Field(Limits().searches_per_event, ge=1)
    """Searches in an event."""
    results_per_event: int = Field(Limits().results_per_event, ge=1)
    """Results in an event."""
    labels_per_event: int = Field(Limits().labels_per_event, ge=1)
    """Labels in an event."""
    relevant_per_event: int = Field(Limits().relevant_per_event, ge=1)
    """Entries of `relevant` in an event."""
    ids_per_result: int = Field(Limits().ids_per_result, ge=1)
    """Entries of `ids` in a result."""
    fields_per_result: int = Field(Limits().fields_per_result, ge=1)
    """Entries of `fields` in a result."""
    values_per_list: int = Field(Limits().values_per_list, ge=1)
    """Values in a list inside `ids` or `fields`."""
    url_bytes: int = Field(Limits().url_bytes, ge=1)
    """Bytes in a URL."""
    results_per_turn: int = Field(Limits().results_per_turn, ge=1)
    """Results in a turn."""
    searches_per_turn: int = Field(Limits().searches_per_turn, ge=1)
    """Searches in a turn, including those without results."""
    values_per_turn: int = Field(Limits().values_per_turn, ge=1)
    """Values in `ids` and `fields` in a turn, not counting eight for each result."""
    iterations_per_turn: int = Field(Limits().iterations_per_turn, ge=1)
    """Iterations in a turn."""
    waiting_labels: int = Field(Limits().waiting_labels, ge=1)
    """Labels in a conversation that wait for the result, search or iteration that they name."""
    turns_per_conversation: int | None = Field(None, ge=1)
    """Turns in a conversation. By default 1,000; state that was built with another number, as by
    earlier releases, keeps that."""

    def in_force(self) -> Limits:
        """The limits, with the defaults of those that are not set."""
        return Limits(**self.model_dump(exclude_none=True))


class MetricSettings(SettingsTable):
    """What is computed and under which names it is exported."""

    good_gain: int = Field(2, ge=1, le=4)
    """The smallest gain that makes a result good."""
    gain_of_document: Literal["first", "max"] = "first"
    """Which label counts for a document that was found several times: the first, or the highest."""
    labels: Counting = HUMAN_FIRST
    """Whose labels count: a person's where there is one and else the model's (`human_first`), or
    only those of people (`human`) or of the model (`model`)."""
    turn_scope: Literal["last", "all"] = "last"
    """Whether there is one row for each conversation (its last turn) or one for each turn."""
    windows: tuple[str, ...] = Field(tuple(window.name for window in DEFAULT_WINDOWS), min_length=1)
    """Lengths of the sliding windows: a number and `s`, `m` or `h`, or `d` from two days on."""
    series_windows: dict[str, tuple[str, ...]] = Field({}, examples=[{"turns": ["30m", "24h"]}])
    """Which windows have the series that not all need, by group: `turns`, `iterations`, `loops`,
    `duplicates`, `gates`, `routes`, `reranking`, `retrieval` or `estimates`. By default each window
    has all, but for the default windows; metrics-prometheus.md lists which series those have."""
    dimension: Literal["agent", "release"] = "agent"
    """Whether window metrics are split by agent or by release (to compare a canary)."""
    agents: tuple[str, ...] = Field((), max_length=MAX_AGENTS, examples=[["support", "research"]])
    """Agents (or releases) that always have their own series."""
    pools: dict[str, str] = Field(
        {}, max_length=MAX_AGENTS, examples=[{"support": "handbook", "sales": "handbook"}]
    )
    """What agents share, such as an index or a model, by agent. Alert rules also add up the
    evidence about all agents of a pool, and then fire for each of them."""
    routes: tuple[str, ...] = Field((), max_length=MAX_ROUTES, examples=[["handbook", "web"]])
    """Routes that always have their own series."""
    retrieval: tuple[str, ...] = Field((), examples=[["ndcg@10", "recall@10"]])
    """Ranked retrieval metrics to compute live, at most 24, such as `ndcg@10`; see
    metrics-retrieval.md, "Ranked metrics, live"."""

    @field_validator("windows")
    @classmethod
    def _windows(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for name in windows:
            parse_window(name)
        return windows

    @field_validator("series_windows")
    @classmethod
    def _series_windows(cls, groups: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for group in groups:
            if group not in GROUPS:
                raise ValueError(
                    f"{group!r} is no group of series. Name one of {', '.join(GROUPS)}"
                )
        return groups

    @field_validator("retrieval")
    @classmethod
    def _retrieval(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        metrics = live_metrics(names)
        if len(metrics) > MAX_RETRIEVAL:
            raise ValueError(
                f"{len(metrics)} metrics; name at most {MAX_RETRIEVAL}, because each metric adds "
                "two series for each agent to each window"
            )
        return tuple(map(str, metrics))

    @model_validator(mode="after")
    def _names_fit(self) -> MetricSettings:
        if self.dimension == "release" and len(self.agents) > MAX_RELEASES:
            raise ValueError(
                f"with `dimension` release, `agents` may have at most {MAX_RELEASES} names"
            )
        if self.dimension == "release" and self.pools:
            raise ValueError("with `dimension` release, there are no agents in `pools`")
        return self

    @model_validator(mode="after")
    def _series_fit(self) -> MetricSettings:
        for group, names in self.series_windows.items():
            if unknown := [name for name in names if name not in self.windows]:
                raise ValueError(
                    f"`series_windows` gives {group} the window {unknown[0]}, which `windows` does "
                    "not have. Add it there, or leave it out"
                )
        found = series_of_agent(self.window_specs(), len(self.retrieval))
        if found + META_SERIES > MAX_SERIES:
            raise ValueError(
                f"{len(self.windows)} windows have {found:,} series for each agent, and a worker "
                f"exports at most {MAX_SERIES:,}. Configure fewer `windows`, or give fewer of them "
                "to groups in `series_windows`"
            )
        return self

    def window_specs(self, *, loops: bool = True) -> tuple[Window, ...]:
        """The configured windows, with their families of series; maybe without those of loops."""
        specs = window_specs(self.windows, self.series_windows)
        return specs if loops else without_loops(specs)
