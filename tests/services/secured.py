"""The rights of users, as listed in ``docs/guides/security.md``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from deploy.local.kafka.security import Grant

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
TOPICS = ("search-iterations", "relevance-labels")
GROUP, OUTPUT, INTERNAL = "stream-metrics", "conversation-rows", "search-internal"
CASES = ("plain", "output", "repartition")
BUILD = "build"


def worker_grants() -> dict[str, list[Grant]]:
    """The rights that the guide's commands give to the worker, by what they are for: a setting, or
    builds."""
    _, _, text = PAGE.read_text().partition("### Rights of the worker")
    found: dict[str, list[Grant]] = {}
    blocks = [
        block
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        if "acl User:worker " in block
    ]
    for case, block in zip((*CASES, BUILD), blocks, strict=True):
        found[case] = [
            _granted(line) for line in block.splitlines() if line.startswith("acl User:worker ")
        ]
    return found


def _granted(line: str) -> Grant:
    words = shlex.split(line)
    options = dict(zip(words[2::2], words[3::2], strict=True))
    operation = options.pop("--operation")
    pattern = "*" if options.pop("--resource-pattern-type", "") == "prefixed" else ""
    [(kind, name)] = options.items()
    return Grant(operation, kind.removeprefix("--"), name + pattern)


def command_grants(command: str, *, output: bool = False) -> list[Grant]:
    """The rights that the guide's table lists for a command."""
    rows = r"^\| `stream-metrics ([a-z -]+)` \| (.* on the .*) \|$"
    table: dict[str, str] = dict(re.findall(rows, PAGE.read_text(), re.M))
    always, _, with_output = table[command].partition("; with an output topic ")
    needs = [*always.split(", "), *([with_output] if output else [])]
    letters = tuple(f"{topic}.dlq" for topic in TOPICS)
    names = {
        "dead-letter topics": letters,
        "input topics": TOPICS,
        "output topic": (OUTPUT,),
        "group": (GROUP,),
        "transactional ids": (f"{GROUP}-output-*",),
    }
    kinds = {"group": "group", "transactional ids": "transactional-id"}
    grants = []
    for need in needs:
        operations, _, resources = need.partition(" on the ")
        kind = kinds.get(resources, "topic")
        for operation in operations.split(" and "):
            grants += [Grant(operation.capitalize(), kind, name) for name in names[resources]]
    return grants


def worker_acl() -> list[str]:
    """The Redis commands that the guide allows the worker, such as ``+get``."""
    [line] = [
        line for line in PAGE.read_text().splitlines() if line.startswith("ACL SETUSER worker")
    ]
    return [word for word in line.split() if word.startswith("+")]


def command_acl(command: str) -> list[str]:
    """The Redis commands that the guide's table lists for one of our commands."""
    for names, needs in re.findall(r"^\| (.*) \| `(\+.*)` \|$", PAGE.read_text(), re.M):
        if f"`stream-metrics {command}`" in names:
            return str(needs).split()
    raise KeyError(command)


def renamed(grants: list[Grant], names: Mapping[str, str]) -> list[Grant]:
    """The same rights on a test's own topics and group."""
    return [Grant(right.operation, right.kind, names[right.name]) for right in grants]


def names_of(topics: tuple[str, str], group: str) -> dict[str, str]:
    """The test's names for those in the guide; additional topics are named after the group."""
    letters = {f"{ours}.dlq": f"{theirs}.dlq" for ours, theirs in zip(TOPICS, topics, strict=True)}
    return {
        **dict(zip(TOPICS, topics, strict=True)),
        **letters,
        GROUP: group,
        OUTPUT: f"{group}-rows",
        f"{GROUP}-output-*": f"{group}-output-*",
        f"{GROUP}.*": f"{group}.*",
        INTERNAL: f"{group}-internal",
    }
