"""Settings in environment variables: lists and tables are JSON, as errors explain."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_origin

import pytest
from pydantic.fields import FieldInfo

from docs.pages.settings import settings
from stream_metrics.cli.environment import example, variable
from stream_metrics.cli.settings import Settings
from tests.helpers import refused

SEVERAL = [
    (name, field) for name, field in settings() if get_origin(field.annotation) in (tuple, dict)
]
ARGUMENTS = ("compare", "A", "B")


@pytest.fixture(autouse=True)
def _no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_METRICS_CONFIG", raising=False)


@pytest.mark.parametrize(("name", "field"), SEVERAL, ids=[name for name, _ in SEVERAL])
def test_a_list_or_table_that_is_not_json_is_refused_with_a_working_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, field: FieldInfo
) -> None:
    """The example in the error can be set as shown, and differs from the default."""
    monkeypatch.setenv(variable(name), "a, b")

    said = refused(capsys, *ARGUMENTS)

    shown = re.search(rf"{variable(name)}='(.*)'$", said.strip())
    assert shown is not None, said
    assert json.loads(shown[1])
    monkeypatch.setenv(variable(name), shown[1])
    Settings()
    assert shown[1] == example(field)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LABELS__CUTOFFS", "{2 = 0.5, 4 = 0.9}"),
        ("labels__cutoffs", "0.5"),
        ("LABELS__CUTOFFS", "[0.5, 0.9]"),
        ("LABELS__CUTOFFS", ""),
    ],
)
def test_cutoffs_that_are_not_json_are_refused_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    """The environment takes neither a TOML table nor a number nor a list for them."""
    monkeypatch.setenv(f"STREAM_METRICS_{name}", value)

    assert refused(capsys, *ARGUMENTS).endswith(
        "in the environment `labels.cutoffs` is a JSON object, as in "
        """STREAM_METRICS_LABELS__CUTOFFS='{"2": 0.5, "4": 0.9}'\n"""
    )


def test_a_value_that_may_be_secret_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hashes of users' passwords are not printed, even if they are not JSON."""
    monkeypatch.setenv("STREAM_METRICS_WEB__USERS", "anna = scrypt$secret")

    assert "secret" not in refused(capsys, *ARGUMENTS)


def test_a_variable_without_a_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name does not silently leave the default."""
    monkeypatch.setenv("STREAM_METRICS_LABEL__CUTOFFS", "{}")

    assert "STREAM_METRICS_LABEL__CUTOFFS: no such setting" in refused(capsys, *ARGUMENTS)


@pytest.mark.parametrize("value", ["localhost:9092", "", "[]"])
def test_a_variable_for_a_whole_table_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """The error names the variable and one for a setting of the table, unless the value is JSON."""
    monkeypatch.setenv("STREAM_METRICS_KAFKA", value)

    said = refused(capsys, *ARGUMENTS)

    assert said.startswith("error: settings: STREAM_METRICS_KAFKA: `kafka` is a table of settings")
    assert said.endswith("such as STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS\n")


def test_a_whole_table_may_be_given_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings take effect."""
    monkeypatch.setenv("STREAM_METRICS_KAFKA", '{"group_id": "others"}')

    assert Settings().kafka.group_id == "others"


def test_a_file_that_is_not_toml_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The error has the file and the position."""
    path = tmp_path / "settings.toml"
    path.write_text("kafka = [\n")
    monkeypatch.setenv("STREAM_METRICS_CONFIG", str(path))

    assert f"error: settings: {path}: this is not valid TOML: " in refused(capsys, *ARGUMENTS)


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_setting_outside_of_every_table_has_a_variable(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """``STREAM_METRICS_FORCE`` sets `force`, which is no table."""
    monkeypatch.setenv("STREAM_METRICS_FORCE", value)

    assert Settings().force is (value == "true")
