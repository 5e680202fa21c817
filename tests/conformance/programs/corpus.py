"""What all agent programs share: documents, questions by session, and the account of results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Page:
    """A document of the bicycle workshop's handbook, or a part of one."""

    id: str
    title: str
    text: str
    url: str


def _pages() -> list[Page]:
    texts = {
        "Chain": "A worn chain stretches over time and should be replaced before the gears suffer.",
        "Brakes": "Brake pads wear down to a line on the rim and squeal when dust covers them.",
        "Tyres": "Tyres keep their pressure for two weeks and crack when stored in the sun.",
        "Lights": "Front lights need twenty lux and a cable that withstands rain on the frame.",
        "Saddle": "A saddle at hip height spares the knees and is held by a five millimetre key.",
        "Gears": "Gears jump when the cable is loose or the chain is worn beyond its limit.",
        "Wheels": "Wheels run true after the spokes are tightened with even tension on both sides.",
        "Frame": "A frame of steel rusts where paint is lost and cracks beside the bottom bracket.",
    }
    return [
        Page(f"page-{n}", title, text, f"https://workshop.example/{title.lower()}")
        for n, (title, text) in enumerate(texts.items(), 1)
    ]


PAGES: Final = _pages()

CHUNKS: Final = [
    Page(f"{page.id}.{part}", page.title, text, page.url)
    for page in PAGES
    for part, text in enumerate(
        (
            page.text,
            f"{page.title} are checked before the first ride: {page.text.split()[-1]} first.",
        )
    )
]
"""Two parts of each page, which have its address; shorter texts would be no evidence."""

SHELVES: Final = [
    Page(
        f"shelf-{n}",
        f"Shelf {n}",
        f"Shelf number {n} of the store holds chain and brake parts in box {n * 7}.",
        f"https://workshop.example/shelf/{n}",
    )
    for n in range(90)
]
"""So many pages that the attributes of a span do not hold them."""

QUESTIONS: Final[dict[str, list[list[str]]]] = {
    "sess-A": [
        ["worn chain", "chain limit gears", "gears cable loose"],
        ["brake pads squeal", "brake dust rim"],
    ],
    "sess-B": [["tyres pressure sun", "cracks frame", "tyres stored frame cracks"]],
}
"""By session and turn what is searched for, one after the other."""

OTHER_WORDS: Final = {"worn": "spokes tension", "brake": "lights rain", "tyres": "saddle knees"}


@dataclass(frozen=True)
class Turn:
    """A turn: its session, its number from 1, the user's question, and the queries."""

    session: str
    number: int
    searches: tuple[str, ...]

    @property
    def question(self) -> str:
        """The user's question; the first query is its topic."""
        return f"{self.searches[0]}?" if self.searches else "thank you"


def turns(skipping: bool = False) -> Iterator[Turn]:
    """The turns of all sessions; ``skipping`` inserts one without a search into sess-A."""
    for session, asked in QUESTIONS.items():
        plans = [*asked]
        if skipping and session == "sess-A":
            plans.insert(1, [])
        for number, searches in enumerate(plans, 1):
            yield Turn(session, number, tuple(searches))


def by_question(question: str, skipping: bool = False) -> Turn:
    """The turn of a question."""
    return next(turn for turn in turns(skipping) if turn.question == question)


def rank(query: str, pages: Sequence[Page], k: int = 3) -> list[tuple[Page, float]]:
    """The best pages by common words, each with its score."""
    words = set(re.findall(r"\w+", query.lower()))
    scored = [
        (page, len(words & set(re.findall(r"\w+", page.text.lower()))) / len(words))
        for page in pages
    ]
    return sorted(scored, key=lambda one: -one[1])[:k]


def vector(text: str) -> list[float]:
    """An embedding: the frequencies of the handbook's words."""
    words = re.findall(r"\w+", text.lower())
    return [float(words.count(word)) + 0.001 for word in _WORDS]


_WORDS: Final = sorted({word for page in PAGES for word in re.findall(r"\w+", page.text.lower())})


def seen(text: str, pages: Sequence[Page]) -> list[str]:
    """The ids of the pages whose texts a text contains, in order: what a model was shown."""
    found = [
        (place.start(), page.id)
        for page in pages
        for place in re.finditer(re.escape(page.text), text)
    ]
    return [id for _, id in sorted(found)]


@dataclass
class Account:
    """What the agent received: session, turn, iteration, and ids of documents in order."""

    rows: list[tuple[str, int, int, list[str]]] = field(default_factory=list)

    def got(self, turn: Turn, iteration: int, ids: Sequence[str]) -> None:
        """Record the results of a search."""
        self.rows.append((turn.session, turn.number, iteration, list(ids)))
