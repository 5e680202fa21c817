"""``docs/reference/metrics-answers.md``, from the definitions of metrics of answers."""

from __future__ import annotations

from math import isinf
from typing import Final

from stream_metrics.metrics.generation import DEFINITIONS, GENERATION, Definition
from stream_metrics.metrics.words import ARTICLES, WORDS_VERSION

_LANGUAGES: Final = ", ".join(f"`{language}`" for language in sorted(ARTICLES))

_INTRO: Final = f"""\
Metrics of a turn's answer, from recorded events: `turn_completed` brings answer, reference answers
and question, and the searches bring the retrieved texts. `stream-metrics replay` computes them; the
worker, which keeps no texts, does not. Rows are in `turns.jsonl`, one a turn with an answer, means
over turns in `report.json`, with intervals by resampling conversations.

- **Tokens.** Lower case, without punctuation and articles, split at white space, as in SQuAD.
  Punctuation is taken out and not replaced: `6,650` is one token. Chinese, Japanese and Korean
  characters are a token each.
- **Language.** That of `dimensions.language`, without its region; default English. There are
  articles and stopwords of {_LANGUAGES},
  and none of other languages. They are part of the definitions: `words_version` is {WORDS_VERSION}.
- **Retrieved texts.** Of each unique result of the turn its title, and its content or else its
  snippet. Of a document that was found several times, the first occurrence counts.
- **Content words** are tokens that are no stopwords.
- **Several reference answers.** Each metric takes the one where it is highest.
- **Empty.** If answer and reference both have no token, they are the same: 1. Otherwise an answer
  without tokens scores 0, and has no hallucination rate.
- Support is overlap of words. It does not know whether a text says what the answer says.
"""

_SEMANTIC: Final = """\
SBERT and cross-encoder similarity are computed where `--sbert` or `--cross-encoder` names the
folder of a model on this machine; they need `pip install 'stream-metrics[semantic]'`. Nothing is
fetched. Texts go to the model as they are, in batches, an empty answer too. Values are rounded to
six decimals, as the last bits depend on which texts a model gets at a time. That makes a replay's
bytes the same in practice; unlike for all other figures it is no guarantee.
"""


def generation_section() -> str:
    """All metrics of answers."""
    return "\n".join([f"# {GENERATION}\n", _INTRO, *map(_definition, DEFINITIONS), _SEMANTIC])


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
