"""Checks settings in environment variables; lists and tables are written as JSON."""

from __future__ import annotations

import json
import os
from typing import Final, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

PREFIX: Final = "STREAM_METRICS_"
NOT_SETTINGS: Final = ("config", "kernel", "mypyc")


def variable(name: str) -> str:
    """The environment variable of a setting.

    >>> variable("kafka.group_id")
    'STREAM_METRICS_KAFKA__GROUP_ID'
    """
    return PREFIX + name.upper().replace(".", "__")


def example(field: FieldInfo) -> str:
    """An example of a list or table setting as JSON, or its default."""
    value = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    return json.dumps(value)


def check_environment(settings: type[BaseModel]) -> None:
    """Check the environment variables that begin with ``PREFIX``.

    Raises:
        ValueError: A variable names no setting, so that a misspelled name would be ignored, or its
            list or table is not JSON. The message has an example for that setting.
    """
    for name, text in os.environ.items():
        if not name.upper().startswith(PREFIX):
            continue
        part, _, key = name[len(PREFIX) :].lower().partition("__")
        if part in NOT_SETTINGS:
            continue
        field = settings.model_fields.get(part)
        if field is None:
            known = ", ".join(settings.model_fields)
            raise ValueError(f"{name}: no such setting; setting names begin with one of {known}")
        table: dict[str, FieldInfo] = getattr(field.annotation, "model_fields", {})
        if key in table:
            _check_json(name, f"{part}.{key}", table[key], text)
        elif table and not key and not _is_json(text, dict):
            raise ValueError(
                f"{name}: `{part}` is a table of settings; each has a variable of its own, such "
                f"as {variable(f'{part}.{next(iter(table))}')}"
            )


def _check_json(name: str, setting: str, field: FieldInfo, text: str) -> None:
    """Raise ``ValueError`` for a list or table that is not JSON, without quoting the value."""
    origin = get_origin(field.annotation)
    if origin not in (tuple, dict):
        return
    if not _is_json(text, dict if origin is dict else list):
        raise ValueError(
            f"{name}: in the environment `{setting}` is a JSON "
            f"{'object' if origin is dict else 'list'}, as in "
            f"{variable(setting)}='{example(field)}'"
        )


def _is_json(text: str, kind: type) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except ValueError:
        return False
