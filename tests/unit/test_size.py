"""The size of the code is counted by fixed rules, in any commit, and without omissions."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.size.call_path import RECORDER, Ways, files_of
from benchmarks.size.imports import Import, against, imports
from benchmarks.size.lines import UnknownLanguage, logical_lines
from benchmarks.size.private_names import Use, private_names, uses
from benchmarks.size.report import large_modules, lines, times_of_tests, ways
from benchmarks.size.tree import (
    FLOORS,
    SERVICES,
    File,
    Floors,
    UnknownFile,
    checkout,
    installed,
    measured,
)
from deploy.local.process import blocking
from deploy.local.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = '''"""What the module is."""

import os  # a comment


class A:
    """What it is."""

    size: int = 1
    """What the size is."""

    def f(self, a, b):
        """Says what it does."""
        if a:
            return (
                a +
                b
            )
        return "a text that is no docstring"
'''
TIGHT = """
import os
class A:
    size: int = 1
    def f(self, a, b):
        if a: return a + b
        return "a text that is no docstring"
"""


@pytest.mark.parametrize("text", [WRITTEN, TIGHT])
def test_a_logical_line_of_python_is_a_statement(text: str) -> None:
    """Docstrings, comments, blank lines and line breaks do not count."""
    assert logical_lines(Path("a.py"), text) == 7


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.rs", "//! doc\n/* a\n b */\n#[inline]\nfn f() { // why\n\n    1\n}\n", 4),
        ("a.lua", '-- why\nlocal a = 1 -- it\n--[[ more\n]]\nreturn "--a"\n', 2),
        ("a.js", "/** doc */\n// why\nconst a = `\n  b\n`;\n", 3),
        ("a.css", "/* why */\na {\n  color: red; /* it */\n}\n", 3),
        ("a.html", "<!-- why -->\n<p>\n\n</p>\n", 2),
        ("a.html.j2", "{# why #}\n<p>{{ a }}</p>\n", 1),
    ],
)
def test_lines_of_other_languages_have_code_on_them(name: str, text: str, count: int) -> None:
    """A line with only a comment does not count."""
    assert logical_lines(Path(name), text) == count


def test_a_language_that_nothing_counts_is_refused() -> None:
    """Otherwise it would count as zero lines."""
    with pytest.raises(UnknownLanguage, match=r"page\.xyz"):
        logical_lines(Path("page.xyz"), "")


def test_the_longest_prefix_decides_on_the_floor() -> None:
    """A file may have another floor than its folder; prefixes are whole names of folders."""
    floors = Floors({"a/": "core", "a/b/": "live", "a/b/c.py": "lab"}, [], [])

    found = [floors.floor_of(path) for path in ("a/x.py", "a/b/x.py", "a/b/c.py")]

    assert found == ["core", "live", "lab"]
    with pytest.raises(UnknownFile, match=r"a/b2\.txt|ab/x\.py"):
        floors.floor_of("ab/x.py")


def test_an_unknown_floor_is_refused(tmp_path: Path) -> None:
    """A misspelt floor in the table is an error."""
    table = tmp_path / "floors.toml"
    table.write_text('[floors]\n"a/" = "cor"\n[traces]\nfiles = []\n[left_out]\nfiles = []\n')
    with pytest.raises(ValueError, match="no such floor: cor"):
        Floors.read(table)


@pytest.fixture(scope="module")
def here() -> list[File]:
    """The counted files of this tree."""
    return measured(ROOT, Floors.read())


@pytest.mark.slow
def test_every_installed_file_is_counted(here: list[File]) -> None:
    """Every file of the wheel has a floor and a known language, scripts and pages included."""
    found = {file.path: file for file in here}
    taken = set(installed(ROOT))

    package = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "stream_metrics").rglob("*.py")
    }
    assert package <= taken
    assert {file.language for file in found.values()} >= {"Python", "Lua", "Rust", "JavaScript"}
    left_out = taken - found.keys()
    assert {Path(path).name for path in left_out} == {"day.jsonl.gz", "py.typed"}


@pytest.mark.slow
def test_totals_are_those_of_the_files(here: list[File]) -> None:
    """A floor has the sum of its files, and the total is the sum of the floors."""
    rows = {line[: line.find("  ")]: line.split() for line in lines("HEAD", here).splitlines()[3:]}
    python = dict.fromkeys(FLOORS, 0)
    for file in here:
        if file.language == "Python":
            python[file.floor] += file.logical

    for floor, count in python.items():
        assert rows[floor][2] == f"{count:,}"
    assert rows["all"][2] == f"{sum(python.values()):,}"
    assert rows["core + clients + live"][6] == f"{sum(map(python.__getitem__, SERVICES)):,}"


def git(root: Path, *arguments: str) -> None:
    """Run git with an author for the test."""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *author, *arguments], cwd=root, check=True, capture_output=True)


def test_a_commit_is_measured_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working tree does not matter; a directory with a checkout is measured as it is."""
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "pyproject.toml").touch()
    git(tmp_path, "init", "--quiet", "--initial-branch", "build")
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    (tmp_path / "a.py").write_text("x = 2\n")

    with checkout("HEAD", tmp_path) as root:
        assert (root / "a.py").read_text() == "x = 1\n"
    with checkout(str(tmp_path), tmp_path) as root:
        assert (root / "a.py").read_text() == "x = 2\n"
    with checkout("build", tmp_path) as root:
        assert (root / "a.py").read_text() == "x = 1\n", "a branch, not the folder of that name"
    with pytest.raises(ValueError, match="no-such-commit is neither a checkout nor a commit"):
        checkout("no-such-commit", tmp_path).__enter__()


