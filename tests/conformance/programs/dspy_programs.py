"""Programs of DSPy."""

from __future__ import annotations

import json
from typing import Any

import dspy

from tests.conformance.programs.corpus import CHUNKS, PAGES, SHELVES, Turn, rank, vector
from tests.conformance.programs.running import Run, main


class Script(dspy.LM):
    """A model that answers in the form that it was asked for."""

    def __init__(self, run: Run) -> None:
        super().__init__("script/model", cache=False)
        self.script = run
        self.plan: list[str] = []

    def forward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:
        from litellm import ModelResponse

        text = "".join(str(one["content"]) for one in messages or [{"content": prompt}])
        return ModelResponse(
            choices=[
                {
                    "message": {"role": "assistant", "content": self.reply(text)},
                    "finish_reason": "stop",
                }
            ],
            usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            model="script",
        )

    async def aforward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:
        return self.forward(prompt, messages)

    def reply(self, text: str) -> str:
        if "next_tool_name" in text:
            query = self.plan.pop(0) if self.plan else None
            name, args = ("search_handbook", {"query": query}) if query else ("finish", {})
            return (
                f"[[ ## next_thought ## ]]\nI look.\n\n[[ ## next_tool_name ## ]]\n{name}\n\n"
                f"[[ ## next_tool_args ## ]]\n{json.dumps(args)}\n\n[[ ## completed ## ]]"
            )
        if "`query`" in text and "[[ ## query ## ]]" in text and self.plan:
            return _form(reasoning="So.", query=self.plan.pop(0))
        return _form(reasoning="So.", answer="As it was said.")


def Store(pages: Any = PAGES, k: int = 3) -> dspy.Retrieve:
    """DSPy's retriever, with a retrieval model by words."""

    def found(query: str, k: int = k, **_: Any) -> Any:
        return [dspy.Example(long_text=page.text) for page, _ in rank(query, pages, k)]

    dspy.configure(rm=found)
    return dspy.Retrieve(k=k)


class Unseen(dspy.Retrieve):
    """A retriever of the program's own, which no instrumentation knows."""

    def forward(self, query: str, k: int | None = None, **_: Any) -> Any:
        return dspy.Prediction(passages=[page.text for page, _ in rank(query, PAGES)])


def _form(**fields: str) -> str:
    """An answer in the form that DSPy asks for."""
    parts = [f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in fields.items()]
    return "".join(parts) + "[[ ## completed ## ]]"


def _ids(passages: list[str], pages: Any = PAGES) -> list[str]:
    by_text = {page.text: page.id for page in pages}
    return [by_text[one] for one in passages]


class Hops(dspy.Module):
    """A model asks, a retriever answers, for each search of the turn."""

    def __init__(self, run: Run, retriever: Any, lm: Script, read: Any) -> None:
        super().__init__()
        self.run, self.retriever, self.lm_, self.read = run, retriever, lm, read
        self.ask = dspy.ChainOfThought("question -> query")
        self.answer = dspy.ChainOfThought("context, question -> answer")

    def forward(self, question: str, turn: Turn) -> Any:
        self.lm_.plan = list(turn.searches)
        context: list[str] = []
        for step in range(1, len(turn.searches) + 1):
            query = self.ask(question=question).query
            ids, texts = self.read(self.retriever(query))
            self.run.account.got(turn, step, ids)
            context += texts
        return self.answer(context=context, question=question)


def of_hops(run: Run, retriever: Any, read: Any) -> Any:
    """The module with a retriever."""
    lm = Script(run)
    dspy.configure(lm=lm)
    run.rooted = True
    module = Hops(run, retriever, lm, read)
    return lambda turn: module(question=turn.question, turn=turn)


def hops(run: Run) -> Any:
    return of_hops(run, Store(), lambda out: (_ids(out.passages), out.passages))


def unseen(run: Run) -> Any:
    return of_hops(run, Unseen(), lambda out: (_ids(out.passages), out.passages))


def chunks(run: Run) -> Any:
    run.pages = CHUNKS
    return of_hops(run, Store(CHUNKS, 4), lambda out: (_ids(out.passages, CHUNKS), out.passages))


def wide(run: Run) -> Any:
    run.pages = SHELVES
    return of_hops(run, Store(SHELVES, 80), lambda out: (_ids(out.passages, SHELVES), out.passages))


def embedded(run: Run) -> Any:
    """DSPy's own retriever by embeddings."""
    import numpy as np

    search = dspy.retrievers.Embeddings(
        corpus=[page.text for page in PAGES],
        embedder=lambda texts: np.array([vector(t) for t in texts], dtype="float32"),
        k=3,
    )
    return of_hops(run, search, lambda out: (_ids(out.passages), out.passages))


def plain(run: Run) -> Any:
    """Retrieval without a model."""
    run.rooted = True
    retriever = Store()

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            run.account.got(turn, step, _ids(retriever(query).passages))

    return ask


def of_react(run: Run, tool: Any) -> Any:
    """DSPy's agent with a tool."""
    lm = Script(run)
    dspy.configure(lm=lm)
    run.rooted = True
    agent = dspy.ReAct("question -> answer", tools=[tool], max_iters=6)

    def ask(turn: Turn) -> None:
        lm.plan = list(turn.searches)
        run.turn, run.step = turn, 0  # type: ignore[attr-defined]
        agent(question=turn.question)

    return ask


def _noted(run: Any, ids: list[str]) -> None:
    run.step += 1
    run.account.got(run.turn, run.step, ids)


def react(run: Run) -> Any:
    retriever = Store()

    def search_handbook(query: str) -> list[str]:
        """Search the handbook."""
        passages = retriever(query).passages
        _noted(run, _ids(passages))
        return passages

    return of_react(run, search_handbook)


def react_json(run: Run) -> Any:
    def search_handbook(query: str) -> str:
        """Search the handbook."""
        found = rank(query, PAGES)
        _noted(run, [page.id for page, _ in found])
        return json.dumps(
            [{"id": page.id, "text": page.text, "score": score} for page, score in found]
        )

    return of_react(run, search_handbook)


def react_texts(run: Run) -> Any:
    """The tool returns passages, and no retriever is inside."""

    def search_handbook(query: str) -> list[str]:
        """Search the handbook."""
        found = rank(query, PAGES)
        _noted(run, [page.id for page, _ in found])
        return [page.text for page, _ in found]

    return of_react(run, search_handbook)


def react_embedded(run: Run) -> Any:
    import numpy as np

    search = dspy.retrievers.Embeddings(
        corpus=[page.text for page in PAGES],
        embedder=lambda texts: np.array([vector(t) for t in texts], dtype="float32"),
        k=3,
    )

    def search_handbook(query: str) -> list[str]:
        """Search the handbook."""
        passages = search(query).passages
        _noted(run, _ids(passages))
        return passages

    return of_react(run, search_handbook)


PROGRAMS = {
    "hops": hops,
    "unseen": unseen,
    "retrieve": plain,
    "chunks": chunks,
    "wide": wide,
    "embedded": embedded,
    "react": react,
    "rawtool": react_json,
    "listtool": react_texts,
    "reactembedded": react_embedded,
}

if __name__ == "__main__":
    main("dspy", PROGRAMS)
