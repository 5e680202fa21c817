"""Agents of Semantic Kernel."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent, SequentialOrchestration
from semantic_kernel.agents.runtime import InProcessRuntime
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelPlugin, kernel_function

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import AGENTS, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    client = AsyncOpenAI(base_url=f"{Served(run).address}/v1", api_key="key")
    service = OpenAIChatCompletion(ai_model_id="script", async_client=client)
    functions = [kernel_function(one, name=one.__name__) for one in tools]
    handbook = KernelPlugin(name="handbook", functions=functions)

    def named(name: str, plugins: list[Any]) -> ChatCompletionAgent:
        return ChatCompletionAgent(service=service, name=name, plugins=plugins)

    agent = named("workshop", [handbook])
    if scenario == "subagent":
        agent = named("desk", [named("research", [handbook])])
    if scenario == "sequence":
        writer = named("writer", [])

        async def passed_on(turn: Turn) -> None:
            runtime = InProcessRuntime()
            runtime.start()
            flow = SequentialOrchestration(members=[agent, writer])
            await (await flow.invoke(task=turn.question, runtime=runtime)).get()
            await runtime.stop_when_idle()

        return lambda turn: asyncio.run(passed_on(turn))
    threads: dict[str, Any] = {}

    async def asked(turn: Turn) -> None:
        thread = threads.get(turn.session) if scenario == "memory" else None
        answer = await agent.get_response(turn.question, thread=thread)
        threads[turn.session] = answer.thread

    return lambda turn: asyncio.run(asked(turn))


if __name__ == "__main__":
    main("semantic_kernel", of_scenarios(program, AGENTS))
