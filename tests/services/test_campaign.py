"""A short form of the fault campaign; ``python -m tests.campaign`` runs the full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.faults import FAULTS
from tests.campaign.plan import Options
from tests.campaign.report import summary
from tests.campaign.round import run_round

pytestmark = [pytest.mark.service, pytest.mark.long]

QUICK = tuple(fault.name for fault in FAULTS.values() if fault.quick)


@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_figures_equal_a_replay_despite_faults(seed: int, tmp_path: Path) -> None:
    """After any faults under load, the final figures equal those of a replay of the log."""
    options = Options(seed, faults=3, events=3_000, conversations=600, only=QUICK, timed=False)

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)


async def test_figures_equal_a_replay_without_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise does not depend on compiled code: figures equal those of a pure Python replay."""
    monkeypatch.setenv("STREAM_METRICS_KERNEL", "python")  # inherited by all processes
    options = Options(14, faults=3, events=3_000, conversations=600, only=QUICK, timed=False)

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)
