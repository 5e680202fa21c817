"""What a conversation adds to the sums from which estimates by people and by a model are made.

The unit is a conversation with one agent, because turns of a conversation are alike. Whole numbers
are added and taken back, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

BOTH: Final = "both"
PEOPLE: Final = "people"
MODEL: Final = "model"
SAMPLES: Final = (BOTH, PEOPLE, MODEL)
"""By whom a conversation of a random sample is labelled; it is in one of these alone.

``BOTH`` is the sample of people where a model judged as well, ``PEOPLE`` that of people where none
did, and ``MODEL`` that of the model without people.
"""

UNLABELLED: Final = "unlabelled"
"""What was drawn for the model and has no labels of it; a conversation may have it in any sample.

Estimates from the model's labels hold for the sample only if hardly anything of it is missing.
"""

SUMS: Final[Mapping[str, tuple[str, ...]]] = {
    BOTH: ("n", "b", "y", "f", "bb", "by", "bf", "yy", "yf", "ff"),
    PEOPLE: ("n", "b", "y", "bb", "by", "yy"),
    MODEL: ("n", "b", "f", "bb", "bf", "ff"),
    UNLABELLED: ("n", "b"),
}
"""The sums of each sample: the number of conversations, sums, and sums of products.

``b`` is what a figure divides by, ``y`` its numerator by people's labels, ``f`` by the model's.
"""


class Labelled(NamedTuple):
    """The parts of a figure in a conversation: its base, and its numerator by each source.

    The numerator by a source that did not label the conversation counts nowhere. Figures of
    searches have numerators in ten-thousandths, so that sums of squares fit into 64 bits.
    """

    base: int
    people: int = 0
    model: int = 0


def conversation_sums(sample: str, labelled: Labelled) -> dict[str, int]:
    """The sums of one conversation, without those that are 0.

    A conversation without a base, such as one without a settled result, has none: it says nothing
    about the figure.

    >>> conversation_sums("both", Labelled(10, 7, 8))["yf"]
    56
    >>> conversation_sums("people", Labelled(10, 7))
    {'n': 1, 'b': 10, 'y': 7, 'bb': 100, 'by': 70, 'yy': 49}
    """
    if not labelled.base:
        return {}
    values = {"n": 1, "b": labelled.base, "y": labelled.people, "f": labelled.model}
    found = {}
    for name in SUMS[sample]:
        value = values[name[0]]
        if len(name) == 2:
            value *= values[name[1]]
        if value:
            found[name] = value
    return found


GAIN: Final = "gain"
SRE: Final = "sre"
"""The figures that always have sums. Those of searches have the name of their metric."""
SEARCH_UNITS: Final = 10_000


def is_share(figure: str) -> bool:
    """Whether the figure is between 0 and 1; a gain is not."""
    return figure != GAIN


def units_of(name: str) -> int:
    """How many units of a sum of a figure of searches are 1: its numerators are ten-thousandths.

    >>> units_of("b"), units_of("y"), units_of("yf")
    (1, 10000, 100000000)
    """
    units: int = SEARCH_UNITS ** sum(letter in "yf" for letter in name)
    return units


def in_units(figure: str, name: str, value: int) -> float:
    """A sum in the units of its figure.

    >>> in_units("ndcg@10", "yf", 25_000_000), in_units("gain", "yf", 20)
    (0.25, 20)
    """
    return value if figure in {SRE, GAIN} else value / units_of(name)
