"""Agents of Strands."""

from __future__ import annotations

from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder
from strands.tools.mcp import MCPClient

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.mcp_server import command
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import AGENTS, MCP, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = False
    address = f"{Served(run).address}/v1"
    access = {"base_url": address, "api_key": "key"}
    model = OpenAIModel(client_args=access, model_id="script")
    offered = [tool(one) for one in tools]
    if scenario.startswith("mcp"):
        server = StdioServerParameters(**command(scenario))
        client = MCPClient(lambda: stdio_client(server))
        client.start()
        offered = client.list_tools_sync()
    agents: dict[str, Any] = {}

    def made(turn: Turn, name: str, tools: list[Any]) -> Agent:
        return Agent(
            model,
            tools=tools,
            name=name,
            callback_handler=None,
            trace_attributes={"session.id": turn.session},
        )

    def ask(turn: Turn) -> None:
        agent = agents.get(turn.session) if scenario == "memory" else None
        agents[turn.session] = agent = agent or made(turn, "workshop", offered)
        if scenario == "subagent":
            inner = agent

            @tool
            def research(question: str) -> str:
                """Ask the researcher."""
                return str(inner(question))

            agent = made(turn, "desk", [research])
        if scenario == "sequence":
            builder = GraphBuilder()
            builder.add_node(agent, "workshop")
            builder.add_node(made(turn, "writer", []), "writer")
            builder.add_edge("workshop", "writer")
            agent = builder.build()
        agent(turn.question)

    return ask


if __name__ == "__main__":
    main("strands", of_scenarios(program, (*MCP, *AGENTS)))
