"""Searches for words in texts, and in the results of events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from hypothesis import strategies as st

from stream_metrics.core.metrics.text import plain_tokens_among, tokens_among, tokens_of_each
from stream_metrics.core.metrics.words import ARTICLES, FIRST_WORDS, WORDS_VERSION
from stream_metrics.lab.replay.recorded import text_of
from stream_metrics.lab.replay.reread import reread_payload
from tests.twins import Claim, Pair, Twin, kernel

SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space of Unicode."""
VERSIONS = range(FIRST_WORDS, WORDS_VERSION + 1)
WORDS = st.sampled_from(["the", "a", "die", "nile", "nil", "é", "東", "\u200b"])
SIGNS = st.sampled_from(
    "aIſΣßİ '-・\u0301\u0307\u0323\u0345\u034f\u20e8\u0e38\u0e48ำ\u093c\u094d\u0651\ufc5e"
    "\u00ad\u200d\ufe0f\U000e0100´¨½…™²ﬁＡｶﾞ゛か\u3099豈\u1112\u1161\u11ab하ﾡￂʼـ−"
)
"""Characters whose forms depend on each other, and some between which these are."""
TEXTS = st.lists(
    st.lists(WORDS | st.text(st.sampled_from(SPACES), min_size=1), max_size=12).map("".join)
    | st.text(SIGNS, max_size=8)
    | st.text(max_size=8),
    max_size=5,
)


def run(texts: list[str], wanted: frozenset[str], language: str) -> Iterator[Pair]:
    """The words found in texts of a language, by all versions of the rules."""
    articles = ARTICLES.get(language, frozenset())
    for version in VERSIONS:
        plain = plain_tokens_among(texts, wanted - articles, articles, version)
        assert tokens_among(texts, wanted, language, version) == plain
        yield kernel.words_among(texts, wanted - articles, articles, version), plain


def each_character(codes: Iterable[int]) -> tuple[list[str], frozenset[str], str]:
    """Texts with each character, and all of their words."""
    texts = [f"x{sign}Y {sign}" for sign in map(chr, codes)]
    words = (tokens_of_each(texts, "none", version) for version in VERSIONS)
    return texts, frozenset(chain.from_iterable(chain.from_iterable(words))), "none"


def run_in_results(
    events: Sequence[str], wanted: frozenset[str], is_taken: Sequence[bool]
) -> Iterator[Pair]:
    """The words found in some of the results of events."""
    articles, taken = ARTICLES["en"], iter(is_taken)
    values, results = [], []
    for event in events:
        sent: Any = reread_payload(event.encode(), "search_iteration")
        places: list[tuple[int, int]] = []
        for search, one in enumerate(sent.searches):
            for at, result in enumerate(one.results or []):
                if next(taken, True):
                    places.insert(0, (search, at))  # in any order
                    results.append(result)
        values.append((event.encode(), places))
    sought = wanted - articles
    for version in VERSIONS:
        texts = [text for result in results if (text := text_of(result, version))]
        found = kernel.words_in_results(values, sought, articles, version)
        yield found, plain_tokens_among(texts, sought, articles, version)


def event(*searches: object, **others: object) -> str:
    """A search iteration with these searches."""
    envelope = {"event_id": "e", "conversation_id": "c", "turn": 1, "occurred_at": 1_718_020_800}
    sent = {"type": "search_iteration", **envelope, "iteration": 1, **others, "searches": searches}
    return json.dumps(sent)


PARTS_OF_TEXTS = st.none() | st.sampled_from(
    ["", " \n", "\u3000", '"', "\\", "\x1e", "Σ", "\ufeff \xad", "\u3164", "´", "e\u0301"]
)
RESULTS = st.fixed_dictionaries(
    {"result_id": st.just("r")},
    optional={
        name: PARTS_OF_TEXTS | st.lists(WORDS, max_size=4).map(" ".join) | st.text(max_size=8)
        for name in ("title", "snippet", "content", "url", "unknown")
    },
)
SEARCHES = st.fixed_dictionaries(
    {"search_id": st.just("s"), "results": st.none() | st.lists(RESULTS, max_size=4)},
    optional={"query": st.text(max_size=3), "ordinal": st.just(-0), "unknown": st.just({"a": [1]})},
)
EVENTS = st.lists(st.lists(SEARCHES, max_size=3).map(lambda some: event(*some)), max_size=3)
ONE = {"search_id": "s", "results": [{"result_id": "r", "title": "the Nile", "content": "delta"}]}
UNSEEN = {"result_id": "r", "title": "\u3164", "content": "\u200b \ufeff", "snippet": "delta"}
TWICE = event(ONE).replace('"title": "the Nile"', '"title": "Po", "title": "the Nile"')
SOUGHT = frozenset({"nile", "delta", "po"})

