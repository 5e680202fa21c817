"""Checks the chart: ``python -m deploy.helm.check``, which is ``make test-chart``.

Each file of values is linted strictly, rendered, and compared with the schemas of Kubernetes and of
the custom resources; its pods are held to the restricted Pod Security Standard. Then the chart's
own unit tests run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from deploy.helm import CHART, write_chart
from deploy.local.charts import KUBERNETES, documents
from deploy.local.install import Missing, chart_tools

VALUES: Final = {
    path.stem.removeprefix("values-").removesuffix("-values"): path
    for path in sorted([*CHART.glob("values-*.yaml"), *CHART.glob("ci/*.yaml")])
}


class Refused(Exception):
    """A program found a fault; the text is what it said."""


@dataclass(frozen=True)
class Chart:
    """A complete chart, and the folder of the programs that check it."""

    folder: Path
    tools: Path

    @classmethod
    def written(cls, folder: Path) -> Self:
        """Write a complete chart to ``folder``; builds the programs if they are missing."""
        return cls(write_chart(folder), chart_tools())

    def render(self, *arguments: str) -> str:
        """What it renders with these arguments of ``helm template``; raises ``Refused``."""
        return _run([str(self.tools / "helm"), "template", "release", str(self.folder), *arguments])

    def rendered(self, *arguments: str) -> list[dict[str, Any]]:
        """The same, as objects."""
        return documents(self.tools, self.render(*arguments))

    def lint(self, values: Path) -> None:
        """Lint it strictly with these values; raises ``Refused``."""
        helm = str(self.tools / "helm")
        _run([helm, "lint", "--strict", "--values", str(values), str(self.folder)])

    def suites(self) -> int:
        """Run its unit tests; returns the number of suites. Raises ``Refused``."""
        said = _run([str(self.tools / "helm-unittest"), "--color=false", str(self.folder)])
        found = re.search(r"Test Suites:\s+(\d+) passed, (\d+) total", said)
        if found is None or found[1] != found[2]:
            raise Refused(said)
        return int(found[2])


def conform(tools: Path, manifests: str, version: str) -> int:
    """Compare manifests with the schemas of a Kubernetes; returns how many there are.

    Raises ``Refused`` if one has a wrong or unknown field, or is of a kind without a schema.
    """
    schemas = tools / "schemas"
    own = "{{.NormalizedKubernetesVersion}}{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json"
    custom = "{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"
    said = _run(
        [
            str(tools / "kubeconform"), "-strict", "-summary", "-kubernetes-version", version,
            "-schema-location", f"{schemas}/{own}", "-schema-location", f"{schemas}/{custom}",
        ],
        manifests,
    )  # fmt: skip
    found = re.search(r"Valid: (\d+), Invalid: 0, Errors: 0, Skipped: 0", said)
    if found is None:
        raise Refused(said)
    return int(found[1])


def restricted(tools: Path, found: list[dict[str, Any]]) -> None:
    """Hold every pod to the restricted Pod Security Standard; raises ``Refused``."""
    said = _run([str(tools / "restricted")], json.dumps(found))
    if said:
        raise Refused(said)


def main() -> int:
    """Run every check, and print each; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            chart = Chart.written(Path(folder))
        except (Missing, RuntimeError) as error:
            print(error, file=sys.stderr)
            return 1
        failed = [name for name, check in _checks(chart) if not _passes(name, check)]
    return 1 if failed else 0


def _checks(chart: Chart) -> Iterable[tuple[str, Callable[[], int | None]]]:
    for name, values in VALUES.items():
        yield f"lint {name}", partial(chart.lint, values)
        yield f"rights of pods of {name}", partial(_restricted, chart, values)
        for version in KUBERNETES:
            yield (
                f"objects of {name} in Kubernetes {version}",
                partial(_conforming, chart, values, version),
            )
    yield "suites", chart.suites


def _restricted(chart: Chart, values: Path) -> None:
    restricted(chart.tools, chart.rendered("--values", str(values)))


def _conforming(chart: Chart, values: Path, version: str) -> int:
    return conform(chart.tools, chart.render("--values", str(values)), version)


def _passes(name: str, check: Callable[[], int | None]) -> bool:
    try:
        number = check()
    except Refused as error:
        print(f"FAILED  {name}\n{error}", file=sys.stderr)
        return False
    print(f"passed  {name}" + ("" if number is None else f": {number}"))
    return True


def _run(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{done.stdout}\n{done.stderr}".strip())
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
