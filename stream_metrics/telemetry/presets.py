"""The rows that are known beforehand: frameworks, their instrumentations and what these write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stream_metrics.telemetry.mapping import Mapping, Role, Row

_OPENINFERENCE: Final = "OpenInference semantic conventions (openinference.span.kind)"
_GENAI: Final = "OpenTelemetry GenAI semantic conventions (gen_ai.operation.name)"
_OPENLLMETRY: Final = "OpenLLMetry (traceloop.span.kind, opentelemetry-instrumentation-langchain)"
_LANGFUSE: Final = "Langfuse SDK (langfuse.observation.type)"
_MLFLOW: Final = "MLflow tracing (mlflow.spanType)"
_LANGSMITH: Final = "LangSmith SDK, OpenTelemetry export (langsmith.span.kind)"
_AZURE: Final = "langchain-azure-ai, AzureAIOpenTelemetryTracer (gen_ai.tool.type=retriever)"
_HAYSTACK: Final = "Haystack's tracer for OpenTelemetry (haystack.component.type)"
_LOONGSUITE: Final = "LoongSuite Python agent (gen_ai.span.kind)"

_OPERATION: Final = "gen_ai.operation.name"
_FOUND: Final = ("gen_ai.retrieval.documents", "gen_ai.retriever.results")
_ASKED: Final = ("gen_ai.retrieval.query.text", "gen_ai.retriever.query", "gen_ai.retrieval.query")
_RERANKED: Final = ("gen_ai.rerank.output_documents",)
_TO_RERANK: Final = ("gen_ai.rerank.input_documents",)
_TOLD: Final = ("gen_ai.output.messages", "traceloop.entity.output", "output.value")
_QUESTION: Final = ("gen_ai.input.messages", "traceloop.entity.input", "input.value")


_EVALUATED: Final = ("retrieval.documents", "input.value")


def _openinference(kind: str, role: Role, **names: Any) -> Row:
    return Row(role, (("openinference.span.kind", kind),), _OPENINFERENCE, **names)


def _operation(value: str, role: Role, source: str = _GENAI, **names: Any) -> Row:
    return Row(role, ((_OPERATION, value),), source, **names)


def _traceloop(kind: str, role: Role, **names: Any) -> Row:
    return Row(role, (("traceloop.span.kind", kind),), _OPENLLMETRY, **names)


def _product(attribute: str, source: str, found: str, asked: str, **roles: Role) -> list[Row]:
    """The rows of a product that has one attribute each for kind, output and input."""
    return [
        Row(
            role,
            ((attribute, value),),
            source,
            documents=(found, "retrieval.documents", *_FOUND) if role in _NAMING else (),
            inputs=(asked,) if role is Role.RERANKER else (),
            query=(asked,) if role in (*_NAMING, Role.TURN) else (),
            answer=(found,) if role in (Role.TURN, Role.MODEL) else (),
        )
        for value, role in roles.items()
    ]


def _graphs(
    source: str, kind: tuple[str, str], metadata: str, texts: tuple[str, str], scope: str = ""
) -> Iterator[Row]:
    """LangGraph's outermost graphs: runs that it marks, or that have its usual name."""
    asked, answered = texts
    for when, name in (((kind, (f"{metadata}ls_integration", "")), "*"), ((kind,), "LangGraph")):
        yield Row(
            Role.TURN,
            when,
            f"{source}: a run of LangGraph that is no node of another",
            scope,
            name,
            query=(asked,),
            answer=(answered,),
            without=(f"{metadata}langgraph_node",),
        )


_NAMING: Final = (Role.SEARCH, Role.TOOL, Role.RERANKER)
_HANDING_ON: Final = (Role.SEARCH, Role.RERANKER, Role.JOINER, Role.POSTPROCESSOR)
_TOOL_RESULT: Final = ("gen_ai.tool.call.result", "traceloop.entity.output", "output.value")
_TOOL_INPUT: Final = ("gen_ai.tool.call.arguments", "traceloop.entity.input", "input.value")

