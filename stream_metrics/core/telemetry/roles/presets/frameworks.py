"""Frameworks that trace themselves, and groups of agents, which answer one question together."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets.rows import (
    ANSWER,
    INPUT,
    OUTPUT,
    QUESTION,
    TOOL_INPUT,
    TOOL_OUTPUT,
    operation,
)

_AI_SDK: Final = "Vercel AI SDK (ai.operationId)"
_MASTRA: Final = "Mastra (mastra.span.type)"
_SPRING: Final = "Spring AI (spring.ai.kind)"
_GENKIT: Final = "Genkit (genkit:metadata:subtype)"
_CREWAI: Final = "openinference-instrumentation-crewai"
_STRANDS: Final = "Strands Agents: a graph or swarm"
_ADK: Final = "Google ADK"
_MICROSOFT: Final = "Microsoft Agent Framework"
_AUTOGEN: Final = "AutoGen"
_KERNEL: Final = "Semantic Kernel"
_MCP: Final = "Model Context Protocol, OpenTelemetry (mcp.method.name)"

_TOOL_CALLS: Final = ("mastra.tool_call", "mastra.mcp_tool_call", "mastra")
_OUTPUTS: Final = (*TOOL_OUTPUT, "output", *(f"{kind}.output" for kind in _TOOL_CALLS))
_INPUTS: Final = (*TOOL_INPUT, "input", *(f"{kind}.input" for kind in _TOOL_CALLS))


ROWS: Final[tuple[Row, ...]] = (
    # The Vercel AI SDK, 4 to 6.
    Row(
        Role.TOOL,
        (("ai.operationId", "ai.toolCall"),),
        _AI_SDK,
        documents=("ai.toolCall.result", *TOOL_OUTPUT),
        query=("ai.toolCall.args", *TOOL_INPUT),
    ),
    *(
        Row(
            Role.MODEL,
            (("ai.operationId", f"*.{name}"),),
            _AI_SDK,
            answer=("ai.response.text", *ANSWER),
        )
        for name in ("doGenerate", "doStream")
    ),
    *(
        Row(
            Role.TURN,
            (("ai.operationId", f"ai.{name}"),),
            f"{_AI_SDK}: a call with tools, which is an agent",
            query=("ai.prompt", "ai.prompt.messages"),
            answer=("ai.response.text",),
            agent=("ai.telemetry.functionId",),
            child_attributes=attributes,
            child_span=child,
        )
        for name in ("generateText", "streamText")
        for attributes, child in (((("ai.prompt.tools", ""),), ""), ((), "ai.toolCall"))
    ),
    Row(Role.OTHER, (("ai.operationId", ""),), _AI_SDK),
    operation("agent_step", Role.STEP, "Vercel AI SDK 7: a model call and its tools"),
    # Mastra.
    *(
        Row(
            role,
            (("mastra.span.type", name),),
            _MASTRA,
            documents=_OUTPUTS if role is Role.TOOL else (),
            query=_INPUTS if role is Role.TOOL else (*QUESTION, f"mastra.{name}.input"),
            answer=(*ANSWER, f"mastra.{name}.output") if role in (Role.TURN, Role.MODEL) else (),
        )
        for name, role in (
            ("agent_run", Role.TURN),
            ("workflow_run", Role.TURN),
            ("model_generation", Role.MODEL),
            ("llm_generation", Role.MODEL),
            ("model_step", Role.MODEL),  # a generation has a step for each call of the model
            ("model_inference", Role.MODEL),
            ("tool_call", Role.TOOL),
            ("mcp_tool_call", Role.TOOL),
        )
    ),
    Row(Role.OTHER, (("mastra.span.type", ""),), _MASTRA),
    # Spring AI; its vector stores record the texts of what they find.
    *(
        Row(
            role,
            (("spring.ai.kind", kind),),
            _SPRING,
            documents=documents,
            query=query,
        )
        for role, kind, documents, query in (
            (Role.TURN, "chat_client", (), ()),
            (Role.OTHER, "advisor", (), ()),
            (
                Role.TOOL,
                "tool_call",
                ("spring.ai.tool.call.result",),
                ("spring.ai.tool.call.arguments",),
            ),
        )
    ),
    Row(
        Role.SEARCH,
        (("spring.ai.kind", "vector_store"), ("db.operation.name", "query")),
        _SPRING,
        documents=("db.vector.query.response.documents",),
        query=("db.vector.query.content",),
    ),
    Row(Role.OTHER, (("spring.ai.kind", "vector_store"),), _SPRING),
    # Genkit.
    *(
        Row(
            role,
            (("genkit:metadata:subtype", kind),),
            _GENKIT,
            documents=("genkit:output",) if role in (Role.TOOL, Role.SEARCH) else (),
            query=("genkit:input",) if role is not Role.MODEL else (),
            answer=("genkit:output",) if role in (Role.TURN, Role.MODEL) else (),
            agent=("genkit:name",) if role is Role.TURN else (),
        )
        for role, kind in (
            (Role.TURN, "flow"),
            (Role.TURN, "agent"),
            (Role.MODEL, "model"),
            (Role.MODEL, "background-model"),
            (Role.TOOL, "tool*"),
            (Role.SEARCH, "retriever"),
        )
    ),
    Row(Role.OTHER, (("genkit:type", "util"),), _GENKIT),
    # CrewAI: a kickoff is one turn, whichever agents and tasks it has.
    Row(
        Role.TURN,
        (("openinference.span.kind", "CHAIN"),),
        f"{_CREWAI}: a crew or flow",
        scope="openinference.instrumentation.crewai",
        span="*.kickoff*",
        query=("input.value",),
        answer=("output.value",),
        is_group=True,
    ),
    Row(
        Role.TURN,
        (("openinference.span.kind", "AGENT"),),
        f"{_CREWAI}: an agent with its task",
        scope="openinference.instrumentation.crewai",
        query=("input.value",),
        answer=("output.value",),
        agent=("graph.node.id",),
    ),
    # AutoGen's teams.
    *(
        Row(
            Role.TURN,
            (("openinference.span.kind", ""),),
            "openinference-instrumentation-autogen-agentchat: a team",
            scope="openinference.instrumentation.autogen",
            span=name,
            query=("input.value",),
            answer=("output.value",),
            is_group=True,
        )
        for name in ("*GroupChat*.run*", "*Swarm*.run*", "*Team*.run*", "*GraphFlow*.run*")
    ),
    *(
        Row(Role.OTHER, (("messaging.operation", ""),), f"{name}: messages between agents", scope)
        for name, scope in ((_AUTOGEN, "autogen"), (_KERNEL, "agent_runtime"))
    ),
    operation(
        "invoke_agent",
        Role.TURN,
        "pydantic-ai",
        scope="pydantic-ai",
        query=("pydantic_ai.all_messages", *QUESTION),
        answer=("final_result", *ANSWER),
    ),
    # Groups of OpenTelemetry's conventions.
    *(
        operation(name, Role.TURN, _STRANDS, query=QUESTION, answer=ANSWER, is_group=True)
        for name in ("invoke_graph", "invoke_swarm", "invoke_workflow", "invoke_team")
    ),
    Row(
        Role.TURN,
        source=f"{_MICROSOFT}: a workflow",
        scope="agent_framework",
        span="workflow.run*",
        query=QUESTION,
        answer=ANSWER,
        is_group=True,
    ),
    *(
        Row(
            Role.OTHER,
            source=f"{_MICROSOFT}: a part of a workflow",
            scope="agent_framework",
            span=name,
        )
        for name in ("workflow.*", "executor.process*", "edge_group.process*", "message.send*")
    ),
    # Google ADK.
    Row(
        Role.OTHER,
        (("gen_ai.tool.name", "(merged tools)"),),
        f"{_ADK}: calls at once, told a second time",
    ),
    Row(
        Role.MODEL,
        source=f"{_ADK}: a model call",
        scope="gcp.vertex.agent",
        span="call_llm",
        answer=("gcp.vertex.agent.llm_response", *ANSWER),
    ),
    Row(
        Role.OTHER,
        source=f"{_ADK}: a run around the agent",
        scope="gcp.vertex.agent",
        span="invocation",
    ),
    # Semantic Kernel.
    *(
        operation(name, Role.MODEL, _KERNEL, answer=ANSWER)
        for name in ("chat.completions", "chat.streaming_completions", "text.completions")
    ),
    Row(
        Role.OTHER,
        source=f"{_KERNEL}: the loop around model calls and tools",
        scope="semantic_kernel",
        span="AutoFunctionInvocationLoop*",
    ),
    # MCP: clients and servers. Calls of tools under GenAI's conventions are execute_tool.
    *(
        Row(Role.OTHER, (("mcp.method.name", name),), _MCP)
        for name in (
            "initialize",
            "ping",
            "*/list",
            "notifications/*",
            "prompts/*",
            "logging/*",
            "completion/*",
        )
    ),
)

LATER_ROWS: Final[tuple[Row, ...]] = (
    Row(
        Role.TOOL,
        (("mcp.method.name", "tools/call"),),
        _MCP,
        documents=TOOL_OUTPUT,
        query=TOOL_INPUT,
    ),
    Row(
        Role.TURN,
        (("agent_name", ""),),
        "pydantic-ai before GenAI's conventions",
        scope="pydantic-ai",
        query=("all_messages_events", *INPUT),
        answer=("final_result", *OUTPUT),
        agent=("agent_name",),
    ),
    *(
        Row(
            Role.TOOL,
            source="pydantic-ai before GenAI's conventions: a tool",
            scope="pydantic-ai",
            span=name,
            documents=("tool_response", *TOOL_OUTPUT),
            query=("tool_arguments", *TOOL_INPUT),
        )
        for name in ("running tool", "running tool: *")
    ),
    Row(
        Role.TOOL,
        (("gen_ai.tool.name", ""),),
        "pydantic-ai: a tool, before GenAI's conventions",
        scope="pydantic-ai",
        documents=("tool_response", *TOOL_OUTPUT),
        query=("tool_arguments", *TOOL_INPUT),
    ),
    Row(
        Role.OTHER,
        source="pydantic-ai: tools that run at once",
        scope="pydantic-ai",
        span="running * tool*",
    ),
)
"""Rows that apply where those of the conventions do not."""
