"""OpenTelemetry GenAI, Azure AI, LoongSuite, and the general rows of OpenLLMetry."""

from __future__ import annotations

from typing import Any, Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import (
    ANSWER,
    ASKED,
    EVALUATED,
    INPUT,
    OPENLLMETRY,
    OPERATION,
    QUESTION,
    RERANKED,
    RETRIEVED,
    TO_RERANK,
    TOOL_INPUT,
    TOOL_OUTPUT,
    operation,
)

_AZURE: Final = "langchain-azure-ai, AzureAIOpenTelemetryTracer (gen_ai.tool.type=retriever)"
_LOONGSUITE: Final = "LoongSuite Python agent (gen_ai.span.kind)"


def _traceloop(kind: str, role: Role, **names: Any) -> Row:
    return Row(role, (("traceloop.span.kind", kind),), OPENLLMETRY, **names)


ROWS: Final[tuple[Row, ...]] = (
    operation("retrieval", Role.SEARCH, documents=RETRIEVED, query=ASKED),
    operation(
        "search_memory",
        Role.SEARCH,
        "OpenTelemetry GenAI semantic conventions from v0.1.0 on: a search of a memory store",
        documents=RETRIEVED,
        query=ASKED,
    ),
    Row(
        Role.SEARCH,
        ((OPERATION, "execute_tool"), ("gen_ai.tool.type", "retriever")),
        _AZURE,
        documents=TOOL_OUTPUT,
        query=(*ASKED[: -len(INPUT)], *TOOL_INPUT),
        flattens_nesting=True,
    ),
    operation("execute_tool", Role.TOOL, documents=TOOL_OUTPUT, query=TOOL_INPUT),
    *(
        operation(
            name, Role.RERANKER, _LOONGSUITE, documents=RERANKED, inputs=TO_RERANK, query=ASKED
        )
        for name in ("rerank", "rerank_documents")
    ),
    operation("react", Role.STEP, _LOONGSUITE),
    *(
        operation(name, Role.MODEL, answer=ANSWER)
        for name in ("chat", "text_completion", "generate_content", "completion")
    ),
    operation(
        "invoke_agent",
        Role.TURN,
        "OpenTelemetry GenAI, OpenAI Agents: an agent of a run, which may have several",
        scope="opentelemetry.instrumentation.genai.openai_agents",
        query=QUESTION,
        answer=ANSWER,
        once_per_run=True,
    ),
    *(
        operation(name, Role.TURN, query=QUESTION, answer=ANSWER)
        for name in ("invoke_agent", "invoke_workflow")
    ),
    *(
        Row(
            Role.TURN,
            (("gen_ai.span.kind", "CHAIN"),),
            "LoongSuite Python agent: a graph that begins with a choice, or has its usual name",
            span=name,
            child_span=inner,
            query=QUESTION,
            answer=ANSWER,
            maybe_turn=True,
        )
        for name, inner in (("*", "chain __start__"), ("chain LangGraph", ""))
    ),
    Row(
        Role.OTHER,
        (("gen_ai.span.kind", "CHAIN"),),
        "LoongSuite Python agent: a graph, or any other chain",
        maybe_turn=True,
    ),
    *(
        Row(
            role,
            (("gen_ai.span.kind", kind),),
            _LOONGSUITE,
            documents=documents,
            inputs=TO_RERANK if role is Role.RERANKER else (),
            query=query,
            answer=ANSWER if role in (Role.TURN, Role.MODEL) else (),
        )
        for kind, role, documents, query in (
            ("RETRIEVER", Role.SEARCH, RETRIEVED, ASKED),
            ("RERANKER", Role.RERANKER, RERANKED, ASKED),
            ("TOOL", Role.TOOL, TOOL_OUTPUT, TOOL_INPUT),
            ("LLM", Role.MODEL, (), ()),
            ("AGENT", Role.TURN, (), QUESTION),
            ("STEP", Role.STEP, (), ()),
        )
    ),
    _traceloop("tool", Role.TOOL, documents=TOOL_OUTPUT, query=TOOL_INPUT),
    *(_traceloop(kind, Role.TURN, query=QUESTION, answer=ANSWER) for kind in ("workflow", "agent")),
    Row(Role.MODEL, (("llm.request.type", "chat"),), OPENLLMETRY, answer=ANSWER),
    Row(
        Role.EVALUATOR,
        (("gen_ai.evaluation.name", ""),),
        "the event gen_ai.evaluation.result of OpenTelemetry GenAI, written as a span",
        span="gen_ai.evaluation.result",
        documents=EVALUATED,
    ),
    operation("", Role.OTHER),
    _traceloop("", Role.OTHER),
    Row(
        Role.TURN,
        source="programs that put spans of their own around each turn",
        span="turn",
        yields_to_inner=True,
    ),
)