WORDS_AMONG = Twin("words_among", run)
IN_RESULTS = Twin("words_in_results", run_in_results)
CLAIMS = [
    Claim(
        WORDS_AMONG,
        "the same words are found, whatever white space is between them",
        st.tuples(
            TEXTS, st.frozensets(WORDS | st.text(max_size=3)), st.sampled_from(["en", "de", "none"])
        ),
        [(["the nile" + sign + "delta" for sign in SPACES], frozenset({"nile", "delta"}), "en")],
    ),
    Claim(
        WORDS_AMONG,
        "every character of the basic plane is normalised as in Python",
        listed=lambda: map(each_character, (range(0xD800), range(0xE000, 0x10000))),
        handled=True,
        long=True,
    ),
    Claim(
        WORDS_AMONG,
        "so are those before most ideographs and syllables, and after them",
        listed=lambda: map(each_character, (range(0x3500), range(0xF900, 0x10000))),
        handled=True,
    ),
    Claim(
        WORDS_AMONG,
        "so is every other one of most languages",
        listed=lambda: [each_character(range(0x10000, 0x32400))],
        handled=True,
        long=True,
    ),
    Claim(
        WORDS_AMONG,
        "so are characters beyond those of most languages",
        listed=[
            ([sign, f"e{sign}\u0301"], frozenset({sign, "é"}), "none")
            for sign in "\U00032400\U000e0100\U0010ffff"
        ],
        handled=True,
    ),
    Claim(
        WORDS_AMONG,
        "the end of a word may decide about a lower case",
        listed=[(["ΟΔΟΣ ΣΑΣ"], frozenset({"οδος", "σας", "οδοσ", "σασ"}), "none")],
        handled=True,
    ),
    Claim(
        WORDS_AMONG,
        "words before a character that depends on them are not found too early",
        listed=[
            (["a \u0301b", "nile ´s"], frozenset({"a", "b", "ab", "nile", "niles"}), "none"),
            (["the \u0301", "nile, zu\u0308"], frozenset({"zu", "zü", "nile"}), "en"),
        ],
        handled=True,
    ),
    Claim(
        WORDS_AMONG,
        "half of a surrogate pair is found in a text, and looked for",
        listed=[
            (["the nile \ud800"], frozenset({"\ud800", "nile"}), "en"),
            (["the nile"], frozenset({"\ud800", "nile"}), "en"),
        ],
        handled=False,
    ),
    Claim(
        IN_RESULTS,
        "the texts are those of the results that are taken",
        st.tuples(EVENTS, st.frozensets(WORDS), st.lists(st.booleans(), max_size=12)),
        [([event({"search_id": "s", "results": [UNSEEN]})], SOUGHT, [])],
    ),
    Claim(
        IN_RESULTS,
        "white space and escapes between and in values are read",
        listed=[
            ([event(ONE), event(ONE, ONE, gate=None)], SOUGHT, [True, False]),
            ([json.dumps(json.loads(event(ONE)), indent=1)], SOUGHT, []),
            ([event(ONE).replace("Nile", "\\u004e\\u0069le\\ud83d\\ude00\\n")], SOUGHT, []),
        ],
        handled=True,
    ),
    Claim(
        IN_RESULTS,
        "of a repeated name the last value counts, whose reading is left to Python",
        listed=[
            ([TWICE], SOUGHT, []),
            ([event(ONE).replace('"results"', '"results": [], "results"')], SOUGHT, []),
            ([event(ONE).replace('"searches"', '"searches": [], "searches"')], SOUGHT, []),
        ],
        handled=False,
    ),
    Claim(
        IN_RESULTS,
        "names with escapes are left to Python",
        listed=[([event(ONE).replace("title", "t\\u0069tle")], SOUGHT, [])],
        handled=False,
    ),
]
