"""Parse numbers in names, options and files."""

from __future__ import annotations


def read_number(text: str) -> float:
    """Parse a number; infinities and NaN are accepted.

    Unlike ``float``, this rejects ``1_0`` and the digits of other scripts, which other programs
    that read such files reject as well.

    Raises:
        ValueError: The text is not a number.

    >>> read_number("-0.5"), read_number("1e3")
    (-0.5, 1000.0)
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is not a number")
    return float(text)
