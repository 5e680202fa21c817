"""The parts of the Helm chart that come from elsewhere, and what its schema says of settings.

``tests/services/test_chart.py`` renders the chart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from deploy.helm import CHART, write_chart
from deploy.helm.schema import DERIVED, SCHEMA, values_schema
from docs.pages.settings import settings
from stream_metrics import __version__
from stream_metrics.cli.settings import Settings

WRITTEN: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def named(kind: str) -> set[str]:
    """The full names of what may stand in ``settings``, ``secrets`` or ``files``."""
    tables = WRITTEN["definitions"][kind]["properties"]
    return {
        f"{table}.{name}" if "properties" in about else table
        for table, about in tables.items()
        for name in about.get("properties", [""])
    }


def test_the_schema_is_current() -> None:
    """``make docs`` would not change it."""
    assert values_schema() == SCHEMA.read_text(encoding="utf-8"), "run: make docs"


def test_a_complete_chart_has_the_rules_and_dashboards_of_the_repository(tmp_path: Path) -> None:
    """Byte for byte, beside what the chart has itself, and nothing of an earlier copy."""
    (tmp_path / CHART.name / "files" / "dashboards").mkdir(parents=True)
    (tmp_path / CHART.name / "files" / "dashboards" / "old.json").write_text("{}")

    files = contents(write_chart(tmp_path))

    root = CHART.parents[2]
    copied = {
        **{f"files/dashboards/{k}": v for k, v in contents(root / "grafana/dashboards").items()},
        **{
            f"files/rules/{name}": text
            for name, text in contents(root / "deploy/prometheus").items()
            if name.endswith(".rules.yml")
        },
    }
    assert len(copied) >= 9
    assert files == {**contents(CHART), **copied}


def test_the_schema_is_one() -> None:
    """It is a valid JSON schema."""
    Draft7Validator.check_schema(WRITTEN)


def test_each_setting_has_a_place() -> None:
    """A secret may stand in ``secrets`` only, everything else in ``settings`` as well."""
    everything = {name for name, _ in settings()} - DERIVED
    secret = {name for name, field in settings() if "Secret" in str(field.annotation)}
    paths = {name for name, field in settings() if "Path" in str(field.annotation)}

    assert len(secret) >= 7
    assert len(paths) >= 15
    assert named("settings") == everything - secret
    assert named("secrets") == {name for name in everything if "." in name}
    assert named("files") == paths


def test_the_schema_explains_every_setting() -> None:
    """Editors show the descriptions while somebody writes values."""
    tables = WRITTEN["definitions"]["settings"]["properties"]
    silent = [
        f"{table}.{name}"
        for table, about in tables.items()
        for name, field in about.get("properties", {}).items()
        if not field.get("description")
    ]

    assert silent == []


def test_the_defaults_are_accepted() -> None:
    """What `stream-metrics config` would print may be written into ``settings``."""
    plain = json.loads(Settings().model_dump_json())
    allowed = named("settings")
    values = {
        table: {name: value for name, value in held.items() if f"{table}.{name}" in allowed}
        if isinstance(held, dict)
        else held
        for table, held in plain.items()
    }

    assert list(Draft7Validator(WRITTEN).iter_errors({"settings": values})) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka": {"topic": ["a"]}},
        {"kafka": {"topics": "a"}},
        {"kafka": {"start": "newest"}},
        {"state": {"batch_records": 901}},
        {"labels": {"grades": {"relevant": 5}}},
        {"otlp": {"rows": [{"role": "search", "spam": "*"}]}},
        {"dedup": {"entity_types": [{"definitive": ["id"]}]}},
        {"web": {"users": {"prometheus": "secret"}}},
        {"kafak": {}},
    ],
    ids=json.dumps,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    """A misspelt name, a wrong type, a value out of bounds and a secret are all errors."""
    assert list(Draft7Validator(WRITTEN).iter_errors({"settings": wrong}))


def test_the_chart_has_the_version_of_the_program() -> None:
    """Chart and image are released together, and the image's default tag is that version."""
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")

    assert re.findall(r"^(version|appVersion): (\S+)$", text, re.M) == [
        ("version", __version__),
        ("appVersion", __version__),
    ]


def test_values_yaml_explains_every_option() -> None:
    """Each option of the schema is there, if only as a comment."""
    options = {
        name
        for option, about in WRITTEN["properties"].items()
        for name in (option, *about.get("properties", {}))
    }
    there = set(re.findall(r"^ *(?:# )?(\w+):", VALUES, re.M))

    assert options - there == {"global"}


def test_a_variable_for_a_service_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program refuses what Kubernetes sets for a Service of its name, which pods therefore do
    without (`enableServiceLinks`)."""
    monkeypatch.setenv("STREAM_METRICS_PORT", "tcp://10.0.0.1:9464")

    with pytest.raises(ValueError, match="STREAM_METRICS_PORT: no such setting"):
        Settings()
