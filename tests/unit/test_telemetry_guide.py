"""The telemetry guide agrees with the code and configuration that it describes."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.local.traces import (
    AGENT,
    COLLECTOR_CONFIG,
    TRACES_TOPIC,
    TRACES_TOPIC_CONFIG,
    agent_environment,
)
from stream_metrics.core.telemetry import HELP

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = (GUIDES / "telemetry.md").read_text("utf-8")
LABELS = (GUIDES / "labels.md").read_text("utf-8")


def blocks(language: str) -> list[list[str]]:
    """The lines of each code block."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.M | re.S)
    return [[line for line in block.splitlines() if line] for block in found]


def test_the_tables_of_reasons_have_each_reason_once() -> None:
    """The guides explain every reason that a replay and the bridge report."""
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\|$", GUIDE + LABELS, re.M)
    named = [name.strip("`") for cell in cells for name in cell.split(", ")]

    assert sorted(name for name in named if name in HELP) == sorted(HELP)


def test_the_lines_that_instrument_an_agent_are_those_of_the_example() -> None:
    """They run whenever the example does."""
    lines = {line.strip() for line in AGENT.read_text("utf-8").splitlines()}

    [shown] = [block for block in blocks("python") if "LangChainInstrumentor" in block[0]]
    assert len(shown) == 7
    assert [line for line in shown if not any(one.startswith(line) for one in lines)] == []


def test_the_variables_of_an_agent_are_those_of_the_example() -> None:
    """The environment variables in the guide are those of the stack."""
    exports = [line.removeprefix("export ") for block in blocks("sh") for line in block]
    named = dict(line.split("=", 1) for line in exports if line.startswith("OTEL_"))

    assert named == dict(agent_environment("http://localhost:4318"))


def test_the_guide_creates_the_tested_topic() -> None:
    """It has the Collector's name and the configuration of the tests."""
    assert f"`{TRACES_TOPIC}`" in GUIDE
    assert f"TRACES_TOPIC:-{TRACES_TOPIC}}}" in COLLECTOR_CONFIG.read_text("utf-8")
    assert dict(re.findall(r"^\| `([\w.]+)=(\S+)` \|", GUIDE, re.M)) == TRACES_TOPIC_CONFIG


def test_the_explained_settings_of_the_exporter_are_in_the_configuration() -> None:
    """The configuration has each setting as the guide writes it."""
    text = COLLECTOR_CONFIG.read_text("utf-8")
    rows = re.findall(r"^\| `((?:\w+\.)*)(\w+)(: [^`]+)?` \|", GUIDE, re.M)
    explained = [(name, value) for _, name, value in rows if f"{name}:" in text]

    assert len(explained) == 6
    assert all(f"{name}{value or ':'}" in text for name, value in explained)
