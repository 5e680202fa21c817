"""A short form of the fault campaign: ``python -m tests.campaign`` has the long one."""

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
async def test_a_seed_of_faults_changes_nothing(seed: int, tmp_path: Path) -> None:
    """Whatever strikes under load, the figures in the end are those of a replay of the log."""
    options = Options(seed, faults=3, events=3_000, conversations=600, only=QUICK, timed=False)

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)


async def test_workers_without_the_kernel_keep_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it hangs on compiled code: figures are those of a replay that has none either."""
    monkeypatch.setenv("STREAM_METRICS_KERNEL", "python")  # of what is started from here on
    options = Options(14, faults=3, events=3_000, conversations=600, only=QUICK, timed=False)

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)
