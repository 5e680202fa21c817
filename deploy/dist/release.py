"""``python -m deploy.dist.release``: tests what is committed, builds it in dist/, and tags it.

The version is that of the sources; ``docs/releasing.md`` says what to do before and afterwards.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VERSIONS: Final[Mapping[str, str]] = {
    "stream_metrics/__init__.py": r'^__version__ = "(.+)"$',
    "client/src/stream_metrics_client/__init__.py": r'^__version__ = "(.+)"$',
    "kernel/Cargo.toml": r'^version = "(.+)"$',
    "kernel/Cargo.lock": r'name = "stream-metrics-engine"\nversion = "(.+)"$',
    "deploy/helm/stream-metrics/Chart.yaml": r"^version: (\S+)\nappVersion: \1$",
}
"""The files that name the version of a release, each with the pattern that finds it."""


def versions(root: Path) -> dict[str, str]:
    """The version that each of these files names."""
    found = {}
    for name, pattern in VERSIONS.items():
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.M)
        if match is None:
            sys.exit(f"error: {name} names no version")
        found[name] = match[1]
    return found


def release_version(root: Path) -> str:
    """The version of the release; ends the program if it cannot be released."""
    named = versions(root)
    if len(set(named.values())) > 1:
        lines = "".join(f"\n  {version}  {name}" for name, version in named.items())
        sys.exit(f"error: files name different versions:{lines}")
    version = next(iter(named.values()))
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## [{version}]" not in changes:
        sys.exit(f"error: CHANGELOG.md has no section [{version}]; rename [Unreleased]")
    return version


def main() -> None:
    """Test, build and tag."""
    version = release_version(Path())
    if _output("git", "status", "--porcelain"):
        sys.exit("error: there are changes that are not committed")
    if _output("git", "tag", "--list", f"v{version}"):
        sys.exit(f"error: v{version} is released already; raise the version")
    commit = _output("git", "rev-parse", "HEAD")
    for target in ("test", "test-all", "dist"):
        subprocess.run(["make", target], check=True)
    if _output("git", "status", "--porcelain") or _output("git", "rev-parse", "HEAD") != commit:
        sys.exit("error: the tree has changed while it was tested")
    subprocess.run(["git", "tag", "--annotate", f"v{version}", "-m", version, commit], check=True)
    sys.stdout.write(f"tagged v{version}; its files are in dist/. See docs/releasing.md\n")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
