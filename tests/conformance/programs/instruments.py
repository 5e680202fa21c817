"""Instrumentations by name: how to start each one, pass it the conversation, and flush it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.conformance.matrix import JAVASCRIPT

_OPENINFERENCE = {
    "langchain": ("langchain", "LangChainInstrumentor"),
    "llamaindex": ("llama_index", "LlamaIndexInstrumentor"),
    "haystack": ("haystack", "HaystackInstrumentor"),
    "dspy": ("dspy", "DSPyInstrumentor"),
    "openai_agents": ("openai_agents", "OpenAIAgentsInstrumentor"),
    "smolagents": ("smolagents", "SmolagentsInstrumentor"),
    "google_adk": ("google_adk", "GoogleADKInstrumentor"),
    "crewai": ("crewai", "CrewAIInstrumentor"),
    "agno": ("agno", "AgnoInstrumentor"),
    "autogen": ("autogen_agentchat", "AutogenAgentChatInstrumentor"),
    "claude_agent": ("claude_agent_sdk", "ClaudeAgentSDKInstrumentor"),
    "openai": ("openai", "OpenAIInstrumentor"),
    "anthropic": ("anthropic", "AnthropicInstrumentor"),
    "google_genai": ("google_genai", "GoogleGenAIInstrumentor"),
}
_PROCESSORS = {
    "pydantic_ai": ("pydantic_ai", "OpenInferenceSpanProcessor"),
    "strands": ("strands_agents", "StrandsAgentsToOpenInferenceProcessor"),
    "agent_framework": ("agent_framework", "AgentFrameworkToOpenInferenceProcessor"),
}
"""Frameworks that trace themselves, whose spans OpenInference translates."""
_GENAI = {
    "langchain": ("genai.langchain", "LangChainInstrumentor"),
    "llamaindex": ("genai.llama_index", "LlamaIndexInstrumentor"),
    "dspy": ("genai.dspy", "DSPyInstrumentor"),
    "openai_agents": ("genai.openai_agents", "OpenAIAgentsInstrumentor"),
    "smolagents": ("genai.smolagents", "SmolagentsInstrumentor"),
    "agno": ("genai.agno", "AgnoInstrumentor"),
    "openai": ("genai.openai", "OpenAIInstrumentor"),
    "anthropic": ("genai.anthropic", "AnthropicInstrumentor"),
    "google_genai": ("google_genai", "GoogleGenAiSdkInstrumentor"),
}
_OPENLLMETRY = {
    "langchain": ("langchain", "LangchainInstrumentor"),
    "llamaindex": ("llamaindex", "LlamaIndexInstrumentor"),
    "haystack": ("haystack", "HaystackInstrumentor"),
    "openai_agents": ("openai_agents", "OpenAIAgentsInstrumentor"),
    "crewai": ("crewai", "CrewAIInstrumentor"),
    "agno": ("agno", "AgnoInstrumentor"),
    "autogen": ("openai", "OpenAIInstrumentor"),
    "semantic_kernel": ("openai", "OpenAIInstrumentor"),
    "openai": ("openai", "OpenAIInstrumentor"),
    "anthropic": ("anthropic", "AnthropicInstrumentor"),
    "google_genai": ("google_generativeai", "GoogleGenerativeAiInstrumentor"),
}


def _provider() -> TracerProvider:
    resource = {"service.name": "workshop", "service.version": "7"}
    return TracerProvider(resource=Resource.create(resource))


class Telemetry:
    """One instrumentation, or several at once, with an SDK that exports to a receiver."""

    session_attribute = "session.id"
    # Whether frameworks other than LangChain have no other way to tell it the session.
    needs_root = False

    def __init__(self, framework: str, address: str, variants: frozenset[str]) -> None:
        self.framework, self.address, self.variants = framework, address, variants
        self.endpoint = f"{address}/v1/traces"
        self.provider = _provider()
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(self.endpoint)))
        self.start()

    @contextmanager
    def span(self, name: str, session: str) -> Iterator[None]:
        """A span of the program itself."""
        with self.provider.get_tracer("program").start_as_current_span(name) as span:
            if session:
                span.set_attribute(self.session_attribute, session)
            yield

    @property
    def rooted(self) -> bool:
        """Whether the program wraps each turn in a span."""
        return self.needs_root and self.framework != "langchain"

    def start(self) -> None:
        """Enable the instrumentation."""

    def callbacks(self) -> list[Any]:
        """Handlers that LangChain's callers pass."""
        return []

    def metadata(self, turn: Any, named: dict[str, str]) -> dict[str, str]:
        """Metadata that LangChain's callers pass."""
        return {}

    def session(self, session: str) -> Any:
        """Pass the conversation of the spans inside to the instrumentation."""
        return nullcontext()

    def settings(self) -> dict[str, str]:
        """Settings for a process of the framework's own."""
        return {}

    def packages(self) -> dict[str, str]:
        """The versions of packages that are not Python's."""
        return {}

    def flush(self) -> None:
        """Export the remaining spans."""
        self.provider.force_flush()


