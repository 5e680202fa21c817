"""``docs/reference/settings.md``, from the fields of the settings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from docs.pages import page
from stream_metrics.cli.environment import variable
from stream_metrics.cli.settings import Settings

_INTRO: Final = """\
# Settings

Every setting has a default that fits one machine. There are three ways to change one; the first in
this list wins:

1. a flag, where the command has one (`stream-metrics worker --web-port`),
2. an environment variable, as listed below,
3. a TOML file, named by `--config` or by `STREAM_METRICS_CONFIG`.

Lists and maps are written as JSON in the environment:

```sh
export STREAM_METRICS_KAFKA__TOPICS='["search-iterations", "relevance-labels"]'
```

The same in a file:

```toml
[kafka]
topics = ["search-iterations", "relevance-labels"]
```

`stream-metrics config` prints the settings in effect, with secrets masked. `stream-metrics check`
also connects to Kafka and Redis. Pass secrets in the environment or in files; there is no
flag for them. Give files with their full path: a relative path means the working directory of the
command.

**Settings marked with † are part of the state.** A worker refuses to start on state that was built
with other values, and lists the differences. `stream-metrics build` builds new state with the new
values, next to the one in force
(see [Changing settings](../guides/operations.md#changing-settings)).
"""


def settings_page() -> str:
    """The page about settings."""
    parts = [_INTRO]
    alone: list[str] = []
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            about = (model.__doc__ or "").strip()
            rows = [_setting(f"{name}.{n}", f) for n, f in described(model).items()]
            parts.append("\n".join([f"## `{name}`", "", about, "", *_HEAD, *rows, ""]))
        else:
            alone.append(_setting(name, field))
    parts.append("\n".join(["## Others", "", *_HEAD, *alone, ""]))
    return page(*parts)


_HEAD: Final = ("| setting | environment | default | meaning |", "|---|---|---|---|")


def settings() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting by its full name."""
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for inner, inner_field in described(model).items():
                yield f"{name}.{inner}", inner_field
        else:
            yield name, field


def described(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a table, each described by its docstring unless it has a description.

    pydantic could do the same (``use_attribute_docstrings``), but whenever the program starts.
    """
    (body,) = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    found = {name: copy(field) for name, field in model.model_fields.items()}
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name].description = found[name].description or inspect.cleandoc(text)
    return found


def meaning(field: FieldInfo) -> str:
    """The description of a setting."""
    return " ".join((field.description or "").split())


def part_of_state(name: str) -> bool:
    """Whether the setting is part of the fingerprint, so that existing state needs its value."""
    part = name.partition(".")[0]
    if part in ("dedup", "limits", "metrics"):
        return name not in ("metrics.turn_scope", "metrics.pools")
    return name in (
        "kafka.value_format", "labels.model_labellers", "state.ttl", "state.digest_key",
        "state.digest_key_file",
    )  # fmt: skip


def _setting(name: str, field: FieldInfo) -> str:
    mark = " †" if part_of_state(name) else ""
    return (
        f"| `{name}`{mark} | `{variable(name)}` | {_default(name, field)} | "
        f"{_sentences(meaning(field), [*_bounds(field)])} |"
    )


def _sentences(about: str, bounds: list[str]) -> str:
    """The description and the bounds of a setting, as sentences.

    >>> _sentences("how often", ["at least 1", "at most 5"])
    'How often. At least 1, at most 5.'
    """
    parts = (about, ", ".join(bounds))
    return " ".join(f"{part[0].upper()}{part[1:]}".rstrip(".") + "." for part in parts if part)


def _default(name: str, field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True)
    if value is None:
        return "–"
    if value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int):
        return f"{value}" if name.endswith("port") else f"{value:,}"
    return f"`{value}`" if isinstance(value, str | Path) else f"{value:g}"


def _bounds(field: FieldInfo) -> Iterator[str]:
    """The bounds of a setting's type, as text."""
    if get_origin(field.annotation) is Literal:
        values = get_args(field.annotation)
        if len(values) > 1:
            yield "one of " + ", ".join(f"`{value}`" for value in values)
    if SecretStr in (field.annotation, *get_args(field.annotation)):
        yield "secret"
    for bound in field.metadata:
        if isinstance(bound, Gt):
            yield f"more than {bound.gt}"
        elif isinstance(bound, Ge) and bound.ge not in (0, 1):
            yield f"at least {bound.ge:,}"
        elif isinstance(bound, Lt):
            yield f"less than {bound.lt}"
        elif isinstance(bound, Le):
            yield f"at most {bound.le}"
        elif isinstance(bound, MaxLen):
            yield f"at most {bound.max_length}"
