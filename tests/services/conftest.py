"""Stops the workers of a test, even if the test failed, and shares a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.services.live import LAUNCHED


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test() -> Iterator[None]:
    """Kill workers that a failed test left running, which would disturb later tests."""
    yield
    for worker in LAUNCHED:
        worker.kill9()
    LAUNCHED.clear()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(browser_path: str) -> AsyncIterator[Browser]:
    """A Chromium for the session, for tests in its event loop; each has a context of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path)
        yield browser
        await browser.close()
