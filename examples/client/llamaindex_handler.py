"""Record the searches of a LlamaIndex agent or query engine.

    handler = SearchHandler(recorder=recorder)
    get_dispatcher().add_event_handler(handler)
    with handler.turn("c-1") as turn:
        turn.completed(str(await agent.run(question)))

The program delimits turns. A model call of the agent is a decision, so the next search begins an
iteration. Model calls inside retrievers, rerankers and query engines that the agent uses are not.
Of nested retrievers only the outermost counts. A reranker's results replace the latest search that
returned all of them, whose ranks are those before reranking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent, llm, query, rerank, retrieval, span
from stream_metrics_client import Iteration, Recorder, Turn


@dataclass
class _State:
    turn: Turn
    step: Iteration | None = None
    decided: bool = True  # the next search begins an iteration
    level: int | None = None  # nesting of query engines around deciding model calls
    found: list[tuple[Any, ...]] = field(default_factory=list)


_state: ContextVar[_State | None] = ContextVar("state", default=None)
_open: ContextVar[tuple[tuple[str, str | None], ...]] = ContextVar("open", default=())
_STARTS: dict[type, str] = {
    retrieval.RetrievalStartEvent: "search",
    rerank.ReRankStartEvent: "rerank",
    query.QueryStartEvent: "query",
}
_ENDS = (retrieval.RetrievalEndEvent, rerank.ReRankEndEvent, query.QueryEndEvent)


class SearchHandler(BaseEventHandler):
    """Records each retriever's nodes."""

    recorder: Recorder

    @contextmanager
    def turn(self, conversation_id: str) -> Iterator[Turn]:
        """One answer: searches in this block, and in tasks started in it, belong to the turn."""
        state = _State(self.recorder.turn(conversation_id))
        token = _state.set(state)
        try:
            yield state.turn
            if state.step is None and state.level is not None:  # answered without a search
                state.turn.iteration().gate("skip")
        finally:
            _state.reset(token)

    def handle(self, event: BaseEvent, **_: Any) -> None:
        """Track the position in the turn, and record the results of searches."""
        state, within = _state.get(), _open.get()
        kinds = [kind for kind, _ in within]
        if state is None:
            return
        if kind := _STARTS.get(type(event)):
            _open.set((*within, (kind, event.span_id)))
            if kind == "search" and "search" not in kinds and state.decided:
                state.step, state.decided = state.turn.iteration(), False
        elif isinstance(event, span.SpanDropEvent):  # an exception: no end event follows
            _open.set(tuple(one for one in within if one[1] != event.span_id))
        elif isinstance(event, llm.LLMChatStartEvent | llm.LLMCompletionStartEvent):
            level = kinds.count("query")
            decides = state.level is None or level <= state.level
            if decides and "search" not in kinds and "rerank" not in kinds:
                state.level, state.decided = level, True
        elif isinstance(event, _ENDS):
            _open.set(within[:-1])
        if isinstance(event, retrieval.RetrievalEndEvent) and kinds.count("search") == 1:
            asked = getattr(event.str_or_query_bundle, "query_str", event.str_or_query_bundle)
            search_id = state.step.search(asked, event.nodes).search_id
            state.found.append((state.step, asked, search_id, list(event.nodes)))
        elif isinstance(event, rerank.ReRankEndEvent):
            shown = {node.node_id for node in event.nodes}
            for step, asked, search_id, before in reversed(state.found):
                if search_id and shown <= {node.node_id for node in before}:
                    step.search(asked, event.nodes, before=before, search_id=search_id)
                    break
