"""Which programs run under which instrumentations, and what their spans lack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Case:
    """A program of a framework under one instrumentation, or two joined by +."""

    environment: str
    framework: str
    instrumentation: str
    scenario: str
    variant: str = ""

    @property
    def name(self) -> str:
        """The name of its folder and of its stored capture."""
        parts = (self.framework, self.instrumentation, self.scenario, self.variant)
        return "-".join(part for part in parts if part)

    @property
    def options(self) -> dict[str, str]:
        """Settings under ``otlp`` that the program needs."""
        return {"turn": "trace"} if self.scenario == "chain" else {}

    @property
    def limits(self) -> dict[str, str]:
        """SDK limits under which the program runs."""
        return {
            "cut": {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "200"},
            "few": {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "9"},
        }.get(self.variant, {})

    @property
    def unseen(self) -> str:
        """What its spans lack, so that it is misinterpreted; empty for most programs."""
        return UNSEEN.get((self.framework, self.instrumentation, self.scenario), "")


_NO_NODE: Final = "nodes of a graph have no spans, or none that say what they return"
_NO_POSTPROCESSOR: Final = "postprocessors have no spans"
UNSEEN: Final = {
    ("langchain", "otel", "noderank"): _NO_NODE,
    ("langchain", "otel", "hiddenrank"): _NO_NODE,
    ("openai_agents", "openllmetry", "filesearch"): "searches of the model's host are left out",
    ("llamaindex", "otel", "rank"): _NO_POSTPROCESSOR,
    ("llamaindex", "otel", "byhand"): _NO_POSTPROCESSOR,
    ("llamaindex", "otel", "llmrank"): _NO_POSTPROCESSOR,
    ("llamaindex", "otel", "similar"): _NO_POSTPROCESSOR,
}

_LANGCHAIN: Final = (
    "graph vectors tool partool artifact rawtool quiettool dicttool doctool texttool compress "
    "compresstool noderank hiddenrank chunks chunkstool noid noidtool wide widetool ensemble "
    "merger multiquery parnodes send subagent subgraph async asynctool stream threads batch both "
    "chain empty failing wrapped skip skiptool memory toolnode astool events"
)
_LLAMAINDEX: Final = (
    "retriever loop words wide chunks engine rank llmrank similar window byhand fusion fusionq "
    "fusionasync parallel agent agentrank partool agentengine rawtool nodestool skip react "
    "chat subquestion router merging"
)
_HAYSTACK: Final = (
    "loop rag embedded rank ownrank middle kept join joinrank side wide chunks async alone agent "
    "agentpipe rawtool partool skip"
)
_DSPY: Final = "hops retrieve chunks wide embedded react rawtool listtool reactembedded unseen"
_OPENAI_AGENTS: Final = (
    "tool responses objects texttool envelope chunks noid wide partool handoff subagent skip "
    "session filesearch"
)

_SERVED: Final = "tool objects envelope headed texttool innocent partool empty skip memory other"
JAVASCRIPT: Final = ("ai_sdk", "langchain_js", "openai_js", "mastra")
"""Frameworks whose programs run in Node."""

# Environment, framework, instrumentations, scenarios.
_PLAIN: Final = (
    ("shared", "langchain", "openinference otel langfuse mlflow langsmith azure", _LANGCHAIN),
    ("openllmetry", "langchain", "openllmetry", _LANGCHAIN),
    ("loongsuite", "langchain", "loongsuite", _LANGCHAIN),
    ("openllmetry", "langchain", "traceloop", "graph tool"),
    ("shared", "llamaindex", "openinference otel langfuse mlflow", _LLAMAINDEX),
    ("openllmetry", "llamaindex", "openllmetry", _LLAMAINDEX),
    ("shared", "haystack", "openinference native langfuse", _HAYSTACK),
    ("shared", "haystack", "mlflow", "agent partool rawtool"),
    ("openllmetry", "haystack", "openllmetry", "loop rag rank join agent"),
    ("shared", "dspy", "openinference otel langfuse mlflow", _DSPY),
    ("shared", "openai_agents", "openinference otel langfuse mlflow", _OPENAI_AGENTS),
    ("openllmetry", "openai_agents", "openllmetry", _OPENAI_AGENTS),
    ("agents", "pydantic_ai", "native openinference", _SERVED),
    ("agents", "ai_sdk", "ai5 ai6 ai7 ai7legacy", _SERVED),
    ("agents", "openai", "openinference otel", _SERVED),
    ("openllmetry", "openai", "openllmetry", _SERVED),
    ("agents", "openai", "openinference otel", "responses resppartool chained stream"),
    ("openllmetry", "openai", "openllmetry", "responses resppartool chained stream"),
    ("agents", "smolagents", "openinference", _SERVED),
    ("agents", "smolagents", "otel", "tool skip"),
    ("strands", "strands", "native latest openinference", _SERVED),
    ("adk", "google_adk", "native latest openinference", _SERVED),
    ("crewai", "crewai", "openinference", _SERVED),
    ("crewai", "crewai", "openllmetry", "tool skip"),
    ("agents", "agno", "openinference otel", _SERVED),
    ("agents", "agent_framework", "native openinference", _SERVED),
    ("agents", "langchain_js", "openinference", _SERVED),
    ("agents", "anthropic", "openinference otel", _SERVED),
    ("openllmetry", "anthropic", "openllmetry", _SERVED),
    ("agents", "google_genai", "openinference otel", _SERVED),
    ("openllmetry", "google_genai", "openllmetry", _SERVED),
    ("agents", "pydantic_ai", "native", "mcp mcptext subagent"),
    ("strands", "strands", "native latest", "mcp mcptext subagent sequence"),
    ("adk", "google_adk", "native latest openinference", "subagent sequence"),
    ("agents", "agent_framework", "native", "subagent sequence"),
    ("agents", "smolagents", "openinference", "subagent"),
    ("agents", "agno", "openinference otel", "subagent"),
    ("crewai", "crewai", "openinference", "sequence"),
    ("agents", "ai_sdk", "ai6 ai7", "subagent stream"),
    ("agents", "openai_js", "openinference openllmetry", _SERVED),
    ("agents", "openai_js", "openinference openllmetry", "responses resppartool chained stream"),
    ("agents", "mastra", "native openinference", f"{_SERVED} subagent sequence stream"),
    ("microsoft", "autogen", "native openinference", f"{_SERVED} subagent sequence"),
    ("microsoft", "semantic_kernel", "native", f"{_SERVED} subagent sequence"),
    ("claude", "claude_agent", "openinference native", f"{_SERVED} subagent"),
    ("microsoft", "autogen", "openinference+native", "tool partool subagent sequence"),
    ("microsoft", "autogen", "openllmetry", "tool partool memory subagent sequence"),
    ("microsoft", "semantic_kernel", "openllmetry", "tool partool memory subagent sequence"),
)
# Framework, two instrumentations at once, scenarios.
_TWO: Final = (
    (
        "langchain",
        "openinference+otel openinference+langfuse openinference+mlflow openinference+langsmith "
        "openinference+azure langfuse+otel",
        "graph tool",
    ),
    ("langchain", "openinference+langfuse", "compress partool both"),
    ("langchain", "langfuse+otel", "partool skiptool"),
    ("llamaindex", "openinference+otel", "loop rank agent"),
    ("llamaindex", "openinference+langfuse", "agent"),
    ("haystack", "openinference+native", "rag rank agent"),
    ("haystack", "openinference+langfuse", "rank"),
    ("dspy", "openinference+otel", "hops"),
    ("dspy", "openinference+mlflow", "react"),
    ("openai_agents", "openinference+otel", "tool"),
)
# Environment, framework, instrumentations, scenarios, under narrow limits of the SDK.
_LIMITED: Final = (
    ("shared", "langchain", "openinference", "tool compress rawtool"),
    ("shared", "langchain", "otel langfuse mlflow langsmith azure", "tool"),
    ("openllmetry", "langchain", "openllmetry", "tool"),
    ("loongsuite", "langchain", "loongsuite", "tool"),
    ("shared", "llamaindex", "openinference", "rank"),
    ("shared", "llamaindex", "otel", "loop"),
    ("shared", "haystack", "openinference", "rank"),
    ("shared", "haystack", "native", "agent"),
    ("shared", "openai_agents", "openinference otel", "tool"),
)
# The same with a variant.
_VARIED: Final = (
    ("shared", "langchain", "openinference otel langfuse langsmith azure", "redacted"),
    ("shared", "langchain", "openinference otel langfuse mlflow langsmith azure", "onetrace"),
    ("shared", "langchain", "openinference otel langfuse mlflow langsmith azure", "nosession"),
    ("openllmetry", "langchain", "openllmetry", "redacted"),
    ("openllmetry", "langchain", "openllmetry", "onetrace"),
    ("loongsuite", "langchain", "loongsuite", "redacted"),
    ("shared", "langchain", "mlflow", "semconv"),
)


def cases() -> Iterator[Case]:
    """All programs under all instrumentations."""
    for environment, framework, instrumentations, scenarios in _PLAIN:
        for instrumentation in instrumentations.split():
            for scenario in scenarios.split():
                yield Case(environment, framework, instrumentation, scenario)
    for environment, framework, instrumentations, variant in _VARIED:
        for instrumentation in instrumentations.split():
            for scenario in ("graph", "tool"):
                yield Case(environment, framework, instrumentation, scenario, variant)
    for framework, instrumentations, scenarios in _TWO:
        for instrumentation in instrumentations.split():
            for scenario in scenarios.split():
                yield Case("shared", framework, instrumentation, scenario)
    for environment, framework, instrumentations, scenarios in _LIMITED:
        for instrumentation in instrumentations.split():
            for scenario in scenarios.split():
                for variant in ("cut", "few"):
                    yield Case(environment, framework, instrumentation, scenario, variant)
    for framework, scenarios in (("llamaindex", "rank agent"), ("haystack", "rank agent")):
        for scenario in scenarios.split():
            yield Case("shared", framework, "openinference", scenario, "redacted")
    for framework in ("openai", "anthropic", "google_genai"):
        for instrumentation in ("openinference", "otel"):
            yield Case("agents", framework, instrumentation, "tool", "bare")
    for environment, framework, instrumentation, scenarios in (
        ("microsoft", "autogen", "openinference", "tool subagent sequence"),
        ("microsoft", "autogen", "openllmetry", "tool subagent sequence"),
        ("microsoft", "semantic_kernel", "native", "tool subagent sequence"),
        ("claude", "claude_agent", "openinference", "tool subagent"),
    ):
        for scenario in scenarios.split():
            yield Case(environment, framework, instrumentation, scenario, "bare")
    yield Case("adk", "google_adk", "latest", "tool", "redacted")
    for environment, framework, instrumentation in (
        ("agents", "pydantic_ai", "native"),
        ("agents", "openai", "openinference"),
        ("agents", "openai", "otel"),
        ("agents", "smolagents", "openinference"),
        ("strands", "strands", "native"),
        ("adk", "google_adk", "latest"),
        ("agents", "agno", "openinference"),
        ("agents", "agent_framework", "native"),
        ("microsoft", "autogen", "openinference"),
        ("microsoft", "semantic_kernel", "native"),
    ):
        yield Case(environment, framework, instrumentation, "tool", "onetrace")
    yield Case("shared", "openai_agents", "openinference", "tool", "redacted")
    yield Case("shared", "openai_agents", "otel", "tool", "redacted")


PROGRAMS: Final = {
    "graph, vectors": "a graph rewrites the question and searches, by words or in a vector store",
    "tool, agent, asynctool, stream, events": "an agent with a retriever as its tool",
    "responses, resppartool, chained": "OpenAI's newer API, also where its host keeps the history",
    "artifact, doctool, objects, envelope, dicttool, nodestool": "tools that return documents in "
    "their frameworks' forms",
    "rawtool, quiettool": "a tool that returns JSON, with and without a retriever inside",
    "texttool, listtool": "a tool that returns texts, and that no retriever is seen in",
    "innocent": "the same, and the tool's name and description do not say that it searches",
    "mcp, mcptext": "the tool of an MCP server that returns objects, or text with headings",
    "headed": "a tool that returns text with a heading, title and address for each result",
    "other": "a tool that is no search is called beside one that is",
    "partool": "a model calls two tools at once",
    "compress, rank, ownrank, middle, llmrank, agentrank, agentpipe": "a reranker that the "
    "framework knows",
    "kept, similar, window": "postprocessors that filter, or replace texts",
    "noderank, hiddenrank, byhand": "the program itself reranks, in a node of its own, beside the "
    "search, or by a call",
    "chunks": "several chunks of a page share its address",
    "noid": "documents without ids",
    "wide": "more documents than a span has attributes for",
    "ensemble, merger, fusion, fusionq, join, joinrank": "results of several retrievers are merged",
    "multiquery, subquestion": "a model makes several queries of one",
    "both, side, parallel, parnodes, send, threads, batch": "searches side by side",
    "router, merging": "retrievers around others",
    "subagent, subgraph, handoff, agentengine": "agents, graphs and engines inside of others",
    "sequence": "an agent that searches, and one that writes down what it found",
    "chain, engine, rag, loop, retrieve, retriever, hops, react": "without an agent, or with the "
    'framework\'s own loop; chain needs `otlp.turn = "trace"` where each chain is a workflow',
    "chat, memory": "the framework keeps the conversation",
    "session, onetrace": "a whole session in one trace",
    "skip": "a turn without a search between two",
    "empty, failing": "the second search finds nothing, or fails",
    "wrapped": "a retriever calls another without handing on its callbacks",
    "alone, embedded, unseen, filesearch": "retrieval past what instrumentations know",
    "redacted, semconv, nosession": "contents switched off, MLflow's GenAI conventions, no session",
    "bare": "without a span of the program's own around a turn; of a loop over an API each model "
    "call is a trace",
    "cut, few": "attributes of 200 characters at most, or nine attributes a span",
}
"""What the programs do, by their names or how these begin."""
