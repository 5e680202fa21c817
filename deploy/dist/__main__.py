"""``python -m deploy.dist FOLDER``: makes the files of a release, then installs and uses them.

FOLDER gets source distributions and wheels of the package, the client and the kernel, the Helm
chart, bills of materials of an installation and of the kernel (CycloneDX), the licences of
dependencies, and SHA-256 sums. Wheels with compiled code are for Linux with the glibc in their
names or a later one: the kernel's for x86-64 and arm64, that of the package for this machine's
architecture and this version of Python. The pure wheel of the package is for all others.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from deploy.dist.licences import third_party
from deploy.helm import CHART, write_chart
from deploy.local.install import chart_tools
from stream_metrics import __version__

TOOLS: Final = Path(".venv/dist/bin")
BUILD: Final = Path(".venv/bin")
RUNTIME: Final = "deploy/docker/requirements.txt"
KERNEL: Final = "stream_metrics_kernel"
GLIBC: Final = "manylinux2014"  # 2.17: every Linux that still gets updates
ARCHITECTURES: Final = ("x86_64", "aarch64")
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
        run([TOOLS / "python", "-m", "build", "--no-isolation", "--outdir", folder, project])
    say("compiling the engine and the kernel")
    together(lambda: engine(folder), lambda: kernel(folder))
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
    """The wheel with the modules that mypyc compiles, from the sources of the release alone."""
    (source,) = folder.glob("stream_metrics-*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        run(
            [BUILD / "python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
             "--wheel-dir", place, source],
            {"STREAM_METRICS_MYPYC": "1"},
        )  # fmt: skip
        (wheel,) = Path(place).iterdir()
        run([TOOLS / "auditwheel", "repair", "--wheel-dir", folder, wheel])


def kernel(folder: Path) -> None:
    """The kernel's wheels, linked by zig for an old glibc, with its bill of materials in them.

    For another architecture than this machine's, rustup has to install Rust's standard library.
    """
    for architecture in ARCHITECTURES:
        target, is_own = f"{architecture}-unknown-linux-gnu", architecture == platform.machine()
        if not is_own and not has_library(target):
            say(f"no wheel of the kernel for {architecture}: rustup has no standard library for it")
            continue
        # This machine's wheel is built from the source distribution, which tries that.
        run(
            [BUILD / "maturin", "build", "--release", "--locked", "--zig", "--compatibility", GLIBC,
             "--target", target, *(["--sdist"] if is_own else []),
             "--manifest-path", "kernel/Cargo.toml", "--out", folder],
            {"CARGO_TARGET_DIR": "kernel/target/dist"},
        )  # fmt: skip


def has_library(target: str) -> bool:
    """Whether rustup has, or can install, Rust's standard library for a target."""
    if shutil.which("rustup") is None:
        return False
    command = ["rustup", "target", "add", target]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


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
    names = ("stream-metrics", "stream-metrics-kernel", "stream-metrics-client")
    wheels = [path for path in folder.iterdir() if path.suffix == ".whl"]
    pinned = "".join(f"{name}=={__version__} {' '.join(hashes(wheels, name))}\n" for name in names)
    pins = place / "wheels.txt"
    pins.write_text(pinned, encoding="ascii")
    run([python, "-m", "pip", "install", *quiet, "--no-index", "--no-deps", "--require-hashes",
         "--find-links", folder.resolve(), "-r", pins], bare)  # fmt: skip
    run([python, "-m", "pip", "check"], bare)
    return place


def from_sources(folder: Path, place: Path) -> None:
    """A new environment, with the package and the kernel compiled as pip does it: in isolation."""
    run([sys.executable, "-m", "venv", place])
    sources = [folder / f"{name}-{__version__}.tar.gz" for name in ("stream_metrics", KERNEL)]
    run(
        [place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         *sources],
        {"STREAM_METRICS_MYPYC": "1"},
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
    wheel = min(folder.glob(f"{KERNEL}-*.whl"))  # all have the same crates
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".cyclonedx.json"))
        (folder / "stream-metrics-kernel.cdx.json").write_bytes(packed.read(name))


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
