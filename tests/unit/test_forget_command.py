"""`stream-metrics forget` asks first, and nothing is erased unasked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError, confirm


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Kafka nor Redis."""
    monkeypatch.setenv("STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", "redis://127.0.0.1:1/0")


def test_nobody_there_to_confirm_is_refused() -> None:
    """Without a terminal and without --yes it ends before Kafka is asked; --yes goes on to it."""
    unasked = CliRunner().invoke(app, ["forget", "c"], input="y\n")
    sure = CliRunner().invoke(app, ["forget", "c", "--yes"])

    assert isinstance(unasked.exception, UsageError)
    assert "use --yes to erase them without being asked" in str(unasked.exception)
    assert "kafka 127.0.0.1:1" in str(sure.exception)


def test_an_unreadable_state_is_no_answer() -> None:
    """Where Redis cannot be asked, it does not say that a conversation is not there."""
    done = CliRunner().invoke(app, ["forget", "c", "--yes"])

    assert "whether they are in the state cannot be told: redis" in done.stdout
    assert "not in the state" not in done.stdout


def test_yes_is_no_question() -> None:
    """For scripts."""
    assert confirm("Really?", "do it", yes=True)
