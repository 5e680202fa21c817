"""Cases of the table of shapes: what each product returns for some results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple


class Hit(NamedTuple):
    """What a search finds; without an id the field is left out, as some answers do."""

    id: str | None
    text: str
    score: float = 0.5

    @property
    def title(self) -> str:
        """The title of its page."""
        return self.text.split()[0]

    @property
    def url(self) -> str:
        """The address of its page."""
        return f"https://kb.example/{self.title.lower()}"


HITS: Final = (
    Hit("kb-1", "Refunds take five days after approval."),
    Hit("kb-2", "Travel is booked through the portal."),
    Hit("kb-3", "Parental leave lasts twenty weeks."),
)
WITHOUT_ID: Final = (HITS[0], HITS[1]._replace(id=None), HITS[2])

Answer = Callable[[Sequence[Hit]], Any]


class Case(NamedTuple):
    """How a row's product answers, and by what it identifies results: ids, addresses or texts."""

    answer: Answer
    by: str = "id"


def _given(**fields: Any) -> dict[str, Any]:
    return {name.replace("__", "@"): value for name, value in fields.items() if value is not None}


def _elasticsearch(hits: Sequence[Hit]) -> Any:
    found = [
        _given(
            _index="kb",
            _id=hit.id,
            _score=hit.score,
            _source={"text": hit.text, "title": hit.title},
        )
        for hit in hits
    ]
    total = {"value": len(hits), "relation": "eq"}
    return {"took": 3, "timed_out": False, "hits": {"total": total, "hits": found}}


def _solr(hits: Sequence[Hit]) -> Any:
    docs = [_given(id=hit.id, title=[hit.title], content=[hit.text]) for hit in hits]
    return {
        "responseHeader": {"status": 0, "QTime": 2},
        "response": {"numFound": len(hits), "start": 0, "docs": docs},
    }


def _bedrock(hits: Sequence[Hit]) -> Any:
    results = [
        {
            "content": {"text": hit.text, "type": "TEXT"},
            "location": {"type": "S3", "s3Location": {"uri": f"s3://kb/{hit.title}.md"}},
            "metadata": _given() if hit.id is None else {"x-amz-bedrock-kb-chunk-id": hit.id},
            "score": hit.score,
        }
        for hit in hits
    ]
    return {"retrievalResults": results}


def _kendra(hits: Sequence[Hit]) -> Any:
    items = [
        _given(
            Id=f"q-1-{place}",
            DocumentId=hit.id,
            DocumentTitle=hit.title,
            Content=hit.text,
            DocumentURI=hit.url,
            ScoreAttributes={"ScoreConfidence": "HIGH"},
        )
        for place, hit in enumerate(hits)
    ]
    return {"QueryId": "q-1", "ResultItems": items}


def _kendra_query(hits: Sequence[Hit]) -> Any:
    items = [
        _given(
            Id=f"q-1-{place}",
            Type="DOCUMENT",
            DocumentId=hit.id,
            DocumentTitle={"Text": hit.title, "Highlights": []},
            DocumentExcerpt={"Text": hit.text, "Highlights": []},
        )
        for place, hit in enumerate(hits)
    ]
    return {"QueryId": "q-1", "ResultItems": items, "TotalNumberOfResults": len(hits)}


def _vertex(hits: Sequence[Hit]) -> Any:
    results = [
        _given(
            id=hit.id,
            document=_given(
                id=hit.id,
                derivedStructData={
                    "title": hit.title,
                    "link": hit.url,
                    "snippets": [{"snippet": hit.text, "snippet_status": "SUCCESS"}],
                },
            ),
        )
        for hit in hits
    ]
    return {"results": results, "totalSize": len(hits), "attributionToken": "t"}


def _vertex_chunks(hits: Sequence[Hit]) -> Any:
    results = [
        {
            "chunk": _given(
                name=hit.id,
                id="c1",
                content=hit.text,
                documentMetadata={"uri": hit.url, "title": hit.title},
                relevanceScore=hit.score,
            )
        }
        for hit in hits
    ]
    return {"results": results, "summary": {}}


