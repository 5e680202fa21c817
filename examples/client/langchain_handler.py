"""Record the searches of a LangChain or LangGraph agent: pass the handler as a callback.

    handler = SearchHandler(recorder)
    agent.invoke(question, {"callbacks": [handler], "configurable": {"thread_id": "c-1"}})

The outermost run is a turn. A model call outside tools and retrievers is a decision of the agent,
so the next search begins an iteration. Of nested retrievers only the outermost counts; if it calls
one retriever, that one's ranks are those before reranking. A turn in which a model answered without
a search is recorded as the gate decision ``skip``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from stream_metrics_client import Iteration, Recorder, Turn


@dataclass
class _State:
    turn: Turn
    step: Iteration | None = None
    decided: bool = True  # the next search begins an iteration
    answered: bool = False


@dataclass
class _Run:
    state: _State
    tool: str | None = None
    search: _Run | None = None  # the outermost enclosing retriever, or the run itself
    query: str = ""
    inner: list[Any] = field(default_factory=list)  # the documents of each nested retriever


class SearchHandler(BaseCallbackHandler):
    """Records each retriever's documents and the end of each turn."""

    run_inline = True  # in order, also in coroutines

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.lock = recorder, threading.Lock()  # tools run in their own threads
        self.runs: dict[Any, _Run] = {}

    def _start(self, kind: str, serialized: Any, given: Any, *, run_id: Any, parent_run_id: Any,
               metadata: Any = None, name: str | None = None, **_: Any) -> None:  # fmt: skip
        outer = self.runs.get(parent_run_id)
        if outer is None:
            known = metadata or {}
            conversation = known.get("thread_id") or known.get("session_id") or str(run_id)
            outer = _Run(_State(self.recorder.turn(conversation)))
        run = self.runs[run_id] = _Run(outer.state, outer.tool, outer.search)
        if kind == "tool":
            run.tool = (serialized or {}).get("name") or name or "tool"
        elif kind == "model" and not run.tool and not run.search:
            run.state.decided = run.state.answered = True
        elif kind == "retriever" and not run.search:
            run.search, run.query = run, given
            with self.lock:
                if run.state.decided:
                    run.state.step, run.state.decided = run.state.turn.iteration(), False

    on_chain_start = partialmethod(_start, "chain")
    on_tool_start = partialmethod(_start, "tool")
    on_llm_start = on_chat_model_start = partialmethod(_start, "model")
    on_retriever_start = partialmethod(_start, "retriever")

    def on_retriever_end(self, documents: Any, *, run_id: Any, **about: Any) -> None:
        run = self.runs.get(run_id)
        if run and run.search is run and run.state.step:
            before = run.inner[0] if len(run.inner) == 1 else None
            run.state.step.search(run.query, documents, route=run.tool, before=before)
        elif run and run.search:
            run.search.inner.append(documents)
        self._end(None, run_id=run_id, **about)

    def _end(self, outputs: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any) -> None:
        run = self.runs.pop(run_id, None)
        if run and parent_run_id not in self.runs:
            if run.state.answered and not run.state.step:
                run.state.turn.iteration().gate("skip")
            run.state.turn.completed(_answer(outputs))

    on_chain_end = on_tool_end = on_llm_end = _end
    on_chain_error = on_tool_error = on_llm_error = on_retriever_error = _end


def _answer(outputs: Any) -> str | None:
    """The final text of a chain or a graph; None if there is none."""
    if isinstance(outputs, dict):
        messages = outputs.get("messages")
        outputs = messages[-1] if messages else outputs.get("output", outputs.get("answer"))
    text = getattr(outputs, "content", outputs)
    return text if isinstance(text, str) else None
