"""The schema of the chart's values for the settings of stream-metrics.

``helm`` then refuses a misspelt setting, or one of a wrong type, before any pod starts.
``python -m deploy.helm.schema`` writes the definitions of ``settings``, ``secrets`` and ``files``
anew; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel

from deploy.helm import CHART
from docs.pages.settings import described
from stream_metrics.cli.settings import Settings

SCHEMA: Final = CHART / "values.schema.json"
DERIVED: Final = frozenset({"kafka.group_instance_id"})  # the pod's name: worker.staticMembership
_PREFIX: Final = "of_"  # before the names of pydantic's definitions, such as of_OtlpRow

Schema = dict[str, Any]


def values_schema() -> str:
    """The text of ``values.schema.json``: what is written by hand, with the settings of today."""
    schema: Schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    written = {
        name: part
        for name, part in schema["definitions"].items()
        if not name.startswith(_PREFIX) and name not in ("settings", "secrets", "files")
    }
    schema["definitions"] = {**written, **_definitions()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _definitions() -> Schema:
    """``settings``, ``secrets``, ``files``, and what the first of them refers to."""
    whole = Settings.model_json_schema(ref_template=f"#/definitions/{_PREFIX}{{model}}")
    models: Schema = whole["$defs"]
    for model in _tables(Settings):
        for name, field in described(model).items():
            if field.description:
                models[model.__name__]["properties"][name]["description"] = field.description
    settings: Schema = {}
    secrets: Schema = {}
    files: Schema = {}
    for table, about in whole["properties"].items():
        if "$ref" not in about:  # a setting of its own, such as `force`
            settings[table] = _or_null(_plain(about))
            continue
        definition = models.pop(about["$ref"].rpartition(_PREFIX)[2])
        fields = {
            name: _plain(field)
            for name, field in definition["properties"].items()
            if f"{table}.{name}" not in DERIVED
        }
        given = {
            name: _or_null(field) for name, field in fields.items() if not _has(field, "password")
        }
        paths = [name for name, field in fields.items() if _has(field, "path")]
        settings[table] = {"description": definition["description"], **_object(given)}
        secrets[table] = _object({name: {"$ref": "#/definitions/fromSecret"} for name in fields})
        if paths:
            files[table] = _object({name: {"$ref": "#/definitions/fromFile"} for name in paths})
    others = {f"{_PREFIX}{name}": _plain(definition) for name, definition in models.items()}
    return {
        "settings": _object(settings),
        "secrets": _object(secrets),
        "files": _object(files),
        **others,
    }


def _tables(part: Any) -> Iterator[type[BaseModel]]:
    """The models of settings in a type, at any depth, but for ``Settings`` itself."""
    if not (isinstance(part, type) and issubclass(part, BaseModel)):
        for argument in get_args(part):
            yield from _tables(argument)
        return
    if part is not Settings:
        yield part
    for field in part.model_fields.values():
        yield from _tables(field.annotation)


def _object(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _or_null(field: Schema) -> Schema:
    """The schema of a setting that may also be null, by which ``helm`` takes a value away."""
    choices = [part for part in field.get("anyOf", [field]) if part != {"type": "null"}]
    about = {"description": field["description"]} if "description" in field else {}
    bare = [{key: value for key, value in part.items() if key != "description"} for part in choices]
    return {**about, "anyOf": [*bare, {"type": "null"}]}


def _has(field: Any, wanted: str) -> bool:
    """Whether a part of the schema has this format: ``password`` of a secret, or ``path``."""
    if isinstance(field, dict):
        return field.get("format") == wanted or any(_has(part, wanted) for part in field.values())
    return isinstance(field, list) and any(_has(part, wanted) for part in field)


def _plain(field: Any) -> Any:
    """A schema without the titles that pydantic makes up, and without examples."""
    if isinstance(field, list):
        return [_plain(part) for part in field]
    if not isinstance(field, dict):
        return field
    return {
        key: {name: _plain(part) for name, part in value.items()}
        if key == "properties"
        else _plain(value)
        for key, value in field.items()
        if key not in ("title", "examples")
    }


if __name__ == "__main__":
    SCHEMA.write_text(values_schema(), encoding="utf-8")
