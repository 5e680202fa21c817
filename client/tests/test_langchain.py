"""The LangChain handler of ``examples/client`` under real LangChain runs and LangGraph agents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_handler import SearchHandler
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from stream_metrics_client import Recorder

DOCUMENTS = [Document(f"Text {n}", id=f"d-{n}") for n in range(4)]


class Static(BaseRetriever):
    """Returns what it is given, whatever the query."""

    documents: list[Document]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if query == "fail":
            raise RuntimeError("no index")
        return self.documents


class Reranking(BaseRetriever):
    """Returns the base retriever's documents the other way round, without the last."""

    base: BaseRetriever

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        found = self.base.invoke(query, {"callbacks": run_manager.get_child()})
        return [one.model_copy() for one in found[::-1][:-1]]


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def recorder(events: list[dict[str, Any]]) -> Recorder:
    return Recorder(events.append, strict=True)


def searches(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Iteration, query, and documents with their ranks before, of each search."""
    return [
        (event["iteration"], search["query"],
         [(one["doc_id"], one.get("baseline_rank")) for one in search["results"]])
        for event in events for search in event.get("searches", ())
    ]  # fmt: skip


def test_a_chain_is_a_turn_and_model_calls_separate_its_iterations(
    recorder: Recorder, events: list[dict[str, Any]]
) -> None:
    model = FakeListChatModel(responses=["look again", "The answer."])
    retriever = Static(documents=DOCUMENTS[:2])
    chain = (
        RunnableLambda(lambda q: RunnableParallel(a=retriever, b=retriever).invoke(q))
        | RunnableLambda(lambda found: str(found)) | model
        | RunnableLambda(lambda said: retriever.invoke(said.content))
        | RunnableLambda(lambda found: str(found)) | model
    )  # fmt: skip
    chain.invoke("q", {"callbacks": [SearchHandler(recorder)], "metadata": {"session_id": "c-1"}})
    assert recorder.close()

    found = [("d-0", None), ("d-1", None)]
    assert searches(events) == [(1, "q", found), (1, "q", found), (2, "look again", found)]
    assert {event["conversation_id"] for event in events} == {"c-1"}
    assert len({event["turn"] for event in events}) == 1
    assert events[-1]["answer"] == "The answer."


def test_the_outermost_retriever_counts_and_the_inner_ranks_are_kept(
    recorder: Recorder, events: list[dict[str, Any]]
) -> None:
    retriever = Reranking(base=Static(documents=DOCUMENTS))
    RunnableLambda(retriever.invoke).invoke("q", {"callbacks": [SearchHandler(recorder)]})
    assert recorder.close()

    assert searches(events) == [(1, "q", [("d-3", 4), ("d-2", 3), ("d-1", 2)])]


def test_a_retriever_that_merges_others_has_no_ranks_from_one_of_them(
    recorder: Recorder, events: list[dict[str, Any]]
) -> None:
    class Merging(BaseRetriever):
        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[Document]:
            parts = (DOCUMENTS[:2], DOCUMENTS[2:])
            config = {"callbacks": run_manager.get_child()}
            return [one for part in parts for one in Static(documents=part).invoke(query, config)]

    RunnableLambda(Merging().invoke).invoke("q", {"callbacks": [SearchHandler(recorder)]})
    assert recorder.close()

    assert searches(events) == [(1, "q", [(f"d-{n}", None) for n in range(4)])]


def test_a_search_that_cannot_be_recorded_does_not_disturb_the_agent(
    events: list[dict[str, Any]],
) -> None:
    recorder = Recorder(events.append)
    retriever = Static(documents=[Document("T", id="d", metadata={"url": "\ud800"})])
    chain = RunnableLambda(retriever.invoke) | RunnableLambda(lambda found: found[0].page_content)
    bad = Static(documents=[Document("\ud800")])
    handler = SearchHandler(recorder)

    assert chain.invoke("q", {"callbacks": [handler]}) == "T"
    assert bad.invoke("q", {"callbacks": [handler]})[0].page_content == "\ud800"
    assert recorder.close()
    assert (len(searches(events)), recorder.failed) == (1, 1)


def test_a_turn_without_a_search_is_a_skip(
    recorder: Recorder, events: list[dict[str, Any]]
) -> None:
    chain = RunnableLambda(lambda q: q) | FakeListChatModel(responses=["Hello."])
    chain.invoke("hi", {"callbacks": [SearchHandler(recorder)]})
    assert recorder.close()

    assert [event.get("gate") or event["answer"] for event in events] == [
        {"decision": "skip"}, "Hello.",
    ]  # fmt: skip


def graph() -> Any:
    """An agent that searches twice at once, then once more, and answers."""
    retriever = Static(documents=DOCUMENTS[:1])

    @tool
    def handbook(query: str) -> str:
        """Search the handbook."""
        return str(retriever.invoke(query))

    model = FakeListChatModel(responses=["x"] * 3)

    def call(n: int, query: str) -> dict[str, Any]:
        return {"name": "handbook", "args": {"query": query}, "id": f"call-{n}"}

    plan = [
        AIMessage("", tool_calls=[call(1, "a"), call(2, "b")]),
        AIMessage("", tool_calls=[call(3, "c")]),
        AIMessage("Done."),
    ]

    def agent(state: MessagesState) -> dict[str, Any]:
        model.invoke(state["messages"])
        done = sum(one.type == "ai" for one in state["messages"])
        return {"messages": [plan[done]]}

    built = StateGraph(MessagesState)
    built.add_node("agent", agent)
    built.add_node("tools", ToolNode([handbook]))
    built.add_edge(START, "agent")
    built.add_conditional_edges(
        "agent", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    built.add_edge("tools", "agent")
    return built.compile()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_langgraph_agent_with_parallel_tools(
    recorder: Recorder, events: list[dict[str, Any]], asynchronous: bool
) -> None:
    config = {"callbacks": [SearchHandler(recorder)], "configurable": {"thread_id": "c-9"}}
    question = {"messages": [("user", "q")]}
    if asynchronous:
        asyncio.run(graph().ainvoke(question, config))
    else:
        graph().invoke(question, config)
    assert recorder.close()

    found = [("d-0", None)]
    assert sorted(searches(events)) == [(1, "a", found), (1, "b", found), (2, "c", found)]
    routes = {
        event["searches"][0]["routing"]["selected"] for event in events if "searches" in event
    }
    assert routes == {"handbook"}
    assert {event["conversation_id"] for event in events} == {"c-9"}
    assert events[-1]["answer"] == "Done."


def test_errors_leave_nothing_behind(recorder: Recorder, events: list[dict[str, Any]]) -> None:
    handler = SearchHandler(recorder)
    retriever = Static(documents=[])
    with pytest.raises(RuntimeError, match="no index"):
        RunnableLambda(retriever.invoke).invoke("fail", {"callbacks": [handler]})
    retriever.invoke("q", {"callbacks": [handler]})
    assert recorder.close()

    assert handler.runs == {}
    assert searches(events) == [(1, "q", [])]
