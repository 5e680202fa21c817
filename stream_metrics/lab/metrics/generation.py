"""Metrics of answers: against reference answers, the question, and the retrieved texts.

Lexical metrics compare tokens (``text.tokens``): lower case, without punctuation and articles.
Articles and stopwords are those of the turn's language. Semantic metrics are declared here and
computed by a model (``Similarity``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, Protocol

from stream_metrics.core.metrics.registry import Metric
from stream_metrics.core.metrics.text import (
    base_language,
    overlap_f1,
    tokens,
    tokens_among,
    tokens_of_each,
)
from stream_metrics.core.metrics.words import STOPWORDS, WORDS_VERSION

GENERATION: Final = "Generation"

_NO_STOPWORDS: Final[frozenset[str]] = frozenset()


class Texts(Protocol):
    """Texts that are not in memory, in which tokens can be looked up."""

    def tokens_among(
        self, wanted: Iterable[str], language: str, version: int
    ) -> tuple[set[str], int]:
        """See ``text.tokens_among``."""


class AnsweredTurn(NamedTuple):
    """A turn with its texts.

    Attributes:
        conversation_id, turn, agent: The identity of the turn.
        dimensions: The values by which figures can be split. ``language`` selects articles and
            stopwords.
        answer: The answer. None: not recorded. An empty text is an answer.
        references: The reference answers.
        question: The question. None: not recorded.
        texts: The texts of the turn's unique results.
        words_version: The version of the rules for words (``words.WORDS_VERSION``).
    """

    conversation_id: str
    turn: int = 1
    agent: str | None = None
    dimensions: Mapping[str, str] = {}
    answer: str | None = None
    references: Sequence[str] = ()
    question: str | None = None
    texts: Sequence[str] | Texts = ()
    words_version: int = WORDS_VERSION

    @property
    def language(self) -> str:
        """The language that selects articles and stopwords, without its region."""
        return base_language(self.dimensions.get("language"))


class Words(NamedTuple):
    """The tokens of a turn's texts.

    Attributes:
        answer, question: The tokens; None if the text is missing.
        references: The tokens of each reference answer.
        supported: The distinct tokens of the answer that occur in a retrieved text.
        texts: The number of retrieved texts with at least one token.
        stopwords: The tokens that are not content words.
    """

    answer: list[str] | None
    references: list[list[str]]
    question: list[str] | None
    supported: frozenset[str]
    texts: int
    stopwords: frozenset[str]


def words_of(turn: AnsweredTurn) -> Words:
    """Tokenize a turn's texts.

    Raises:
        ValueError: References or texts are a text, whose characters would be taken for texts.

    >>> words_of(AnsweredTurn("c", answer="The Nile.", texts=["Nile: a river", "..."])).supported
    frozenset({'nile'})
    """
    for name, given in (("references", turn.references), ("texts", turn.texts)):
        if isinstance(given, str):
            raise ValueError(f"{name} are one text; give a list of texts")
    language, version = turn.language, turn.words_version
    answer = None if turn.answer is None else tokens(turn.answer, language, version)
    if isinstance(turn.texts, Sequence):
        supported, texts = tokens_among(turn.texts, answer or (), language, version)
    else:
        supported, texts = turn.texts.tokens_among(answer or (), language, version)
    return Words(
        answer,
        tokens_of_each(turn.references, language, version),
        None if turn.question is None else tokens(turn.question, language, version),
        frozenset(supported),
        texts,
        STOPWORDS.get(language, _NO_STOPWORDS),
    )


# -- scores -----------------------------------------------------------------------------------


def exact_match(words: Words) -> float | None:
    """Whether the answer equals a reference answer, token by token.

    >>> exact_match(words_of(AnsweredTurn("c", answer="The Nile!", references=["Po", "nile"])))
    1.0
    """
    return _best(words, lambda answer, reference: float(answer == reference))


def token_f1(words: Words) -> float | None:
    """F1 of the tokens that answer and reference share; the highest over the references.

    >>> token_f1(words_of(AnsweredTurn("c", answer="the long Nile", references=["Nile"])))
    0.6666666666666666
    """
    return _best(words, overlap_f1)


def rouge_l(words: Words) -> float | None:
    """F1 of the longest common subsequence; the highest over the references.

    >>> rouge_l(words_of(AnsweredTurn("c", answer="b a c", references=["a b c d"], dimensions={
    ...     "language": "none"})))
    0.5714285714285714
    """
    return _best(words, _subsequence_f1)


def answer_relevance(words: Words) -> float | None:
    """F1 of the tokens that answer and question share; 0 for an empty answer.

    >>> answer_relevance(words_of(AnsweredTurn("c", answer="Nile", question="How long: Nile?")))
    0.5
    """
    if words.answer is None or words.question is None:
        return None
    return overlap_f1(words.answer, words.question) if words.answer else 0.0


def support_coverage(words: Words) -> float | None:
    """Share of the answer's distinct content words that occur in a retrieved text.

    >>> support_coverage(words_of(AnsweredTurn("c", answer="Is it the Nile?", texts=["Nile"])))
    1.0
    """
    if words.answer is None or not words.texts:
        return None
    if not words.answer:
        return 0.0
    content = set(words.answer) - words.stopwords
    return len(content & words.supported) / len(content) if content else None


def support_density(words: Words) -> float | None:
    """Share of the answer's tokens that occur in a retrieved text, counting repeats.

    >>> support_density(words_of(AnsweredTurn("c", answer="Nile, is it?", texts=["The Nile is"])))
    0.6666666666666666
    """
    if words.answer is None or not words.texts:
        return None
    if not words.answer:
        return 0.0
    return sum(token in words.supported for token in words.answer) / len(words.answer)


def hallucination_rate(words: Words) -> float | None:
    """Share of the answer's tokens that occur in no retrieved text: 1 - support density.

    >>> hallucination_rate(words_of(AnsweredTurn("c", answer="Nile, Po", texts=["the Po"])))
    0.5
    """
    density = support_density(words)
    return None if density is None or not words.answer else 1 - density


def _best(words: Words, score: Callable[[list[str], list[str]], float]) -> float | None:
    """The highest score over the reference answers."""
    if words.answer is None or not words.references:
        return None
    answer = words.answer
    return max(score(answer, reference) for reference in words.references)


def _subsequence_f1(left: list[str], right: list[str]) -> float:
    if not left or not right:
        return float(not left and not right)
    from rapidfuzz.distance import LCSseq  # imported late: only answers need it

    return 2 * int(LCSseq.similarity(left, right)) / (len(left) + len(right))


# -- semantic similarity ----------------------------------------------------------------------


class Similarity(Protocol):
    """A model of the semantic similarity of texts."""

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """The similarity of each (answer, reference answer) pair, in the order given."""


# -- definitions ------------------------------------------------------------------------------


class UnknownGenerationMetric(ValueError):
    """No generation metric has this name; the message suggests the nearest ones."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A generation metric: its description, and the function that computes it from tokens.

    ``compute`` is None for metrics that need a ``Similarity``.
    """

    metric: Metric
    compute: Callable[[Words], float | None] | None = None

    @property
    def name(self) -> str:
        """The name in rows and reports."""
        return self.metric.name


_NO_REFERENCE: Final = "there is no answer, or no reference answer"
_NO_TEXT: Final = "there is no answer, or no retrieved text"
_SQUAD: Final = (
    "Rajpurkar et al., SQuAD: 100,000+ questions for machine comprehension of text, EMNLP 2016."
)
_BEST: Final = "; the highest over the reference answers"
_SUPPORT: Final = "This project's own. It compares words, not meaning."


def _metric(
    name: str,
    title: str,
    help_: str,
    formula: str,
    none_means: str,
    reference: str,
    *,
    better: Literal["higher", "lower"] = "higher",
    low: float = 0.0,
    high: float | None = 1.0,
) -> Metric:
    return Metric(
        name,
        title,
        help_,
        formula,
        "1",
        better,
        none_means=none_means,
        low=low,
        high=high,
        family=GENERATION,
        reference=reference,
    )


DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        _metric("exact_match", "Exact match", "Whether the answer equals a reference answer.",
                "1 if the tokens are the same, else 0" + _BEST, _NO_REFERENCE, _SQUAD),
        exact_match,
    ),
    Definition(
        _metric("token_f1", "Token F1", "F1 of the tokens that answer and reference share.",
                "2 * shared / (tokens of answer + tokens of reference)" + _BEST, _NO_REFERENCE,
                _SQUAD),
        token_f1,
    ),
    Definition(
        _metric("rouge_l", "ROUGE-L F1", "F1 of the longest common subsequence of tokens.",
                "2 * LCS / (tokens of answer + tokens of reference)" + _BEST, _NO_REFERENCE,
                "Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop, 2004; "
                "precision and recall have equal weight."),
        rouge_l,
    ),
    Definition(
        _metric("answer_relevance", "Answer relevance",
                "F1 of the tokens that answer and question share.",
                "2 * shared / (tokens of answer + tokens of question)",
                "there is no answer, or no question",
                "This project's own."),
        answer_relevance,
    ),
    Definition(
        _metric("support_coverage", "Support coverage",
                "Share of the answer's distinct content words that occur in retrieved texts.",
                "distinct content words in the retrieved texts / distinct content words of the "
                "answer",
                f"{_NO_TEXT}, or the answer has only stopwords", _SUPPORT),
        support_coverage,
    ),
    Definition(
        _metric("support_density", "Support density",
                "Share of the answer's tokens that occur in retrieved texts.",
                "tokens in the retrieved texts / tokens of the answer", _NO_TEXT, _SUPPORT),
        support_density,
    ),
    Definition(
        _metric("hallucination_rate", "Hallucination rate",
                "Share of the answer's tokens that do not occur in retrieved texts.",
                "1 - support density", f"{_NO_TEXT}, or the answer is empty", _SUPPORT,
                better="lower"),
        hallucination_rate,
    ),
    Definition(
        _metric("sbert_similarity", "SBERT similarity",
                "How close in meaning answer and reference answer are, by their embeddings.",
                "cosine of the two sentence embeddings" + _BEST, _NO_REFERENCE,
                "Reimers and Gurevych, Sentence-BERT, EMNLP 2019.", low=-1.0),
    ),
    Definition(
        _metric("cross_encoder_similarity", "Cross-encoder similarity",
                "The same, by a model that reads both texts together.",
                "the model's score of (answer, reference)" + _BEST, _NO_REFERENCE,
                "The model defines the scale.", low=float("-inf"), high=None),
    ),
)  # fmt: skip

BY_NAME: Final = {definition.name: definition for definition in DEFINITIONS}
LEXICAL: Final = tuple(one.name for one in DEFINITIONS if one.compute is not None)
SEMANTIC: Final = tuple(one.name for one in DEFINITIONS if one.compute is None)


def parse(text: str) -> Definition:
    """The generation metric with this name, ignoring case.

    Raises:
        UnknownGenerationMetric: There is no such metric.

    >>> parse("Token_F1").metric.title
    'Token F1'
    """
    name = text.strip().lower()
    if name in BY_NAME:
        return BY_NAME[name]
    close = get_close_matches(name, BY_NAME, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(BY_NAME)}"
    raise UnknownGenerationMetric(f"unknown generation metric {text!r}; {hint}")
