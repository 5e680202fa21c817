"""Record the searches of a LangChain or LangGraph agent: pass the handler as a callback.

    handler = SearchHandler(recorder)
    agent.invoke(question, {"callbacks": [handler], "configurable": {"thread_id": "c-1"}})

The outermost run is a turn. A model call that is not inside a tool or a retriever is a decision of
the agent: the searches after it are the next iteration. Of retrievers inside each other, the
outermost counts, and what the innermost found is the ranking before reranking. A turn in which a
model answered without a search is a gate decision ``skip``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from stream_metrics_client import Iteration, Recorder, Turn


@dataclass
class _State:
    turn: Turn
    step: Iteration | None = None
    decided: bool = True
    answered: bool = False


@dataclass
class _Run:
    state: _State
    search: _Run | None = None  # the outermost retriever around this run, or this run itself
    in_tool: bool = False
    name: str | None = None
    query: str = ""
    before: Sequence[Document] | None = None


class SearchHandler(BaseCallbackHandler):
    """Tells a recorder of each retriever's documents, and of each turn's end."""

    run_inline = True

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._runs: dict[UUID, _Run] = {}
        self._lock = threading.Lock()  # tools run in threads of their own

    def _start(
        self, run_id: UUID, parent_run_id: UUID | None, metadata: dict[str, Any] | None
    ) -> _Run:
        parent = self._runs.get(parent_run_id) if parent_run_id else None
        if parent is None:
            known = metadata or {}
            conversation = known.get("thread_id") or known.get("session_id") or str(run_id)
            run = _Run(_State(self._recorder.turn(conversation)))
        else:
            run = _Run(parent.state, parent.search, parent.in_tool, parent.name)
        self._runs[run_id] = run
        return run

    def _end(self, run_id: UUID, parent_run_id: UUID | None, outputs: Any = None) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None and parent_run_id not in self._runs:
            if run.state.step is None and run.state.answered:
                run.state.turn.iteration().gate("skip")
            run.state.turn.completed(_answer(outputs))

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID,
                       parent_run_id: UUID | None = None, **kwargs: Any) -> None:  # fmt: skip
        self._start(run_id, parent_run_id, kwargs.get("metadata"))

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID,
                      parent_run_id: UUID | None = None, **kwargs: Any) -> None:  # fmt: skip
        run = self._start(run_id, parent_run_id, kwargs.get("metadata"))
        run.in_tool, run.name = True, (serialized or {}).get("name") or kwargs.get("name")

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID,
                     parent_run_id: UUID | None = None, **kwargs: Any) -> None:  # fmt: skip
        run = self._start(run_id, parent_run_id, kwargs.get("metadata"))
        if run.search is None and not run.in_tool:
            run.state.decided = run.state.answered = True

    on_chat_model_start = on_llm_start

    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID,
                           parent_run_id: UUID | None = None, **kwargs: Any) -> None:  # fmt: skip
        run = self._start(run_id, parent_run_id, kwargs.get("metadata"))
        run.query, run.search = query, run.search or run
        with self._lock:
            if run.search is run and run.state.decided:
                run.state.step, run.state.decided = run.state.turn.iteration(), False

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID,
                         parent_run_id: UUID | None = None, **kwargs: Any) -> None:  # fmt: skip
        run = self._runs.get(run_id)
        if run is not None and run.search is run and run.state.step is not None:
            run.state.step.search(run.query, documents, route=run.name, before=run.before)
        elif run is not None and run.search is not None and run.search.before is None:
            run.search.before = documents
        self._end(run_id, parent_run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
                     **kwargs: Any) -> None:  # fmt: skip
        self._end(run_id, parent_run_id, outputs)

    on_tool_end = on_llm_end = on_chain_end
    on_chain_error = on_tool_error = on_llm_error = on_retriever_error = on_chain_end


def _answer(outputs: Any) -> str | None:
    """The text with which a chain, a graph or a model ended; None if there is none."""
    if isinstance(outputs, dict):
        messages = outputs.get("messages")
        outputs = messages[-1] if messages else outputs.get("output", outputs.get("answer"))
    text = getattr(outputs, "content", outputs)
    return text if isinstance(text, str) else None
