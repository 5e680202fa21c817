"""``docs/reference/metrics-answers.md``, from the definitions of metrics of answers."""

from __future__ import annotations

from math import isinf
from typing import Final

from docs.pages import page
from stream_metrics.core.metrics.words import ARTICLES, FIRST_WORDS, WORDS_VERSION
from stream_metrics.core.unicode import VERSION
from stream_metrics.lab.metrics.generation import DEFINITIONS, GENERATION, Definition

_LANGUAGES: Final = ", ".join(f"`{language}`" for language in sorted(ARTICLES))

_INTRO: Final = f"""\
Metrics of a turn's answer. `stream-metrics replay` computes them from recorded events:
`turn_completed` has the answer, the reference answers and the question, and searches have the
retrieved texts. The worker stores no texts and does not compute them. `turns.jsonl` has one row per
turn with an answer; `report.json` has means over turns, with intervals that resample conversations.

- **Tokens** are lower-case words without punctuation and articles, as in SQuAD. Punctuation is
  removed, not replaced by a space: `6,650` is one token. Each Chinese, Japanese or Korean character
  is a token. Answers, reference answers, questions and retrieved texts
  [may be encoded differently](#equivalent-texts).
- **Language** is `dimensions.language` without its region, by default English. Articles and
  stopwords exist for {_LANGUAGES}.
- **`words_version`** in the report names the rules for tokens, and the lists of articles and
  stopwords. It is now {WORDS_VERSION}; replays under `dedup.tables` 1 use version {FIRST_WORDS}.
- **Retrieved texts** are the title and the content (or else the snippet) of each unique result of
  the turn. Only a document's first occurrence counts. A content in which nothing is visible counts
  as missing.
- **Content words** are tokens that are not stopwords.
- **Several reference answers:** each metric is the highest value over them.
- **Empty answers:** an answer without tokens scores 0 and has no hallucination rate. If the
  reference has no tokens either, the score is 1.
"""

_EQUIVALENT: Final = f"""\
## Equivalent texts

Texts that look alike have the same tokens, although extraction from a PDF, a file system or an
editor has encoded them differently. Before tokens are cut, a text is brought into one form: that
of NFKC without default-ignorable characters and without case, by Unicode {VERSION} in every
version of Python.

- **Accents:** `u` with a combining diaeresis is `ü`. Hangul jamo are the syllable that they
  compose, which is one token.
- **Compatible forms:** ligatures, full-width and half-width forms, Arabic presentation forms and
  mathematical letters are the plain characters: `ﬁ` is `fi`, `１` is `1`, `ｶﾞ` is `ガ`.
  Superscripts, fractions and signs are what they are made of: `m²` is `m2`, `½` is `1/2`, `™` is
  `TM`.
- **Invisible characters:** soft hyphens, zero-width spaces and joiners, variation selectors, marks
  of direction and byte order marks are nothing; the word goes on. A no-break space is a space.
- **Case** is folded alike in all languages: `ß` is `ss`, a final `ς` is `σ`, a Turkish `İ` is `i`.
- **Punctuation**, which is removed, includes curly apostrophes and `ʼ` and its like, accents that
  stand alone such as `´`, the signs `−` and `⁄`, and the Arabic tatweel.

Other differences count: `Zürich` is not `Zurich`, and a Turkish `ı` is not `i`. Version
{FIRST_WORDS} compares texts as they were written, in lower case.
"""

_SEMANTIC: Final = """\
For SBERT and cross-encoder similarity, pass the folder of a local model with `--sbert` or
`--cross-encoder` and install the extra `stream-metrics[semantic]`. Nothing is downloaded. The model
gets the original texts, including empty answers. Values are rounded to six decimals because a
model's last bits depend on how texts are batched. Unlike all other figures, they are not guaranteed
to be identical in each replay.
"""


def answers_page() -> str:
    """All metrics of answers."""
    return page(f"# {GENERATION}\n", _INTRO, *map(_definition, DEFINITIONS), _SEMANTIC, _EQUIVALENT)


def _definition(definition: Definition) -> str:
    metric = definition.metric
    extent = "the model's own" if isinf(metric.low) else f"{metric.low:g} to {metric.high:g}"
    lines = [
        f"## {metric.title}",
        "",
        metric.help,
        "",
        f"    {metric.formula}",
        "",
        f"- name: `{metric.name}`",
        f"- range: {extent}; {metric.better} is better",
        f"- `null` when: {metric.none_means}",
        f"- source: {metric.reference}",
    ]
    return "\n".join([*lines, ""])
