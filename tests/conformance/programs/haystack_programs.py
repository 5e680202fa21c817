"""Pipelines and agents of Haystack."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.components.rankers import LostInTheMiddleRanker, MetaFieldRanker
from haystack.components.retrievers.in_memory import (
    InMemoryBM25Retriever,
    InMemoryEmbeddingRetriever,
)
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import ComponentTool, PipelineTool, Tool

from tests.conformance.programs.corpus import (
    CHUNKS,
    PAGES,
    SHELVES,
    Page,
    Turn,
    by_question,
    rank,
    seen,
    vector,
)
from tests.conformance.programs.running import Run, main


@component
class Answering:
    """A model that answers in a sentence."""

    @component.output_types(replies=list[str])
    def run(self, prompt: str) -> dict[str, Any]:
        return {"replies": ["As it was said."]}


@component
class ScriptedChatGenerator:
    """A model that calls tools by the script."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def to_dict(self) -> dict[str, Any]:
        return {"type": "tests.ScriptedChatGenerator", "init_parameters": {}}

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
        run = self._run
        last = max(i for i, one in enumerate(messages) if one.is_from("user"))
        question = str(messages[last].text)
        turn = by_question(question, run.skipping)
        rest = messages[last + 1 :]
        rounds = sum(one.is_from("assistant") for one in rest)
        if rounds:
            given: list[str] = []
            for one in reversed(rest):
                if one.is_from("assistant"):
                    break
                given.insert(0, str(one.tool_call_result.result if one.tool_call_result else ""))
            run.account.got(turn, rounds, seen("".join(given), run.pages))
        if rounds == len(turn.searches):
            return {"replies": [ChatMessage.from_assistant(f"That is all about {question}")]}
        names = [one.name for one in (tools or [])]
        calls = [
            ToolCall(
                tool_name=name, arguments={"query": turn.searches[rounds]}, id=f"c{rounds}{name}"
            )
            for name in names
        ]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}


@component
class ShortestRanker:
    """A reranker of the program's own."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        return {"documents": sorted(documents, key=lambda one: len(one.content or ""))[:2]}


@component
class Keeper:
    """A filter that nothing in its name betrays."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        return {"documents": documents[1:]}


def _store(pages: Sequence[Page] = PAGES) -> InMemoryDocumentStore:
    store = InMemoryDocumentStore()
    store.write_documents(
        [
            Document(
                id=p.id,
                content=p.text,
                meta={"url": p.url, "title": p.title, "place": n},
                embedding=vector(p.text),
            )
            for n, p in enumerate(pages)
        ]
    )
    return store


def _bm25(pages: Sequence[Page] = PAGES, k: int = 3) -> InMemoryBM25Retriever:
    return InMemoryBM25Retriever(_store(pages), top_k=k)


def of_pipeline(run: Run, pipeline: Any, inputs: Any, last: str) -> Any:
    """A pipeline for each search of a turn."""
    run.rooted = True

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            out = pipeline.run(inputs(query), include_outputs_from={last})
            run.account.got(turn, step, [one.id for one in out[last]["documents"]])

    return ask


def _pipeline(*components: tuple[str, Any], model: bool = True, kind: Any = Pipeline) -> Any:
    pipeline = kind()
    for name, one in components:
        pipeline.add_component(name, one)
    for (first, _), (second, _) in pairwise(components):
        pipeline.connect(f"{first}.documents", f"{second}.documents")
    if model:
        pipeline.add_component(
            "prompt",
            PromptBuilder(
                "{% for d in documents %}{{ d.content }} {% endfor %}", required_variables="*"
            ),
        )
        pipeline.add_component("llm", Answering())
        pipeline.connect(f"{components[-1][0]}.documents", "prompt.documents")
        pipeline.connect("prompt.prompt", "llm.prompt")
    return pipeline


def _to_retriever(query: str) -> dict[str, Any]:
    return {"retriever": {"query": query}}


def loop(run: Run) -> Any:
    return of_pipeline(
        run, _pipeline(("retriever", _bm25()), model=False), _to_retriever, "retriever"
    )


def rag(run: Run) -> Any:
    return of_pipeline(run, _pipeline(("retriever", _bm25())), _to_retriever, "retriever")


def embedded(run: Run) -> Any:
    retriever = InMemoryEmbeddingRetriever(_store(), top_k=3)
    return of_pipeline(
        run,
        _pipeline(("retriever", retriever)),
        lambda q: {"retriever": {"query_embedding": vector(q)}},
        "retriever",
    )


def ranked(run: Run) -> Any:
    parts = _pipeline(
        ("retriever", _bm25(k=4)), ("ranker", MetaFieldRanker("place", weight=1.0, top_k=2))
    )
    return of_pipeline(run, parts, lambda q: _to_retriever(q), "ranker")


def own_ranked(run: Run) -> Any:
    return of_pipeline(
        run,
        _pipeline(("retriever", _bm25(k=4)), ("ranker", ShortestRanker())),
        _to_retriever,
        "ranker",
    )


def middle(run: Run) -> Any:
    return of_pipeline(
        run,
        _pipeline(("retriever", _bm25(k=4)), ("ranker", LostInTheMiddleRanker(top_k=3))),
        _to_retriever,
        "ranker",
    )


def kept(run: Run) -> Any:
    return of_pipeline(
        run, _pipeline(("retriever", _bm25(k=4)), ("keeper", Keeper())), _to_retriever, "keeper"
    )