PRESETS: Final[tuple[Row, ...]] = (
    # OpenInference: LangChain, LlamaIndex, Haystack, DSPy, OpenAI Agents.
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
        holds=(("openinference.span.kind", "AGENT"),),
        also_inside=True,
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
        documents=("output.value",),
        query=("input.value",),
    ),
    Row(
        Role.OTHER,
        (("openinference.span.kind", "AGENT"), ("metadata:langgraph_node", "")),
        "openinference-instrumentation-langchain: a node of a graph",
        scope="openinference.instrumentation.langchain",
    ),
    *_graphs(
        _OPENINFERENCE,
        ("openinference.span.kind", "CHAIN"),
        "metadata:",
        ("input.value", "output.value"),
        scope="openinference.instrumentation.langchain",
    ),
    _openinference("AGENT", Role.TURN, query=("input.value",), answer=("output.value",)),
    _openinference("LLM", Role.MODEL, answer=("output.value",)),
    _openinference("EVALUATOR", Role.EVALUATOR, documents=_EVALUATED),
    _openinference("", Role.OTHER),
    *_graphs(
        _LANGSMITH,
        ("langsmith.span.kind", "chain"),
        "langsmith.metadata.",
        ("gen_ai.prompt", "gen_ai.completion"),
    ),
    Row(
        Role.OTHER,
        (
            ("langfuse.observation.type", "agent"),
            ("langfuse.observation.metadata.langgraph_node", ""),
        ),
        "Langfuse SDK: a node of a graph",
    ),
    *_graphs(
        _LANGFUSE,
        ("langfuse.observation.type", "chain"),
        "langfuse.observation.metadata.",
        ("langfuse.observation.input", "langfuse.observation.output"),
    ),
    *_graphs(
        _MLFLOW,
        ("mlflow.spanType", "CHAIN"),
        "metadata:",
        ("mlflow.spanInputs", "mlflow.spanOutputs"),
    ),
    Row(
        Role.POSTPROCESSOR,
        (("mlflow.spanType", "CHAIN"),),
        "MLflow tracing: LlamaIndex' postprocessors without events",
        span="*postprocess_nodes",
        documents=("mlflow.spanOutputs",),
        inputs=("mlflow.spanInputs",),
    ),
    # Haystack's own tracer, also where MLflow or Langfuse listen to it.
    *(
        Row(
            role,
            ((f"{prefix}haystack.component.type", kind),),
            _HAYSTACK,
            documents=(found,) if role in _HANDING_ON else (),
            inputs=(given,) if role in _HANDING_ON else (),
            query=(given,),
            answer=(found,),
        )
        for prefix, found, given in (
            ("", "haystack.component.output", "haystack.component.input"),
            (
                "langfuse.observation.metadata.",
                "langfuse.observation.output",
                "langfuse.observation.input",
            ),
        )
        for kind, role in (
            ("*Retriever", Role.SEARCH),
            ("*WebSearch", Role.SEARCH),
            ("*Ranker", Role.RERANKER),
            ("*Joiner", Role.JOINER),
            ("*Generator", Role.MODEL),
            ("*Agent", Role.TURN),
            ("*", Role.POSTPROCESSOR),
        )
    ),
    *(
        Row(
            role,
            span=f"haystack.agent.{name}",
            source=_HAYSTACK,
            documents=("haystack.agent.step.tool.output",) if role is Role.TOOL else (),
            query=(f"haystack.agent.{name}.input", "haystack.agent.input"),
            answer=(f"haystack.agent.{name}.output", "haystack.agent.output"),
        )
        for name, role in (
            ("run", Role.TURN),
            ("step.llm", Role.MODEL),
            ("step.tool", Role.TOOL),
            ("step", Role.OTHER),
        )
    ),
    Row(Role.OTHER, span="haystack.pipeline.run", source=_HAYSTACK),
    # Products that send their own attributes beside, or instead of, those of GenAI.
    *_product(
        "langsmith.span.kind",
        _LANGSMITH,
        "gen_ai.completion",
        "gen_ai.prompt",
        retriever=Role.SEARCH,
        tool=Role.TOOL,
        llm=Role.MODEL,
    ),
    Row(Role.OTHER, (("langsmith.span.kind", ""),), _LANGSMITH),
    *_product(
        "langfuse.observation.type",
        _LANGFUSE,
        "langfuse.observation.output",
        "langfuse.observation.input",
        retriever=Role.SEARCH,
        tool=Role.TOOL,
        generation=Role.MODEL,
        agent=Role.TURN,
        evaluator=Role.EVALUATOR,
    ),
    Row(Role.OTHER, (("langfuse.observation.type", ""),), _LANGFUSE),
    *_product(
        "mlflow.spanType",
        _MLFLOW,
        "mlflow.spanOutputs",
        "mlflow.spanInputs",
        RETRIEVER=Role.SEARCH,
        RERANKER=Role.RERANKER,
        TOOL=Role.TOOL,
        CHAT_MODEL=Role.MODEL,
        LLM=Role.MODEL,
        AGENT=Role.TURN,
        EVALUATOR=Role.EVALUATOR,
    ),
    Row(
        Role.TURN,
        (("mlflow.spanType", "CHAIN"),),
        "MLflow, autologging of OpenAI Agents: a run, of which a trace may hold several",
        scope="mlflow.",
        holds=(("handoffs", ""),),
        also_inside=True,
    ),
    Row(
        Role.STEP,
        (("mlflow.spanType", "CHAIN"),),
        "MLflow, autologging of OpenAI Agents: a pass of the loop, for which it has no name",
        scope="mlflow.",
        span="Unknown",
    ),
    *(
        _operation(
            name,
            role,
            "MLflow tracing with MLFLOW_ENABLE_OTEL_GENAI_SEMCONV, which leaves out what was found",
            documents=_FOUND,
        )
        for name, role in (("RETRIEVER", Role.SEARCH), ("RERANKER", Role.RERANKER))
    ),
    Row(Role.OTHER, (("mlflow.spanType", ""),), _MLFLOW),
    # OpenLLMetry. LlamaIndex' and Haystack's spans are "workflows" where no other is around.
    *(
        Row(
            role,
            (("traceloop.span.kind", ""),),
            "opentelemetry-instrumentation-llamaindex",
            scope="opentelemetry.instrumentation.llamaindex",
            span=pattern,
            documents=("traceloop.entity.output",)
            if role in (*_NAMING, Role.POSTPROCESSOR)
            else (),
            inputs=("traceloop.entity.input",) if role is Role.POSTPROCESSOR else (),
            query=("traceloop.entity.input",),
            answer=("traceloop.entity.output",) if role is Role.TURN else (),
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
            documents=("traceloop.entity.output",),
            inputs=("traceloop.entity.input",) if role is Role.POSTPROCESSOR else (),
            query=("traceloop.entity.input",),
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
        documents=("traceloop.entity.output",),
        query=("traceloop.entity.input",),
    ),
    Row(
        Role.TURN,
        (("traceloop.span.kind", "agent"),),
        "opentelemetry-instrumentation-openai-agents: an agent of a run, beside those of others",
        scope="opentelemetry.instrumentation.openai_agents",
        query=_QUESTION,
        answer=_TOLD,
        once=True,
    ),
    Row(
        Role.OTHER,
        (("traceloop.span.kind", "workflow"), ("gen_ai.provider.name", "langchain")),
        "opentelemetry-instrumentation-langchain: a chain that is no graph",
        scope="opentelemetry.instrumentation.langchain",
    ),
    _operation(
        "vector_db_retrieve",
        Role.SEARCH,
        _OPENLLMETRY,
        documents=("traceloop.entity.output", "gen_ai.task.output"),
        query=("traceloop.entity.input", "gen_ai.task.input"),
    ),
    # OpenTelemetry GenAI, Azure AI and LoongSuite.
    _operation(
        "retrieval",
        Role.SEARCH,
        documents=(*_FOUND, "traceloop.entity.output"),
        query=_ASKED,
    ),
    Row(
        Role.SEARCH,
        ((_OPERATION, "execute_tool"), ("gen_ai.tool.type", "retriever")),
        _AZURE,
        documents=("gen_ai.retriever.results", "gen_ai.retrieval.documents", *_TOOL_RESULT),
        query=(*_ASKED, "gen_ai.tool.call.arguments"),
        flat=True,
    ),
    _operation("execute_tool", Role.TOOL, documents=(*_FOUND, *_TOOL_RESULT), query=_TOOL_INPUT),
    *(
        _operation(
            name, Role.RERANKER, _LOONGSUITE, documents=_RERANKED, inputs=_TO_RERANK, query=_ASKED
        )
        for name in ("rerank", "rerank_documents")
    ),
    _operation("react", Role.STEP, _LOONGSUITE),
    *(
        _operation(name, Role.MODEL, answer=("gen_ai.output.messages",))
        for name in ("chat", "text_completion", "generate_content", "completion")
    ),
    _operation(
        "invoke_agent",
        Role.TURN,
        "OpenTelemetry GenAI, OpenAI Agents: an agent of a run, beside those of others",
        scope="opentelemetry.instrumentation.genai.openai_agents",
        query=_QUESTION,
        answer=_TOLD,
        once=True,
    ),
    *(
        _operation(name, Role.TURN, query=_QUESTION, answer=_TOLD)
        for name in ("invoke_agent", "invoke_workflow")
    ),
    *(
        Row(
            Role.TURN,
            (("gen_ai.span.kind", "CHAIN"),),
            "LoongSuite Python agent: a graph that begins with a choice, or has its usual name",
            span=name,
            holds_span=inner,
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
            answer=_TOLD if role in (Role.TURN, Role.MODEL) else (),
        )
        for kind, role, documents, query in (
            ("RETRIEVER", Role.SEARCH, (*_FOUND, "output.value"), (*_ASKED, "input.value")),
            ("RERANKER", Role.RERANKER, _RERANKED, _ASKED),
            ("TOOL", Role.TOOL, _TOOL_RESULT, _TOOL_INPUT),
            ("LLM", Role.MODEL, (), ()),
            ("AGENT", Role.TURN, (), _QUESTION),
            ("STEP", Role.STEP, (), ()),
        )
    ),
    _traceloop(
        "tool", Role.TOOL, documents=("traceloop.entity.output",), query=("traceloop.entity.input",)
    ),
    *(_traceloop(kind, Role.TURN, query=_QUESTION, answer=_TOLD) for kind in ("workflow", "agent")),
    Row(Role.MODEL, (("llm.request.type", "chat"),), _OPENLLMETRY),
    Row(
        Role.EVALUATOR,
        (("gen_ai.evaluation.name", ""),),
        "the event gen_ai.evaluation.result of OpenTelemetry GenAI, written as a span",
        span="gen_ai.evaluation.result",
        documents=_EVALUATED,
    ),
    _operation("", Role.OTHER),
    _traceloop("", Role.OTHER),
    Row(
        Role.TURN,
        source="programs that put spans of their own around each turn",
        span="turn",
        unless_around=True,
    ),
)


