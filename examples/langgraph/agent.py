"""A support agent on LangGraph that searches in a loop, traced by OpenInference.

Retrieval is real; a rule-based stand-in replaces the model, so no external service is needed.
Traces are exported to ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from openinference.instrumentation.langchain import LangChainInstrumentor, get_current_span
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

CORPUS = Path(__file__).with_name("corpus.json")
DIMENSIONS = 512
ROUNDS = 4  # the most searches for one answer
QUESTION: ContextVar[str] = ContextVar("question")
COMMON = re.compile(r"an?|and|are|at|be|by|can|do|for|from|how|i|in|is|it|my|of|on|or|the|to|what")


def instrument() -> TracerProvider:
    """Trace LangChain; the variables ``OTEL_…`` set the endpoint, the service name and the
    limits."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    LangChainInstrumentor().instrument(tracer_provider=provider)
    return provider


class Words(Embeddings):
    """Embeds a text by hashing its words, so that texts with common words are close."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = np.zeros(DIMENSIONS)
        for word, times in Counter(words(text)).items():
            vector[zlib.crc32(word.encode()) % DIMENSIONS] += np.log1p(times)
        return list(vector / (np.linalg.norm(vector) or 1.0))


class Rules(BaseChatModel):
    """A stand-in for a language model: searches until the results contain the words of the
    question."""

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Rules:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._decide(messages))])

    def _decide(self, messages: list[BaseMessage]) -> AIMessage:
        last = max(at for at, one in enumerate(messages) if isinstance(one, HumanMessage))
        question, since = str(messages[last].content), messages[last + 1 :]
        if not question.endswith("?"):
            return AIMessage("You are welcome.")
        rounds = sum(isinstance(one, AIMessage) for one in since)
        found = [
            one for message in since if isinstance(message, ToolMessage) for one in message.artifact
        ]
        if rounds == 0:
            tools = ["search_handbook"]
            if {"again", "broken", "fail"} & set(words(question)):
                tools.append("search_tickets")
            return call(tools, question, rounds)
        known = set(words(" ".join(one.page_content for one in found)))
        missing = [word for word in words(question) if word not in known]
        if rounds < ROUNDS and (missing or rounds < 2):
            near = [word for one in found[-2:] for word in words(one.metadata["title"])]
            tool = "search_tickets" if rounds == 3 else "search_handbook"
            return call([tool], " ".join(dict.fromkeys(missing + near)), rounds)
        return AIMessage(found[0].page_content if found else "I do not know.")


def call(tools: Sequence[str], query: str, rounds: int) -> AIMessage:
    """A message that calls these tools concurrently."""
    calls = [
        {"name": tool, "args": {"query": query}, "id": f"call-{rounds}-{number}"}
        for number, tool in enumerate(tools)
    ]
    return AIMessage("", tool_calls=calls)


def words(text: str) -> list[str]:
    """The significant words, without plural endings."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [word.rstrip("s") for word in found if not COMMON.fullmatch(word)]


def search_tool(
    name: str, description: str, documents: Sequence[dict[str, str]], k: int
) -> BaseTool:
    """A tool that returns the ``k`` documents closest to a query."""
    store = InMemoryVectorStore(Words())
    store.add_documents([
        Document(page_content=one["text"], metadata={"title": one["title"]}, id=one["id"])
        for one in documents
    ])  # fmt: skip
    retriever = store.as_retriever(search_kwargs={"k": k})

    @tool(name, description=description, response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list[Document]]:
        found = retriever.invoke(query)
        judge(found)
        return "\n\n".join(one.page_content for one in found), found

    return search


def judge(documents: Sequence[Document]) -> None:
    """Record in the trace how relevant documents are to the question, as an evaluator would."""
    span, asked = get_current_span(), set(words(QUESTION.get()))
    for one in documents:
        shared = asked.intersection(words(f"{one.metadata['title']} {one.page_content}"))
        if span is not None:
            attributes = {
                "gen_ai.evaluation.name": "relevance",
                "gen_ai.evaluation.score.value": len(shared) / len(asked),
                "document.id": str(one.id),
            }
            span.add_event("gen_ai.evaluation.result", attributes)


def conversations(questions: Sequence[str], seed: int) -> Iterator[tuple[str, list[str]]]:
    """Endless conversations: an id, and the user's messages."""
    chosen = random.Random(seed)
    run = f"{chosen.getrandbits(32):08x}" if seed else f"{time.time_ns() // 1_000_000:x}"
    for number in count(1):
        said = chosen.sample(questions, chosen.randint(1, 3))
        if chosen.random() < 0.5:
            said.append("Thank you, that helps.")
        yield f"support-{run}-{number}", said


def main() -> None:
    """Run conversations until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two turns")
    parser.add_argument("--turns", type=int, help="end after so many turns")
    parser.add_argument("--seed", type=int, default=0, help="0: other conversation ids each time")
    chosen = parser.parse_args()
    provider = instrument()
    corpus = json.loads(CORPUS.read_text(encoding="utf-8"))
    tools = [
        search_tool("search_handbook", "Search the employee handbook.", corpus["handbook"], 4),
        search_tool("search_tickets", "Search solved tickets.", corpus["tickets"], 3),
    ]
    sessions = conversations(corpus["questions"], chosen.seed)
    turns = ((id, text, not at) for id, said in sessions for at, text in enumerate(said))
    try:
        for number, (id, text, first) in enumerate(turns, 1):
            if first:  # each conversation has its own memory
                agent = create_agent(Rules(), tools, name="support", checkpointer=InMemorySaver())
            QUESTION.set(text)
            agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": id}})
            print(f"{id}: {text}", flush=True)
            if number == chosen.turns:
                break
            time.sleep(chosen.pause)
    finally:
        provider.shutdown()  # flushes the remaining spans


if __name__ == "__main__":
    main()
