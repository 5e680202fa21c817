"""A short form of the campaign against one process; ``python -m tests.serve_campaign`` is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve_campaign.faults import FAULTS, NEED_A_DISK
from tests.serve_campaign.round import Options, run_round, summary

pytestmark = [pytest.mark.service, pytest.mark.long]

KINDS = tuple(name for name in FAULTS if name not in NEED_A_DISK)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_one_process_loses_nothing_and_counts_nothing_twice(
    seed: int, tmp_path: Path
) -> None:
    """After any faults while clients send, state is that of a replay of what was acknowledged."""
    options = Options(
        seed,
        faults=9,
        events=3_000,
        traces=100,
        seconds=8,
        hold_seconds=0.5,
        settle_seconds=1,
        split=False,
        connections=2_000,
        only=KINDS,
        mounted=False,
    )

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)