NEITHER: Final = (
    ("openinference.span.kind", "CHAIN", "EMBEDDING", "GUARDRAIL", "PROMPT", "UNKNOWN"),
    ("gen_ai.operation.name", "chain", "create_agent", "embeddings", "execute_task", "task"),
    ("gen_ai.span.kind", "CHAIN", "EMBEDDING", "TASK"),
    ("gen_ai.tool.type", "datastore", "extension", "function"),
    ("traceloop.span.kind", "task", "unknown"),
    ("langfuse.observation.type", "chain", "embedding", "event", "guardrail", "span"),
    ("langsmith.span.kind", "chain", "embedding", "parser", "prompt"),
    ("mlflow.spanType", "CHAIN", "EMBEDDING", "GUARDRAIL", "MEMORY", "PARSER", "TASK", "UNKNOWN"),
    ("llm.request.type", "completion", "embedding"),
)
"""Kinds of the conventions that no row needs to name, as they are neither searches nor turns."""


def mapping(
    rows: Sequence[Row] = (),
    conversation: Sequence[str] = (),
    agent: Sequence[str] = (),
    release: Sequence[str] = (),
) -> Mapping:
    """The presets behind further rows, and their attributes behind further ones."""
    neither = tuple((name, kind) for name, *kinds in NEITHER for kind in kinds)
    preset = Mapping(PRESETS)
    return Mapping(
        (*rows, *PRESETS),
        (*conversation, *preset.conversation),
        (*agent, *preset.agent),
        (*release, *preset.release),
        neither=neither,
    )
