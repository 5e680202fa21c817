"""An agent's corpus: documents with their renderings, the most popular first."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random
from urllib.parse import urlsplit, urlunsplit

from stream_metrics.lab.traffic import words
from stream_metrics.lab.traffic.entities import MAKERS, Entity, Seed

WAYS = ("id", "url", "text", "fields")
_NO_FIELDS_COPY = frozenset({"TeamsMessage", "External"})
_SHORTEST_TEXT = 64


class Document:
    """A document of a corpus and the renderings in which an index may show it.

    A rendering is a result's JSON object without its opening ``{"result_id":…,`` and its end, so
    that a search only has to add the handle and the score. ``copies`` has the renderings that a
    worker must recognise as duplicates, by what they can be recognised.
    """

    __slots__ = ("_copies", "_entity", "doc_id", "index", "primary", "topic")

    def __init__(self, index: int, topic: int, entity: Entity) -> None:
        self.index = index
        self.topic = topic
        self.doc_id = entity.doc_id
        self.primary = _render(entity)
        self._entity = entity
        self._copies: dict[str, tuple[str, ...]] = {}

    def copies(self, way: str) -> tuple[str, ...]:
        """The renderings that are duplicates by ``way``; empty if the type has none."""
        found = self._copies.get(way)
        if found is None:
            found = self._copies[way] = _COPIERS[way](self._entity)
        return found


def _render(entity: Entity, **changes: object) -> str:
    """The JSON members of a result that shows ``entity``, with ``changes`` to the members."""
    members: dict[str, object] = {
        "entity_type": entity.entity_type,
        "ids": entity.ids or None,
        "doc_id": entity.doc_id,
        "url": entity.url,
        "title": entity.title,
        entity.text_key: entity.text,
        "fields": entity.fields,
    }
    members.update(changes)
    present = {name: value for name, value in members.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"))[1:-1]


def _by_id(entity: Entity) -> tuple[str, ...]:
    """Same id; one of two renderings has the snippet of another query."""
    if entity.text_key == "content":
        return (_render(entity),)
    start = entity.text.find(" ", 12) + 1
    return _render(entity), _render(entity, snippet=f"… {entity.text[start:]}")


def _by_url(entity: Entity) -> tuple[str, ...]:
    """No id, and other spellings of the URL."""
    if entity.url is None:
        return ()
    variants = (_render(entity, url=url, ids=None, doc_id=None) for url in url_variants(entity.url))
    return tuple(variants)


def _by_text(entity: Entity) -> tuple[str, ...]:
    """Neither id nor URL; the case of the title and the spacing of the text may differ."""
    if entity.entity_type == "PeopleInferenceAnswer":
        return ()
    bare: dict[str, object] = {"ids": None, "doc_id": None, "url": None}
    spaced = entity.text.replace(". ", ".  \n")
    return (
        _render(entity, **bare),
        _render(entity, **bare, title=entity.title.upper()),
        _render(entity, **bare, **{entity.text_key: spaced}),
    )


def _by_fields(entity: Entity) -> tuple[str, ...]:
    """Only title and fields, without id, URL and text."""
    if entity.entity_type in _NO_FIELDS_COPY:
        return ()
    gone: dict[str, object] = {"ids": None, "doc_id": None, "url": None, entity.text_key: None}
    return (_render(entity, **gone),)


_COPIERS = {"id": _by_id, "url": _by_url, "text": _by_text, "fields": _by_fields}


def url_variants(url: str) -> tuple[str, ...]:
    """Other spellings of one address: scheme, host, port, fragment, tracking, trailing slash.

    >>> url_variants("https://a.example/b")[0]
    'http://a.example/b'
    """
    parts = urlsplit(url)
    tracked = f"{parts.query}&utm_source=digest" if parts.query else "utm_source=digest&web=1"
    spelled = parts.path.replace("-", "%2d")
    variants = (
        parts._replace(scheme="http"),
        parts._replace(netloc=parts.netloc.upper()),
        parts._replace(netloc=f"{parts.netloc}:443"),
        parts._replace(fragment="page=2"),
        parts._replace(query=tracked),
        parts._replace(path=f"{spelled}/"),
    )
    return tuple(urlunsplit(variant) for variant in variants)


class DocumentPool:
    """Documents with a popularity that falls as 1 ÷ rank."""

    __slots__ = ("_edges", "_total", "documents")

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        self._edges = list(accumulate(1.0 / rank for rank in range(1, len(documents) + 1)))
        self._total = self._edges[-1] if documents else 0.0

    def draw(self, chance: float) -> Document:
        """The document at ``chance``, a number in [0, 1)."""
        return self.documents[bisect_right(self._edges, chance * self._total)]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that one agent can find."""

    topics: tuple[str, ...]
    routes: tuple[str, ...]
    by_route: dict[str, DocumentPool]
    by_topic: dict[tuple[int, str], DocumentPool]
    queries: tuple[tuple[str, ...], ...]
    """Queries by topic, JSON-encoded."""


