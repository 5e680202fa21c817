"""Compiled modules do what their sources say, and stand aside where they are not theirs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workload import as_records, traffic
from stream_metrics.kernel import INTERFACE

pytestmark = pytest.mark.compiled

ROOT = Path(__file__).parents[2]
WHICH = "import stream_metrics.engine.step as step; print(step.__file__)"
ENGINE = "import stream_metrics; print(stream_metrics.ENGINE)"
READ = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("stream_metrics.")]))
"""


def built() -> Any:
    """The compiled package."""
    return import_module("stream_metrics_compiled")


def site() -> Path:
    """Where it is installed."""
    return Path(built().__file__).parents[1]


def run(*arguments: str, root: Path = ROOT, fails: bool = False, **environment: str) -> str:
    """What a Python of its own prints; where it fails, on standard error."""
    given = {name: value for name, value in os.environ.items() if name != "STREAM_METRICS_KERNEL"}
    path = {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=given | path | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package's sources, to be changed."""
    shutil.copytree(
        ROOT / "stream_metrics", tmp_path / "stream_metrics",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    return tmp_path


def test_compiled_modules_run_in_place_of_their_sources() -> None:
    """Where they are installed (``make kernel``), imports find them."""
    assert Path(run("-c", WHICH).strip()).suffix == ".so"


def test_an_environment_variable_leaves_them_aside() -> None:
    """The sources run, as where nothing is compiled."""
    assert Path(run("-c", WHICH, STREAM_METRICS_KERNEL="python").strip()).suffix == ".py"


def test_a_copy_of_the_sources_runs_compiled(copy: Path) -> None:
    """What counts is what the sources say, not where they are."""
    assert Path(run("-c", WHICH, root=copy).strip()).suffix == ".so"


@pytest.mark.parametrize(
    ("file", "line", "changed"),
    [
        ("engine/cells.py", '"""', '# changed\n"""'),
        ("engine/config.py", "WINDOW_BUCKETS: Final = 60", "WINDOW_BUCKETS: Final = 30"),
        ("engine/config.py", 'DEFAULT_AGENT: Final = "default"', 'DEFAULT_AGENT: Final = "rest"'),
        ("events/times.py", "MICROS: Final = 1_000_000", "MICROS: Final = 1_000"),
        ("events/decode.py", "946_684_800 * MICROS", "946_684_801 * MICROS"),
    ],
)
def test_one_changed_source_leaves_all_aside(
    copy: Path, file: str, line: str, changed: str
) -> None:
    """Who changes a module runs it, and never the module as it was; so with a constant that a
    compiled module has from one that is not compiled."""
    source = copy / "stream_metrics" / file
    text = source.read_text()
    assert line in text
    source.write_text(text.replace(line, changed, 1))

    assert Path(run("-c", WHICH, root=copy).strip()) == copy / "stream_metrics/engine/step.py"


def test_every_source_that_runs_with_them_is_watched() -> None:
    """What the compiled modules import when they run was found at compilation."""
    said = run("-c", READ, json.dumps(built().MODULES), STREAM_METRICS_KERNEL="python")
    package = ROOT / "stream_metrics"
    loaded = {Path(file).relative_to(package).as_posix() for file in json.loads(said)}
    beside = {file for file in loaded if file == "compiled.py" or file.endswith("__init__.py")}

    assert len(loaded) > len(built().MODULES)
    assert loaded - beside <= set(built().SOURCES)


def test_make_compiles_again_after_any_of_them() -> None:
    """The Makefile's list has every source that the compiler reads."""
    print_them = "--eval=print-sources: ; @echo $(COMPILED_SOURCES)"
    done = subprocess.run(
        ["make", "--no-print-directory", print_them, "print-sources"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert {f"stream_metrics/{path}" for path in built().SOURCES} <= set(done.stdout.split())


def test_a_package_in_a_zip_runs_as_python(copy: Path) -> None:
    """There are no files to compare with."""
    archive, elsewhere = copy / "package.zip", copy / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(archive, "w") as files:
        for file in (copy / "stream_metrics").rglob("*.py"):
            files.write(file, file.relative_to(copy))
    path = os.pathsep.join(map(str, [archive, site()]))

    assert run("-c", ENGINE, root=elsewhere, PYTHONPATH=path) == "python\n"


def test_a_folder_that_was_left_behind_is_no_package(copy: Path) -> None:
    """What uninstalling leaves, if something else was in the folder."""
    (copy / "stream_metrics_compiled" / "__pycache__").mkdir(parents=True)

    assert run("-S", "-c", ENGINE, root=copy, PYTHONPATH=str(copy)) == "python\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", ["stream_metrics_compiled__mypyc.*", "stream_metrics_compiled/engine/step.*"]
)
def test_a_broken_file_is_an_error_that_says_what_to_do(copy: Path, broken: str) -> None:
    """Compiled modules that cannot be loaded do not go unnoticed."""
    shutil.copytree(site() / "stream_metrics_compiled", copy / "stream_metrics_compiled")
    for file in site().glob("stream_metrics_compiled__mypyc.*"):
        shutil.copy(file, copy)
    [file] = copy.glob(broken)
    file.write_bytes(file.read_bytes()[:40])

    said = run("-c", WHICH, root=copy, fails=True)

    assert "ImportError: the installation of stream-metrics-compiled is incomplete" in said
    assert "make kernel" in said
    assert "STREAM_METRICS_KERNEL=python" in said
    assert Path(run("-c", WHICH, root=copy, STREAM_METRICS_KERNEL="python").strip()).suffix == ".py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", [f"INTERFACE = {INTERFACE - 1}", f"INTERFACE = {INTERFACE + 1}", ""]
)
def test_a_kernel_of_another_version_is_an_error_that_says_what_to_do(
    copy: Path, kernel: str
) -> None:
    """Older or newer: nothing is asked of it that it may not have, and it is not passed over."""
    (copy / "stream_metrics_kernel.py").write_text(kernel)

    said = run("-c", WHICH, root=copy, fails=True)

    assert "ImportError: stream-metrics-kernel is from another release" in said
    assert "make kernel" in said
    assert "STREAM_METRICS_KERNEL=python" in said
    assert Path(run("-c", WHICH, root=copy, STREAM_METRICS_KERNEL="python").strip()).suffix == ".py"


@pytest.mark.slow
def test_the_state_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """A day's records leave the same windows and conversations, compiled or not."""
    file = tmp_path / "records.pickle"
    file.write_bytes(pickle.dumps(as_records(traffic(3_000).records)))

    compiled = json.loads(run("-m", "tests.compiled", str(file)))
    plain = json.loads(run("-m", "tests.compiled", str(file), STREAM_METRICS_KERNEL="python"))

    assert (compiled["engine"], plain["engine"]) == (".so", ".py")
    assert compiled["state"] == plain["state"]