@pytest.mark.slow
def test_large_modules_are_named(here: list[File]) -> None:
    """These have more than 500 lines, including comments."""
    said = large_modules(here)
    large = [
        path
        for path in installed(ROOT)
        if path.endswith(".py") and len((ROOT / path).read_text().splitlines()) > 500
    ]
    assert all(path in said for path in large)
    assert "stream_metrics/__init__.py" not in said


def test_private_names_in_tests_are_counted(tmp_path: Path) -> None:
    """Names of the package count, imported or taken from an object; a test's own do not."""
    package, test = tmp_path / "package.py", tmp_path / "test_package.py"
    package.write_text(
        "_LIMIT = 1\nclass Store:\n    def __init__(self):\n        self._kept = 1\n"
        "    def _close(self): ...\n    def open(self): ...\n"
    )
    test.write_text(
        "from package import _LIMIT, Store\nimport os\n"
        "class Own:\n    def __init__(self):\n        self._kept = 2\n        self._close()\n"
        "store = Store()\nstore._close()\nos._exit\nstore._other\nstore.open()\nstore.__init__\n"
    )

    private = private_names([package])

    assert private == {"_LIMIT", "_kept", "_close"}
    assert list(uses(tmp_path, [test], private)) == [
        Use("test_package.py", 1, "_LIMIT"),
        Use("test_package.py", 8, "_close"),
    ]


def test_imports_against_the_floors_are_counted(tmp_path: Path) -> None:
    """live and lab do not import each other, and clients and core import neither."""
    sources = {
        "core/a.py": "",
        "live/b.py": "from package.core import a\nfrom package.lab.c import x\n",
        "lab/c.py": "def f():\n    import package.live.b\n",
        "core/d.py": "from package.cli import e\nfrom package.clients import f\n",
        "clients/f.py": "from package.core import a\nfrom package.live import b\n",
        "cli/e.py": "from package.lab import c\nfrom package.live import b\n",
    }
    for name, text in sources.items():
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    floors = Floors({f"package/{one}/": one for one in FLOORS}, [], [])

    found = against(imports(tmp_path, "package"), floors)

    assert found == [
        ("clients", "live", Import("package/clients/f.py", "package/live/b.py")),
        ("core", "cli", Import("package/core/d.py", "package/cli/e.py")),
        ("core", "clients", Import("package/core/d.py", "package/clients/f.py")),
        ("lab", "live", Import("package/lab/c.py", "package/live/b.py")),
        ("live", "lab", Import("package/live/b.py", "package/lab/c.py")),
    ]


SERVED = """
import sys, threading

def before(): ...
def during(): inner()
def inner(): ...
def after(): ...

steps = {"before": before, "during": during, "after": after}
for line in sys.stdin:
    steps[line.strip()]()
    print(line.strip(), flush=True)
"""


def ask(path: Path, request: str) -> list[tuple[str, int]]:
    """The answer of the recorder."""
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rw") as stream:
        client.connect(str(path))
        stream.write(request + "\n")
        stream.flush()
        return [(file, line) for file, line in json.loads(stream.readline())]


def test_the_recorder_records_calls_between_start_and_stop(tmp_path: Path) -> None:
    """It records functions in the folder only, and no calls before or after."""
    (tmp_path / "served.py").write_text(SERVED)
    path = tmp_path / "recorder"
    with subprocess.Popen(
        [sys.executable, "-P", str(RECORDER), str(path), str(tmp_path), "served"],
        env={"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def step(name: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(name + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == name + "\n"

        step("before")
        blocking(wait_until(path.exists, 10, "the recorder does not listen"))
        ask(path, "start")
        step("during")
        found = ask(path, "stop")
        step("after")
        process.stdin.close()

    assert found == [("served.py", 5), ("served.py", 6)]


def test_lines_on_a_path_are_counted_by_file_and_function(tmp_path: Path) -> None:
    """A nested function counts once; a function begins with its decorators."""
    (tmp_path / "a.py").write_text(
        "import functools\n\n@functools.cache\ndef outer():\n    def inner():\n        return 1\n"
        "    return inner()\n\ndef other():\n    return 2\n"
    )
    called = frozenset({("a.py", 3), ("a.py", 5)})

    said = ways(tmp_path, Ways(called, frozenset(), frozenset()), names=True)

    row = next(line for line in said.splitlines() if line.startswith("one event"))
    assert row.split()[2:] == ["1", "7", "2", "4"]
    assert files_of(called) == ["a.py"]


def test_test_times_are_summed_by_folder(tmp_path: Path) -> None:
    """They are read from pytest's output; a file without any is refused."""
    file = tmp_path / "times.xml"
    file.write_text(
        '<testsuites><testsuite><testcase classname="tests.unit.test_a" name="x" time="1.5"/>'
        '<testcase classname="tests.unit.test_b" name="y" time="2.0"/>'
        '<testcase classname="tests.services.test_c" name="z" time="40"/></testsuite></testsuites>'
    )

    said = times_of_tests(file)

    assert [line.split() for line in said.splitlines()[3:7]] == [
        ["tests", "seconds"], ["tests.services", "1", "40"], ["tests.unit", "2", "4"],
        ["all", "3", "44"],
    ]  # fmt: skip
    assert "40.0 s  tests.services.test_c::z" in said
    file.write_text("<testsuites/>")
    with pytest.raises(ValueError, match="has no test case"):
        times_of_tests(file)