def _vertex_rag(hits: Sequence[Hit]) -> Any:
    contexts = [
        {
            "sourceUri": f"gs://kb/{hit.title}",
            "sourceDisplayName": hit.title,
            "text": hit.text,
            "score": hit.score,
        }
        for hit in hits
    ]
    return {"contexts": {"contexts": contexts}}


def _azure(hits: Sequence[Hit]) -> Any:
    value = [
        {"@search.score": hit.score, **_given(chunk_id=hit.id, title=hit.title, chunk=hit.text)}
        for hit in hits
    ]
    return {"@odata.context": "https://search.example/$metadata#docs(*)", "value": value}


def _azure_agentic(hits: Sequence[Hit]) -> Any:
    references = [
        {
            "type": "searchIndex",
            "id": str(place),
            "activitySource": 1,
            "rerankerScore": hit.score,
            **_given(docKey=hit.id, sourceData={"content": hit.text, "title": hit.title}),
        }
        for place, hit in enumerate(hits)
    ]
    said = {"role": "assistant", "content": [{"type": "text", "text": "Five days."}]}
    return {"response": [said], "activity": [], "references": references}


def _openai(hits: Sequence[Hit]) -> Any:
    data = [
        _given(
            file_id=hit.id,
            filename=f"{hit.title}.md",
            score=hit.score,
            attributes={},
            content=[{"type": "text", "text": hit.text}],
        )
        for hit in hits
    ]
    return {
        "object": "vector_store.search_results.page",
        "search_query": ["q"],
        "data": data,
        "has_more": False,
    }


def _pinecone(hits: Sequence[Hit]) -> Any:
    matches = [
        _given(id=hit.id, score=hit.score, values=[], metadata={"text": hit.text}) for hit in hits
    ]
    return {"matches": matches, "namespace": "kb", "usage": {"readUnits": 1}}


def _pinecone_records(hits: Sequence[Hit]) -> Any:
    found = [_given(_id=hit.id, _score=hit.score, fields={"chunk_text": hit.text}) for hit in hits]
    return {"result": {"hits": found}, "usage": {"read_units": 1}}


def _qdrant(hits: Sequence[Hit]) -> Any:
    points = [
        _given(
            id=hit.id, version=1, score=hit.score, payload={"text": hit.text, "title": hit.title}
        )
        for hit in hits
    ]
    return {"result": {"points": points}, "status": "ok", "time": 0.001}


def _weaviate(hits: Sequence[Hit]) -> Any:
    found = [
        {
            "title": hit.title,
            "content": hit.text,
            "_additional": _given(id=hit.id, distance=hit.score),
        }
        for hit in hits
    ]
    return {"data": {"Get": {"Article": found}}}


def _weaviate_objects(hits: Sequence[Hit]) -> Any:
    found = [
        _given(
            uuid=hit.id,
            metadata={"distance": hit.score},
            properties={"title": hit.title, "content": hit.text},
            collection="Article",
        )
        for hit in hits
    ]
    return {"objects": found}


def _milvus(hits: Sequence[Hit]) -> Any:
    return {
        "data": [
            [_given(id=hit.id, distance=hit.score, entity={"text": hit.text}) for hit in hits]
        ],
        "extra_info": {"cost": 0},
    }


def _milvus_rest(hits: Sequence[Hit]) -> Any:
    data = [_given(id=hit.id, distance=hit.score, text=hit.text) for hit in hits]
    return {"code": 0, "cost": 6, "data": data, "topks": [len(hits)]}


def _s3_vectors(hits: Sequence[Hit]) -> Any:
    found = [_given(key=hit.id, distance=hit.score, metadata={"text": hit.text}) for hit in hits]
    return {"vectors": found, "distanceMetric": "cosine"}


def _serpapi(hits: Sequence[Hit]) -> Any:
    found = [
        {"position": place, "title": hit.title, "link": hit.url, "snippet": hit.text}
        for place, hit in enumerate(hits, 1)
    ]
    return {
        "search_metadata": {"id": "s", "status": "Success"},
        "search_parameters": {"q": "q"},
        "organic_results": found,
        "related_questions": [
            {"question": "?", "title": "T", "link": "https://x.example", "snippet": "s"}
        ],
    }


