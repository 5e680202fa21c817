"""Secrets in settings are never printed, even if the settings are invalid."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from stream_metrics.cli.client_options import check_worker_settings
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.setting_files import UnreadableFile
from stream_metrics.live.auth import password_matches
from tests.commands import commands
from tests.helpers import ran, rest_long

SECRET = "hush-hush-0123456789"
WORKERS = {
    "worker": [sys.executable, "-m", "stream_metrics", "worker"],
    "faust": [sys.executable, "-m", "faust", "-A", "stream_metrics.app", "worker"],
}
"""They set up logs and event loops of their process, so they have one of their own."""


def run(command: str, given: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command with secrets in its settings, and ``given`` as standard input."""
    environment = {
        "STREAM_METRICS_STATE__DIGEST_KEY": SECRET,
        "STREAM_METRICS_KAFKA__SASL_PASSWORD": SECRET,
        "STREAM_METRICS_REDIS__SENTINEL_PASSWORD": SECRET,
        "STREAM_METRICS_REDIS__SSL_KEY_PASSWORD": SECRET,
        "STREAM_METRICS_WEB__TLS_KEY_PASSWORD": SECRET,
        "STREAM_METRICS_REDIS__URL": f"redis://user:{SECRET}@localhost:1/0?password={SECRET}",
        **settings,
    }
    if command not in WORKERS:
        return ran(command, given=given, environment=environment)
    return subprocess.run(
        WORKERS[command],
        input=given,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_config_masks_secrets() -> None:
    """`config` prints the settings without the secrets."""
    done = run("config")

    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["config", "worker", "faust"])
def test_an_error_about_settings_does_not_quote_them(command: str) -> None:
    """A setting that is out of range is one line and exit code 2, without any secret."""
    done = run(command, STREAM_METRICS_METRICS__GOOD_GAIN="9")

    assert done.returncode == 2
    assert "good_gain" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", ["", " ", None])
def test_a_worker_needs_a_digest_key(key: str | None, tmp_path: Path) -> None:
    """An empty or blank key, or file with a key, is none."""
    empty = tmp_path / "digest.key"
    empty.write_text("\n")
    state = {"digest_key": key} if key is not None else {"digest_key_file": str(empty)}

    with pytest.raises(ValueError, match=r"openssl rand -hex 32 > digest.key"):
        check_worker_settings(Settings.model_validate({"state": state}))


@pytest.mark.slow
@pytest.mark.parametrize("command", WORKERS)
def test_a_worker_refuses_to_start_without_a_digest_key(command: str) -> None:
    """It exits with 2 and says how to create a key."""
    done = run(command, STREAM_METRICS_STATE__DIGEST_KEY="")

    assert done.returncode == 2
    assert "openssl rand -hex 32 > digest.key" in done.stderr
    assert "state.allow_empty_key" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code"), rest_long([("config", 0), ("worker", 2), ("faust", 2)])
)
def test_a_key_that_is_not_text_is_named_with_its_file(
    command: str, code: int, tmp_path: Path
) -> None:
    """``openssl rand 32`` without ``-hex`` writes such a key; only a worker needs it to start."""
    binary = tmp_path / "digest.key"
    binary.write_bytes(b"\xf8\xff" * 16)
    with pytest.raises(UnreadableFile, match=f"{binary}: not text in UTF-8"):
        check_worker_settings(Settings.model_validate({"state": {"digest_key_file": binary}}))

    done = run(command, STREAM_METRICS_STATE__DIGEST_KEY_FILE=str(binary))

    assert done.returncode == code
    assert f"{binary}: not text in UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", rest_long(WORKERS))
