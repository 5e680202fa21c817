"""OpenTelemetry GenAI, Azure AI, LoongSuite, and the general rows of OpenLLMetry."""

from __future__ import annotations

from typing import Any, Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import (
    ANSWER,
    DOCUMENTS,
    EVALUATED,
    OPENLLMETRY,
    OPERATION,
    QUESTION,
    operation,
)

_AZURE: Final = "langchain-azure-ai, AzureAIOpenTelemetryTracer (gen_ai.tool.type=retriever)"
_LOONGSUITE: Final = "LoongSuite Python agent (gen_ai.span.kind)"

_ASKED: Final = ("gen_ai.retrieval.query.text", "gen_ai.retriever.query", "gen_ai.retrieval.query")
_RERANKED: Final = ("gen_ai.rerank.output_documents",)
_TO_RERANK: Final = ("gen_ai.rerank.input_documents",)
_TOOL_RESULT: Final = ("gen_ai.tool.call.result", "traceloop.entity.output", "output.value")
_TOOL_INPUT: Final = ("gen_ai.tool.call.arguments", "traceloop.entity.input", "input.value")


def _traceloop(kind: str, role: Role, **names: Any) -> Row:
    return Row(role, (("traceloop.span.kind", kind),), OPENLLMETRY, **names)


ROWS: Final[tuple[Row, ...]] = (
    operation(
        "retrieval",
        Role.SEARCH,
        documents=(*DOCUMENTS, "traceloop.entity.output"),
        query=_ASKED,
    ),
    Row(
        Role.SEARCH,
        ((OPERATION, "execute_tool"), ("gen_ai.tool.type", "retriever")),
        _AZURE,
        documents=("gen_ai.retriever.results", "gen_ai.retrieval.documents", *_TOOL_RESULT),
        query=(*_ASKED, "gen_ai.tool.call.arguments"),
        flattens_nesting=True,
    ),
    operation("execute_tool", Role.TOOL, documents=(*DOCUMENTS, *_TOOL_RESULT), query=_TOOL_INPUT),
    *(
        operation(
            name, Role.RERANKER, _LOONGSUITE, documents=_RERANKED, inputs=_TO_RERANK, query=_ASKED
        )
        for name in ("rerank", "rerank_documents")
    ),
    operation("react", Role.STEP, _LOONGSUITE),
    *(
        operation(name, Role.MODEL, answer=("gen_ai.output.messages",))
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
            query=("input.value",),
            answer=("output.value",),
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
            inputs=_TO_RERANK,
            query=query,
            answer=ANSWER if role in (Role.TURN, Role.MODEL) else (),
        )
        for kind, role, documents, query in (
            ("RETRIEVER", Role.SEARCH, (*DOCUMENTS, "output.value"), (*_ASKED, "input.value")),
            ("RERANKER", Role.RERANKER, _RERANKED, _ASKED),
            ("TOOL", Role.TOOL, _TOOL_RESULT, _TOOL_INPUT),
            ("LLM", Role.MODEL, (), ()),
            ("AGENT", Role.TURN, (), QUESTION),
            ("STEP", Role.STEP, (), ()),
        )
    ),
    _traceloop(
        "tool", Role.TOOL, documents=("traceloop.entity.output",), query=("traceloop.entity.input",)
    ),
    *(_traceloop(kind, Role.TURN, query=QUESTION, answer=ANSWER) for kind in ("workflow", "agent")),
    Row(Role.MODEL, (("llm.request.type", "chat"),), OPENLLMETRY),
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
