"""Metrics of answers: worked examples, an oracle, rows, and the summary in a report."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.metrics.text import tokens, tokens_among, tokens_of_each
from stream_metrics.core.metrics.words import ARTICLES, STOPWORDS
from stream_metrics.lab.evaluation.estimates import Intervals, UnknownDimension
from stream_metrics.lab.evaluation.generation import BadSimilarity, Generation, Row, score_turns
from stream_metrics.lab.evaluation.observations import better_of, of_scores, title_of
from stream_metrics.lab.evaluation.report_figures import figures_of_report
from stream_metrics.lab.metrics.generation import (
    DEFINITIONS,
    LEXICAL,
    SEMANTIC,
    AnsweredTurn,
    UnknownGenerationMetric,
    parse,
    words_of,
)
from tests.oracle import generation as oracle

FORMS = (
    "aIſΣςßẞİ'・\u0301\u0307\u0323\u0345\u034f\u20e8\u0e38\u0e48ำ\u093c\u094d\u0651\ufc5e"
    "\u00ad\u200d\ufe0f\U000e0100´¨½…™²ﬁＡｶﾞ゛か\u3099豈\u1112\u1161\u11ab하ﾡￂʼـ−\u2028"
)
"""Characters with other forms, with forms that depend on others, and between these."""
NO_LISTS = {"language": "none"}
WORDS = ("the", "Nile", "nile", "Po", "is", "it", "der", "Fluss", "un", "東京", "は", "...", "it's")


def scores(answer: str, *references: str, **texts: Any) -> dict[str, float | None]:
    """Our scores of one turn."""
    turn = AnsweredTurn("c", answer=answer, references=references, **texts)
    found: dict[str, float | None] = next(score_turns([turn]))["scores"]
    return found


# -- worked examples --------------------------------------------------------------------------


def test_scores_equal_those_of_a_worked_example() -> None:
    """Answer: the Nile is 6650 km long (5 tokens); reference: the Nile, 6650 km (3 tokens)."""
    found = scores(
        "The Nile is 6650 km long.",
        "Nile, 6650 km",
        question="How long is the Nile?",
        texts=["The Nile\nA river of 6650 km."],
    )

    assert found == {
        "exact_match": 0.0,
        "token_f1": pytest.approx(2 * 3 / (5 + 3)),
        "rouge_l": pytest.approx(2 * 3 / (5 + 3)),
        "answer_relevance": pytest.approx(2 * 3 / (5 + 4)),
        "support_coverage": pytest.approx(3 / 4),  # nile, 6650, km of these and long
        "support_density": pytest.approx(3 / 5),
        "hallucination_rate": pytest.approx(2 / 5),
    }


def test_rouge_l_is_that_of_the_published_example() -> None:
    """In the example of Google's rouge-score, 5 of 8 and of 9 tokens are in order, with
    articles."""
    found = scores(
        "The quick brown dog jumps on the log.",
        "The quick brown fox jumps over the lazy dog",
        dimensions=NO_LISTS,
    )

    assert found["rouge_l"] == pytest.approx(0.588235294117647)
    assert found["token_f1"] == pytest.approx(0.705882352941176)


def test_rouge_l_is_that_of_the_example_of_torchmetrics() -> None:
    """Order counts for ROUGE-L (2 of 4) but not for token F1 (3 of 4)."""
    found = scores("My name is John", "Is your name John")

    assert (found["rouge_l"], found["token_f1"]) == (0.5, 0.75)


def test_each_metric_takes_its_own_best_reference() -> None:
    """One reference has all words in another order, the other has half of them in the
    same order."""
    found = scores("a b c d", "d c b a", "a b", dimensions=NO_LISTS)

    assert found["token_f1"] == 1.0
    assert found["rouge_l"] == pytest.approx(2 * 2 / (4 + 2))


@pytest.mark.parametrize(
    ("language", "answer", "reference", "expected"),
    [
        ("de-AT", "Die Donau", "donau!", 1.0),
        ("en", "Die Donau", "donau!", 0.0),
        ("fr", "La Seine", "seine", 1.0),
        ("ja", "東京、都", "東 京都", 1.0),
        ("fi", "the Kemijoki", "Kemijoki", 0.0),
    ],
)
def test_articles_are_those_of_the_language(
    language: str, answer: str, reference: str, expected: float
) -> None:
    """The region does not matter; a language without a list has no articles."""
    found = scores(answer, reference, dimensions={"language": language})

    assert found["exact_match"] == expected


def test_content_words_exclude_stopwords_of_the_language() -> None:
    """ "Ist" and "es" are stopwords only in German."""
    texts = {"answer": "Ist es Wien", "texts": ["Wien"]}
    found = [
        next(score_turns([AnsweredTurn("c", dimensions={"language": name}, **texts)]))["scores"]  # type: ignore[arg-type]
        for name in ("de", "en")
    ]

    assert [one["support_coverage"] for one in found] == [1.0, pytest.approx(1 / 3)]


# -- edges ------------------------------------------------------------------------------------


def test_an_empty_answer_scores_zero_and_hallucinates_nothing() -> None:
    """An answer of only articles and punctuation counts as empty."""
    for answer in ("", "The ..."):
        found = scores(answer, "Nile", question="Nile?", texts=["Nile"])

        assert found == {**dict.fromkeys(LEXICAL, 0.0), "hallucination_rate": None}


def test_an_empty_answer_equals_an_empty_reference() -> None:
    """If both sides normalise to nothing, they are equal."""
    found = scores("the", "A!")

    assert [found[name] for name in ("exact_match", "token_f1", "rouge_l")] == [1.0, 1.0, 1.0]


def test_without_references_question_and_texts_nothing_is_defined() -> None:
    """With nothing to compare to, there is no score rather than a score of 0."""
    assert scores("Nile") == dict.fromkeys(LEXICAL)


def test_a_text_without_tokens_does_not_count_as_retrieved() -> None:
    """Support is undefined if no text could have supported the answer."""
    found = scores("Nile", texts=["...", "The"])

    assert (found["support_density"], found["hallucination_rate"]) == (None, None)


def test_without_an_answer_there_is_no_row() -> None:
    """A missing answer differs from an empty one, and has no scores."""
    turn = AnsweredTurn("c", references=["Nile"], question="Nile", texts=["Nile"])
    words = words_of(turn)

    assert [one.compute(words) for one in DEFINITIONS if one.compute] == [None] * len(LEXICAL)
    rows = score_turns([turn, AnsweredTurn("d", answer="Po")])
    assert [row["conversation_id"] for row in rows] == ["d"]


def test_an_answer_of_stopwords_has_no_coverage() -> None:
    """It has tokens, which can be found, but no content words."""
    found = scores("It is.", texts=["It is the Nile"])

    assert (found["support_coverage"], found["support_density"]) == (None, 1.0)


# -- against the oracle -----------------------------------------------------------------------


def texts() -> st.SearchStrategy[str]:
    """Short texts that share many words, with significant and insignificant characters."""
    words = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
    return words | st.text(st.sampled_from("ab éÉ'-.„“京カ한\t\u00a0"), max_size=12)


@given(
    texts(),
    st.lists(texts(), max_size=3),
    st.none() | texts(),
    st.lists(texts(), max_size=3),
    st.sampled_from(["en", "de", "fr", "ja", "fi"]),
)
def test_scores_are_those_of_the_oracle(
    answer: str, references: list[str], question: str | None, read: list[str], language: str
) -> None:
    """For any texts, the definitions computed word by word give the same scores."""
    expected = oracle.scores(
        answer,
        references,
        question,
        read,
        ARTICLES.get(language, ()),
        STOPWORDS.get(language, ()),
    )

    found = scores(
        answer, *references, question=question, texts=read, dimensions={"language": language}
    )

    assert {name: None if one is None else float(one) for name, one in expected.items()} == {
        name: None if one is None else pytest.approx(one, abs=1e-12) for name, one in found.items()
    }


@given(
    st.lists(st.text(st.sampled_from("aΣσİé '-.„京한\t\x1e\x1f\u0301")) | texts(), max_size=4),
    st.sampled_from([None, "en", "de-AT", "fi"]),
)
def test_normalising_texts_together_equals_normalising_each(
    given: list[str], language: str | None
) -> None:
    """Other texts in the batch do not change the tokens of a text."""
    assert tokens_of_each(given, language) == [tokens(text, language) for text in given]


@given(
    st.lists(
        st.text(st.characters(max_codepoint=0x10FF) | st.sampled_from("東京한ひ。„—" + FORMS)),
        max_size=4,
    ),
    st.sampled_from([1, 2]),
)
def test_normalisation_equals_that_of_the_oracle(given: list[str], version: int) -> None:
    """The oracle looks at one character at a time, however long the text is."""
    expected = [oracle.words(text, (), version) for text in given]

    assert tokens_of_each(given, "none", version) == expected
    known = {token for found in expected for token in found}
    assert tokens_among(given, {*known, "nowhere"}, "none", version) == (
        known,
        sum(map(bool, expected)),
    )


def test_many_different_characters_are_normalised_like_few() -> None:
    """Non-ASCII characters are replaced singly, or all at once if there are many."""
    letters = [chr(code) for code in range(0xC0, 0x180)]

    assert tokens_of_each(["„".join(letters)], "none") == [
        ["".join(token for letter in letters for token in tokens(letter, "none"))]
    ]


# -- equivalent texts -------------------------------------------------------------------------

RIGHT = {
    "decomposed": ("Z\u00fcrich", "Zu\u0308rich"),
    "two marks in another order": ("q\u0323\u0307", "q\u0307\u0323"),
    "ligatures": ("\ufb01nance o\ufb03ce \ufb05ate", "finance office state"),
    "a soft hyphen": ("K\u00fcndigungs\u00adfrist", "K\u00fcndigungsfrist"),
    "a soft hyphen before a mark": ("Zu\u00ad\u0308rich", "Z\u00fcrich"),
    "zero-width spaces and joiners": ("data\u200bba\u2060se\ufeff", "database"),
    "marks of direction": ("\u200fשלום\u202c \u2066a\u2069", "שלום a"),
    "full width": ("\uff21\uff22\uff11\uff12\u3000\uff08\uff43\uff09", "ab12 c"),
    "half width": ("\uff76\uff9e\uff7d\uff70 \uffa1\uffc2", "ガスー 가"),
    "jamo": ("\u1112\u1161\u11ab\u1100\u1173\u11af", "한글"),
    "compatibility ideographs": ("\uf900 \u2f00 \u3231", "豈一株"),
    "a variation of an ideograph": ("葛\U000e0100飾", "葛飾"),
    "Arabic presentation forms": ("\ufef3\ufeee\ufee1", "\u064a\u0648\u0645"),
    "a word that is lengthened": ("محـــمد", "محمد"),
    "a non-joiner": ("می\u200cخواهم", "میخواهم"),
    "nukta": ("\u095b", "\u091c\u093c"),
    "sara am": ("\u0e17\u0e33", "\u0e17\u0e4d\u0e32"),
    "emoji": ("\u2764\ufe0f 👩\u200d💻", "\u2764 👩💻"),
    "spaces": ("10\u202f000\u00a0km", "10 000 km"),
    "superscripts": ("x\u00b2 H\u2082O", "x2 H2O"),
    "a fraction": ("\u00bd", "1/2"),
    "a trademark": ("Acme\u2122", "AcmeTM"),
    "an ellipsis": ("Nile\u2026", "Nile..."),
    "mathematical letters": ("\U0001d40d\U0001d422\U0001d425\U0001d41e \u210e", "Nile h"),
    "units": ("5 \u33a1, 20 \u2103, 3 \u212b, 4 \u00b5m", "5 m2 20 °C 3 Å 4 μm"),
    "apostrophes": (
        "it\u2019s it\u02bcs it\u00b4s it\uff07s it`s d\u1fbd Hawai\u02bbi",
        "it's it's it's it's it's d' Hawaii",
    ),
    "dashes and minus": ("\u22125 a\u2011b\u2012c", "-5 a-b-c"),
    "final sigma": ("ΟΔΟΣ", "οδος"),
    "sharp s": ("STRASSE MA\u1e9eE", "Straße maße"),
    "a dotted I": ("\u0130zmir I\u0307zmir", "izmir i\u0307zmir"),
    "an iota below": ("\u1fb3", "\u1fbc"),
    "articles": ("Un\u00ad cafe\u0301", "caf\u00e9"),
}
"""Answers and references that differ in nothing that counts, in French."""


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_answer_is_right_however_it_is_encoded(kind: str) -> None:
    """It equals the reference and the question, and the retrieved text supports it."""
    for answer, other in (RIGHT[kind], reversed(RIGHT[kind])):
        found = scores(answer, other, question=other, texts=[other], dimensions={"language": "fr"})

        assert found == {**dict.fromkeys(LEXICAL, 1.0), "hallucination_rate": 0.0}


@given(
    st.text(st.characters(max_codepoint=0x11FF) | st.sampled_from("東京한ひ。„—" + FORMS)),
    st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    st.sampled_from(["", "\u00ad", "\u200b", "\ufe0f"]),
)
def test_equivalent_texts_have_the_same_tokens(text: str, form: Any, between: str) -> None:
    """Whatever form of Unicode they have, and what is invisible in them."""
    other = between.join(unicodedata.normalize(form, text))

    assert tokens(other, "none") == tokens(text, "none")


def test_articles_and_stopwords_are_normalised() -> None:
    """Otherwise they would be found in no text; in texts they may be decomposed."""
    for words in (*ARTICLES.values(), *STOPWORDS.values()):
        decomposed = [unicodedata.normalize("NFD", word) for word in words]
        for listed in (list(words), decomposed):
            assert tokens_of_each(listed, "none") == [[word] for word in words]


@pytest.mark.parametrize("code", [0x1C89, 0xA7CB, 0x10D50, 0x11B00, 0x11F43, 0x1E4EC, 0x16D6D])
@pytest.mark.parametrize("version", [1, 2])
def test_characters_of_later_versions_of_unicode_are_their_own(code: int, version: int) -> None:
    """Some Pythons know of these letters, marks and punctuation; figures must not depend on it."""
    text = f"a{chr(code)}\u0301"

    assert tokens(text, "none", version) == [text]


# -- names ------------------------------------------------------------------------------------


def test_names_are_case_insensitive() -> None:
    """Every metric's name parses to itself; a wrong one gets a suggestion."""
    assert [parse(one.name.upper()) for one in DEFINITIONS] == list(DEFINITIONS)
    with pytest.raises(UnknownGenerationMetric, match="did you mean rouge_l"):
        parse("rougel")