def _serper(hits: Sequence[Hit]) -> Any:
    found = [
        {"title": hit.title, "link": hit.url, "snippet": hit.text, "position": place}
        for place, hit in enumerate(hits, 1)
    ]
    return {"searchParameters": {"q": "q"}, "organic": found}


def _bing(hits: Sequence[Hit]) -> Any:
    value = [
        {
            "id": f"https://api.bing.microsoft.com/api/v7/#WebPages.{place}",
            "name": hit.title,
            "url": hit.url,
            "displayUrl": hit.url,
            "snippet": hit.text,
        }
        for place, hit in enumerate(hits)
    ]
    pages = {"totalEstimatedMatches": len(hits), "value": value}
    return {"_type": "SearchResponse", "queryContext": {"originalQuery": "q"}, "webPages": pages}


def _google(hits: Sequence[Hit]) -> Any:
    items = [
        {
            "kind": "customsearch#result",
            "title": hit.title,
            "htmlTitle": hit.title,
            "link": hit.url,
            "displayLink": "kb.example",
            "snippet": hit.text,
            "htmlSnippet": hit.text,
        }
        for hit in hits
    ]
    found = {"items": items} if items else {}
    return {
        "kind": "customsearch#search",
        "searchInformation": {"totalResults": str(len(hits))},
        **found,
    }


def _brave(hits: Sequence[Hit]) -> Any:
    results = [{"title": hit.title, "url": hit.url, "description": hit.text} for hit in hits]
    return {
        "type": "search",
        "query": {"original": "q"},
        "web": {"type": "search", "results": results},
    }


def _ddgs(hits: Sequence[Hit]) -> Any:
    return [{"title": hit.title, "href": hit.url, "body": hit.text} for hit in hits]


def _wikipedia(hits: Sequence[Hit]) -> Any:
    found = [
        _given(ns=0, title=hit.title, pageid=hit.id and int(hit.id[3:]), snippet=hit.text)
        for hit in hits
    ]
    return {"batchcomplete": "", "query": {"searchinfo": {"totalhits": len(hits)}, "search": found}}


def _vespa(hits: Sequence[Hit]) -> Any:
    children = [
        _given(id=hit.id, relevance=hit.score, fields={"title": hit.title, "body": hit.text})
        for hit in hits
    ]
    found = {"children": children} if children else {}
    return {"root": {"id": "toplevel", "fields": {"totalCount": len(hits)}, **found}}


def _typesense(hits: Sequence[Hit]) -> Any:
    found = [
        {"document": _given(id=hit.id, title=hit.title, text=hit.text), "text_match": 5}
        for hit in hits
    ]
    return {"found": len(hits), "hits": found, "search_time_ms": 1}


def _algolia(hits: Sequence[Hit]) -> Any:
    found = [_given(objectID=hit.id, title=hit.title, content=hit.text) for hit in hits]
    return {"hits": found, "nbHits": len(hits), "processingTimeMS": 1}


def _meilisearch(hits: Sequence[Hit]) -> Any:
    found = [_given(id=hit.id, title=hit.title, overview=hit.text, text=hit.text) for hit in hits]
    return {"hits": found, "estimatedTotalHits": len(hits), "processingTimeMs": 1, "query": "q"}


def _dify(hits: Sequence[Hit]) -> Any:
    records = [
        {
            "segment": _given(id=hit.id, content=hit.text, document={"name": hit.title}),
            "score": hit.score,
        }
        for hit in hits
    ]
    return {"query": {"content": "q"}, "records": records}


def _ragflow(hits: Sequence[Hit]) -> Any:
    chunks = [
        _given(id=hit.id, content=hit.text, document_keyword=hit.title, similarity=hit.score)
        for hit in hits
    ]
    return {"code": 0, "data": {"chunks": chunks, "total": len(hits)}}


def _ragie(hits: Sequence[Hit]) -> Any:
    found = [
        _given(id=hit.id, text=hit.text, score=hit.score, document_name=hit.title) for hit in hits
    ]
    return {"scored_chunks": found}


