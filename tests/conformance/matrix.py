"""Which programs run under which instrumentations, and what their spans cannot show."""

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
        """The name of its folder, and of the capture that is kept of it."""
        parts = (self.framework, self.instrumentation, self.scenario, self.variant)
        return "-".join(part for part in parts if part)

    @property
    def options(self) -> dict[str, str]:
        """Settings under ``otlp`` that the program needs."""
        return {"turn": "trace"} if self.scenario == "chain" else {}

    @property
    def unseen(self) -> str:
        """What its spans cannot show, so that it is told wrong; empty for most programs."""
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
)
_TWO: Final = (
    "openinference+otel openinference+langfuse openinference+mlflow openinference+langsmith "
    "openinference+azure langfuse+otel"
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
    for instrumentation in _TWO.split():
        for scenario in ("graph", "tool"):
            yield Case("shared", "langchain", instrumentation, scenario)
    for framework, scenarios in (("llamaindex", "rank agent"), ("haystack", "rank agent")):
        for scenario in scenarios.split():
            yield Case("shared", framework, "openinference", scenario, "redacted")
    yield Case("shared", "openai_agents", "openinference", "tool", "redacted")
    yield Case("shared", "openai_agents", "otel", "tool", "redacted")
