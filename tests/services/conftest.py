"""Stops the workers of a test, even if the test failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.live import LAUNCHED


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test() -> Iterator[None]:
    """Kill workers that a failed test left running, which would disturb later tests."""
    yield
    for worker in LAUNCHED:
        worker.kill9()
    LAUNCHED.clear()
