"""Files that settings name: which commands need them, and what is said if they are not there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.pages.settings import settings
from stream_metrics.cli.client_options import check_worker_settings
from stream_metrics.cli.common import load_settings
from stream_metrics.cli.environment import variable
from stream_metrics.cli.errors import error_lines
from stream_metrics.cli.judging import check_judge
from stream_metrics.cli.serving import check_doors
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.setting_files import UnreadableFile
from tests.helpers import ran

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST = str(EXAMPLES / "first-events.jsonl")
SASL = {"kafka.security_protocol": "SASL_PLAINTEXT", "kafka.sasl_username": "anna"}
NEEDED = {
    "kafka.sasl_password_file": SASL,
    "kafka.sasl_token_file": {**SASL, "kafka.sasl_mechanism": "OAUTHBEARER"},
    "judge.key_file": {"judge.model": "m"},
    "kafka.ssl_ca_file": {"kafka.security_protocol": "SSL"},
    "kafka.ssl_certificate_file": {"kafka.security_protocol": "SSL"},
    "kafka.ssl_key_file": {
        "kafka.security_protocol": "SSL", "kafka.ssl_certificate_file": sys.executable
    },
    "kafka.ssl_key_password_file": {"kafka.security_protocol": "SSL"},
    "redis.ssl_ca_file": {"redis.url": "rediss://h"},
    "redis.ssl_certificate_file": {"redis.url": "rediss://h"},
    "redis.ssl_key_file": {
        "redis.url": "rediss://h", "redis.ssl_certificate_file": sys.executable
    },
    "web.tls_key": {"web.tls_certificate": sys.executable},
}  # fmt: skip
"""Settings with which a client reads the file that a setting names."""
CHECKS: dict[str, Callable[[Settings], None]] = {"judge": check_judge, "serve": check_doors}
"""Who reads the files of a table, where it is not a worker."""
FILES = [
    name
    for name, field in settings()
    if field.annotation == Path | None and not name.startswith("evaluation.")
]
OFFLINE = (
    ["replay", FIRST, "--out", "report"],
    ["validate", FIRST],
    ["evaluate", "--run", f"{EXAMPLES}/evaluation/run.txt", "--qrels",
     f"{EXAMPLES}/evaluation/qrels.txt"],
    ["generate", "--out", "events.jsonl", "--conversations", "1"],
    ["config"],
    ["schema"],
    ["rules", "--out", "rules"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory, in which there is none of the files."""
    monkeypatch.delenv("STREAM_METRICS_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_with_its_setting_and_its_place(
    name: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker, or `serve`, says what a relative path means, and what to do."""
    for other, value in {name: "secrets/none", **NEEDED.get(name, {})}.items():
        monkeypatch.setenv(variable(other), value)

    with pytest.raises(UnreadableFile) as raised:
        CHECKS.get(name.partition(".")[0], check_worker_settings)(Settings())

    assert str(raised.value) == (
        f"{name} secrets/none: No such file or directory. The path is relative to the working "
        f"directory, so that is {elsewhere}/secrets/none. Give the setting the full path"
    )


def test_the_error_about_a_full_path_does_not_speak_of_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says to correct the setting or the file."""
    monkeypatch.setenv(variable("state.digest_key_file"), "/none/digest.key")

    with pytest.raises(UnreadableFile) as raised:
        check_worker_settings(Settings())

    assert str(raised.value) == (
        "state.digest_key_file /none/digest.key: No such file or directory. Put the file there, or "
        "correct the setting"
    )


def test_only_commands_that_use_the_digest_key_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by what digests texts or finds state, not with the settings."""
    monkeypatch.setenv(variable("state.digest_key_file"), "none")
    monkeypatch.setenv(variable("kafka.bootstrap_servers"), "localhost:1")

    found = load_settings(None)

    with pytest.raises(UnreadableFile) as raised:
        found.fingerprint()
    assert error_lines(raised.value) == [str(raised.value)]


def test_a_missing_file_is_not_taken_for_a_server_that_is_away() -> None:
    """Commands wait for a server, or name it, when there is an ``OSError``."""
    assert not issubclass(UnreadableFile, OSError)


@pytest.mark.parametrize("arguments", OFFLINE, ids=[arguments[0] for arguments in OFFLINE])
def test_commands_that_need_no_server_need_none_of_the_files(
    arguments: list[str], elsewhere: Path
) -> None:
    """The settings of a worker on another machine are no obstacle to them."""
    unusable = {variable(name): "none" for name in FILES}
    done = ran(*arguments, folder=elsewhere, environment=unusable)

    assert done.returncode == 0, done.stderr
    assert ("none" in done.stderr) == (arguments == ["config"])