class OpenInference(Telemetry):
    """OpenInference's instrumentors."""

    def start(self) -> None:
        if "redacted" in self.variants:
            os.environ["OPENINFERENCE_HIDE_OUTPUTS"] = os.environ["OPENINFERENCE_HIDE_INPUTS"] = (
                "true"
            )
        if "textless" in self.variants:
            for name in ("INPUT_TEXT", "OUTPUT_TEXT", "INPUT_MESSAGES", "OUTPUT_MESSAGES"):
                os.environ[f"OPENINFERENCE_HIDE_{name}"] = "true"
        if self.framework in _PROCESSORS:
            name, processor = _PROCESSORS[self.framework]
            module = import_module(f"openinference.instrumentation.{name}")
            self.provider = _provider()
            self.provider.add_span_processor(getattr(module, processor)())
            self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(self.endpoint)))
            trace.set_tracer_provider(self.provider)
            return
        name, instrumentor = _OPENINFERENCE[self.framework]
        module = import_module(f"openinference.instrumentation.{name}")
        getattr(module, instrumentor)().instrument(tracer_provider=self.provider)

    def session(self, session: str) -> Any:
        from openinference.instrumentation import using_session

        return using_session(session)


class GenAI(Telemetry):
    """OpenTelemetry's own instrumentors of generative AI."""

    needs_root = True
    session_attribute = "gen_ai.conversation.id"

    def start(self) -> None:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
        off = "redacted" in self.variants
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = (
            "NO_CONTENT" if off else "SPAN_ONLY"
        )
        name, instrumentor = _GENAI[self.framework]
        module = import_module(f"opentelemetry.instrumentation.{name}")
        getattr(module, instrumentor)().instrument(tracer_provider=self.provider)


class OpenLLMetry(Telemetry):
    """Traceloop's instrumentors."""

    needs_root = True

    def start(self) -> None:
        os.environ["TRACELOOP_TRACE_CONTENT"] = "false" if "redacted" in self.variants else "true"
        trace.set_tracer_provider(self.provider)
        name, instrumentor = _OPENLLMETRY[self.framework]
        module = import_module(f"opentelemetry.instrumentation.{name}")
        getattr(module, instrumentor)().instrument(tracer_provider=self.provider)


class TraceloopSDK(Telemetry):
    """Traceloop's SDK, which starts its own instrumentors and supports associations."""

    def start(self) -> None:
        from traceloop.sdk import Traceloop
        from traceloop.sdk.instruments import Instruments

        os.environ["TRACELOOP_TRACE_CONTENT"] = "false" if "redacted" in self.variants else "true"
        os.environ["TRACELOOP_TELEMETRY"] = "false"
        kinds = {
            "langchain": "LANGCHAIN",
            "llamaindex": "LLAMA_INDEX",
            "haystack": "HAYSTACK",
            "openai_agents": "OPENAI_AGENTS",
        }
        Traceloop.init(
            app_name="workshop",
            exporter=OTLPSpanExporter(self.endpoint),
            instruments={Instruments[kinds[self.framework]]},
            telemetry_enabled=False,
        )
        self.provider = trace.get_tracer_provider()

    def session(self, session: str) -> Any:
        from traceloop.sdk import Traceloop

        Traceloop.set_association_properties({"session_id": session})
        return nullcontext()


