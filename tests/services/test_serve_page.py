"""The page of one process in a real Chromium: empty, in use, with a full disk, and of traces."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from stream_metrics.cli.serving import ServeProcess
from tests.helpers import rest_long, wait_until
from tests.telemetry import CAPTURES
from tests.unit.test_serve import post, read_all, read_up_to, working
from tests.unit.test_worst import searched

pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of the browser

TWO_SCOPES = CAPTURES / "langchain-openinference-graph-and-otel.jsonl.gz"
LOOKS = rest_long([(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])


@asynccontextmanager
async def looking(browser: Browser, address: str, width: int, scheme: str) -> AsyncIterator[Page]:
    """A page in the browser, without complaints of its own at the end."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = await context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    await page.goto(address)
    yield page
    assert said == []
    await context.close()


async def check(page: Page) -> None:
    """It is accessible, and nothing is wider than the page."""
    violations = (await Axe().run(page)).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def searches() -> list[str]:
    """Searches of now, as events."""
    now = int(time.time())
    return [json.dumps(searched(f"c-{n}", 1, ["a", "b", "a"], now, agent="a")) for n in range(9)]


async def trimmed(process: ServeProcess) -> bool:
    """Let it delete what is too old; whether no event is left."""
    await process.trim()
    return not (await process.records.kept()).records["events"]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_an_empty_page_connects_an_agent_and_then_shows_figures(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    """Lines to copy come first, and last once there are figures; the log says what it deleted."""
    async with (
        working(tmp_path, retention="1s") as (process, address, receiver),
        looking(browser, address, width, scheme) as page,
    ):
        await expect(page.locator(".way")).to_have_count(3)
        await expect(page.locator("#connect-text")).to_contain_text("Nothing has come")
        await expect(page.locator(".figures:visible")).to_have_count(0)
        await check(page)
        await page.get_by_role("button", name="Copy").first.click()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert f"export OTEL_EXPORTER_OTLP_ENDPOINT={receiver}\n" in copied

        await post(receiver, "\n".join([*searches(), "{}"]).encode())
        await read_all(process)
        await expect(page.locator("#tile-srr .value")).to_contain_text("33")
        await expect(page.locator("#connect-text")).to_contain_text("refused")
        await expect(page.locator("#log + #connect")).to_be_visible()
        await wait_until(partial(trimmed, process), 30, "the log keeps what is too old")
        deleted = page.locator("#logs tbody tr").first.locator("td")
        await expect(deleted).to_have_text(["1s", "0", "9", "0"])
        await check(page)


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_the_page_of_traces_is_accessible_and_goes_on_by_itself(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    """Without a reload, which would take the reader's place; commands name the folder."""
    async with working(tmp_path, bridge={"settle": "1s"}) as (process, address, receiver):
        await wait_until(lambda: process.health.ready, 30, "it does not read")
        async with looking(browser, f"{address}traces", width, scheme) as page:
            await expect(page.locator("#main")).to_contain_text("No trace has been complete")
            await check(page)
            await page.evaluate("document.mark = 'the same document'")
            await page.evaluate("document.body.dataset.reloadSeconds = '0.1'")
            async with aiohttp.ClientSession(
                headers={"Content-Type": "application/json"}
            ) as session:
                for body in gzip.decompress(TWO_SCOPES.read_bytes()).splitlines():
                    async with session.post(f"{receiver}/v1/traces", data=body) as answer:
                        assert answer.status == 200

            await expect(page.locator("#refused")).to_contain_text("two_scopes", timeout=30_000)
            await expect(page.locator("#main")).to_contain_text(
                f"stream-metrics explain {tmp_path}"
            )
            assert await page.evaluate("document.mark")
            await check(page)


async def test_what_is_waited_for_is_the_first_thing_on_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    """The reason of /readyz, on both pages."""
    async with (
        working(tmp_path) as (process, address, _),
        looking(browser, address, 390, "light") as page,
    ):
        process.health.set("disk", "a.db: the disk is full")
        await expect(page.locator("#verdict")).to_contain_text("a.db: the disk is full")
        await expect(page.locator("#verdict-title")).to_have_text("Waiting for room on the disk")
        await page.goto(f"{address}traces")
        await expect(page.locator("#main")).to_contain_text("a.db: the disk is full")
        await check(page)


@pytest.mark.parametrize("guarded", [False, True])
async def test_the_lines_that_connect_an_agent_do(tmp_path: Path, guarded: bool) -> None:
    """Each is run as it stands; where senders need a token, with the token in a variable."""
    (token := tmp_path / "token").write_text("secret\n")
    guard = {"token_file": token} if guarded else {}
    async with working(tmp_path, **guard) as (process, address, _):
        about = process.about_process()
        assert about is not None
        traced, in_python, in_a_shell = (way["text"] for way in about["ways"])
        environment = {**os.environ, "TOKEN": "secret", "PYTHONPATH": os.pathsep.join(sys.path)}
        for command in ([sys.executable, "-c", in_python], ["bash", "-c", in_a_shell]):
            await asyncio.to_thread(subprocess.run, command, env=environment, check=True)
        await wait_until(lambda: read_up_to(process) >= 3, 30, "the events are not read")
        async with aiohttp.ClientSession() as session, session.get(f"{address}metrics") as answer:
            text = await answer.text()

    assert 'window_results{agent="my-agent",window="24h"} 6' in text
    assert 'window_duplicate_results{agent="my-agent",window="24h"} 2' in text
    assert ("OTEL_EXPORTER_OTLP_HEADERS" in traced) == guarded
