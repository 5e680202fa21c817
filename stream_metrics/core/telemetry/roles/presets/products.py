"""Products that send their own attributes in addition to, or instead of, those of GenAI."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import (
    ASKED,
    DOCUMENTS,
    NAMING,
    RERANKED,
    RETRIEVED,
    TO_RERANK,
    graphs,
    operation,
)

_LANGFUSE: Final = "Langfuse SDK (langfuse.observation.type)"
_MLFLOW: Final = "MLflow tracing (mlflow.spanType)"
_LANGSMITH: Final = "LangSmith SDK, OpenTelemetry export (langsmith.span.kind)"
_HAYSTACK: Final = "Haystack's tracer for OpenTelemetry (haystack.component.type)"

_HANDING_ON: Final = (Role.SEARCH, Role.RERANKER, Role.JOINER, Role.POSTPROCESSOR)


def _product(attribute: str, source: str, found: str, asked: str, **roles: Role) -> list[Row]:
    """The rows of a product that has one attribute each for kind, output and input."""
    return [
        Row(
            role,
            ((attribute, value),),
            source,
            documents=(found, "retrieval.documents", *DOCUMENTS) if role in NAMING else (),
            inputs=(asked,) if role is Role.RERANKER else (),
            query=(asked,) if role in (*NAMING, Role.TURN) else (),
            answer=(found,) if role in (Role.TURN, Role.MODEL) else (),
        )
        for value, role in roles.items()
    ]


ROWS: Final[tuple[Row, ...]] = (
    *graphs(
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
    *graphs(
        _LANGFUSE,
        ("langfuse.observation.type", "chain"),
        "langfuse.observation.metadata.",
        ("langfuse.observation.input", "langfuse.observation.output"),
    ),
    *graphs(
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
        child_attributes=(("handoffs", ""),),
        replaces_outer=True,
    ),
    Row(
        Role.STEP,
        (("mlflow.spanType", "CHAIN"),),
        "MLflow, autologging of OpenAI Agents: a pass of the loop, for which it has no name",
        scope="mlflow.",
        span="Unknown",
    ),
    *(
        operation(
            name,
            role,
            "MLflow tracing with MLFLOW_ENABLE_OTEL_GENAI_SEMCONV, which leaves out what was found",
            documents=documents,
            inputs=inputs,
            query=ASKED,
        )
        for name, role, documents, inputs in (
            ("RETRIEVER", Role.SEARCH, RETRIEVED, ()),
            ("RERANKER", Role.RERANKER, RERANKED, TO_RERANK),
        )
    ),
    Row(Role.OTHER, (("mlflow.spanType", ""),), _MLFLOW),
)
