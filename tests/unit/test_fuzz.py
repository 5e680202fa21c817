"""The fuzz targets hold for the corpus and for seeded mutations of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
MUTATIONS = 300
SPLICES = (
    b"\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\x00", b"null", b"1e999", b"{", b"[[", b'"', b"\\ud800", b"%", b"\xf0\x9f\x98\x80", b"-",
)  # fmt: skip


def seeds(target: str) -> list[bytes]:
    """The corpus of a target, in a fixed order."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """``data`` with some bytes changed, deleted, doubled or inserted."""
    found = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(0, len(found))
        end = min(len(found), at + dice.randint(1, 8))
        change = dice.randrange(5)
        if change == 0:
            found[at:end] = dice.randbytes(end - at)
        elif change == 1:
            del found[at:end]
        elif change == 2:
            found[at:at] = found[at:end]
        elif change == 3:
            found[at:end] = dice.choice(SPLICES)
        else:
            del found[at:]
    return bytes(found)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_holds_for_its_corpus(target: str) -> None:
    """The corpus includes earlier findings of the fuzzer."""
    assert seeds(target)
    for data in seeds(target):
        TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_holds_for_mutations_of_its_corpus(target: str) -> None:
    """The mutations are the same each time."""
    dice = random.Random(f"{target} 1")
    for _ in range(MUTATIONS):
        TARGETS[target](mutated(dice.choice(seeds(target)), dice))
