"""The files of a release, built and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import image

pytestmark = [pytest.mark.service, pytest.mark.long]

SECONDS = 1200


def test_a_release_installs_without_a_compiler_and_the_image_has_its_wheels(tmp_path: Path) -> None:
    """``make dist`` installs the wheels by their hashes, plays the demonstration and replays by
    compiled code, compiles the sources by one command, and fails otherwise; the image's step
    installs the same wheel."""
    dist = tmp_path / "dist"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}"

    done = subprocess.run(
        [sys.executable, "-m", "deploy.dist", str(dist)],
        cwd=image.REPOSITORY, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:]
    context = image.context(tmp_path / "context")
    (context / "dist").mkdir(exist_ok=True)
    for wheel in dist.glob("*.whl"):
        (context / "dist" / wheel.name).write_bytes(wheel.read_bytes())
    installed = tmp_path / "installed"
    image.build(context, installed, "dist")
    packages = next((installed / "lib").glob("python3*/site-packages"))
    assert list(packages.glob("stream_metrics/core/engine/step.*.so"))
    assert list(packages.glob("stream_metrics/_engine.*.so"))
    assert not (packages / "setuptools_rust").exists()
