"""What ``make stack`` prints about itself: addresses that answer, and process ids."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
from rich.table import Table

from deploy.local.process import ChildProcess
from deploy.local.servers import HTTP_TIMEOUT, http_ok

ALERT_PAGES = ("/alerts", "/classic/alerts")  # Debian's Prometheus has only its former pages

Place = tuple[str, str]
Row = tuple[str, str, ChildProcess | None]


async def alert_addresses(prometheus: str, alertmanager: str) -> tuple[Place, Place]:
    """Where these two servers show alerts: what to call it, and its address.

    A server without pages, such as Debian's Alertmanager, has only its API.
    """
    first: Place = ("  alerts, as JSON", f"{prometheus}/api/v1/alerts")
    for page in ALERT_PAGES:
        if await http_ok(f"{prometheus}{page}"):
            first = ("  alerts", f"{prometheus}{page}")
            break
    if await _is_application(alertmanager):
        return first, ("Alertmanager", alertmanager)
    return first, ("Alertmanager, as JSON", f"{alertmanager}/api/v2/alerts")


async def _is_application(url: str) -> bool:
    """Whether the page is a web application, and not only a text that there is none."""
    try:
        async with (
            aiohttp.ClientSession(timeout=HTTP_TIMEOUT) as session,
            session.get(url) as answer,
        ):
            return answer.status == 200 and "<script" in await answer.text()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def table(rows: Sequence[Row]) -> Table:
    """Rows of what there is, where it is, and its process id."""
    shown = Table("what", "where", "process", box=None, pad_edge=False)
    for what, where, child in rows:
        pid = "" if child is None else str(child.pid)
        shown.add_row(what, where.replace("127.0.0.1", "localhost"), pid)
    return shown
