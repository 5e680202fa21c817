"""Load a custom predicate of relevance from an importable module."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from stream_metrics.core.metrics.ranking.relevance import Predicate, PredicateError

METHODS: Final = {"total": ("query",), "relevant": ("query", "result")}
"""The methods of a predicate with their arguments."""


@lru_cache(maxsize=1)
def load_predicate(name: str) -> Predicate:
    """Import the object ``name`` (``package.module:object``), once per process.

    A module in the current directory goes before one that is installed. What it imports itself may
    lie there, too, but then what is installed goes first.

    Raises:
        PredicateError: There is no such object, importing it fails, or it is not a predicate.
    """
    module_name, colon, path = name.partition(":")
    if not (
        colon and all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")])
    ):
        raise PredicateError(f"predicate {name!r}: write package.module:object")
    predicate = _imported(name, module_name)
    for part in path.split("."):
        try:
            predicate = getattr(predicate, part)
        except AttributeError:
            raise PredicateError(
                f"predicate {name!r}: no {part!r} in {_shown(predicate)}"
            ) from None
    _check(name, predicate)
    return cast(Predicate, predicate)


def source_digest(name: str) -> str | None:
    """The hexadecimal SHA-256 of the file of a predicate's module; None if it has no file.

    Raises:
        PredicateError: As for ``load_predicate``.
    """
    load_predicate(name)
    file = getattr(_imported(name, name.partition(":")[0]), "__file__", None)
    try:
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def _imported(name: str, module_name: str) -> object:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        file = _hidden_file(module_name, Path(here))
        return importlib.import_module(module_name) if file is None else _loaded(file)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise PredicateError(
                f"predicate {name!r}: there is no module {error.name!r} in the current directory "
                "or installed"
            ) from None
        raise _failed(name, module_name, error) from error
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise _failed(name, module_name, error) from error


def _hidden_file(module_name: str, here: Path) -> Path | None:
    """The file of the module in the directory if a library hides it, such as ``json``."""
    path = here.joinpath(*module_name.split("."))
    file = next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None
    )
    top = module_name.partition(".")[0]
    if file is None or (spec := importlib.util.find_spec(top)) is None:
        return None
    origins = {spec.origin, *(spec.submodule_search_locations or ())}
    is_here = origins & {str(here / f"{top}.py"), str(here / top), str(here / top / "__init__.py")}
    return None if is_here else file


def _loaded(file: Path) -> ModuleType:
    """The module of a file, under a name that no library has."""
    name = str(file)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _failed(name: str, module_name: str, error: BaseException) -> PredicateError:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return PredicateError(f"predicate {name!r}: importing {module_name} raised {said}")


def _check(name: str, predicate: object) -> None:
    """Raise ``PredicateError`` if the object is not a predicate."""
    if inspect.isclass(predicate):
        raise PredicateError(
            f"predicate {name!r}: this is the class {predicate.__qualname__}; create an instance "
            "of it in the module, and name that"
        )
    for method, arguments in METHODS.items():
        called = f"{method}({', '.join(arguments)})"
        there = getattr(predicate, method, None)
        if not callable(there):
            raise PredicateError(
                f"predicate {name!r}: {_shown(predicate)} has no {called}; it needs "
                "total(query) and relevant(query, result)"
            )
        try:
            signature = inspect.signature(there)
        except (TypeError, ValueError):  # compiled functions may have no signature
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise PredicateError(
                f"predicate {name!r}: it cannot be called as {called}: {error}"
            ) from None


def _shown(value: object) -> str:
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    return f"this object of the type {type(value).__qualname__}"
