"""The LlamaIndex handler of ``examples/client`` under real query engines and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool
from llamaindex_handler import SearchHandler
from stream_metrics_client import Recorder

dispatcher = get_dispatcher(__name__)
NODES = [NodeWithScore(node=TextNode(id_=f"n-{n}", text=f"Text {n}"), score=0.9) for n in range(3)]


class Static(BaseRetriever):
    """Returns the same nodes, whatever the query; waits as an index on a network does."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if query_bundle.query_str == "fail":
            raise RuntimeError("no index")
        return NODES

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return NODES


class Nested(Static):
    """Asks another retriever."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return Static().retrieve(query_bundle)[:1]


class Returning(BaseRetriever):
    """Returns what it is made with."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__()
        self.nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.nodes


class Reranker(BaseNodePostprocessor):
    """Returns the nodes the other way round, and says so as LlamaIndex' own rerankers do."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        dispatcher.event(
            ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=2, model_name="reverse")
        )
        found = nodes[::-1][:2]
        dispatcher.event(ReRankEndEvent(nodes=found))
        return found


class Scripted(MockLLM):
    """Says what it is told to, in order."""

    lines: list[str] = []  # noqa: RUF012 (pydantic copies it)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=False)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.lines.pop(0))


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def handler(events: list[dict[str, Any]]) -> Iterator[SearchHandler]:
    """A handler that is added to the root dispatcher for the test."""
    found = SearchHandler(recorder=Recorder(events.append, strict=True))
    root = get_dispatcher()
    root.add_event_handler(found)
    yield found
    root.event_handlers.remove(found)


def searches(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Iteration, search id, query, and nodes with their ranks before, of each search."""
    return [
        (event["iteration"], search["search_id"], search["query"],
         [(one["doc_id"], one.get("baseline_rank")) for one in search["results"]])
        for event in events for search in event.get("searches", ())
    ]  # fmt: skip


ALL = [("n-0", None), ("n-1", None), ("n-2", None)]


def test_a_query_engine_with_a_reranker(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    engine = RetrieverQueryEngine.from_args(
        Static(), llm=MockLLM(), node_postprocessors=[Reranker()]
    )
    with handler.turn("c-1") as turn:
        turn.completed(str(engine.query("q")))
    assert handler.recorder.close()

    assert searches(events) == [
        (1, "1.1", "q", ALL),
        (1, "1.1", "q", [("n-2", 3), ("n-1", 2)]),  # replaces the one before
    ]
    assert events[-1]["type"] == "turn_completed"
    assert {event["conversation_id"] for event in events} == {"c-1"}


def test_parallel_searches_are_one_iteration_and_nested_ones_one_search(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    async def both() -> None:
        with handler.turn("c-1"):
            await asyncio.gather(Static().aretrieve("a"), Static().aretrieve("b"))
            await MockLLM().acomplete("what next?")
            Nested().retrieve("c")

    asyncio.run(both())
    assert handler.recorder.close()

    assert sorted(searches(events)) == [
        (1, "1.1", "a", ALL), (1, "1.2", "b", ALL), (2, "2.1", "c", ALL[:1]),
    ]  # fmt: skip


def test_a_react_agent_searches_in_two_iterations(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    def handbook(query: str) -> str:
        """Search the handbook."""
        return str(Static().retrieve(query))

    act = 'Thought: look.\nAction: handbook\nAction Input: {{"query": "{}"}}'
    model = Scripted()
    model.lines = [act.format("a"), act.format("b"), "Thought: I know.\nAnswer: Done."]
    agent = ReActAgent(tools=[FunctionTool.from_defaults(handbook)], llm=model, streaming=False)

    async def answer() -> None:
        with handler.turn("c-1") as turn:
            turn.completed(str(await agent.run("q")))

    asyncio.run(answer())
    assert handler.recorder.close()

    assert searches(events) == [(1, "1.1", "a", ALL), (2, "2.1", "b", ALL)]
    assert events[-1]["answer"] == "Done."


def test_the_model_of_a_query_engine_that_the_agent_uses_decides_nothing(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    engine = RetrieverQueryEngine.from_args(Static(), llm=MockLLM())
    with handler.turn("c-1"):
        MockLLM().complete("what first?")
        engine.query("a")
        engine.query("b")
        MockLLM().complete("what next?")
        engine.query("c")
    assert handler.recorder.close()

    assert [found[:3] for found in searches(events)] == [
        (1, "1.1", "a"), (1, "1.2", "b"), (2, "2.1", "c"),
    ]  # fmt: skip


def test_a_search_that_cannot_be_recorded_is_not_reranked(events: list[dict[str, Any]]) -> None:
    handler = SearchHandler(recorder=Recorder(events.append))
    bad = [NodeWithScore(node=TextNode(id_="bad", text="\ud800"))]
    root = get_dispatcher()
    root.add_event_handler(handler)
    try:
        with handler.turn("c-1"):
            Returning(bad).retrieve("q")
            assert Reranker().postprocess_nodes(bad)
            Static().retrieve("q")
    finally:
        root.event_handlers.remove(handler)
    assert handler.recorder.close()

    assert searches(events) == [(1, "1.2", "q", ALL)]
    assert handler.recorder.failed == 1


def test_an_answer_without_a_search_is_a_skip(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    with handler.turn("c-1"):
        MockLLM().complete("hi")
    assert handler.recorder.close()

    assert [event["gate"] for event in events] == [{"decision": "skip"}]


def test_a_search_that_fails_does_not_hide_the_next(
    handler: SearchHandler, events: list[dict[str, Any]]
) -> None:
    with handler.turn("c-1"):
        with pytest.raises(RuntimeError, match="no index"):
            Static().retrieve("fail")
        Static().retrieve("q")
    Static().retrieve("outside of a turn")
    assert handler.recorder.close()

    assert searches(events) == [(1, "1.1", "q", ALL)]
