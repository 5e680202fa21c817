"""Measure how often evidence reaches a threshold by chance, for ``calibration.py``.

``python -m tests.drill.calibrate`` simulates healthy weeks and prints, for each figure, thresholds
in nats with the alarms a month and agent: of both shifts together, and of the large shift alone.
The seeds must be none by which rules are judged afterwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import numpy as np

from stream_metrics.core.alerts.figures import BY_NAME, FIGURES, Figure
from tests.drill.evidence import Reals
from tests.drill.judge import begun
from tests.drill.seeds import CALIBRATION
from tests.drill.simulation import Size, kept_world

THRESHOLDS: Final = np.array([*np.arange(5, 16, 0.5), *np.arange(16, 32)])  # nats
MOST: Final = 40.0  # alarms a month and agent
FEWEST: Final = 3  # alarms that may be usual where none was seen (95%)
SIZE: Final = Size()


def main() -> None:
    """Print the measured rates, as Python."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill.calibrate", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(CALIBRATION))
    parser.add_argument("--figures", nargs="+", choices=[*BY_NAME], default=[*BY_NAME])
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    figures = [BY_NAME[name] for name in asked.figures]
    with ProcessPoolExecutor(asked.processes) as pool:
        counted = np.stack(list(pool.map(partial(alarms_of, figures=figures), asked.seeds)))
    agent_months = SIZE.agents * SIZE.days / (365.25 / 12) * len(asked.seeds)
    print(f"# {agent_months:.0f} months of agents")
    for name, of in zip(("MEASURED", "MEASURED_LARGE"), counted.sum(axis=0), strict=True):
        print(f"{name} = {{")
        for figure, counts in zip(figures, of, strict=True):
            rates = np.maximum(counts, FEWEST) / agent_months
            print(f'    "{figure.name}": {measured(rates)},')
        print("}")


def alarms_of(seed: int, figures: Sequence[Figure] = FIGURES) -> Reals:
    """The alarms in healthy weeks: of either and of the large shift, by figure and threshold."""
    world = kept_world(seed, SIZE, healthy=True)
    return np.array(
        [
            [[begins.sum() for begins in both] for both in begun(world, figure, THRESHOLDS)]
            for figure in figures
        ],
        float,
    ).transpose(2, 0, 1)


def measured(rates: Sequence[float] | Reals) -> tuple[tuple[float, float], ...]:
    """Thresholds with their rates, of two digits, as far as there were fewer with each.

    >>> measured([99, 30, 4.44, 4.44, 0.123] + [0.015] * 33)
    ((5.5, 30.0), (6.0, 4.4), (7.0, 0.12), (7.5, 0.015))
    """
    found: list[tuple[float, float]] = []
    for threshold, rate in zip(THRESHOLDS.tolist(), rates, strict=True):
        rounded = float(f"{rate:.2g}")
        if rounded <= MOST and (not found or rounded < found[-1][1]):
            found.append((threshold, rounded))
    return tuple(found)


if __name__ == "__main__":
    main()
