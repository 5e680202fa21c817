"""Writes the page with the outcome of each program's traces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.conformance.matrix import PROGRAMS, Case

_NAMES: Final = {
    "langchain": "LangChain, LangGraph",
    "llamaindex": "LlamaIndex",
    "haystack": "Haystack",
    "dspy": "DSPy",
    "openai_agents": "OpenAI Agents",
    "pydantic_ai": "pydantic-ai",
    "ai_sdk": "Vercel AI SDK",
    "openai": "a loop over OpenAI's API, openai",
    "smolagents": "smolagents",
    "strands": "Strands",
    "google_adk": "Google ADK",
    "crewai": "CrewAI",
    "agno": "Agno",
    "agent_framework": "Microsoft Agent Framework",
    "langchain_js": "LangChain.js",
    "anthropic": "a loop over Anthropic's API, anthropic",
    "google_genai": "a loop over Google's API, google-genai",
    "openai_js": "a loop over OpenAI's API in JavaScript, openai",
    "mastra": "Mastra",
    "autogen": "AutoGen",
    "semantic_kernel": "Semantic Kernel",
    "claude_agent": "Claude Agent SDK",
    "openinference": "OpenInference",
    "otel": "OpenTelemetry GenAI",
    "langfuse": "Langfuse",
    "mlflow": "MLflow",
    "langsmith": "LangSmith",
    "azure": "Azure AI",
    "openllmetry": "OpenLLMetry",
    "traceloop": "Traceloop SDK",
    "loongsuite": "LoongSuite",
    "native": "its own tracer",
    "latest": "its own tracer, newest conventions",
    "ai5": "its own",
    "ai6": "its own",
    "ai7": "its own",
    "ai7legacy": "its own as before",
}
_FRAMEWORKS: Final = {
    "langchain": ("langchain", "langgraph"),
    "llamaindex": ("llama-index-core",),
    "haystack": ("haystack-ai",),
    "dspy": ("dspy",),
    "openai_agents": ("openai-agents",),
    "pydantic_ai": ("pydantic-ai-slim",),
    "ai_sdk": (),
    "openai": ("openai",),
    "smolagents": ("smolagents",),
    "strands": ("strands-agents",),
    "google_adk": ("google-adk",),
    "crewai": ("crewai",),
    "agno": ("agno",),
    "agent_framework": ("agent-framework-core",),
    "langchain_js": ("npm:langchain",),
    "anthropic": ("anthropic",),
    "google_genai": ("google-genai",),
    "openai_js": ("npm:openai",),
    "mastra": ("npm:@mastra/core",),
    "autogen": ("autogen-agentchat",),
    "semantic_kernel": ("semantic-kernel",),
    "claude_agent": ("claude-agent-sdk",),
}
_PACKAGES: Final = {
    ("openinference", "langchain"): "openinference-instrumentation-langchain",
    ("openinference", "llamaindex"): "openinference-instrumentation-llama-index",
    ("openinference", "haystack"): "openinference-instrumentation-haystack",
    ("openinference", "dspy"): "openinference-instrumentation-dspy",
    ("openinference", "openai_agents"): "openinference-instrumentation-openai-agents",
    ("otel", "langchain"): "opentelemetry-instrumentation-genai-langchain",
    ("otel", "llamaindex"): "opentelemetry-instrumentation-genai-llama-index",
    ("otel", "dspy"): "opentelemetry-instrumentation-genai-dspy",
    ("otel", "openai_agents"): "opentelemetry-instrumentation-genai-openai-agents",
    ("openllmetry", "langchain"): "opentelemetry-instrumentation-langchain",
    ("openllmetry", "llamaindex"): "opentelemetry-instrumentation-llamaindex",
    ("openllmetry", "haystack"): "opentelemetry-instrumentation-haystack",
    ("openllmetry", "openai_agents"): "opentelemetry-instrumentation-openai-agents",
    **{
        ("openinference", name): f"openinference-instrumentation-{package}"
        for name, package in (
            ("pydantic_ai", "pydantic-ai"),
            ("openai", "openai"),
            ("smolagents", "smolagents"),
            ("strands", "strands-agents"),
            ("google_adk", "google-adk"),
            ("crewai", "crewai"),
            ("agno", "agno"),
            ("agent_framework", "agent-framework"),
            ("autogen", "autogen-agentchat"),
            ("claude_agent", "claude-agent-sdk"),
            ("anthropic", "anthropic"),
            ("google_genai", "google-genai"),
        )
    },
    ("openinference", "langchain_js"): "npm:@arizeai/openinference-instrumentation-langchain",
    ("openinference", "openai_js"): "npm:@arizeai/openinference-instrumentation-openai",
    ("openllmetry", "openai_js"): "npm:@traceloop/instrumentation-openai",
    ("native", "mastra"): "npm:@mastra/otel-exporter",
    ("openinference", "mastra"): "npm:@mastra/arize",
    ("openllmetry", "autogen"): "opentelemetry-instrumentation-openai",
    ("openllmetry", "semantic_kernel"): "opentelemetry-instrumentation-openai",
    **{
        ("otel", name): f"opentelemetry-instrumentation-genai-{name}"
        for name in ("openai", "smolagents", "agno", "anthropic")
    },
    ("otel", "google_genai"): "opentelemetry-instrumentation-google-genai",
    **{
        ("openllmetry", name): f"opentelemetry-instrumentation-{name}"
        for name in ("openai", "crewai", "agno", "anthropic")
    },
    ("openllmetry", "google_genai"): "opentelemetry-instrumentation-google-generativeai",
    **{(f"ai{major}", "ai_sdk"): f"npm:ai{major[0]}" for major in ("5", "6", "7", "7legacy")},
    ("langfuse", "haystack"): "langfuse-haystack",
    ("native", "haystack"): "opentelemetry-haystack",
    ("langsmith", ""): "langsmith",
    ("langfuse", ""): "langfuse",
    ("mlflow", ""): "mlflow-tracing",
    ("azure", ""): "langchain-azure-ai",
    ("traceloop", ""): "traceloop-sdk",
    ("loongsuite", ""): "loongsuite-instrumentation-langchain",
}
_HEAD: Final = """# Conformance

