"""``python -m deploy.dist FOLDER``: makes the files of a release, then installs and uses them.

FOLDER gets source distributions and wheels of the package and the client, the Helm chart, bills of
materials of an installation and of the kernel (CycloneDX), the licences of dependencies, and
SHA-256 sums. The wheel with compiled code is for Linux with the glibc in its name or a later one,
this machine's architecture, and this version of Python. The pure wheel is for all others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from deploy.dist.licences import bill_of_crates, third_party
from deploy.helm import CHART, write_chart
from deploy.local.install import chart_tools
from stream_metrics import __version__

TOOLS: Final = Path(".venv/dist/bin")
BUILD: Final = Path(".venv/bin")
RUNTIME: Final = "deploy/docker/requirements.txt"
CHECK: Final = """\
from stream_metrics.core.compiled import COMPILED, ENGINE
assert ENGINE == COMPILED, ENGINE
"""
TRACES: Final = """\
from pathlib import Path
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
traces = TracesData()
span = traces.resource_spans.add().scope_spans.add().spans.add(
    trace_id=bytes(15) + b"1", span_id=bytes(7) + b"1", start_time_unix_nano=10**18,
    end_time_unix_nano=10**18 + 1)
for key, value in {
    "openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.id": "handbook#travel"
}.items():
    span.attributes.add(key=key).value.string_value = value
Path("traces.bin").write_bytes(traces.SerializeToString())
"""


def main(folder: Path) -> None:
    """Make everything anew in ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("building source distributions and pure wheels")
    for project in (".", "client"):
        run(
            [TOOLS / "python", "-m", "build", "--no-isolation", "--outdir", folder, project],
            {"STREAM_METRICS_BUILD": "python"},
        )
    say("compiling the engine")
    engine(folder)
    run([TOOLS / "twine", "check", "--strict", *sorted(folder.iterdir())])
    say("packaging the Helm chart")
    chart(folder)
    say("installing the wheels where there is no compiler, and using them")
    say("installing from the sources by one command, with what it compiles")
    with tempfile.TemporaryDirectory() as place:
        installed = Path(place) / "installed"
        together(
            lambda: use(install(folder, installed), Path(place)),
            lambda: from_sources(folder, Path(place) / "compiled"),
        )
        say("writing bills of materials and licences")
        materials(folder, installed)
        text = third_party(installed / "bin/python")
    (folder / "THIRD-PARTY-LICENCES.txt").write_text(text, encoding="utf-8")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="ascii")
    say(sums.rstrip())


def together(*steps: Callable[[], None]) -> None:
    """Take steps at the same time, which compilers of one thread leave room for."""
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(step) for step in steps]:
            done.result()


def engine(folder: Path) -> None:
    """The wheel with all that can be compiled, from the sources of the release alone."""
    (source,) = folder.glob("stream_metrics-*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        run(
            [BUILD / "python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
             "--wheel-dir", place, source],
            {"STREAM_METRICS_BUILD": "compiled"},
        )  # fmt: skip
        (wheel,) = Path(place).iterdir()
        run([TOOLS / "auditwheel", "repair", "--wheel-dir", folder, wheel])


def chart(folder: Path) -> None:
    """The packaged Helm chart; it is linted, and rendered with its alert rules and dashboards."""
    helm = chart_tools() / "helm"
    values = ["--values", str(CHART / "values-production.yaml")]
    with tempfile.TemporaryDirectory() as place:
        run([helm, "package", write_chart(Path(place)), "--destination", folder])
    (packed,) = folder.glob("*.tgz")
    run([helm, "lint", "--strict", packed, *values])
    run([helm, "template", "release", packed, *values])


def install(folder: Path, place: Path) -> Path:
    """A new environment with the wheels of ``folder`` and what they need, all by their hashes."""
    run([sys.executable, "-m", "venv", place])
    bare = {"PATH": f"{place.resolve()}/bin", "CC": "false", "CARGO": "false"}
    python, quiet = place / "bin/python", ["--quiet", "--disable-pip-version-check"]
    run([python, "-m", "pip", "install", *quiet, "--require-hashes", "--only-binary", ":all:",
         "-r", RUNTIME], bare)  # fmt: skip
    names = ("stream-metrics", "stream-metrics-client")
    wheels = [path for path in folder.iterdir() if path.suffix == ".whl"]
    pinned = "".join(f"{name}=={__version__} {' '.join(hashes(wheels, name))}\n" for name in names)
    pins = place / "wheels.txt"
    pins.write_text(pinned, encoding="ascii")
    run([python, "-m", "pip", "install", *quiet, "--no-index", "--no-deps", "--require-hashes",
         "--find-links", folder.resolve(), "-r", pins], bare)  # fmt: skip
    run([python, "-m", "pip", "check"], bare)
    return place


def from_sources(folder: Path, place: Path) -> None:
    """A new environment, with the package compiled as pip does it: in isolation."""
    run([sys.executable, "-m", "venv", place])
    run(
        [place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         folder / f"stream_metrics-{__version__}.tar.gz"]
    )  # fmt: skip
    run([place / "bin/python", "-c", CHECK], cwd=place)


def hashes(wheels: Sequence[Path], name: str) -> list[str]:
    """The hashes of all wheels of a distribution, as pip takes them."""
    begins = name.replace("-", "_") + "-"
    return [f"--hash=sha256:{sha256(path)}" for path in wheels if path.name.startswith(begins)]


def use(installed: Path, place: Path) -> None:
    """Play the demonstration, and replay events and traces, by compiled code, without anything of
    this tree."""
    bare = {"PATH": f"{installed.resolve()}/bin"}
    commands = (
        ["python", "-c", CHECK],
        ["stream-metrics", "demo", "--seconds", "1", "--port", "0", "--no-keep"],
        ["stream-metrics", "generate", "--out", "events.jsonl", "--conversations", "50"],
        ["stream-metrics", "replay", "events.jsonl", "--out", "report"],
        ["python", "-c", TRACES],
        ["stream-metrics", "replay", "traces.bin", "--out", "traces"],
        ["python", "-c", "import stream_metrics_client"],
    )
    for command in commands:
        run([installed.resolve() / "bin" / command[0], *command[1:]], bare, cwd=place)


def materials(folder: Path, installed: Path) -> None:
    """Bills of materials: of an installed release, and of the crates in the kernel."""
    bill = folder / "stream-metrics.cdx.json"
    run([TOOLS / "cyclonedx-py", "environment", "--output-reproducible", "--output-format", "JSON",
         "--output-file", bill, installed / "bin/python"])  # fmt: skip
    (folder / "stream-metrics-engine.cdx.json").write_text(bill_of_crates(), encoding="utf-8")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(
    command: Sequence[str | Path], more: dict[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run a command; shows its output and ends if it fails."""
    path = f"{TOOLS.resolve()}:{BUILD.resolve()}:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**inherited, "NO_COLOR": "1", "PATH": path, **(more or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        say(done.stdout)
        sys.exit(f"error: exit code {done.returncode}: {' '.join(map(str, command))}")


def say(line: str) -> None:
    """Print and flush."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
