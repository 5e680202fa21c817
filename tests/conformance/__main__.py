"""``make conformance``: run agent programs, and compare their traces with what they recorded."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.conformance.matrix import JAVASCRIPT, Case, cases
from tests.conformance.page import Outcome, written
from tests.conformance.verdicts import helps, interpret_lines, verdict

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SECONDS: Final = 180
_SETTINGS: Final = {
    "PYTHONPATH": str(ROOT),
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE": "True",
}


def environment(name: str, folder: Path) -> Path:
    """A Python with the packages of a requirements file; created again when the file changes."""
    wanted = HERE / "environments" / f"{name}.txt"
    place = folder / "environments" / name
    stamp = place / "requirements.txt"
    python = place / "bin" / "python"
    if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
        print(f"installing the environment {name}", file=sys.stderr)
        uv = [sys.executable, "-m", "uv"]
        if not python.exists():
            subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
        install = [*uv, "pip", "sync", "--quiet", "--require-hashes"]
        subprocess.run([*install, "--python", python, wanted], check=True)
        shutil.copyfile(wanted, stamp)
    return python


def javascript(place: Path) -> None:
    """Lay the programs in JavaScript and their packages into a folder."""
    wanted = HERE / "environments" / "javascript"
    stamp = place / "installed.json"
    lock = (wanted / "package-lock.json").read_bytes()
    shutil.copytree(wanted, place, dirs_exist_ok=True)
    if not stamp.exists() or stamp.read_bytes() != lock:
        print("installing the environment javascript", file=sys.stderr)
        options = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "ci", *options], cwd=place, check=True)
        stamp.write_bytes(lock)


def run(case: Case, python: Path, node: Path, out: Path) -> str:
    """Run a program, which writes into a folder; the error, or an empty text."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    module = f"tests.conformance.programs.{case.framework}_programs"
    command = [python, "-W", "ignore", "-m", module, case.instrumentation, case.scenario, out]
    with (out / "log").open("wb") as log:
        try:
            subprocess.run(
                [*map(str, command), *case.variant.split()],
                cwd=ROOT,
                env={**os.environ, **case.limits, **_SETTINGS, "NODE_PROGRAMS": str(node)},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return f"{error}; see {out / 'log'}"
    return ""


def judged(case: Case, out: Path) -> Outcome:
    """The verdict on the traces in a folder, compared with the program's account next to them."""
    lines = (out / "traces.jsonl").read_text().splitlines()
    account = [tuple(row) for row in json.loads((out / "truth.json").read_text())]
    interpretations = interpret_lines(lines, **case.options)
    found = verdict(interpretations, account)
    versions = json.loads((out / "versions.json").read_text())
    return Outcome(case, found.kind, found.why, helps(interpretations), versions)


def outcomes(
    wanted: Iterable[Case], folder: Path, again: bool, processes: int | None = None
) -> list[Outcome]:
    """The outcomes of the cases in order; ``again`` is whether to repeat cases that have run.

    A program that fails is tried once more, and neither it nor an environment that cannot be
    installed ends the run.
    """
    wanted = list(wanted)
    outs = {case: folder / "runs" / case.name for case in wanted}
    missing = {case for case in wanted if again or not (outs[case] / "versions.json").exists()}
    node = folder / "environments" / "javascript"
    broken: dict[str, str] = {}
    pythons: dict[str, Path] = {}
    for name in sorted({case.environment for case in missing}):
        try:
            pythons[name] = environment(name, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            broken[name] = f"the environment {name} cannot be installed: {error}"
    if any(case.framework in JAVASCRIPT for case in missing):
        try:
            javascript(node)
        except (OSError, subprocess.CalledProcessError) as error:
            of_node = f"the environment javascript cannot be installed: {error}"
            broken |= dict.fromkeys(JAVASCRIPT, of_node)
    said = threading.Lock()
    done = 0

    def tried(case: Case) -> Outcome:
        failed = broken.get(case.environment) or broken.get(case.framework) or ""
        if case in missing and not failed:
            python = pythons[case.environment]
            failed = run(case, python, node, outs[case]) and run(case, python, node, outs[case])
        if failed:
            return Outcome(case, "failed", failed, [], {})
        try:
            return judged(case, outs[case])
        except (LookupError, OSError, TypeError, ValueError) as error:
            return Outcome(case, "failed", f"its traces cannot be judged: {error!r}", [], {})

    def one(case: Case) -> Outcome:
        nonlocal done
        found = tried(case)
        with said:
            done += 1
            place = f"{done}/{len(wanted)}"
            print(f"{place} {case.name}: {found.kind} {found.why}".rstrip(), file=sys.stderr)
        return found

    with ThreadPoolExecutor(processes or os.cpu_count() or 1) as pool:
        return list(pool.map(one, wanted))


def main() -> None:
    """Exits with 1 if a program failed, or its traces are misinterpreted although its spans are
    complete."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument(
        "pattern", nargs="?", default="*", help="the names of programs, such as dspy-*"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "conformance")
    parser.add_argument("--kept", action="store_true", help="do not run again what has run")
    parser.add_argument("--processes", type=int, help="how many programs run at once")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    wanted = [one for one in cases() if fnmatchcase(one.name, given.pattern)]
    found = outcomes(wanted, given.folder, again=not given.kept, processes=given.processes)
    if given.page:
        given.page.write_text(written(found))
    bad = [one for one in found if one.bad]
    for one in bad:
        print(f"{one.case.name}: {one.kind}: {one.why}")
    print(f"{len(found) - len(bad)} of {len(found)} programs are told as they were, or refused")
    raise SystemExit(1 if bad or not found else 0)


if __name__ == "__main__":
    main()