def test_an_empty_digest_key_can_be_permitted(command: str) -> None:
    """With `state.allow_empty_key` a worker gets to the next check, here that of a port in use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(
            command,
            STREAM_METRICS_STATE__DIGEST_KEY="",
            STREAM_METRICS_STATE__ALLOW_EMPTY_KEY="true",
            STREAM_METRICS_WEB__PORT=str(taken.getsockname()[1]),
        )

    assert done.returncode == 2
    assert "web.port" in done.stderr
    assert "digest" not in done.stderr


@pytest.mark.parametrize("allow", ["false", "true"])
def test_check_judges_an_empty_digest_key_as_a_worker_does(allow: str) -> None:
    """`check` reports an error, or a warning if an empty key is permitted."""
    done = run(
        "check",
        STREAM_METRICS_STATE__DIGEST_KEY="",
        STREAM_METRICS_STATE__ALLOW_EMPTY_KEY=allow,
        STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
        COLUMNS="500",
    )

    [line] = [line for line in done.stdout.splitlines() if line.startswith("digest key")]
    assert line.split()[2] == ("warning" if allow == "true" else "error")
    assert ("openssl rand" in line) == (allow == "false")


@pytest.mark.parametrize("key", [SECRET, ""])
def test_config_says_whether_a_worker_lacks_a_digest_key(key: str) -> None:
    """The settings are printed nevertheless; the note is on standard error."""
    done = run("config", STREAM_METRICS_STATE__DIGEST_KEY=key)

    assert done.returncode == 0
    assert json.loads(done.stdout)["state"]["allow_empty_key"] is False
    assert ("openssl rand -hex 32" in done.stderr) == (not key)


def test_permission_for_an_empty_key_is_not_part_of_the_state() -> None:
    """State that was built without a key remains valid if the permission is removed."""
    permitted = Settings.model_validate({"state": {"allow_empty_key": True}})

    assert permitted.fingerprint() == Settings.model_validate({}).fingerprint()


def test_a_hashed_password_is_accepted() -> None:
    """`hash-password` reads a line and prints a hash that does not contain the password."""
    done = run("hash-password", SECRET + "\n")

    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr
    assert password_matches(SECRET.encode(), done.stdout.strip())
    assert not password_matches(b"another", done.stdout.strip())


def test_an_empty_password_is_refused() -> None:
    """The error is one line, and the exit code is 2."""
    done = run("hash-password", "\n")

    assert (done.returncode, done.stdout) == (2, "")
    assert "the password is empty" in done.stderr


def fields_of(part: str) -> dict[str, FieldInfo]:
    """The settings of a section."""
    return getattr(Settings.model_fields[part].annotation, "model_fields", {})


def secrets() -> list[str]:
    """The names of all settings that are secrets, such as `web.tls_key_password`."""
    return [
        f"{part}.{name}"
        for part in Settings.model_fields
        for name, field in fields_of(part).items()
        if "SecretStr" in str(field.annotation)
    ]


def test_no_flag_takes_a_secret() -> None:
    """Other users of the machine can see command lines, so that no command has such an option."""
    options = {
        name
        for command in commands().values()
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("-")
    }

    assert "--config" in options
    assert not [name for name in options if re.search("password|secret|token|-key|user", name)]


@pytest.mark.parametrize("name", secrets())
def test_every_secret_can_come_from_a_file(name: str) -> None:
    """Each setting of a secret has another one for a file that contains it."""
    part, _, setting = name.partition(".")

    assert f"{setting}_file" in fields_of(part)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("rediss://user:hush@host:6379/0", "rediss://user:**********@host:6379/0"),
        ("redis://:hush@[::1]:6379", "redis://:**********@[::1]:6379"),
        ("redis://user:hu/s@h#@host:6379/0", "redis://user:**********@host:6379/0"),
        ("redis://hush@host", "redis://**********@host"),
        ("redis://host:hush", "redis://**********"),
        ("redis://host/0?password=hush&db=1", "redis://host/0?password=**********&db=1"),
        ("redis://host/0?pass=hush", "redis://host/0?pass=**********"),
        ("unix:///run/redis.sock?username=hush", "unix:///run/redis.sock?username=**********"),
        ("http://user:hush@host", "http://**********"),
        ("hush", "**********"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    """Only known harmless parts of a URL are shown, even if the URL is malformed."""
    assert mask_url(url) == shown