`make conformance` runs agent programs of real frameworks under real instrumentations, with fake
models and real retrievers; `PROGRAMS="haystack-*"` chooses some. It compares what their traces tell
with the programs' own account: turns, iterations, the documents of each in their order, results and
SRR. This page is what the last run wrote. The programs are in `tests/conformance/programs`; traces
of some of them are replayed whenever the unit tests run, and go through a Collector, Kafka, a
bridge and a worker when those with servers do.

- **right**: everything is equal.
- **inferred**: searches, documents and SRR are right. Only times tell the iterations apart, and the
  turns are counted as `iterations_inferred`.
- **refused**: turns are set aside with a reason, because spans do not say enough; "(some)" where
  other turns of the program were interpreted correctly.
- **not in the spans**: the program changed what was found, and no span shows it. The figures are
  those of the retriever.

Two instrumentations with traces of their own record each turn twice: the second trace is refused as
`two_scopes`, and a program is right if the first one is. If both write to one trace, and their
searches cannot be merged, its turns are refused.
"""


_NAME: Final = re.compile(r"'[^']+'|(?<=parent )[0-9a-f]{16}")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a program: the kind of the verdict, or that it failed, and why."""

    case: Case
    kind: str
    why: str
    help: list[str]
    versions: dict[str, str]

    @property
    def bad(self) -> bool:
        """Whether the program failed, or is misinterpreted although its spans are complete."""
        return self.kind == "failed" or (self.kind == "WRONG" and not self.case.unseen)


def written(outcomes: Iterable[Outcome]) -> str:
    """The page in Markdown."""
    rows: dict[tuple[str, str], list[Outcome]] = {}
    reasons: dict[str, dict[str, list[str]]] = {}
    bad: list[str] = []
    for one in outcomes:
        each = rows.setdefault((one.case.framework, one.case.instrumentation), [])
        if one.bad:
            bad.append(f"- {one.case.name}: {one.kind}: {one.why}")
        else:
            each.append(one)
    table = ["| framework | instrumentation | right | inferred | refused | not in the spans |"]
    table.append("|---|---|---|---|---|---|")
    for (framework, instrumentation), each in rows.items():
        if not each:
            continue
        kinds = [
            ", ".join(sorted(_scenario(one) for one in each if one.kind in kind))
            for kind in (("right",), ("inferred",), ("refused", "partly refused"), ("WRONG",))
        ]
        names = [_NAMES[name] for name in instrumentation.split("+")]
        versions = [_version(name, framework, each[0]) for name in instrumentation.split("+")]
        by = " and ".join(f"{n} {v}".rstrip() for n, v in zip(names, versions, strict=True))
        of = f"{_NAMES[framework]} {_versions(framework, each[0])}".rstrip()
        table.append(f"| {of} | {by} | {' | '.join(kinds)} |")
        place = f"{_NAMES[framework]} under {' and '.join(names)}"
        for one in each:
            for reason in _reasons(one):
                reasons.setdefault(reason, {}).setdefault(place, []).append(_scenario(one))
    programs = [f"| {names} | {what} |" for names, what in PROGRAMS.items()]
    why = [
        f"- **{reason}**: "
        + "; ".join(f"{place} ({', '.join(sorted(names))})" for place, names in places.items())
        for reason, places in sorted(reasons.items())
    ]
    failed = ["", "## What failed, or is wrong", "", *bad] if bad else []
    return "\n".join([
        *(_HEAD, *table, *failed),
        *("", "## What the programs do", "", "| programs | are |", "|---|---|"),
        *(*programs, "", "## Why turns are refused, or cannot be told", "", *why, ""),
    ])  # fmt: skip


def _scenario(one: Outcome) -> str:
    name = " ".join(part for part in (one.case.scenario, one.case.variant) if part)
    return f"{name} (some)" if one.kind == "partly refused" else name


def _reasons(one: Outcome) -> list[str]:
    """Why turns were refused, without the parts that differ between spans."""
    if one.kind == "WRONG":
        return [one.case.unseen]
    if "refused" not in one.kind:
        return []
    if not one.help:
        return [one.why.split(":")[0]]
    return [_NAME.sub("…", reason.split("; ")[0]) for reason in one.help]


def _versions(framework: str, one: Outcome) -> str:
    return ", ".join(one.versions.get(name, "") for name in _FRAMEWORKS[framework]).strip(", ")


def _version(instrumentation: str, framework: str, one: Outcome) -> str:
    package = _PACKAGES.get((instrumentation, framework)) or _PACKAGES.get((instrumentation, ""))
    return one.versions.get(package or "", "")
