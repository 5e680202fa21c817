"""Record the searches of a LlamaIndex agent or query engine.

    handler = SearchHandler(recorder=recorder)
    get_dispatcher().add_event_handler(handler)
    with handler.turn("c-1") as turn:
        turn.completed(str(await agent.run(question)))

The program says what a turn is. A model call of the agent is a decision: the searches after it are
the next iteration. Model calls inside a retriever, a reranker, or a query engine that the agent
uses decide nothing. Of retrievers inside each other, the outermost counts. What a reranker returns
replaces the latest search that found it, whose ranking becomes the one before reranking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import LLMChatStartEvent, LLMCompletionStartEvent
from llama_index.core.instrumentation.events.query import QueryEndEvent, QueryStartEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.events.span import SpanDropEvent
from llama_index.core.schema import NodeWithScore
from stream_metrics_client import Iteration, Recorder, Turn


@dataclass
class _State:
    turn: Turn
    step: Iteration | None = None
    decided: bool = True
    level: int = 1_000  # how many query engines are around the model calls that decide
    found: list[tuple[Iteration, Any, str, list[NodeWithScore]]] = field(default_factory=list)


_state: ContextVar[_State | None] = ContextVar("state", default=None)
_open: ContextVar[tuple[tuple[str, str | None], ...]] = ContextVar("open", default=())
_STARTS = {RetrievalStartEvent: "search", ReRankStartEvent: "rerank", QueryStartEvent: "query"}


class SearchHandler(BaseEventHandler):
    """Tells a recorder of each retriever's nodes."""

    recorder: Recorder

    @classmethod
    def class_name(cls) -> str:
        return "SearchHandler"

    @contextmanager
    def turn(self, conversation_id: str) -> Iterator[Turn]:
        """One answer: searches in this block, and in tasks started in it, belong to the turn."""
        state = _State(self.recorder.turn(conversation_id))
        token = _state.set(state)
        try:
            yield state.turn
            if state.step is None and state.level < 1_000:  # a model answered without a search
                state.turn.iteration().gate("skip")
        finally:
            _state.reset(token)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Note where in the turn an event is, and record what a search returned."""
        state, within = _state.get(), _open.get()
        kinds = [kind for kind, _ in within]
        if state is None:
            return
        if type(event) in _STARTS:
            _open.set((*within, (_STARTS[type(event)], event.span_id)))
            if isinstance(event, RetrievalStartEvent) and "search" not in kinds and state.decided:
                state.step, state.decided = state.turn.iteration(), False
        elif isinstance(event, RetrievalEndEvent | ReRankEndEvent | QueryEndEvent):
            _open.set(within[:-1])
            if isinstance(event, RetrievalEndEvent) and kinds.count("search") == 1:
                self._search(state, event)
            elif isinstance(event, ReRankEndEvent):
                self._reranked(state, event)
        elif isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            if not {"search", "rerank"} & set(kinds) and kinds.count("query") <= state.level:
                state.level, state.decided = kinds.count("query"), True
        elif isinstance(event, SpanDropEvent):  # an exception: its end will not be reported
            _open.set(tuple(one for one in within if one[1] != event.span_id))

    def _search(self, state: _State, event: RetrievalEndEvent) -> None:
        query = getattr(event.str_or_query_bundle, "query_str", event.str_or_query_bundle)
        if state.step is not None:
            search_id = state.step.search(query, event.nodes).search_id
            state.found.append((state.step, query, search_id, list(event.nodes)))

    def _reranked(self, state: _State, event: ReRankEndEvent) -> None:
        shown = {node.node_id for node in event.nodes}
        for step, query, search_id, before in reversed(state.found):
            if shown <= {node.node_id for node in before}:
                step.search(query, event.nodes, before=before, search_id=search_id)
                break