@lru_cache(maxsize=16)
def corpus_for(
    agent: str, agent_kind: words.AgentKind, seed: int, size: int, result_bytes: int
) -> Corpus:
    """Build an agent's corpus of about ``size`` documents, deterministically."""
    rng = Random(f"corpus/{seed}/{agent}")
    by_route: dict[str, list[Document]] = {}
    by_topic: dict[tuple[int, str], list[Document]] = {}
    last: dict[tuple[int, str], Entity] = {}
    serial = 0
    shares = sum(share for _, share in agent_kind.sources)
    for route, share in agent_kind.sources:
        for _ in range(max(1, size * share // shares)):
            topic = int(rng.random() ** 1.5 * len(agent_kind.topics))
            place = (topic, route)
            maker = Seed(rng, agent_kind.topics[topic], serial, last.get(place))
            entity = last[place] = MAKERS[route](maker)
            _write(entity, maker, result_bytes)
            document = Document(serial, topic, entity)
            by_route.setdefault(route, []).append(document)
            by_topic.setdefault(place, []).append(document)
            serial += 1
    return Corpus(
        topics=agent_kind.topics,
        routes=tuple(by_route),
        by_route={route: DocumentPool(found) for route, found in by_route.items()},
        by_topic={place: DocumentPool(found) for place, found in by_topic.items()},
        queries=tuple(_queries(topic, rng) for topic in agent_kind.topics),
    )


def _write(entity: Entity, seed: Seed, result_bytes: int) -> None:
    """Give ``entity`` a text that brings its JSON to about ``result_bytes``."""
    if entity.text:
        return
    handles = len('"result_id":"t1r123","score":0.1234,{}')
    room = result_bytes - handles - len(_render(entity).encode())
    room = max(_SHORTEST_TEXT, int(room * (0.8 + 0.4 * seed.rng.random())))
    text = ""
    while len(text) < room:
        number = 2 + seed.below(240)
        day = f"{1 + seed.below(28)} {seed.pick(_MONTHS)}"
        sentence = seed.pick(words.SENTENCES).format(
            t=seed.topic, p=seed.person(), s=seed.pick(words.SITES), n=number, d=day
        )
        text = f"{text} {sentence}" if text else sentence
    entity.text = text[:room].rstrip()


_MONTHS = ("January", "February", "March", "April", "May", "June", "October", "November")
_ASKED = ("{t} {a}", "how do I handle {t}", "{t} {s}", "{a} {t} {s}", "who can help with {t}")


def _queries(topic: str, rng: Random) -> tuple[str, ...]:
    """The queries about a topic."""
    asked = []
    for form in _ASKED * 2:
        aspect = words.ASPECTS[int(rng.random() * len(words.ASPECTS))]
        site = words.SITES[int(rng.random() * len(words.SITES))]
        asked.append(json.dumps(form.format(t=topic, a=aspect, s=site), ensure_ascii=False))
    return tuple(asked)
