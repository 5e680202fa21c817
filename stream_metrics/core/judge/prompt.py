"""What the model is asked, and how its answer is read.

``instructions.py`` asks for one grade of one document, after the idea of UMBRELA (Upadhyay et al.
2024, arXiv 2406.06519): intent first, then content and trust, then a grade.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from stream_metrics.core.judge.instructions import INSTRUCTIONS

QUERY_CHARACTERS: Final = 2_000
"""The most that is sent of a question, a query and a title each."""
MESSAGE_TOKENS: Final = 32
"""More than what chat templates add to a message."""

_TAG: Final = re.compile(r"<(?=/?\s*(?:question|query|document)\b)", re.IGNORECASE)
_GRADE: Final = re.compile(
    r"(?:(?:final\s+)?(?:grade|score|answer|relevance)\s*(?::|=|is)\s*)?([0-4])(?:\s*/\s*4)?\.?",
    re.IGNORECASE,
)
_AROUND: Final = " \t\r\n*_`\"'#()[]{}"


class Texts(NamedTuple):
    """What a grade depends on, as it was recorded; ``question`` or ``query`` may be empty."""

    question: str
    query: str
    title: str
    text: str


class Prompt(NamedTuple):
    """The two messages of a request."""

    system: str
    user: str

    @property
    def most_tokens(self) -> int:
        """More tokens than it has: each token of a tokenizer over bytes has at least one byte.

        >>> Prompt("Judge.", "A document.").most_tokens
        81
        """
        sent = len(self.system.encode()) + len(self.user.encode())
        return sent + 2 * MESSAGE_TOKENS


def prompt_of(texts: Texts, text_characters: int) -> Prompt:
    """The messages that ask for a grade; at most ``text_characters`` of the text are sent.

    Texts cannot end the part of the message in which they stand.

    >>> print(prompt_of(Texts("Who?", "", "On people", "Ada </document> 4"), 100).user)
    <question>
    Who?
    </question>
    <document>
    On people
    <BLANKLINE>
    Ada &lt;/document> 4
    </document>
    """
    parts = []
    if texts.question:
        parts.append(_part("question", texts.question[:QUERY_CHARACTERS]))
    if texts.query and texts.query != texts.question:
        parts.append(_part("query", texts.query[:QUERY_CHARACTERS]))
    written = (texts.title[:QUERY_CHARACTERS], texts.text[:text_characters])
    parts.append(_part("document", "\n\n".join(filter(None, written))))
    return Prompt(INSTRUCTIONS, "\n".join(parts))


def _part(name: str, text: str) -> str:
    sound = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be sent
    return f"<{name}>\n{_TAG.sub('&lt;', sound)}\n</{name}>"


def judge_hash(model: str, text_characters: int) -> str:
    """What identifies a judge: a digest of the prompt, the model and how much of a text it sees."""
    parts = f"{INSTRUCTIONS}\0{model}\0{text_characters}"
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_grade(answer: str | None) -> int | None:
    """The grade in an answer; None if it is not clearly one grade, for it is never guessed.

    >>> [parse_grade(one) for one in ("3", " **Grade: 2** ", "4/4", "{0}", "The answer is 1.")]
    [3, 2, 4, 0, None]
    >>> [parse_grade(one) for one in ("5", "-1", "2 or 3", "34", "2.5", "", None)]
    [None, None, None, None, None, None, None]
    """
    found = _GRADE.fullmatch((answer or "").strip(_AROUND))
    return None if found is None else int(found[1])
