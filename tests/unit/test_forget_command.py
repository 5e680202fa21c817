"""`stream-metrics forget` asks for confirmation, and erases nothing without it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError, confirm


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings without a reachable Kafka or Redis."""
    monkeypatch.setenv("STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", "redis://127.0.0.1:1/0")


def test_without_a_terminal_yes_is_required() -> None:
    """Without --yes the command ends before it connects to Kafka; with --yes it connects."""
    unasked = CliRunner().invoke(app, ["forget", "c"], input="y\n")
    sure = CliRunner().invoke(app, ["forget", "c", "--yes"])

    assert isinstance(unasked.exception, UsageError)
    assert "use --yes to erase them without being asked" in str(unasked.exception)
    assert "kafka 127.0.0.1:1" in str(sure.exception)


def test_an_unreachable_redis_does_not_mean_that_a_conversation_is_unknown() -> None:
    """The command does not say that it was not found."""
    done = CliRunner().invoke(app, ["forget", "c", "--yes"])

    assert "whether they are in the state cannot be told: redis" in done.stdout
    assert "not in the state" not in done.stdout


def test_yes_suppresses_the_question() -> None:
    """Scripts can use it."""
    assert confirm("Really?", "do it", yes=True)
