"""Programs of LlamaIndex: retrievers, query engines, agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from llama_index.core import Settings, StorageContext, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.chat_engine import CondensePlusContextChatEngine
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.postprocessor import (
    LLMRerank,
    MetadataReplacementPostProcessor,
    SimilarityPostprocessor,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    BaseRetriever,
    QueryFusionRetriever,
    RouterRetriever,
)
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool

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


class Words(BaseEmbedding):
    """Embeddings by words."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return vector(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return vector(text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return vector(query)


class Plain(CustomLLM):
    """Answers in a sentence."""

    run: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="script")

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        if "Relevance" in prompt or "relevance" in prompt:
            return CompletionResponse(text="Doc: 2, Relevance: 9\nDoc: 1, Relevance: 7")
        return CompletionResponse(text=self.run.plain(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        yield self.complete(prompt)


class Caller(FunctionCallingLLM):
    """Plays an agent that calls tools by the script."""

    run: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="script", is_function_calling_model=True, is_chat_model=True)

    def _reply(self, messages: Sequence[ChatMessage], tools: list[str]) -> ChatResponse:
        last = max(i for i, one in enumerate(messages) if one.role == MessageRole.USER)
        question = str(messages[last].content)
        rest = list(messages[last + 1 :])
        turn = by_question(question, self.run.skipping)
        rounds = sum(one.role == MessageRole.ASSISTANT for one in rest)
        if rounds and self.run.counting:
            given = []
            for one in reversed(rest):
                if one.role == MessageRole.ASSISTANT:
                    break
                given.insert(0, str(one.content))
            self.run.account.got(turn, rounds, seen("".join(given), self.run.pages))
        calls = []
        if rounds < len(turn.searches):
            calls = [
                {
                    "id": f"call-{rounds}-{place}",
                    "name": name,
                    "arguments": {self.run.argument: turn.searches[rounds]},
                }
                for place, name in enumerate(tools)
            ]
        text = "" if calls else f"That is all about {question}"
        return ChatResponse(
            message=ChatMessage(
                role=MessageRole.ASSISTANT, content=text, additional_kwargs={"tool_calls": calls}
            )
        )

    def _prepare_chat_with_tools(
        self,
        tools: Any,
        user_msg: Any = None,
        chat_history: Any = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **_: Any,
    ) -> dict[str, Any]:
        messages = [*(chat_history or []), *([user_msg] if user_msg else [])]
        return {"messages": messages, "tools": [one.metadata.name for one in tools]}

    def chat(self, messages: Sequence[ChatMessage], tools: Any = None, **_: Any) -> ChatResponse:
        return self._reply(messages, tools or [])

    async def achat(
        self, messages: Sequence[ChatMessage], tools: Any = None, **_: Any
    ) -> ChatResponse:
        return self._reply(messages, tools or [])

    def stream_chat(self, messages: Sequence[ChatMessage], tools: Any = None, **_: Any) -> Any:
        yield self._reply(messages, tools or [])

    async def astream_chat(
        self, messages: Sequence[ChatMessage], tools: Any = None, **_: Any
    ) -> Any:
        async def parts() -> Any:
            yield self._reply(messages, tools or [])

        return parts()

    def complete(self, prompt: str, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=self.run.plain(prompt))

    async def acomplete(self, prompt: str, **_: Any) -> CompletionResponse:
        return self.complete(prompt)

    def stream_complete(self, prompt: str, **_: Any) -> Any:
        yield self.complete(prompt)

    async def astream_complete(self, prompt: str, **_: Any) -> Any:
        async def parts() -> Any:
            yield self.complete(prompt)

        return parts()

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **_: Any
    ) -> list[ToolSelection]:
        return [
            ToolSelection(tool_id=one["id"], tool_name=one["name"], tool_kwargs=one["arguments"])
            for one in response.message.additional_kwargs.get("tool_calls", [])
        ]


