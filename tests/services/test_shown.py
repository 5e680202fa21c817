"""The display of a live system: every panel has data, and all displays agree."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from deploy.local.kafka.cluster import Kafka
from deploy.local.waiting import wait_until
from tests.services.live import LiveSystem
from tests.shown.panels import all_seen, annotated, offered
from tests.shown.system import WITHIN_SECONDS, Shown, live_traffic, shown

pytestmark = pytest.mark.service

FIGURES: Final = {
    "srr": ("duplicate_results", "results"),
    "sre": ("settled_good_results", "settled_results"),
}


@pytest_asyncio.fixture
async def watched(kafka: Kafka, tmp_path: Path) -> AsyncIterator[Shown]:
    """A worker that has read the last hour, and a Prometheus that scrapes it."""
    async with shown(kafka, tmp_path) as at_work:
        yield at_work


async def test_every_panel_has_data(watched: Shown) -> None:
    """With current traffic each query of each dashboard returns a number, and none an error."""
    async with live_traffic(watched):
        assert await all_seen(watched.prometheus, WITHIN_SECONDS)


async def test_every_variable_offers_a_choice(watched: Shown) -> None:
    """Jobs, instances and agents can be chosen on each dashboard; annotations are understood."""

    async def scraped() -> bool:
        return all((await offered(watched.prometheus)).values())

    await wait_until(scraped, WITHIN_SECONDS, "a variable offers nothing")
    marks = await annotated(watched.prometheus)
    assert {name for name in marks if name.endswith("Deployments") and marks[name] != 1} == set()


async def test_page_prometheus_and_export_agree(watched: Shown) -> None:
    """Their results, duplicates, settled and good results of each agent's last day are equal."""
    system, prometheus = watched
    code, said = await system.command("export", "--out", str(system.folder / "export"))
    assert code == 0, said
    exported = sums(system.folder / "export")
    agents = {agent for agent, _ in exported}
    assert len(agents) > 1
    names = [name for figure in FIGURES.values() for name in figure]

    await wait_until(
        partial(prometheus.query, f"timestamp(streammetrics_ready) > {time.time()}"),
        WITHIN_SECONDS,
        "Prometheus has not scraped the worker since",
    )
    asked = {
        (agent, name): f'sum(streammetrics_window_{name}{{agent="{agent}", window="24h"}})'
        for agent in agents
        for name in names
    }
    in_prometheus = {
        key: int((await prometheus.query(query))[0]["value"][1]) for key, query in asked.items()
    }
    on_page = {
        (agent, name): figures[figure][place]
        for agent in agents
        for figures in [await page_figures(system, agent)]
        for figure, pair in FIGURES.items()
        for place, name in zip(("part", "whole"), pair, strict=True)
    }

    assert in_prometheus == {key: exported.get(key, 0) for key in asked}
    assert on_page == in_prometheus
    assert all(in_prometheus[agent, "settled_good_results"] for agent in agents)


def sums(folder: Path) -> dict[tuple[str, str], int]:
    """The sums of the last day in an export, by agent and name."""
    document = json.loads((folder / "windows.json").read_text(encoding="utf-8"))
    return {
        (entry["agent"], entry["name"]): entry["value"]
        for entry in document["sums"]
        if entry["window"] == "24h"
    }


async def page_figures(system: LiveSystem, agent: str) -> dict[str, Any]:
    """The figures of an agent's last day on the page."""
    url = f"http://{system.workers[0].address}/api/state"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, params={"agent": agent, "window": "24h"}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = (await answer.json())["figures"]
        return found
