"""Which engine runs is said wherever a user looks, in the same words."""

from __future__ import annotations

from typer.testing import CliRunner

from deploy.local.process import free_port
from stream_metrics import __version__
from stream_metrics.cli import app
from stream_metrics.core.compiled import ENGINE
from stream_metrics.live.health import Health
from stream_metrics.live.page.bridge import BridgePage
from tests.page import Showcase


def test_the_version_has_the_engine() -> None:
    """The version is still the second word."""
    said = CliRunner().invoke(app, ["--version"]).stdout

    assert said == f"stream-metrics {__version__} (engine: {ENGINE})\n"


def test_check_says_the_engine() -> None:
    """Also where it finds no server."""
    environment = {
        "COLUMNS": "500",
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "STREAM_METRICS_REDIS__URL": f"redis://127.0.0.1:{free_port()}/0",
    }
    said = CliRunner().invoke(app, ["check"], env=environment).stdout

    [line] = [line for line in said.splitlines() if line.startswith("engine ")]
    assert line.split(maxsplit=2)[2].startswith(ENGINE)


async def test_the_page_of_a_worker_is_told_the_engine() -> None:
    """It shows it at its foot."""
    showcase = await Showcase.new()

    assert (await showcase.state())["engine"] == ENGINE


def test_the_page_of_a_bridge_has_the_engine_at_its_foot() -> None:
    """Each event that it makes is decoded once, as workers decode it."""
    _, _, foot = BridgePage(Health()).render(reasons=True).partition("<footer")

    assert f"engine: {ENGINE.replace(chr(39), '&#39;')}" in foot
