"""Agents of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MergerRetriever,
    MultiQueryRetriever,
)
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_community.retrievers import BM25Retriever
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableParallel, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send

from tests.conformance.programs.corpus import (
    CHUNKS,
    OTHER_WORDS,
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

K = 3


class Words(Embeddings):
    """Embeddings by words."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)


class Model(BaseChatModel):
    """Plays an agent: it calls tools as the script of the question says, and then answers."""

    run: Any
    tools: tuple[str, ...] = ()
    inner: bool = False

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Model:
        names = [getattr(one, "name", None) or one["function"]["name"] for one in tools]
        return self.model_copy(update={"tools": tuple(names)})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        last = max(i for i, one in enumerate(messages) if isinstance(one, HumanMessage))
        question = str(messages[last].content)
        if not self.tools:
            return AIMessage(self.run.plain(question))
        rest = messages[last + 1 :]
        rounds = [one for one in rest if isinstance(one, AIMessage)]
        turn = by_question(question, self.run.skipping)
        if rounds and not self.run.outer(self.tools):
            given = "".join(
                _content(one)
                for one in rest
                if isinstance(one, ToolMessage)
                and one.tool_call_id.startswith(f"call-{len(rounds)}-")
            )
            self.run.account.got(turn, len(rounds), seen(given, self.run.pages))
        step = len(rounds)
        steps = 1 if self.run.outer(self.tools) else len(turn.searches)
        if step == steps:
            return AIMessage(f"That is all about {question}")
        return AIMessage(
            "",
            tool_calls=[
                {
                    "name": name,
                    "args": {
                        self.run.argument: question
                        if self.run.outer(self.tools)
                        else turn.searches[step]
                    },
                    "id": f"call-{step + 1}-{place}",
                }
                for place, name in enumerate(self.tools)
            ],
        )


