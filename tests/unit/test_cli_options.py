"""Options that commands share: one way to ask for JSON, and choices that errors list."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import COMMANDS, DEAD_LETTERS, JUDGE, TOPICS, app
from stream_metrics.lab.sources.recording import recording
from tests.commands import leaves
from tests.replays import traffic

ROWS = ("replay", "report")
"""Commands whose ``--format`` is that of a file of rows; what they found is in report.json."""


@pytest.mark.slow
def test_every_format_offers_a_table_and_json() -> None:
    """The table is the default, and no command has its own flag for JSON."""
    helps = {
        name: CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).stdout
        for name in leaves()
        if name not in ROWS
    }

    formats = {
        name: line
        for name, told in helps.items()
        for line in told.splitlines()
        if re.search(r"--(format|json)\b", line)
    }
    assert {"audit", "check", "compare", "evaluate"} <= formats.keys()
    for name, line in formats.items():
        assert re.search(r"--format +\S*table\|(md\|)?json.*default: table", line), name


CHOICES = [
    ("compare A B", "--test", "plain_bootstrap"),
    ("compare A B", "--unpaired-test", "pooled_t"),
    ("compare A B", "--correction", "bonferroni"),
    ("compare A B", "--format", "md"),
    ("evaluate --run r", "--queries", "intersection"),
    ("evaluate --run r", "--format", "json"),
    ("audit", "--format", "json"),
    ("check", "--format", "json"),
    ("replay f", "--format", "parquet"),
    ("replay f", "--turn-scope", "all"),
    ("export", "--turn-scope", "all"),
]


@pytest.mark.parametrize(("command", "flag", "choice"), CHOICES)
def test_choices_are_shown_in_help_and_in_the_error(command: str, flag: str, choice: str) -> None:
    """A word that is not among them ends with exit code 2."""
    wrong = CliRunner().invoke(app, [*command.split(), flag, "z"])
    told = CliRunner().invoke(app, [command.split()[0], "--help"], env={"COLUMNS": "200"})

    assert wrong.exit_code == 2
    assert f"'{choice}'" in wrong.stderr
    assert choice in told.stdout


SERVICES = (
    "aiohttp", "aiokafka", "faust", "prometheus_client", "redis", "structlog", "uvloop",
    "stream_metrics.live.ports",
)  # fmt: skip
OTHER_FORMATS = ("backports", "opentelemetry", "pyarrow", "yaml")
SEVERAL_PROCESSES = ("multiprocessing",)
STATISTICS = ("rapidfuzz", "scipy", "sentence_transformers")
COMPUTING = ("jinja2", "msgspec", "numpy", "stream_metrics.cli.settings")
NOT_FOR_HELP = (*SERVICES, *OTHER_FORMATS, *SEVERAL_PROCESSES, *STATISTICS, *COMPUTING)
NOT_FOR_A_SMALL_REPLAY = (*SERVICES, *OTHER_FORMATS, *SEVERAL_PROCESSES, "scipy")


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], NOT_FOR_HELP),
        (["--version"], NOT_FOR_HELP),
        (["dlq", "--help"], NOT_FOR_HELP),
        (["worker", "--help"], NOT_FOR_HELP),
        (["replay", "events.jsonl", "--out", "report"], NOT_FOR_A_SMALL_REPLAY),
    ],
)
def test_a_command_imports_only_what_it_uses(
    arguments: list[str], heavy: tuple[str, ...], tmp_path: Path
) -> None:
    """Help loads no client, no settings and no numeric library; a small replay no service."""
    with recording(str(tmp_path / "events.jsonl")) as recorded:
        for record in traffic(10):
            recorded.write(record)
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(*(sys.modules.keys() & {set(heavy)!r}), sep=','))\n"
        "from stream_metrics.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert done.stdout.splitlines()[-1] == ""


def test_help_shows_the_first_paragraph_of_each_command() -> None:
    """The list in `--help` has what the command's own help says first."""
    lines = {
        **{name: line for name, (_, line) in COMMANDS.items()},
        **{f"dlq {name}": line for name, (_, line) in DEAD_LETTERS.items()},
        **{f"judge {name}": line for name, (_, line) in JUDGE.items()},
        **{f"topics {name}": line for name, (_, line) in TOPICS.items()},
    }

    assert lines == {
        name: command.help.partition("\n\n")[0].replace("\n", " ")
        for name, command in leaves().items()
    }


def test_a_misspelt_command_gets_a_suggestion() -> None:
    """Commands that are imported on demand are suggested too."""
    result = CliRunner().invoke(app, ["raplay"])

    assert result.exit_code == 2
    assert "Did you mean 'replay'?" in " ".join(result.output.split())
