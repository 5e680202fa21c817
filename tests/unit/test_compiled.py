"""The choice between Python and compiled code, and that both behave the same."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stream_metrics
from benchmarks.workload import as_records, traffic
from stream_metrics.core.compiled import INTERFACE

ROOT = Path(__file__).parents[2]
WHICH = "import stream_metrics.core.engine.step as step; print(step.__file__)"
CHOSEN = "from stream_metrics.core.compiled import ENGINE, slow; print(ENGINE, slow(), sep='|')"
ABSENT = "import sys; sys.modules['stream_metrics._engine'] = None; "
VARIABLE = "STREAM_METRICS_KERNEL"


def run(*arguments: str, root: Path = ROOT, fails: bool = False, **environment: str) -> str:
    """Output of a Python that runs the sources in ``root``; standard error if it fails."""
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=inherited | {"PYTHONPATH": str(root)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr if fails else done.stdout


def wheel() -> str:
    """The value of PYTHONPATH with which the installed wheel runs."""
    folder = Path(stream_metrics.__file__).parents[1]
    assert folder != ROOT
    return os.pathsep.join([str(folder), str(ROOT)])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package's sources that a test may change."""
    shutil.copytree(
        ROOT / "stream_metrics", tmp_path / "stream_metrics",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )  # fmt: skip
    return tmp_path


# --- the choice -----------------------------------------------------------------------------------


def test_sources_run_as_python() -> None:
    """A changed module in the tree runs as written."""
    assert Path(run("-c", WHICH).strip()) == ROOT / "stream_metrics" / "core" / "engine" / "step.py"
    assert run("-c", ABSENT + CHOSEN).startswith("Python, the reference|")


def test_the_choice_python_does_not_use_the_kernel() -> None:
    """The reference runs by itself, whatever is installed."""
    assert run("-c", CHOSEN, STREAM_METRICS_KERNEL="python").startswith("Python, the reference|")


def test_the_reference_tells_the_command_that_installs_the_compiled_engine() -> None:
    """It is the one of the guide."""
    command = "STREAM_METRICS_BUILD=compiled pip install --force-reinstall --no-deps ."

    assert run("-c", ABSENT + CHOSEN).endswith(f": {command}\n")
    assert command in (ROOT / "docs/guides/workers.md").read_text(encoding="utf-8")


@pytest.mark.kernel
def test_who_has_turned_off_the_kernel_is_told_how_to_turn_it_on() -> None:
    """Installing it again would change nothing."""
    said = run("-c", CHOSEN, STREAM_METRICS_KERNEL="python")

    assert said.endswith("For the compiled engine, unset STREAM_METRICS_KERNEL\n")


@pytest.mark.kernel
@pytest.mark.parametrize("choice", ["", "auto"])
def test_an_installed_kernel_is_used(choice: str) -> None:
    """The environment can choose otherwise."""
    said = run("-c", CHOSEN, STREAM_METRICS_KERNEL=choice)

    assert said == "partly compiled, without mypyc's modules|None\n"


def test_an_unknown_choice_is_an_error_that_names_both() -> None:
    """A misspelt value does not fall back to one of them."""
    said = run("-c", CHOSEN, fails=True, STREAM_METRICS_KERNEL="pyhton")

    assert "STREAM_METRICS_KERNEL is 'pyhton'; set it to auto or python" in said


def test_a_command_ends_with_one_line_if_it_cannot_choose() -> None:
    """It is a setting of the user's, not a bug."""
    said = run("-m", "stream_metrics", "--version", fails=True, STREAM_METRICS_KERNEL="pyhton")

    assert said.startswith("error: STREAM_METRICS_KERNEL is 'pyhton'")
    assert said.count("\n") == 1


def test_without_the_kernel_every_helper_returns_none() -> None:
    """Callers then do the work in Python."""
    ask = (
        "from stream_metrics.core import compiled; "
        "answers = {getattr(compiled, name)(1, 2, 3) for name in compiled.__all__}; "
        "print(len(compiled.__all__), answers)"
    )
    count, _, answers = run("-c", ask, STREAM_METRICS_KERNEL="python").strip().partition(" ")

    assert int(count) > 1
    assert answers == "{None}"


@pytest.mark.parametrize(
    "kernel", [f"INTERFACE = {INTERFACE - 1}", f"INTERFACE = {INTERFACE + 1}", ""]
)
def test_a_kernel_of_another_version_is_refused(copy: Path, kernel: str) -> None:
    """The error about an older or newer kernel says what to do."""
    (copy / "stream_metrics" / "_engine.py").write_text(kernel)

    said = run("-c", WHICH, root=copy, fails=True)

    assert "ImportError: stream_metrics._engine was built from other sources" in said
    assert "make kernel" in said
    assert "STREAM_METRICS_KERNEL=python" in said
    assert Path(run("-c", WHICH, root=copy, STREAM_METRICS_KERNEL="python").strip()).suffix == ".py"


# --- the wheel ------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_the_wheel_has_each_listed_module_compiled() -> None:
    """Imports prefer the compiled form of all modules in ``setup.py``."""
    root = Path(stream_metrics.__file__).parents[1]
    modules = runpy.run_path(str(ROOT / "setup.py"), run_name="listed")["MODULES"]
    names = [module.removesuffix(".py").replace("/", ".") for module in modules]
    ask = (
        "import importlib, json, sys; "
        "print(json.dumps([importlib.import_module(n).__file__ for n in json.loads(sys.argv[1])]))"
    )

    files = json.loads(run("-c", ask, json.dumps(names), PYTHONPATH=wheel(), PYTHONSAFEPATH="1"))

    assert len(files) > 1
    for module, file in zip(modules, files, strict=True):
        assert Path(file).suffix == ".so"
        assert Path(file).parent == (root / module).parent
        assert (root / module).read_bytes() == (ROOT / module).read_bytes()