class Langfuse(Telemetry):
    """Langfuse's SDK: its callback handler, or OpenInference through it."""

    def start(self) -> None:
        from langfuse import Langfuse as Client

        os.environ.update(
            LANGFUSE_PUBLIC_KEY="pk",
            LANGFUSE_SECRET_KEY="sk",
            LANGFUSE_BASE_URL=self.address,
            LANGFUSE_HOST=self.address,
        )
        hidden = (lambda *, data, **_: "<hidden>") if "redacted" in self.variants else None
        self.client = Client(public_key="pk", secret_key="sk", base_url=self.address, mask=hidden)
        self.provider = trace.get_tracer_provider()
        if self.framework == "haystack":
            from haystack import tracing
            from haystack_integrations.tracing.langfuse import DefaultSpanHandler, LangfuseTracer

            tracing.tracer.is_content_tracing_enabled = True
            handler = DefaultSpanHandler()
            tracing.enable_tracing(LangfuseTracer(self.client, "workshop", span_handler=handler))
        elif self.framework != "langchain":
            name, instrumentor = _OPENINFERENCE[self.framework]
            module = import_module(f"openinference.instrumentation.{name}")
            getattr(module, instrumentor)().instrument(tracer_provider=self.provider)

    def span(self, name: str, session: str) -> Any:
        return self.client.start_as_current_observation(name=name)

    def callbacks(self) -> list[Any]:
        from langfuse.langchain import CallbackHandler

        return [CallbackHandler()]

    def metadata(self, turn: Any, named: dict[str, str]) -> dict[str, str]:
        return {"langfuse_session_id": turn.session} if named else {}

    def session(self, session: str) -> Any:
        from langfuse import propagate_attributes

        return propagate_attributes(session_id=session)

    def flush(self) -> None:
        self.client.flush()


class MLflow(Telemetry):
    """MLflow's autologging, which exports over OTLP where an endpoint is given."""

    def start(self) -> None:
        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = self.endpoint
        os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
        os.environ["OTEL_SERVICE_NAME"] = "workshop"
        if "semconv" in self.variants:
            os.environ["MLFLOW_ENABLE_OTEL_GENAI_SEMCONV"] = "true"
        import mlflow

        flavour = {
            "langchain": "langchain",
            "llamaindex": "llama_index",
            "dspy": "dspy",
            "haystack": "haystack",
            "openai_agents": "openai",
        }
        getattr(mlflow, flavour[self.framework]).autolog()

    def span(self, name: str, session: str) -> Any:
        import mlflow

        return mlflow.start_span(name)

    @contextmanager
    def session(self, session: str) -> Iterator[None]:
        from mlflow.tracing.context import context

        with context(session_id=session):
            yield

    def flush(self) -> None:
        from mlflow.tracing.provider import reset

        reset()  # it has nothing of its own to flush an exporter of OTLP


class LangSmith(Telemetry):
    """LangSmith's tracer with its export to OpenTelemetry."""

    def start(self) -> None:
        os.environ.update(
            LANGSMITH_TRACING="true",
            LANGSMITH_OTEL_ENABLED="true",
            LANGSMITH_OTEL_ONLY="true",
            LANGSMITH_API_KEY="key",
            LANGSMITH_ENDPOINT=self.address,
            OTEL_SERVICE_NAME="workshop",
        )
        if "redacted" in self.variants:
            os.environ["LANGSMITH_HIDE_OUTPUTS"] = os.environ["LANGSMITH_HIDE_INPUTS"] = "true"
        trace.set_tracer_provider(self.provider)

    def flush(self) -> None:
        from langchain_core.tracers.langchain import wait_for_all_tracers
        from langsmith.run_trees import get_cached_client

        wait_for_all_tracers()
        get_cached_client().flush()
        self.provider.force_flush()


class Azure(Telemetry):
    """The tracer for LangChain in langchain-azure-ai."""

    session_attribute = "gen_ai.conversation.id"

    def start(self) -> None:
        trace.set_tracer_provider(self.provider)
        from langchain_azure_ai.callbacks.tracers import AzureAIOpenTelemetryTracer

        self._tracer = AzureAIOpenTelemetryTracer(
            enable_content_recording="redacted" not in self.variants, name="workshop"
        )

    def callbacks(self) -> list[Any]:
        return [self._tracer]


