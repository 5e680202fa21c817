"""The seeds of the drill: of worlds by which rules were tuned, and of worlds that judge them."""

from __future__ import annotations

import hashlib
import subprocess
from itertools import count, islice
from typing import Final

from tests.drill.kept import ROOT

TUNING: Final = (1, 11)
CALIBRATION: Final = (*TUNING, *range(101, 121))  # healthy worlds of which rates are measured
_JUDGED: Final = (
    184009, 842227, 876103, 122301, 247397, 37516, 471230,
    653407, 526351, 512533, 4763, 540115, 400017, 156499,
    606832, 996341, 830126, 30917, 243862, 398518, 414441, 665733, 578471, 491714, 805518, 124472,
)  # fmt: skip
"""Seeds that judged earlier rules."""
SEEN: Final = frozenset({*CALIBRATION, *_JUDGED, 2, 21, 22, 31, 32, 51, 52, 53})
"""Seeds by which something was chosen once."""
HELD_OUT: Final = 7
RULES: Final = tuple(
    f"stream_metrics/core/alerts/{name}.py" for name in ("shifts", "figures", "calibration")
)


def drawn(commit: str, number: int = HELD_OUT) -> tuple[int, ...]:
    """Seeds that nobody could choose before the rules were committed.

    They follow from the hash of the commit, and are none of ``SEEN``.
    """
    hashes = (hashlib.sha256(f"{commit} {turn}".encode()).hexdigest() for turn in count())
    seeds = dict.fromkeys(int(found[:8], 16) % 1_000_000 for found in islice(hashes, 2 * number))
    return tuple([seed for seed in seeds if seed not in SEEN][:number])


def commit_of_rules() -> str:
    """The hash of the last commit that changed the rules of evidence."""
    asked = ("git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", *RULES)
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
