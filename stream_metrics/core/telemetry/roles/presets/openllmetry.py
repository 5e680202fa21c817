"""OpenLLMetry: its instrumentations of frameworks, such as LlamaIndex and CrewAI."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import (
    ANSWER,
    ASKED,
    INPUT,
    NAMING,
    OPENLLMETRY,
    OUTPUT,
    QUESTION,
    RETRIEVED,
    operation,
)

ROWS: Final[tuple[Row, ...]] = (
    # LlamaIndex' and Haystack's outermost spans are "workflows".
    *(
        Row(
            role,
            (("traceloop.span.kind", ""),),
            "opentelemetry-instrumentation-llamaindex",
            scope="opentelemetry.instrumentation.llamaindex",
            span=pattern,
            documents=OUTPUT if role in (*NAMING, Role.POSTPROCESSOR) else (),
            inputs=INPUT if role is Role.POSTPROCESSOR else (),
            query=INPUT,
            answer=OUTPUT if role is Role.TURN else (),
        )
        for role, pattern in (
            (Role.SEARCH, "*Retriever.*"),
            (Role.POSTPROCESSOR, "*Rerank*"),
            (Role.POSTPROCESSOR, "*Postprocessor.*"),
            (Role.TOOL, "*Tool.*"),
            (Role.TOOL, "call_tool.*"),
            (Role.TURN, "*Agent*.workflow"),
        )
    ),
    *(
        Row(
            role,
            (("traceloop.entity.input", given), ("traceloop.entity.output", "[[]*")),
            f"opentelemetry-instrumentation-llamaindex: {kind} of whichever name",
            scope="opentelemetry.instrumentation.llamaindex",
            documents=OUTPUT,
            inputs=INPUT if role is Role.POSTPROCESSOR else (),
            query=INPUT,
        )
        for role, kind, given in (
            (Role.POSTPROCESSOR, "postprocessors", '{"nodes":*'),
            (Role.SEARCH, "retrievers", '{*"query_bundle*'),
            (Role.SEARCH, "retrievers", '{"str_or_query_bundle":*'),
        )
    ),
    Row(
        Role.OTHER,
        (("traceloop.span.kind", "workflow"),),
        "opentelemetry-instrumentation-llamaindex",
        scope="opentelemetry.instrumentation.llamaindex",
    ),
    Row(
        Role.SEARCH,
        (("traceloop.span.kind", "workflow"),),
        "opentelemetry-instrumentation-haystack: a pipeline, of which only the end is recorded",
        scope="opentelemetry.instrumentation.haystack",
        documents=OUTPUT,
        query=INPUT,
    ),
    Row(
        Role.TURN,
        (("traceloop.span.kind", "agent"),),
        "opentelemetry-instrumentation-openai-agents: an agent of a run, which may have several",
        scope="opentelemetry.instrumentation.openai_agents",
        query=QUESTION,
        answer=ANSWER,
        once_per_run=True,
    ),
    # CrewAI: a kickoff is one turn; names of tasks are their descriptions, which users may write.
    *(
        Row(
            role,
            ((name, value),),
            "opentelemetry-instrumentation-crewai",
            scope="opentelemetry.instrumentation.crewai",
            span=pattern,
            answer=("crewai.crew.result",) if role is Role.TURN else (),
            is_group=pattern == "crewai.workflow",
        )
        for role, name, value, pattern in (
            (Role.TURN, "gen_ai.system", "crewai", "crewai.workflow"),
            (Role.TURN, "gen_ai.provider.name", "crewai", "crewai.workflow"),
            (Role.TURN, "traceloop.span.kind", "agent", "*.agent"),
            (Role.OTHER, "traceloop.span.kind", "task", "*.task"),
            (Role.MODEL, "gen_ai.request.model", "", "*.llm"),
        )
    ),
    Row(
        Role.OTHER,
        (("traceloop.span.kind", "workflow"), ("gen_ai.provider.name", "langchain")),
        "opentelemetry-instrumentation-langchain: a chain that is no graph",
        scope="opentelemetry.instrumentation.langchain",
    ),
    operation(
        "vector_db_retrieve",
        Role.SEARCH,
        OPENLLMETRY,
        documents=RETRIEVED,
        query=ASKED,
    ),
)