class LoongSuite(Telemetry):
    """LoongSuite's instrumentors."""

    session_attribute = "gen_ai.conversation.id"

    def start(self) -> None:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
        off = "redacted" in self.variants
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = (
            "NO_CONTENT" if off else "SPAN_ONLY"
        )
        trace.set_tracer_provider(self.provider)
        for name, instrumentor in (
            ("langchain", "LangChainInstrumentor"),
            ("langgraph", "LangGraphInstrumentor"),
        ):
            module = import_module(f"opentelemetry.instrumentation.{name}")
            getattr(module, instrumentor)().instrument(tracer_provider=self.provider)


class Own(Telemetry):
    """The spans that a framework writes itself."""

    needs_root = True
    adk_schema = "1"

    def settings(self) -> dict[str, str]:
        return {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
            "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint,
            **dict.fromkeys(("OTEL_LOG_USER_PROMPTS", "OTEL_LOG_TOOL_DETAILS"), "1"),
            "OTEL_LOG_TOOL_CONTENT": "1",
        }

    def start(self) -> None:
        os.environ["ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN"] = self.adk_schema
        trace.set_tracer_provider(self.provider)


class Latest(Own):
    """The same under the newest of the conventions."""

    adk_schema = "2"

    def start(self) -> None:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = (
            "NO_CONTENT" if "redacted" in self.variants else "SPAN_ONLY"
        )
        super().start()


class Node(Telemetry):
    """Instrumentations in JavaScript, of a program in a process of its own."""

    node: subprocess.Popen[str]

    def flush(self) -> None:
        self.node.communicate()

    def packages(self) -> dict[str, str]:
        lock = json.loads(Path(os.environ["NODE_PROGRAMS"], "package-lock.json").read_text())
        return {
            path.removeprefix("node_modules/"): one["version"]
            for path, one in lock["packages"].items()
            if path
        }


class HaystackTracing(Telemetry):
    """Haystack's own tracer for OpenTelemetry."""

    needs_root = True

    def start(self) -> None:
        os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = (
            "false" if "redacted" in self.variants else "true"
        )
        trace.set_tracer_provider(self.provider)
        from haystack import tracing

        try:
            from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
        except ImportError:
            from haystack.tracing import OpenTelemetryTracer

        tracing.tracer.is_content_tracing_enabled = "redacted" not in self.variants
        tracing.enable_tracing(OpenTelemetryTracer(self.provider.get_tracer("haystack")))


KNOWN = {
    "openinference": OpenInference,
    "otel": GenAI,
    "openllmetry": OpenLLMetry,
    "traceloop": TraceloopSDK,
    "langfuse": Langfuse,
    "mlflow": MLflow,
    "langsmith": LangSmith,
    "azure": Azure,
    "loongsuite": LoongSuite,
    "native": Own,
    "latest": Latest,
}


class Both:
    """Two instrumentations at once, with one SDK."""

    def __init__(self, parts: list[Telemetry]) -> None:
        self.parts = parts
        self.span, self.rooted = parts[0].span, parts[0].rooted
        self.packages = parts[0].packages

    def callbacks(self) -> list[Any]:
        return [one for part in self.parts for one in part.callbacks()]

    def metadata(self, turn: Any, named: dict[str, str]) -> dict[str, str]:
        return {k: v for part in self.parts for k, v in part.metadata(turn, named).items()}

    @contextmanager
    def session(self, session: str) -> Iterator[None]:
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.session(session))
            yield

    def flush(self) -> None:
        for part in self.parts:
            part.flush()


def started(names: str, framework: str, address: str, variants: frozenset[str]) -> Any:
    """The started instrumentations with these names, joined by +."""
    known = KNOWN | ({"native": HaystackTracing} if framework == "haystack" else {})
    if framework in JAVASCRIPT:
        return Node(framework, address, variants)
    parts = [known[name](framework, address, variants) for name in names.split("+")]
    return parts[0] if len(parts) == 1 else Both(parts)