def joined(run: Run, mode: str = "reciprocal_rank_fusion", ranker: bool = False) -> Any:
    pipeline = Pipeline()
    pipeline.add_component("words", _bm25())
    pipeline.add_component("vectors", InMemoryEmbeddingRetriever(_store(), top_k=3))
    pipeline.add_component("joiner", DocumentJoiner(join_mode=mode))
    pipeline.connect("words.documents", "joiner.documents")
    pipeline.connect("vectors.documents", "joiner.documents")
    last = "joiner"
    if ranker:
        pipeline.add_component("ranker", ShortestRanker())
        pipeline.connect("joiner.documents", "ranker.documents")
        last = "ranker"

    def inputs(query: str) -> dict[str, Any]:
        return {"words": {"query": query}, "vectors": {"query_embedding": vector(query)}}

    return of_pipeline(run, pipeline, inputs, last)


def joined_ranked(run: Run) -> Any:
    return joined(run, "concatenate", True)


def side_by_side(run: Run) -> Any:
    """Two retrievers side by side, both of which the prompt gets."""
    run.rooted = True
    pipeline = Pipeline()
    pipeline.add_component("words", _bm25())
    pipeline.add_component("vectors", InMemoryEmbeddingRetriever(_store(), top_k=3))
    pipeline.add_component(
        "prompt",
        PromptBuilder(
            "{% for d in one + two %}{{ d.content }} {% endfor %}",
            required_variables="*",
        ),
    )
    pipeline.add_component("llm", Answering())
    pipeline.connect("words.documents", "prompt.one")
    pipeline.connect("vectors.documents", "prompt.two")
    pipeline.connect("prompt.prompt", "llm.prompt")

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            out = pipeline.run(
                {"words": {"query": query}, "vectors": {"query_embedding": vector(query)}},
                include_outputs_from={"words", "vectors"},
            )
            run.account.got(
                turn,
                step,
                [one.id for name in ("words", "vectors") for one in out[name]["documents"]],
            )

    return ask


def wide(run: Run) -> Any:
    run.pages = SHELVES
    return of_pipeline(
        run, _pipeline(("retriever", _bm25(SHELVES, 60)), model=False), _to_retriever, "retriever"
    )


def chunks(run: Run) -> Any:
    run.pages = CHUNKS
    return of_pipeline(run, _pipeline(("retriever", _bm25(CHUNKS, 4))), _to_retriever, "retriever")


def in_async(run: Run) -> Any:
    run.rooted = True
    pipeline = _pipeline(("retriever", _bm25()), kind=Pipeline)

    async def asked(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            out = await pipeline.run_async(_to_retriever(query), include_outputs_from={"retriever"})
            run.account.got(turn, step, [one.id for one in out["retriever"]["documents"]])

    return lambda turn: asyncio.run(asked(turn))


def alone(run: Run) -> Any:
    """The retriever is called without a pipeline."""
    run.rooted = True
    retriever = _bm25()

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            run.account.got(turn, step, [one.id for one in retriever.run(query=query)["documents"]])

    return ask


def of_agent(run: Run, *tools: Any) -> Any:
    """Haystack's agent."""
    agent = Agent(
        chat_generator=ScriptedChatGenerator(run), tools=list(tools), system_prompt="Look it up."
    )
    agent.warm_up()
    return lambda turn: agent.run(messages=[ChatMessage.from_user(turn.question)])


def agent(run: Run) -> Any:
    tool = ComponentTool(
        _bm25(),
        name="search_handbook",
        description="Search the handbook.",
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    )
    return of_agent(run, tool)


def agent_pipeline(run: Run) -> Any:
    pipeline = _pipeline(("retriever", _bm25(k=4)), ("ranker", ShortestRanker()), model=False)
    tool = PipelineTool(
        pipeline,
        name="search_handbook",
        description="Search.",
        input_mapping={"query": ["retriever.query"]},
        output_mapping={"ranker.documents": "documents"},
    )
    return of_agent(run, tool)


def agent_function(run: Run) -> Any:
    def search(query: str) -> str:
        return json.dumps(
            [{"id": p.id, "content": p.text, "score": s} for p, s in rank(query, PAGES)]
        )

    tool = Tool(
        name="search_handbook",
        description="Search.",
        function=search,
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    )
    return of_agent(run, tool)


def agent_parallel(run: Run) -> Any:
    parameters = {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }
    store = InMemoryBM25Retriever(_store(PAGES[2:]), top_k=2)
    tools = [
        ComponentTool(one, name=name, description="Search.", parameters=parameters)
        for one, name in ((_bm25(), "search_handbook"), (store, "search_store"))
    ]
    return of_agent(run, *tools)


def agent_skip(run: Run) -> Any:
    run.skipping = True
    return agent(run)


PROGRAMS = {
    "loop": loop,
    "rag": rag,
    "embedded": embedded,
    "rank": ranked,
    "ownrank": own_ranked,
    "middle": middle,
    "kept": kept,
    "join": joined,
    "joinrank": joined_ranked,
    "side": side_by_side,
    "wide": wide,
    "chunks": chunks,
    "async": in_async,
    "alone": alone,
    "agent": agent,
    "agentpipe": agent_pipeline,
    "rawtool": agent_function,
    "partool": agent_parallel,
    "skip": agent_skip,
}

if __name__ == "__main__":
    main("haystack", PROGRAMS)
