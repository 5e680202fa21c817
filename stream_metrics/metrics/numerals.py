"""Numbers as people write them into names, options and files."""

from __future__ import annotations


def read_number(text: str) -> float:
    """The number that ``text`` writes; infinite and NaN ones are numbers too.

    Python's own reader also takes ``1_0`` and the digits of other scripts, which no other program
    that reads such files takes.

    Raises:
        ValueError: It writes none.

    >>> read_number("-0.5"), read_number("1e3")
    (-0.5, 1000.0)
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)