@pytest.mark.compiled
@pytest.mark.slow
def test_the_state_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """A day's records leave equal windows and conversations, compiled or not."""
    file = tmp_path / "records.pickle"
    file.write_bytes(pickle.dumps(as_records(traffic(600).records)))
    command = ("-m", "tests.compiled", str(file))

    compiled = json.loads(run(*command, PYTHONPATH=wheel(), PYTHONSAFEPATH="1"))
    plain = json.loads(run(*command, STREAM_METRICS_KERNEL="python"))

    assert (compiled["engine"], plain["engine"]) == (".so", ".py")
    assert compiled["state"] == plain["state"]


SETUP = (
    "import runpy, sys; sys.argv[1:] = [{command!r}]; "
    "sys.modules.update(dict.fromkeys({without!r})); "
    "print(runpy.run_path('setup.py')['arguments']())"
)


def setup_arguments(command: str, *without: str, fails: bool = False, **variables: str) -> str:
    """What ``setup.py`` tells setuptools for a command, where modules cannot be imported."""
    told = SETUP.format(command=command, without=without)
    return run("-c", told, root=ROOT, fails=fails, **variables)


NO_COMPILER = {"CC": "nonesuch -O2", "CARGO": "nonesuch"}


def test_the_choice_python_compiles_nothing() -> None:
    """Whatever compilers there are, the wheel is pure."""
    assert setup_arguments("bdist_wheel", STREAM_METRICS_BUILD="python") == "{}\n"


@pytest.mark.parametrize("command", ["egg_info", "bdist_wheel", "editable_wheel"])
def test_without_compilers_nothing_is_asked_for_and_the_wheel_is_pure(command: str) -> None:
    """A plain installation fetches no build requirement that it cannot use."""
    said = setup_arguments(
        command, "mypyc", "setuptools_rust", fails=False, STREAM_METRICS_BUILD="", **NO_COMPILER
    )

    assert said == "{}\n"


@pytest.mark.parametrize(
    ("compilers", "asked"),
    [
        ({"CC": sys.executable, "CARGO": "nonesuch"}, ["mypy>=1.15,<3", "numpy>=2.0,<3"]),
        ({"CC": "nonesuch", "CARGO": sys.executable}, ["setuptools-rust>=1.10,<2"]),
    ],
    ids=["C only", "Rust only"],
)
def test_an_isolated_build_asks_for_what_its_compiler_needs(
    compilers: dict[str, str], asked: list[str]
) -> None:
    """``pip install .`` works in an empty environment."""
    without = ("mypyc", "numpy", "setuptools_rust")

    said = setup_arguments(
        "egg_info", *without, fails=False, STREAM_METRICS_BUILD="auto", **compilers
    )

    assert said == f"{{'setup_requires': {asked}}}\n"


def test_an_editable_installation_compiles_no_module() -> None:
    """A compiled module would hide later changes of its source."""
    said = setup_arguments("editable_wheel", STREAM_METRICS_BUILD="auto", CARGO=sys.executable)

    assert "rust_extensions" in said
    assert "ext_modules" not in said


def test_compiling_needs_packages_as_the_program_does() -> None:
    """Those whose types are used are of the versions that ``pyproject.toml`` allows."""
    needs = runpy.run_path(str(ROOT / "setup.py"), run_name="listed")["MODULES_WITH"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert {*needs.values()} - {needs["mypyc"]} <= {*project["dependencies"]}


@pytest.mark.parametrize(
    ("without", "environment", "why"),
    [
        ("mypyc", {}, "the modules need mypy>=1.15,<3: install them, or build without"),
        ("", {"CC": "nonesuch -O2"}, "the modules need a C compiler, and there is no 'nonesuch'"),
        ("", {"CARGO": "nonesuch"}, "the kernel needs Rust 1.63 or later, and there is no 'nonesu"),
    ],
)
def test_what_compiling_everything_lacks_is_an_error_in_plain_words(
    without: str, environment: dict[str, str], why: str
) -> None:
    """The error names it, and says how to install without compiled code."""
    said = setup_arguments(
        "bdist_wheel", without, fails=True, STREAM_METRICS_BUILD="compiled", **environment
    )

    assert said.startswith(f"error: STREAM_METRICS_BUILD=compiled: {why}")
    assert "unset STREAM_METRICS_BUILD" in said


def test_an_unknown_build_is_an_error_that_names_all() -> None:
    """A misspelt value does not fall back to one of them."""
    said = setup_arguments("egg_info", fails=True, STREAM_METRICS_BUILD="all")

    assert "STREAM_METRICS_BUILD is 'all'; set it to auto, compiled or python" in said


def test_type_checkers_read_the_types_of_an_installed_package() -> None:
    """The wheel has ``py.typed``; without it, all names of the package are unknown to type
    checkers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["*"]
    assert (ROOT / "stream_metrics" / "py.typed").is_file()


def test_make_compiles_again_after_a_change_of_any_file() -> None:
    """An outdated compiled wheel would hide the change."""
    print_them = "--eval=print-sources: ; @echo $(COMPILED_SOURCES)"
    done = subprocess.run(
        ["make", "--no-print-directory", print_them, "print-sources"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "stream_metrics").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }

    assert {*package, "kernel/src/lib.rs", "setup.py", "pyproject.toml"} <= set(done.stdout.split())
