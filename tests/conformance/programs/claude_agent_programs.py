"""Agents of the Claude Agent SDK, whose command line runs here, too, and asks the local model."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios, schemas

for inherited in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE"))]:
    del os.environ[inherited]


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    by_itself = run.telemetry.settings()  # its traces name its own sessions
    run.rooted = not by_itself
    home = Path(sys.argv[3], "home").absolute()
    home.mkdir(parents=True, exist_ok=True)

    def offered(function: Any, schema: dict[str, Any]) -> Any:
        async def called(arguments: dict[str, str]) -> dict[str, Any]:
            found = function(**arguments)
            text = found if isinstance(found, str) else json.dumps(found)
            return {"content": [{"type": "text", "text": text}]}

        return tool(schema["name"], schema["description"], schema["parameters"])(called)

    handbook = create_sdk_mcp_server("handbook", tools=[*map(offered, tools, schemas(tools))])
    allowed = [f"mcp__handbook__{one.__name__}" for one in tools]
    researcher = AgentDefinition("The researcher.", "Look it up.", tools=allowed)
    options = ClaudeAgentOptions(
        tools=["Agent"] if scenario == "subagent" else [],
        agents={"research": researcher} if scenario == "subagent" else None,
        allowed_tools=[*allowed, "Agent"],
        mcp_servers={"handbook": handbook},
        strict_mcp_config=True,
        setting_sources=[],
        system_prompt="Look it up.",
        model="script",
        cwd=home,
        env={
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home),
            "ANTHROPIC_BASE_URL": Served(run).address,
            "ANTHROPIC_API_KEY": "key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
            **by_itself,
        },
    )
    loop = asyncio.new_event_loop()
    clients: dict[str, ClaudeSDKClient] = {}
    named: dict[str, str] = {}

    async def asked(turn: Turn) -> None:
        if (client := clients.get(turn.session)) is None:
            client = ClaudeSDKClient(options)
            await client.connect()
            clients[turn.session] = client
            run.closing.append(lambda: loop.run_until_complete(client.disconnect()))
        await client.query(turn.question)
        async for message in client.receive_response():
            if by_itself and isinstance(message, ResultMessage):
                named[turn.session] = message.session_id
        rows = run.account.rows
        rows[:] = [(named.get(session, session), *rest) for session, *rest in rows]

    return lambda turn: loop.run_until_complete(asked(turn))


if __name__ == "__main__":
    main("claude_agent", of_scenarios(program, ("subagent",)))