class Shortest(BaseNodePostprocessor):
    """A reranker: the shortest texts first, and of these two."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return sorted(nodes, key=lambda one: len(one.node.get_content()))[:2]


class ByWords(BaseRetriever):
    """A retriever by words."""

    def __init__(self, pages: Sequence[Page] = PAGES, k: int = 3) -> None:
        super().__init__()
        self._pages, self._k = pages, k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = rank(query_bundle.query_str, self._pages, self._k)
        return [NodeWithScore(node=_node(page), score=score) for page, score in found]


def _node(page: Page) -> TextNode:
    return TextNode(id_=page.id, text=page.text, metadata={"url": page.url, "title": page.title})


def _index(pages: Sequence[Page] = PAGES) -> VectorStoreIndex:
    return VectorStoreIndex([_node(page) for page in pages], embed_model=Words())


def _ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [one.node.node_id for one in nodes]


def of_retriever(run: Run, retriever: BaseRetriever, model: bool = True) -> Any:
    """Each search of a turn after a model call."""
    run.rooted = True
    llm = Plain(run=run)

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            if model:
                llm.complete(f"rewrite {turn.question}")
            run.account.got(turn, step, _ids(retriever.retrieve(query)))
        if model:
            llm.complete(turn.question)

    return ask


def of_engine(run: Run, engine: Any) -> Any:
    """A query engine for each search of a turn."""
    run.rooted = True

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            run.account.got(turn, step, _ids(engine.query(query).source_nodes))

    return ask


def of_agent(run: Run, *tools: Any, counting: bool = True, parallel: bool = False) -> Any:
    """The function agent."""
    run.counting = counting  # type: ignore[attr-defined]
    run.argument = "input"
    agent = FunctionAgent(
        tools=list(tools),
        llm=Caller(run=run),
        name="workshop",
        description="x",
        system_prompt="Look it up.",
        allow_parallel_tool_calls=parallel,
        streaming=False,
    )

    async def asked(turn: Turn) -> None:
        await agent.run(turn.question)

    return lambda turn: asyncio.run(asked(turn))


def _engine(run: Run, retriever: Any, *postprocessors: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(
        retriever, llm=Plain(run=run), node_postprocessors=list(postprocessors)
    )


def plain(run: Run) -> Any:
    return of_retriever(run, _index().as_retriever(similarity_top_k=3), model=False)


def with_model(run: Run) -> Any:
    return of_retriever(run, _index().as_retriever(similarity_top_k=3))


def words(run: Run) -> Any:
    return of_retriever(run, ByWords())


def wide(run: Run) -> Any:
    run.pages = SHELVES
    return of_retriever(run, ByWords(SHELVES, 60))


def chunks(run: Run) -> Any:
    run.pages = CHUNKS
    return of_retriever(run, _index(CHUNKS).as_retriever(similarity_top_k=4))


def engine(run: Run) -> Any:
    return of_engine(run, _engine(run, _index().as_retriever(similarity_top_k=3)))


def ranked(run: Run) -> Any:
    return of_engine(run, _engine(run, _index().as_retriever(similarity_top_k=4), Shortest()))


def llm_ranked(run: Run) -> Any:
    reranker = LLMRerank(choice_batch_size=5, top_n=2, llm=Plain(run=run))
    return of_engine(run, _engine(run, _index().as_retriever(similarity_top_k=4), reranker))


def similar(run: Run) -> Any:
    return of_engine(
        run,
        _engine(
            run,
            _index().as_retriever(similarity_top_k=4),
            SimilarityPostprocessor(similarity_cutoff=0.3),
            Shortest(),
        ),
    )


def window(run: Run) -> Any:
    index = VectorStoreIndex(
        [
            TextNode(id_=p.id, text=p.text.split(" and ")[0], metadata={"window": p.text})
            for p in PAGES
        ],
        embed_model=Words(),
    )
    return of_engine(
        run,
        _engine(
            run,
            index.as_retriever(similarity_top_k=3),
            MetadataReplacementPostProcessor(target_metadata_key="window"),
        ),
    )


def by_hand(run: Run) -> Any:
    """The program calls the postprocessor itself."""
    run.rooted = True
    retriever, reranker = _index().as_retriever(similarity_top_k=4), Shortest()
    llm = Plain(run=run)

    def ask(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            llm.complete(f"rewrite {turn.question}")
            nodes = reranker.postprocess_nodes(retriever.retrieve(query), query_str=query)
            run.account.got(turn, step, _ids(nodes))

    return ask


def fusion(run: Run) -> Any:
    return of_retriever(
        run,
        QueryFusionRetriever(
            [_index().as_retriever(similarity_top_k=3), ByWords()],
            llm=Plain(run=run),
            num_queries=1,
            similarity_top_k=3,
            mode="reciprocal_rerank",
            use_async=False,
        ),
    )


def fusion_queries(run: Run) -> Any:
    return of_retriever(
        run,
        QueryFusionRetriever(
            [_index().as_retriever(similarity_top_k=3), ByWords()],
            llm=Plain(run=run),
            num_queries=3,
            similarity_top_k=3,
            mode="reciprocal_rerank",
            use_async=False,
        ),
    )


def fusion_async(run: Run) -> Any:
    run.rooted = True
    retriever = QueryFusionRetriever(
        [_index().as_retriever(similarity_top_k=3), ByWords()],
        llm=Plain(run=run),
        num_queries=1,
        similarity_top_k=3,
        mode="relative_score",
        use_async=True,
    )

    async def asked(turn: Turn) -> None:
        for step, query in enumerate(turn.searches, 1):
            run.account.got(turn, step, _ids(await retriever.aretrieve(query)))

    return lambda turn: asyncio.run(asked(turn))


def parallel(run: Run) -> Any:
    """Two retrievers at once."""
    run.rooted = True
    retriever = _index().as_retriever(similarity_top_k=3)
    llm = Plain(run=run)

    async def asked(turn: Turn) -> None:
        other = OTHER_WORDS[turn.searches[0].split()[0]]
        for step, query in enumerate(turn.searches, 1):
            await llm.acomplete(f"rewrite {turn.question}")
            parts = await asyncio.gather(retriever.aretrieve(query), retriever.aretrieve(other))
            run.account.got(turn, step, [id for part in parts for id in _ids(part)])

    return lambda turn: asyncio.run(asked(turn))


def agent(run: Run) -> Any:
    tool = RetrieverTool.from_defaults(
        _index().as_retriever(similarity_top_k=3), name="search_handbook", description="Search."
    )
    return of_agent(run, tool)


def agent_ranked(run: Run) -> Any:
    tool = RetrieverTool.from_defaults(
        _index().as_retriever(similarity_top_k=4),
        name="search_handbook",
        description="Search.",
        node_postprocessors=[Shortest()],
    )
    return of_agent(run, tool)


def agent_parallel(run: Run) -> Any:
    tools = [
        RetrieverTool.from_defaults(one, name=name, description="Search.")
        for one, name in (
            (_index().as_retriever(similarity_top_k=3), "search_handbook"),
            (ByWords(), "search_store"),
        )
    ]
    return of_agent(run, *tools, parallel=True)


def agent_engine(run: Run) -> Any:
    """The tool is a query engine: the agent gets an answer made of what was found."""
    inner = _engine(run, _index().as_retriever(similarity_top_k=3))
    steps: dict[Turn, int] = {}

    class Watched(RetrieverQueryEngine):
        async def _aquery(self, query_bundle: QueryBundle) -> Any:
            response = await super()._aquery(query_bundle)
            turn = next(t for t in _all() if query_bundle.query_str in t.searches)
            steps[turn] = steps.get(turn, 0) + 1
            run.account.got(turn, steps[turn], _ids(response.source_nodes))
            return response

    watched = Watched(inner.retriever, response_synthesizer=inner._response_synthesizer)
    return of_agent(
        run,
        QueryEngineTool.from_defaults(watched, name="ask_handbook", description="Ask."),
        counting=False,
    )


def _all() -> list[Turn]:
    from tests.conformance.programs.corpus import turns

    return list(turns())


def agent_function(run: Run) -> Any:
    def search_handbook(input: str) -> str:
        """Search the handbook."""
        return json.dumps([{"id": p.id, "text": p.text, "score": s} for p, s in rank(input, PAGES)])

    return of_agent(run, FunctionTool.from_defaults(search_handbook))


def agent_nodes(run: Run) -> Any:
    retriever = _index().as_retriever(similarity_top_k=3)

    def search_handbook(input: str) -> Any:
        """Search the handbook."""
        return retriever.retrieve(input)

    return of_agent(run, FunctionTool.from_defaults(search_handbook))


def agent_skip(run: Run) -> Any:
    run.skipping = True
    return agent(run)


def react(run: Run) -> Any:
    """The agent that writes its calls as text."""

    class Thinking(Plain):
        def _next(self, messages: Sequence[ChatMessage]) -> str:
            last = max(
                i
                for i, one in enumerate(messages)
                if one.role == MessageRole.USER and "Observation" not in str(one.content)
            )
            question = str(messages[last].content)
            turn = by_question(question)
            rest = [
                str(one.content)
                for one in messages[last + 1 :]
                if "Observation" in str(one.content)
            ]
            if rest:
                run.account.got(turn, len(rest), seen(rest[-1], PAGES))
            if len(rest) < len(turn.searches):
                query = json.dumps({"input": turn.searches[len(rest)]})
                return f"Thought: I look.\nAction: search_handbook\nAction Input: {query}"
            return "Thought: I can answer without using any more tools.\nAnswer: It is so."

        def chat(self, messages: Any, **_: Any) -> ChatResponse:
            return ChatResponse(
                message=ChatMessage(role=MessageRole.ASSISTANT, content=self._next(messages))
            )

        async def achat(self, messages: Any, **_: Any) -> ChatResponse:
            return self.chat(messages)

        async def astream_chat(self, messages: Any, **_: Any) -> Any:
            async def parts() -> Any:
                yield self.chat(messages)

            return parts()

    tool = RetrieverTool.from_defaults(
        _index().as_retriever(similarity_top_k=3), name="search_handbook", description="Search."
    )
    agent = ReActAgent(
        tools=[tool], llm=Thinking(run=run), name="workshop", description="x", streaming=False
    )

    async def asked(turn: Turn) -> None:
        await agent.run(turn.question)

    return lambda turn: asyncio.run(asked(turn))


def chat(run: Run) -> Any:
    """A chat engine, which searches once for each message: every search of the script is a turn."""
    run.rooted = False
    engine = CondensePlusContextChatEngine.from_defaults(
        _index().as_retriever(similarity_top_k=3), llm=Plain(run=run)
    )
    numbers: dict[str, int] = {}

    def ask(turn: Turn) -> None:
        for query in turn.searches:
            numbers[turn.session] = numbers.get(turn.session, 0) + 1
            found = engine.chat(query)
            of = Turn(turn.session, numbers[turn.session], (query,))
            run.account.got(of, 1, _ids(found.source_nodes))
        engine.reset()

    return ask


def sub_question(run: Run) -> Any:
    """A question is taken apart, and each part asked of an engine that has a retriever."""
    run.rooted = True

    class Parts(BaseQuestionGenerator):
        def generate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
            turn = next(one for one in _all() if one.question == query.query_str)
            return [SubQuestion(sub_question=one, tool_name="handbook") for one in turn.searches]

        async def agenerate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
            return self.generate(tools, query)

        def _get_prompts(self) -> dict[str, Any]:
            return {}

        def _update_prompts(self, prompts: Any) -> None:
            pass

    steps: dict[str, int] = {}

    class Watched(RetrieverQueryEngine):
        def _query(self, query_bundle: QueryBundle) -> Any:
            response = super()._query(query_bundle)
            turn = next(one for one in _all() if query_bundle.query_str in one.searches)
            steps[turn.question] = steps.get(turn.question, 0) + 1
            run.account.got(turn, steps[turn.question], _ids(response.source_nodes))
            return response

    inner = _engine(run, _index().as_retriever(similarity_top_k=3))
    watched = Watched(inner.retriever, response_synthesizer=inner._response_synthesizer)
    engine = SubQuestionQueryEngine.from_defaults(
        [QueryEngineTool.from_defaults(watched, name="handbook", description="x")],
        question_gen=Parts(),
        llm=Plain(run=run),
        response_synthesizer=inner._response_synthesizer,
        use_async=False,
        verbose=False,
    )
    return lambda turn: engine.query(turn.question)


class First(BaseSelector):
    """Always selects the first."""

    def _select(self, choices: Any, query: QueryBundle) -> SelectorResult:
        return SelectorResult(selections=[SingleSelection(index=0, reason="x")])

    async def _aselect(self, choices: Any, query: QueryBundle) -> SelectorResult:
        return self._select(choices, query)

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        pass


def router(run: Run) -> Any:
    """A retriever that chooses among others."""
    both = (_index().as_retriever(similarity_top_k=3), "index"), (ByWords(), "words")
    tools = [RetrieverTool.from_defaults(one, description=name) for one, name in both]
    retriever = RouterRetriever(selector=First(), retriever_tools=tools, llm=Plain(run=run))
    return of_retriever(run, retriever)


def merging(run: Run) -> Any:
    """A retriever that puts the pages in the place of their parts."""
    parents = [_node(page) for page in PAGES]
    leaves = []
    for parent, page in zip(parents, PAGES, strict=True):
        leaf = TextNode(id_=f"{page.id}.part", text=page.text.split(" and ")[0])
        leaf.relationships[NodeRelationship.PARENT] = parent.as_related_node_info()
        parent.relationships[NodeRelationship.CHILD] = [leaf.as_related_node_info()]
        leaves.append(leaf)
    store = SimpleDocumentStore()
    store.add_documents([*parents, *leaves])
    context = StorageContext.from_defaults(docstore=store)
    index = VectorStoreIndex(leaves, storage_context=context, embed_model=Words())
    base = index.as_retriever(similarity_top_k=3)
    return of_retriever(run, AutoMergingRetriever(base, context, simple_ratio_thresh=0.4))


PROGRAMS = {
    "retriever": plain,
    "loop": with_model,
    "words": words,
    "wide": wide,
    "chunks": chunks,
    "engine": engine,
    "rank": ranked,
    "llmrank": llm_ranked,
    "similar": similar,
    "window": window,
    "byhand": by_hand,
    "fusion": fusion,
    "fusionq": fusion_queries,
    "fusionasync": fusion_async,
    "parallel": parallel,
    "agent": agent,
    "agentrank": agent_ranked,
    "partool": agent_parallel,
    "agentengine": agent_engine,
    "rawtool": agent_function,
    "nodestool": agent_nodes,
    "skip": agent_skip,
    "react": react,
    "chat": chat,
    "subquestion": sub_question,
    "router": router,
    "merging": merging,
}

if __name__ == "__main__":
    Settings.embed_model = Words()
    main("llamaindex", PROGRAMS)
