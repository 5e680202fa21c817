"""Secrets for every setting that has one, and a search for them in outputs."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import BaseModel, SecretStr

from stream_metrics.cli.settings import Settings
from stream_metrics.live.auth import hash_password
from tests.canaries import base64_forms

MARK = "planted-secret"  # begins each
USER = "scraper"  # of the pages


def secret_settings(
    model: type[BaseModel] = Settings, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The path of every setting that holds secrets, found by its type.

    A secret that a setting holds by name (as ``web.users`` does) ends with ``*``.
    """
    for name, field in model.model_fields.items():
        kinds = list(_kinds(field.annotation))
        if SecretStr in kinds:
            yield (*path, name, "*") if dict in kinds else (*path, name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from secret_settings(kind, (*path, name))


def _kinds(annotation: object) -> Iterator[object]:
    """A type and the types it is made of."""
    origin = typing.get_origin(annotation)
    yield origin if origin not in (None, typing.Union, types.UnionType) else annotation
    for part in typing.get_args(annotation):
        yield from _kinds(part)


def variable(path: tuple[str, ...]) -> str:
    """The environment variable of a setting."""
    return "STREAM_METRICS_" + "__".join(path).removesuffix("__*").upper()


def planted(path: tuple[str, ...]) -> str:
    """A secret that nothing else contains; of an address, where nobody answers, its path."""
    secret = f"{MARK}-{'-'.join(path).replace('_', '-').replace('*', 'any')}-6f1d"
    return f"http://127.0.0.1:9/{secret}" if path[-1] == "url" else secret


def by_environment() -> dict[str, str]:
    """Variables that plant a secret in every setting that holds one."""
    return {
        variable(path): json.dumps({USER: _hash(path)}) if path[-1] == "*" else planted(path)
        for path in secret_settings()
    }


def by_file(folder: Path) -> dict[str, str]:
    """The same by files, whose names are in the settings with ``_file`` behind theirs."""
    found = {}
    for path in secret_settings():
        file = folder / "-".join(path).replace("*", "any")
        file.write_text(f"{USER}:{_hash(path)}" if path[-1] == "*" else planted(path) + "\n")
        found[variable(path) + "_FILE"] = str(file)
    return found


@cache
def _hash(path: tuple[str, ...]) -> str:
    """What stands for a user's password."""
    return hash_password(planted(path), cost=4)


def leaked(text: str | bytes) -> set[str]:
    """What ``text`` holds of the planted secrets: their mark, as it is or in base64, and hashes."""
    data = text.encode() if isinstance(text, str) else text
    hashes = {_hash(path) for path in secret_settings() if path[-1] == "*"}
    forms = {form.decode() for form in base64_forms(MARK.encode())}
    return {secret for secret in {MARK, *forms, *hashes} if secret.encode() in data}
