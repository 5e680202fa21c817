"""What the pages say that users need: lists of rights, read from ``docs/security.md``."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def worker_acl() -> list[str]:
    """The commands that the page gives to the worker in Redis, as ``+get``."""
    [line] = [
        line for line in PAGE.read_text().splitlines() if line.startswith("ACL SETUSER worker")
    ]
    return [word for word in line.split() if word.startswith("+")]


def command_acl(command: str) -> list[str]:
    """The commands of Redis that the page's table gives to whoever runs a command of ours."""
    return _listed(command, "")


def further_acl(command: str) -> list[str]:
    """The commands that the page's table gives to whoever runs one of ours, beside the worker's."""
    return _listed(command, "as the worker, and ")


def _listed(command: str, before: str) -> list[str]:
    row = rf"^\| (.*) \| {before}`(\+.*)` \|$"
    for names, needs in re.findall(row, PAGE.read_text(), re.M):
        if f"`stream-metrics {command}`" in names:
            return str(needs).split()
    raise KeyError(command)
