"""Whatever became of a test, its workers end with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.live import LAUNCHED


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test() -> Iterator[None]:
    """A test that fails leaves workers that would read on, and disturb those that follow."""
    yield
    for worker in LAUNCHED:
        worker.kill9()
    LAUNCHED.clear()
