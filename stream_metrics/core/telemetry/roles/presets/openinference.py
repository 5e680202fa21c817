"""OpenInference: LangChain, LlamaIndex, Haystack, DSPy, OpenAI Agents."""

from __future__ import annotations

from typing import Any, Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import EVALUATED, graphs

_OPENINFERENCE: Final = "OpenInference semantic conventions (openinference.span.kind)"


def _openinference(kind: str, role: Role, **names: Any) -> Row:
    return Row(role, (("openinference.span.kind", kind),), _OPENINFERENCE, **names)


ROWS: Final[tuple[Row, ...]] = (
    Row(
        Role.STEP,
        (("openinference.span.kind", "CHAIN"),),
        "openinference-instrumentation-openai-agents: a pass of the agent's loop",
        scope="openinference.instrumentation.openai_agents",
        span="turn",
    ),
    Row(
        Role.TURN,
        (("openinference.span.kind", "CHAIN"),),
        "openinference-instrumentation-openai-agents: a run, of which a trace may hold several",
        scope="openinference.instrumentation.openai_agents",
        child_attributes=(("openinference.span.kind", "AGENT"),),
        replaces_outer=True,
    ),
    *(
        Row(
            Role.TURN,
            (("openinference.span.kind", "CHAIN"),),
            f"openinference-instrumentation-{scope}: a run of an agent",
            scope=f"openinference.instrumentation.{scope}",
            span=pattern,
            query=("input.value",),
            answer=("output.value",),
        )
        for scope, pattern in (
            ("llama_index", "*Agent.run"),
            ("llama_index", "AgentWorkflow.run"),
            ("llama_index", "*ChatEngine.*chat"),
            ("haystack", "*Agent.run*"),
            ("dspy", "ReAct.*forward"),
        )
    ),
    Row(
        Role.JOINER,
        (("openinference.span.kind", "CHAIN"),),
        "openinference-instrumentation-haystack: DocumentJoiner and its like",
        scope="openinference.instrumentation.haystack",
        span="*DocumentJoiner.*",
        documents=("output.value",),
        inputs=("input.value",),
    ),
    Row(
        Role.OTHER,
        (("openinference.span.kind", "CHAIN"),),
        "openinference-instrumentation-haystack: builders of prompts and answers",
        scope="openinference.instrumentation.haystack",
        span="*Builder.run*",
    ),
    *(
        Row(
            Role.POSTPROCESSOR,
            (("openinference.span.kind", "CHAIN"),),
            source,
            scope=f"openinference.instrumentation.{scope}",
            span=pattern,
            documents=("output.value",),
            inputs=("input.value",),
        )
        for source, scope, pattern in (
            ("openinference-instrumentation-haystack: samplers, filters", "haystack", "*.run*"),
            (
                "openinference-instrumentation-llama-index: postprocessors without events",
                "llama_index",
                "*postprocess_nodes",
            ),
        )
    ),
    _openinference(
        "RETRIEVER",
        Role.SEARCH,
        documents=("retrieval.documents", "output.value"),
        query=("input.value",),
    ),
    _openinference(
        "RERANKER",
        Role.RERANKER,
        documents=("reranker.output_documents", "output.value"),
        inputs=("reranker.input_documents", "input.value"),
        query=("reranker.query",),
    ),
    _openinference(
        "TOOL",
        Role.TOOL,
        documents=("retrieval.documents", "output.value"),
        query=("input.value",),
    ),
    # LangChain's kind is AGENT wherever a name has "agent" in it.
    Row(
        Role.TOOL,
        (("openinference.span.kind", "AGENT"), ("tool.name", "")),
        "openinference-instrumentation-langchain: a tool with such a name",
        scope="openinference.instrumentation.langchain",
        documents=("retrieval.documents", "output.value"),
        query=("input.value",),
    ),
    Row(
        Role.OTHER,
        (("openinference.span.kind", "AGENT"), ("metadata:langgraph_node", "")),
        "openinference-instrumentation-langchain: a node of a graph",
        scope="openinference.instrumentation.langchain",
    ),
    *graphs(
        _OPENINFERENCE,
        ("openinference.span.kind", "CHAIN"),
        "metadata:",
        ("input.value", "output.value"),
        scope="openinference.instrumentation.langchain",
    ),
    _openinference(
        "AGENT",
        Role.TURN,
        query=("input.value",),
        answer=("output.value",),
        agent=("graph.node.name",),
    ),
    _openinference("LLM", Role.MODEL, answer=("output.value",)),
    _openinference("EVALUATOR", Role.EVALUATOR, documents=EVALUATED),
    _openinference("", Role.OTHER),
)