def _confluence(hits: Sequence[Hit]) -> Any:
    found = [
        {
            "content": _given(id=hit.id, type="page", title=hit.title),
            "title": hit.title,
            "excerpt": hit.text,
            "url": "/spaces/kb",
        }
        for hit in hits
    ]
    return {"results": found, "start": 0, "limit": 25, "size": len(hits), "cqlQuery": "q"}


def _learn(hits: Sequence[Hit]) -> Any:
    return {
        "results": [
            {"title": hit.title, "content": hit.text, "contentUrl": hit.url} for hit in hits
        ]
    }


def _chroma(hits: Sequence[Hit]) -> Any:
    return {
        "ids": [[hit.id for hit in hits]],
        "documents": [[hit.text for hit in hits]],
        "metadatas": [[{"page": 1} for _ in hits]],
        "distances": [[hit.score for hit in hits]],
        "embeddings": None,
    }


def _lists(hits: Sequence[Hit]) -> Any:
    return {
        "ids": [hit.id for hit in hits],
        "texts": [hit.text for hit in hits],
        "scores": [hit.score for hit in hits],
    }


CASES: Final[dict[str, Case]] = {
    "Elasticsearch, OpenSearch, Marqo: _search": Case(_elasticsearch),
    "Apache Solr: select": Case(_solr),
    "Amazon Bedrock Knowledge Bases: Retrieve": Case(_bedrock),
    "Amazon Kendra: Query, whose Id is one of the request, and whose excerpt depends on it": Case(
        _kendra_query
    ),
    "Amazon Kendra: Retrieve, whose Id is one of the request": Case(_kendra),
    "Google Vertex AI Search: search, documents": Case(_vertex),
    "Google Vertex AI Search: search, chunks, whose ids number them in their document": Case(
        _vertex_chunks
    ),
    "Google Vertex AI RAG Engine: retrieveContexts": Case(_vertex_rag, "text"),
    "Azure AI Search: documents, search": Case(_azure),
    "Azure AI Search: agentic retrieval, whose ids number the references": Case(_azure_agentic),
    "OpenAI: search of a vector store, whose file_id is that of the file": Case(_openai),
    "Pinecone: query, and Cloudflare Vectorize": Case(_pinecone),
    "Pinecone: search of records": Case(_pinecone_records),
    "Qdrant: query, search, recommend": Case(_qdrant),
    "Weaviate: GraphQL Get": Case(_weaviate),
    "Weaviate: objects of its clients and of REST": Case(_weaviate_objects),
    "Milvus, Zilliz: search of pymilvus": Case(_milvus),
    "Milvus, Zilliz: search of REST and Node.js": Case(_milvus_rest),
    "Amazon S3 Vectors: query": Case(_s3_vectors),
    "SerpApi": Case(_serpapi, "url"),
    "Serper": Case(_serper, "url"),
    "Bing Web Search, whose ids number the results": Case(_bing, "url"),
    "Google Programmable Search (Custom Search JSON API)": Case(_google, "url"),
    "Brave Search": Case(_brave, "url"),
    "DuckDuckGo: ddgs": Case(_ddgs, "url"),
    "Wikipedia: list=search of MediaWiki": Case(_wikipedia),
    "Vespa: search": Case(_vespa),
    "Typesense: search": Case(_typesense),
    "Algolia: search": Case(_algolia),
    "Meilisearch: search": Case(_meilisearch),
    "Dify: retrieval of a knowledge base": Case(_dify),
    "RAGFlow: retrieval": Case(_ragflow),
    "Ragie: retrievals": Case(_ragie),
    "Atlassian Confluence: search": Case(_confluence),
    "Microsoft Learn and other servers of MCP: contentUrl": Case(_learn, "url"),
    "Chroma: query and get": Case(_chroma),
    "lists of ids, texts and scores, as programs write them": Case(_lists),
}


def in_mcp(value: Any) -> Any:
    """The value as a server of the Model Context Protocol returns it."""
    return {"content": [{"type": "text", "text": json.dumps(value)}], "isError": False}


def deeper(value: Any) -> Any:
    """The value some levels deeper in what a program returns."""
    return {"status": 200, "response": {"body": json.dumps({"payload": value})}}
