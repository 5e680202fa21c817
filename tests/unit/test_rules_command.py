"""``stream-metrics rules`` writes rule files with the given links."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.core.alerts.files import prometheus_rule, rule_files


def run(*arguments: str) -> None:
    """Run the command."""
    done = CliRunner().invoke(app, ["rules", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def written(folder: Path) -> dict[str, str]:
    """The files of a directory."""
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_the_command_writes_the_rule_files(tmp_path: Path) -> None:
    """Without further options they equal those of the repository."""
    run("--out", str(tmp_path / "new"))

    assert written(tmp_path / "new") == rule_files()


def test_the_command_writes_the_object_of_the_operator(tmp_path: Path) -> None:
    """The object is one file."""
    run("--out", str(tmp_path), "--operator")

    assert list(written(tmp_path).values()) == [prometheus_rule()]


def test_links_are_made_from_the_templates(tmp_path: Path) -> None:
    """Variables of dashboards are kept."""
    run(
        "--out", str(tmp_path),
        "--dashboard-url", "https://grafana.example.org/d/{board}",
        "--runbook-url", "https://docs.example.org/{alert}.html",
    )  # fmt: skip
    text = written(tmp_path)["alerts.rules.yml"]

    assert "https://grafana.example.org/d/quality?var-agent={{ $labels.agent | urlquery }}" in text
    assert "https://docs.example.org/SRRSpike.html" in text
    assert "localhost" not in text
    assert "docs/runbooks" not in text


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--runbook-url", "https://docs.example.org/", r"--runbook-url: .*must contain \{alert\}"),
        ("--dashboard-url", "grafana", "--dashboard-url: 'grafana' is not an http or https link"),
    ],
)
def test_a_template_that_gives_no_link_is_refused(
    option: str, value: str, message: str, tmp_path: Path
) -> None:
    """The error names the option, and nothing is written."""
    with pytest.raises(UsageError, match=message):
        run("--out", str(tmp_path / "out"), option, value)

    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """One example is the path of a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"the rules cannot be written to .*file: "):
        run("--out", str(tmp_path / "file"))
