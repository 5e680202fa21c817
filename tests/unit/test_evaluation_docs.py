"""The commands and code in docs/guides/evaluation.md give the output that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.pages.ranked import SHARED, ranked_page
from stream_metrics.cli import app
from stream_metrics.core.metrics.ranking.registry import DEFINITIONS, parse

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "evaluation.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^```sh\n(stream-metrics evaluate [^\n]*)\n```\n\n```text\n(.*?)^```", PAGE, re.M | re.S
)
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_page_has_examples() -> None:
    """The tests below have something to compare."""
    assert len(SHOWN) == 3
    assert len(PYTHON) == 3


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_a_command_prints_what_the_page_shows(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the project's folder."""
    monkeypatch.chdir(ROOT)

    done = CliRunner().invoke(app, shlex.split(command)[1:])

    assert done.exit_code == 0
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_the_page_shows_the_rule_file_of_the_command() -> None:
    """The committed example and the page agree."""
    rules = ROOT / "examples" / "evaluation" / "rules.py"

    assert PYTHON[0] == rules.read_text(encoding="utf-8")


@pytest.mark.parametrize("code", PYTHON[1:], ids=["rankings", "dictionaries"])
def test_the_python_examples_print_the_shown_output(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comments after calls of print have it."""
    said = [line.rpartition("# ")[2] for line in code.splitlines() if line.startswith("print(")]

    exec(code, {})  # noqa: S102 - what a reader of the page would do

    assert said
    assert capsys.readouterr().out.splitlines() == said


def test_every_metric_is_explained() -> None:
    """The reference has each ranked metric with all options and names."""
    intro, *rest = ranked_page().split("\n## ")
    cards = {card.partition("\n- name: `")[2].partition("`")[0]: card for card in rest}

    for definition in DEFINITIONS:
        for option in definition.options:
            if option.name in SHARED:
                assert f"- option `{option.name}`: " in intro
                assert f"`{option.name}`" in cards[definition.name]
            else:
                assert f"- option `{option.name}`: " in cards[definition.name]


def test_an_option_explained_once_is_the_same_for_all_metrics() -> None:
    """Metrics that share an explanation share the option."""
    for name in SHARED:
        found = {o for definition in DEFINITIONS for o in definition.options if o.name == name}

        assert len(found) == 1


def test_the_option_metric_takes_every_name_on_the_page() -> None:
    """These are the names with a cut-off or options in the text."""
    named = re.findall(r"`([a-z_]+(?:\([^`)]*\))?@\d+)`", PAGE)

    assert len(named) > 8
    for name in named:
        parse(name)
