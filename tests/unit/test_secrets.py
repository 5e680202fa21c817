"""Secrets in settings never come out again, whatever is wrong with the settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SECRET = "hush-hush-0123456789"
COMMANDS = {
    "config": [sys.executable, "-m", "stream_metrics", "config"],
    "worker": [sys.executable, "-m", "stream_metrics", "worker"],
    "faust": [sys.executable, "-m", "faust", "-A", "stream_metrics.app", "worker"],
}


def run(command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command with secrets in its settings."""
    environment = {
        "STREAM_METRICS_STATE__DIGEST_KEY": SECRET,
        "STREAM_METRICS_KAFKA__SASL_PASSWORD": SECRET,
        "STREAM_METRICS_REDIS__URL": f"redis://user:{SECRET}@localhost:1/0?password={SECRET}",
        **settings,
    }
    return subprocess.run(
        COMMANDS[command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_config_masks() -> None:
    """`config` prints the settings without the secrets."""
    done = run("config")

    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["config", "worker", "faust"])
def test_a_refusal_of_settings_does_not_quote_them(command: str) -> None:
    """A setting that is out of range is one line and exit code 2, without any secret."""
    done = run(command, STREAM_METRICS_METRICS__GOOD_GAIN="9")

    assert done.returncode == 2
    assert "good_gain" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