def test_every_metric_has_a_direction() -> None:
    """Less hallucination is better, and more of everything else."""
    better = {one.name: better_of(one.name) for one in DEFINITIONS}

    assert better.pop("hallucination_rate") == "lower"
    assert set(better.values()) == {"higher"}
    assert title_of("token_f1") == "Token F1"


# -- rows -------------------------------------------------------------------------------------


def test_a_row_has_its_keys_in_order() -> None:
    """This is the order in ``turns.jsonl``, which ``compare`` reads."""
    turn = AnsweredTurn("c", 2, "agent", {"z": "1", "a": "2"}, "Nile", ["Po", ""], "?", ["Nile"])

    row = next(score_turns([turn]))

    assert list(row) == [
        "conversation_id", "turn", "agent", "dimensions", "n_tokens", "n_references", "n_texts",
        "scores",
    ]  # fmt: skip
    assert list(row["dimensions"]) == ["a", "z"]
    assert list(row["scores"]) == list(LEXICAL)
    assert of_scores(row).unit == "c"


class Lengths:
    """A model for which similarity depends on lengths; it records its input."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.asked: list[list[tuple[str, str]]] = []

    def similarities(self, pairs: Any) -> list[float]:
        """The difference of the lengths, negative."""
        self.asked.append(list(pairs))
        return [-abs(len(one) - len(other)) * self.factor for one, other in pairs]


def test_a_model_scores_many_turns_at_a_time() -> None:
    """Each pair occurs once per batch; the best reference counts; without a pair the
    score is null."""
    model = Lengths()
    turns = [
        AnsweredTurn("a", answer="aa", references=["a", "aaaa"]),
        AnsweredTurn("b", answer="aa", references=["a"]),
        AnsweredTurn("c", answer="aa"),
        AnsweredTurn("d", answer="aa", references=["aa"]),
    ]

    rows = list(score_turns(turns, {"sbert_similarity": model}, batch_turns=3))

    assert [row["scores"]["sbert_similarity"] for row in rows] == [-1.0, -1.0, None, 0.0]
    assert model.asked == [[("aa", "a"), ("aa", "aaaa")], [("aa", "aa")]]


def test_a_model_that_returns_nan_is_an_error() -> None:
    """The message names the turn."""
    turns = [AnsweredTurn("c-7", 3, answer="aa", references=["a"])]

    with pytest.raises(BadSimilarity, match=r"inf for turn 3 of conversation 'c-7'"):
        list(score_turns(turns, {SEMANTIC[0]: Lengths(float("inf"))}))


def test_a_model_needs_a_semantic_metric() -> None:
    """Exact match uses none, so giving one is refused."""
    with pytest.raises(ValueError, match="'exact_match' takes no model"):
        list(score_turns([], {"exact_match": Lengths()}))


# -- the summary ------------------------------------------------------------------------------


def rows_of(seed: int, size: int = 40) -> list[Row]:
    """Random turns, scored."""
    drawn = random.Random(seed)

    def text() -> str:
        return " ".join(drawn.choices(WORDS, k=drawn.randint(0, 6)))

    return list(
        score_turns(
            AnsweredTurn(
                f"c{drawn.randint(0, 12)}",
                turn,
                None,
                drawn.choice([{}, {"language": "de"}, {"language": "en", "difficulty": "hard"}]),
                drawn.choice([None, text()]),
                [text() for _ in range(drawn.randint(0, 2))],
                drawn.choice([None, text()]),
                [text() for _ in range(drawn.randint(0, 2))],
            )
            for turn in range(1, size + 1)
        )
    )


def block_of(rows: list[Row], **options: Any) -> Any:
    """The summary of rows."""
    found = Generation()
    for row in rows:
        found.add(row)
    return found.block(**options)


@pytest.mark.parametrize("seed", range(5))
def test_neither_order_nor_files_of_rows_matter(seed: int) -> None:
    """Rows read from shards in any order give the same summary."""
    rows = rows_of(seed)
    again = [json.loads(json.dumps(row)) for row in rows]
    random.Random(seed).shuffle(again)

    assert json.dumps(block_of(again)) == json.dumps(block_of(rows))


def test_a_summary_counts_turns_with_and_without_a_score() -> None:
    """A mean is over the turns that have the score."""
    turns = [
        AnsweredTurn("a", answer="Nile", references=["Nile"], texts=["Nile"]),
        AnsweredTurn("a", 2, answer="", references=["Nile"], dimensions={"language": "de-AT"}),
        AnsweredTurn("b", answer="Po", dimensions={"language": "fi"}),
        AnsweredTurn("c"),
    ]

    block = block_of(list(score_turns(turns)), intervals=None)

    counts = [
        block[name]
        for name in (
            "turns", "turns_with_empty_answer", "turns_without_reference", "turns_without_text",
            "languages",
        )
    ]  # fmt: skip
    assert counts == [3, 1, 1, 2, {"de": 1, "en": 1, "other": 1}]
    mean = block["metrics"]["exact_match"]
    assert (mean["mean"], mean["n"], mean["ci_low"]) == (0.5, 2, None)


def test_language_is_the_first_dimension() -> None:
    """A mean over several languages says little; other dimensions follow by name."""
    rows = list(
        score_turns(
            AnsweredTurn(f"c{at}", dimensions={"agent": side, "language": side, "z": side},
                         answer="Nile", references=["Nile"])
            for at, side in enumerate(("de", "en") * 3)
        )
    )  # fmt: skip

    strata = block_of(rows)["strata"]

    assert list(strata) == ["language", "agent", "z"]
    assert strata["language"]["metrics"]["token_f1"]["stratum_average"] == 1.0


def test_wilson_is_for_exact_match() -> None:
    """With one turn per conversation exact match is a share; other metrics are not."""
    turns = (
        AnsweredTurn(f"c{at}", answer="Nile", references=["Nile x" if at % 2 else "Nile"])
        for at in range(10)
    )
    metrics = block_of(list(score_turns(turns)), intervals=Intervals("wilson"))["metrics"]

    methods = [metrics[name]["method"] for name in ("exact_match", "token_f1")]
    assert methods == ["wilson", "percentile"]


def test_without_answers_there_is_no_summary() -> None:
    """The report of traffic without answers does not mention them."""
    assert block_of([]) is None
    assert block_of(list(score_turns([AnsweredTurn("c", references=["Nile"])]))) is None


def test_an_unknown_dimension_is_refused() -> None:
    """The message lists the known ones."""
    rows = list(score_turns([AnsweredTurn("c", answer="Nile", dimensions={"topic": "rivers"})]))

    with pytest.raises(UnknownDimension, match=r"no turn has the dimension 'tpoic'.*: .*topic"):
        block_of(rows, dimensions=["tpoic"])


def test_a_report_has_the_means_by_name() -> None:
    """--fail-if 'hallucination_rate>0.2' can find its metric."""
    block = block_of(rows_of(1))

    figures = figures_of_report({"generation": block})

    mean = block["metrics"]["hallucination_rate"]["mean"]
    assert figures["hallucination_rate"]["value"] == mean