def _content(message: ToolMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else json.dumps(content)


class Keep(BaseDocumentCompressor):
    """A reranker: the shortest texts first, and of these two."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return sorted(documents, key=lambda one: len(one.page_content))[:2]


def _documents(pages: Sequence[Page], ids: bool = True) -> list[Document]:
    return [
        Document(
            id=page.id if ids else None,
            page_content=page.text,
            metadata={"source": page.url, "title": page.title},
        )
        for page in pages
    ]


def words(pages: Sequence[Page], k: int = K, ids: bool = True) -> BaseRetriever:
    """A retriever by words."""
    return BM25Retriever.from_documents(_documents(pages, ids), k=k)


def vectors(pages: Sequence[Page], k: int = K) -> BaseRetriever:
    """A retriever by embeddings in a vector store."""
    return InMemoryVectorStore.from_documents(_documents(pages), Words()).as_retriever(
        search_kwargs={"k": k}
    )


class State(TypedDict, total=False):
    """The state of the graphs."""

    messages: Annotated[list[Any], operator.add]
    question: str
    query: str
    docs: list[Document]
    found: Annotated[list[Any], operator.add]
    step: int


def _prompt(state: State) -> str:
    """What the last model call of a graph is asked."""
    found = [doc for _, _, docs in state.get("found", []) for doc in docs]
    texts = [doc.page_content for doc in [*state.get("docs", []), *found]]
    return "\n\n".join([*texts, state["question"]])


def graph(
    run: Run, search: Callable[[State, RunnableConfig], dict[str, Any]], after: Any = None
) -> Any:
    """A loop: a model rewrites the question, and a node searches, as often as the turn does."""
    model = Model(run=run)

    def rewrite(state: State, config: RunnableConfig) -> dict[str, Any]:
        turn = by_question(state["question"], run.skipping)
        step = state.get("step", 0)
        model.invoke([HumanMessage(f"rewrite {state['question']}")], config)
        return {"query": turn.searches[step], "step": step + 1}

    def answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke([HumanMessage(_prompt(state))], config)]}

    def more(state: State) -> str:
        turn = by_question(state["question"], run.skipping)
        return "rewrite" if state.get("step", 0) < len(turn.searches) else "answer"

    builder = StateGraph(State)
    builder.add_node("rewrite", rewrite)
    builder.add_node("retrieve", search)
    builder.add_node("answer", answer)
    builder.add_conditional_edges(START, more, ["rewrite", "answer"])
    builder.add_edge("rewrite", "retrieve")
    if after is not None:
        builder.add_node("filter", after)
        builder.add_edge("retrieve", "filter")
    builder.add_conditional_edges("filter" if after else "retrieve", more, ["rewrite", "answer"])
    builder.add_edge("answer", END)
    return builder.compile(name="workshop")


def of_retriever(run: Run, retriever: Any) -> Any:
    """The loop about a retriever."""

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        docs = retriever.invoke(state["query"], config)
        run.account.got(
            by_question(state["question"], run.skipping),
            state["step"],
            [seen(one.page_content, run.pages)[0] for one in docs],
        )
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def of_tools(run: Run, *tools: Any, name: str = "workshop") -> Any:
    """The agent that LangChain makes of a model and tools."""
    agent = create_agent(Model(run=run), list(tools), name=name)
    return lambda turn: agent.invoke({"messages": [HumanMessage(turn.question)]}, run.config(turn))


def _retriever_tool(retriever: Any, name: str = "search_handbook", **options: Any) -> Any:
    return create_retriever_tool(retriever, name, "Search the handbook of the workshop.", **options)


def plain_graph(run: Run) -> Any:
    return of_retriever(run, words(PAGES))


def vector_graph(run: Run) -> Any:
    return of_retriever(run, vectors(PAGES))


def skip(run: Run) -> Any:
    run.skipping = True
    return of_retriever(run, words(PAGES))


def skip_tool(run: Run) -> Any:
    run.skipping = True
    return of_tools(run, _retriever_tool(words(PAGES)))


def plain_tool(run: Run) -> Any:
    return of_tools(run, _retriever_tool(words(PAGES)))


def artifact(run: Run) -> Any:
    return of_tools(run, _retriever_tool(words(PAGES), response_format="content_and_artifact"))


def parallel_tools(run: Run) -> Any:
    return of_tools(
        run, _retriever_tool(words(PAGES)), _retriever_tool(vectors(PAGES), "search_store")
    )


def raw_tool(run: Run) -> Any:
    @tool
    def search_handbook(query: str) -> str:
        """Search the handbook."""
        found = words(PAGES).invoke(query)
        return json.dumps(
            [{"id": d.id, "title": d.metadata["title"], "content": d.page_content} for d in found]
        )

    return of_tools(run, search_handbook)


def quiet_tool(run: Run) -> Any:
    """A tool whose own search no instrumentation sees, and which returns JSON."""

    @tool
    def search_handbook(query: str) -> str:
        """Search the handbook."""
        return json.dumps(
            {
                "results": [
                    {"id": p.id, "text": p.text, "url": p.url, "score": s}
                    for p, s in rank(query, PAGES)
                ]
            }
        )

    return of_tools(run, search_handbook)


def dict_tool(run: Run) -> Any:
    @tool
    def search_handbook(query: str) -> list[dict[str, Any]]:
        """Search the handbook."""
        return [{"chunk_id": p.id, "content": p.text, "score": s} for p, s in rank(query, PAGES)]

    return of_tools(run, search_handbook)


def documents_tool(run: Run) -> Any:
    """A tool that returns documents, of which LangChain makes a text."""

    @tool
    def search_handbook(query: str) -> Any:
        """Search the handbook."""
        return _documents([page for page, _ in rank(query, PAGES)])

    return of_tools(run, search_handbook)


def text_tool(run: Run) -> Any:
    """A tool of which only the text is known that it returns."""

    @tool
    def search_handbook(query: str) -> str:
        """Search the handbook."""
        return "\n\n".join(page.text for page, _ in rank(query, PAGES))

    return of_tools(run, search_handbook)


def compress(run: Run) -> Any:
    return of_retriever(
        run, ContextualCompressionRetriever(base_compressor=Keep(), base_retriever=words(PAGES))
    )


def compress_tool(run: Run) -> Any:
    return of_tools(
        run,
        _retriever_tool(
            ContextualCompressionRetriever(
                base_compressor=DocumentCompressorPipeline(transformers=[Keep()]),
                base_retriever=vectors(PAGES, 4),
            )
        ),
    )


def node_rerank(run: Run) -> Any:
    """A node of the graph reranks: no instrumentation knows that."""
    retriever = words(PAGES)

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"docs": retriever.invoke(state["query"], config)}

    def keep(state: State) -> dict[str, Any]:
        docs = list(Keep().compress_documents(state["docs"], state["query"]))
        run.account.got(
            by_question(state["question"]), state["step"], [one.id or "" for one in docs]
        )
        return {"docs": docs}

    app = graph(run, retrieve, keep)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def hidden_rerank(run: Run) -> Any:
    """The node that searches also reranks, which spans show in what the node returns."""
    retriever = words(PAGES)

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        docs = list(
            Keep().compress_documents(retriever.invoke(state["query"], config), state["query"])
        )
        run.account.got(
            by_question(state["question"]), state["step"], [one.id or "" for one in docs]
        )
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def chunks(run: Run) -> Any:
    run.pages = CHUNKS
    return of_retriever(run, words(CHUNKS, 4))


def chunks_tool(run: Run) -> Any:
    run.pages = CHUNKS
    return of_tools(run, _retriever_tool(words(CHUNKS, 4)))


def no_ids(run: Run) -> Any:
    return of_retriever(run, words(PAGES, ids=False))


def no_ids_tool(run: Run) -> Any:
    return of_tools(run, _retriever_tool(words(PAGES, ids=False)))


def wide(run: Run) -> Any:
    run.pages = SHELVES
    return of_retriever(run, words(SHELVES, 80))


def wide_tool(run: Run) -> Any:
    run.pages = SHELVES
    return of_tools(run, _retriever_tool(words(SHELVES, 80)))


def ensemble(run: Run) -> Any:
    return of_retriever(
        run, EnsembleRetriever(retrievers=[words(PAGES), vectors(PAGES)], weights=[0.5, 0.5])
    )


def merger(run: Run) -> Any:
    return of_retriever(run, MergerRetriever(retrievers=[words(PAGES, 2), vectors(PAGES, 2)]))


def multi_query(run: Run) -> Any:
    return of_retriever(
        run, MultiQueryRetriever.from_llm(words(PAGES), Model(run=run), include_original=True)
    )


def parallel_nodes(run: Run) -> Any:
    """Two nodes that the graph runs side by side search; their results go into one answer."""
    first, second = words(PAGES), vectors(PAGES)
    model = Model(run=run)

    def rewrite(state: State, config: RunnableConfig) -> dict[str, Any]:
        model.invoke([HumanMessage(f"rewrite {state['question']}")], config)
        turn = by_question(state["question"])
        return {"query": turn.searches[state.get("step", 0)], "step": state.get("step", 0) + 1}

    def part(place: int, retriever: Any) -> Any:
        def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
            return {"found": [(state["step"], place, retriever.invoke(state["query"], config))]}

        return retrieve

    def join(state: State) -> dict[str, Any]:
        parts = sorted(
            (place, docs) for step, place, docs in state["found"] if step == state["step"]
        )
        run.account.got(
            by_question(state["question"]),
            state["step"],
            [d.id or "" for _, docs in parts for d in docs],
        )
        return {}

    def answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke([HumanMessage(_prompt(state))], config)]}

    def more(state: State) -> str:
        return (
            "rewrite" if state["step"] < len(by_question(state["question"]).searches) else "answer"
        )

    builder = StateGraph(State)
    builder.add_node("rewrite", rewrite)
    builder.add_node("handbook", part(0, first))
    builder.add_node("store", part(1, second))
    builder.add_node("join", join)
    builder.add_node("answer", answer)
    builder.add_edge(START, "rewrite")
    builder.add_edge("rewrite", "handbook")
    builder.add_edge("rewrite", "store")
    builder.add_edge(["handbook", "store"], "join")
    builder.add_conditional_edges("join", more, ["rewrite", "answer"])
    builder.add_edge("answer", END)
    app = builder.compile(name="workshop")
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def send(run: Run) -> Any:
    """The graph sends each of two queries to a search node of its own."""
    retriever = words(PAGES)
    model = Model(run=run)

    def rewrite(state: State, config: RunnableConfig) -> dict[str, Any]:
        model.invoke([HumanMessage(f"rewrite {state['question']}")], config)
        return {"step": state.get("step", 0) + 1}

    def out(state: State) -> list[Send]:
        query = by_question(state["question"]).searches[state["step"] - 1]
        other = OTHER_WORDS[by_question(state["question"]).searches[0].split()[0]]
        return [
            Send("retrieve", {"query": one, "step": (state["step"], place)})
            for place, one in enumerate((query, other))
        ]

    def retrieve(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return {"found": [(*state["step"], retriever.invoke(state["query"], config))]}

    def join(state: State) -> dict[str, Any]:
        parts = sorted(
            (place, docs) for step, place, docs in state["found"] if step == state["step"]
        )
        run.account.got(
            by_question(state["question"]),
            state["step"],
            [d.id or "" for _, docs in parts for d in docs],
        )
        return {}

    def answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke([HumanMessage(_prompt(state))], config)]}

    def more(state: State) -> str:
        return (
            "rewrite" if state["step"] < len(by_question(state["question"]).searches) else "answer"
        )

    builder = StateGraph(State)
    for name, node in (
        ("rewrite", rewrite),
        ("retrieve", retrieve),
        ("join", join),
        ("answer", answer),
    ):
        builder.add_node(name, node)
    builder.add_edge(START, "rewrite")
    builder.add_conditional_edges("rewrite", out, ["retrieve"])
    builder.add_edge("retrieve", "join")
    builder.add_conditional_edges("join", more, ["rewrite", "answer"])
    builder.add_edge("answer", END)
    app = builder.compile(name="workshop")
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def sub_agent(run: Run) -> Any:
    """An agent that is the tool of another."""
    inner = create_agent(Model(run=run), [_retriever_tool(words(PAGES))], name="researcher")

    @tool
    def research(question: str, config: RunnableConfig) -> str:
        """Ask the researcher."""
        found = inner.invoke({"messages": [HumanMessage(question)]}, config)
        return str(found["messages"][-1].content)

    run.argument = "query"
    run.outer_tools = ("research",)

    class Outer(Model):
        def _answer(self, messages: list[BaseMessage]) -> AIMessage:
            if isinstance(messages[-1], ToolMessage):
                return AIMessage("The researcher says so.")
            return AIMessage(
                "",
                tool_calls=[
                    {
                        "name": "research",
                        "id": "outer-1",
                        "args": {"question": str(messages[-1].content)},
                    }
                ],
            )

    outer = create_agent(Outer(run=run), [research], name="workshop")
    return lambda turn: outer.invoke({"messages": [HumanMessage(turn.question)]}, run.config(turn))


def sub_graph(run: Run) -> Any:
    """A graph whose node is the agent with the tool."""
    inner = create_agent(Model(run=run), [_retriever_tool(words(PAGES))], name="researcher")
    builder = StateGraph(State)
    builder.add_node("researcher", inner)
    builder.add_edge(START, "researcher")
    builder.add_edge("researcher", END)
    app = builder.compile(name="workshop")
    return lambda turn: app.invoke({"messages": [HumanMessage(turn.question)]}, run.config(turn))


def async_graph(run: Run) -> Any:
    retriever = vectors(PAGES)
    model = Model(run=run)

    async def rewrite(state: State, config: RunnableConfig) -> dict[str, Any]:
        await model.ainvoke([HumanMessage(f"rewrite {state['question']}")], config)
        step = state.get("step", 0)
        return {"query": by_question(state["question"]).searches[step], "step": step + 1}

    async def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        other = OTHER_WORDS[by_question(state["question"]).searches[0].split()[0]]
        parts = await asyncio.gather(
            retriever.ainvoke(state["query"], config), retriever.ainvoke(other, config)
        )
        run.account.got(
            by_question(state["question"]),
            state["step"],
            [d.id or "" for docs in parts for d in docs],
        )
        return {"docs": parts[0]}

    def more(state: State) -> str:
        return "rewrite" if state["step"] < len(by_question(state["question"]).searches) else END

    builder = StateGraph(State)
    builder.add_node("rewrite", rewrite)
    builder.add_node("retrieve", retrieve)
    builder.add_edge(START, "rewrite")
    builder.add_edge("rewrite", "retrieve")
    builder.add_conditional_edges("retrieve", more, ["rewrite", END])
    app = builder.compile(name="workshop")
    return lambda turn: asyncio.run(app.ainvoke({"question": turn.question}, run.config(turn)))


def async_tool(run: Run) -> Any:
    agent = create_agent(Model(run=run), [_retriever_tool(vectors(PAGES))], name="workshop")
    return lambda turn: asyncio.run(
        agent.ainvoke({"messages": [HumanMessage(turn.question)]}, run.config(turn))
    )


def stream_tool(run: Run) -> Any:
    agent = create_agent(Model(run=run), [_retriever_tool(words(PAGES))], name="workshop")
    return lambda turn: list(
        agent.stream({"messages": [HumanMessage(turn.question)]}, run.config(turn))
    )


def threads(run: Run) -> Any:
    """A node searches in two threads of its own."""
    first, second = words(PAGES), vectors(PAGES)

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        with ThreadPoolExecutor(2) as pool:
            parts = [
                job.result()
                for job in [
                    pool.submit(one.invoke, state["query"], config) for one in (first, second)
                ]
            ]
        docs = [d for part in parts for d in part]
        run.account.got(by_question(state["question"]), state["step"], [d.id or "" for d in docs])
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def batch(run: Run) -> Any:
    """A node searches for two queries at once."""
    retriever = words(PAGES)

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        other = OTHER_WORDS[by_question(state["question"]).searches[0].split()[0]]
        parts = retriever.batch([state["query"], other], config)
        docs = [d for part in parts for d in part]
        run.account.got(by_question(state["question"]), state["step"], [d.id or "" for d in docs])
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def both_in_one(run: Run) -> Any:
    """Two retrievers side by side in a chain, as RunnableParallel runs them."""
    pair = RunnableParallel(handbook=words(PAGES), store=vectors(PAGES))

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        found = pair.invoke(state["query"], config)
        docs = [*found["handbook"], *found["store"]]
        run.account.got(by_question(state["question"]), state["step"], [d.id or "" for d in docs])
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def chain(run: Run) -> Any:
    """No agent: a chain for each search of the turn, all of them in one span of the program."""
    retriever = words(PAGES)

    def joined(docs: list[Document]) -> str:
        return "\n\n".join(one.page_content for one in docs)

    rag = (
        {"context": retriever | joined, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | Model(run=run)
        | StrOutputParser()
    )

    def ask(turn: Turn) -> None:
        with run.span("turn", turn):
            for step, query in enumerate(turn.searches, 1):
                run.heard = ""
                rag.invoke(query, run.config(turn))
                run.account.got(turn, step, seen(run.heard, PAGES))

    return ask


class Away(BaseRetriever):
    """A retriever of the program's own that finds nothing for some queries, or fails."""

    fails: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if "limit" in query or "rim" in query:
            if self.fails:
                raise TimeoutError("the index is away")
            return []
        return _documents([page for page, _ in rank(query, PAGES, K)])


def empty(run: Run) -> Any:
    """The second search of a turn finds nothing."""
    return of_retriever(run, Away())


def failing(run: Run) -> Any:
    """The second search of a turn fails, which the node hides."""
    retriever = Away(fails=True)

    def retrieve(state: State, config: RunnableConfig) -> dict[str, Any]:
        try:
            docs = retriever.invoke(state["query"], config)
        except TimeoutError:
            docs = []
        run.account.got(by_question(state["question"]), state["step"], [d.id or "" for d in docs])
        return {"docs": docs}

    app = graph(run, retrieve)
    return lambda turn: app.invoke({"question": turn.question}, run.config(turn))


def wrapped(run: Run) -> Any:
    """A retriever that calls another without handing on its callbacks."""
    inner = words(PAGES)

    class Wrapper(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return inner.invoke(query)

    return of_retriever(run, Wrapper())


def memory(run: Run) -> Any:
    """The agent keeps the conversation itself, and is told it as LangGraph asks for that."""
    agent = create_agent(
        Model(run=run),
        [_retriever_tool(words(PAGES))],
        name="workshop",
        checkpointer=InMemorySaver(),
    )

    def ask(turn: Turn) -> None:
        config = {
            "configurable": {"thread_id": turn.session},
            "callbacks": run.telemetry.callbacks(),
        }
        agent.invoke({"messages": [HumanMessage(turn.question)]}, config)

    return ask


def tool_node(run: Run) -> Any:
    """A graph of the program's own, with nodes named agent and tools."""
    tools = [_retriever_tool(words(PAGES)), _retriever_tool(vectors(PAGES), "search_store")]
    model = Model(run=run).bind_tools(tools)

    def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    app = builder.compile()

    def ask(turn: Turn) -> None:
        config = run.config(turn)
        del config["run_name"]
        app.invoke({"messages": [HumanMessage(turn.question)]}, config)

    return ask


def as_tool(run: Run) -> Any:
    """The retriever as a tool of LangChain's making, which returns documents."""
    found = vectors(PAGES).as_tool(name="search_handbook", description="Search the handbook.")
    run.argument = "__arg1"
    return of_tools(run, found)


def events(run: Run) -> Any:
    """The agent's events are streamed, asynchronously."""
    agent = create_agent(Model(run=run), [_retriever_tool(vectors(PAGES))], name="workshop")

    async def asked(turn: Turn) -> None:
        messages = {"messages": [HumanMessage(turn.question)]}
        async for _ in agent.astream_events(messages, run.config(turn), version="v2"):
            pass

    return lambda turn: asyncio.run(asked(turn))


PROGRAMS = {
    "memory": memory,
    "toolnode": tool_node,
    "astool": as_tool,
    "events": events,
    "graph": plain_graph,
    "vectors": vector_graph,
    "tool": plain_tool,
    "partool": parallel_tools,
    "artifact": artifact,
    "rawtool": raw_tool,
    "quiettool": quiet_tool,
    "dicttool": dict_tool,
    "doctool": documents_tool,
    "texttool": text_tool,
    "compress": compress,
    "compresstool": compress_tool,
    "noderank": node_rerank,
    "hiddenrank": hidden_rerank,
    "chunks": chunks,
    "chunkstool": chunks_tool,
    "noid": no_ids,
    "noidtool": no_ids_tool,
    "wide": wide,
    "widetool": wide_tool,
    "ensemble": ensemble,
    "merger": merger,
    "multiquery": multi_query,
    "parnodes": parallel_nodes,
    "send": send,
    "subagent": sub_agent,
    "subgraph": sub_graph,
    "async": async_graph,
    "asynctool": async_tool,
    "stream": stream_tool,
    "threads": threads,
    "batch": batch,
    "both": both_in_one,
    "chain": chain,
    "empty": empty,
    "failing": failing,
    "wrapped": wrapped,
    "skip": skip,
    "skiptool": skip_tool,
}

if __name__ == "__main__":
    main("langchain", PROGRAMS)
