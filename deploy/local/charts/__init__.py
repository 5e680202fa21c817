"""What checks Helm charts: helm, helm-unittest, kubeconform, and the schemas of what charts render.

``charts`` reads YAML, and ``restricted`` asks Kubernetes' own library about the rights of pods. The
programs are built from their Go modules, whose versions and hashes are in ``go.mod`` and
``go.sum``. The schemas of Kubernetes come from a Python package, those of custom resources from the
definitions in the Go modules of their operators. Everything is made once per user. Standard library
only.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from deploy.local.cache import cached, made
from deploy.local.golang import run_go

FOLDER: Final = Path(__file__).parent
SOURCES: Final = (
    "__init__.py",
    "go.mod",
    "go.sum",
    "main.go",
    "requirements.txt",
    "restricted/main.go",
)
# The oldest Kubernetes that the chart allows, and the newest whose schemas there are.
KUBERNETES: Final = ("1.27.0", "1.37.0")
KINDS: Final = (
    "configmap-v1",
    "deployment-apps-v1",
    "job-batch-v1",
    "networkpolicy-networking-v1",
    "pod-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
)
# Modules, their hashes, and the definitions in them.
CUSTOM: Final = (
    (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        [
            f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
            for name in ("podmonitors", "prometheusrules", "servicemonitors")
        ],
    ),
    (
        "github.com/kedacore/keda/v2@v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        [
            f"config/crd/bases/keda.sh_{name}.yaml"
            for name in ("scaledobjects", "triggerauthentications")
        ],
    ),
)
# What helm renders for where no cluster tells it; a released helm has such flags, too.
_NEWEST: Final = KUBERNETES[-1].split(".")
_FLAGS: Final = "-s -w " + " ".join(
    f"-X helm.sh/helm/v3/pkg/{place}.k8sVersion{part}={number}"
    for place in ("chartutil", "lint/rules")
    for part, number in zip(("Major", "Minor"), _NEWEST, strict=False)
)

Schema = dict[str, Any]


def chart_tools_path() -> Path:
    """The folder with the programs and ``schemas``, by its sources; it may not exist yet."""
    text = "\0".join((FOLDER / name).read_text(encoding="utf-8") for name in SOURCES)
    return cached(f"charts-{hashlib.sha256(text.encode()).hexdigest()[:12]}")


def build_chart_tools(go: str) -> Path:
    """Make the folder with this ``go``, unless it exists; returns its path.

    The first build downloads modules and takes some minutes. Raises ``RuntimeError``.
    """

    def build(folder: Path) -> None:
        folder.mkdir()
        flags = ["-trimpath", "-buildvcs=false", f"-ldflags={_FLAGS}", "-o", f"{folder}/"]
        run_go(
            go, FOLDER, ["build", *flags, "tool", ".", "./restricted"], "helm and what tests charts"
        )
        schemas = folder / "schemas"
        schemas.mkdir()
        _write_schemas(schemas, _kubernetes())
        found = [one for source in CUSTOM for one in _definitions(go, folder, *source)]
        _write_schemas(schemas, _custom(found))
        (folder / "definitions.json").write_text(json.dumps(found), encoding="utf-8")

    return made(chart_tools_path(), build)


def definitions(tools: Path) -> list[Schema]:
    """The definitions of the custom resources, as an API server takes them."""
    found: list[Schema] = json.loads((tools / "definitions.json").read_text(encoding="utf-8"))
    return found


def documents(tools: Path, text: str) -> list[Any]:
    """The documents of a YAML text, as the built program reads them."""
    done = subprocess.run(
        [tools / "charts"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"this is not YAML: {done.stderr}")
    found: list[Any] = json.loads(done.stdout)
    return found


def _write_schemas(folder: Path, schemas: Iterable[tuple[str, Schema]]) -> None:
    for name, schema in schemas:
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(schema), encoding="utf-8")


def _kubernetes() -> Iterable[tuple[str, Schema]]:
    """The strict schemas of Kubernetes' own kinds, each with all definitions in it."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = str(FOLDER / "requirements.txt")
        command = ["pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--dest", folder, "-r", requirements]
        done = subprocess.run(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"pip could not fetch Kubernetes' schemas:\n{done.stderr[-2000:]}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            for version in KUBERNETES:
                place = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
                shared: Schema = json.loads(files.read(f"{place}/_definitions.json"))
                for kind in KINDS:
                    schema: Schema = json.loads(files.read(f"{place}/{kind}.json"))
                    yield f"v{version}-strict/{kind}", _standalone(schema, shared)


def _standalone(schema: Schema, shared: Schema) -> Schema:
    """A schema with the definitions that it needs, which are in a file of their own otherwise."""
    part = "$defs" if "$defs" in shared else "definitions"
    reference = re.compile(rf'"(?:/api/)?(?:_definitions\.json)?#/{re.escape(part)}/([^"]+)"')
    whole: Schema = {key: value for key, value in schema.items() if key != "$id"}
    needed: Schema = {}
    named = reference.findall(json.dumps(whole))
    while named:
        name = named.pop()
        if name not in needed:
            needed[name] = shared[part][name]
            named += reference.findall(json.dumps(needed[name]))
    text = json.dumps({**whole, part: needed})
    alone: Schema = json.loads(reference.sub(rf'"#/{part}/\1"', text))
    return alone


def _definitions(
    go: str, tools: Path, module: str, digest: str, paths: list[str]
) -> Iterable[Schema]:
    """The definitions of custom resources in the files of a module."""
    said: Schema = json.loads(run_go(go, tools, ["mod", "download", "-json", module], module))
    if said["Sum"] != digest:
        raise RuntimeError(f"{module} has the hash {said['Sum']}, expected {digest}")
    for path in paths:
        yield from documents(tools, (Path(said["Dir"]) / path).read_text(encoding="utf-8"))


def _custom(found: Iterable[Schema]) -> Iterable[tuple[str, Schema]]:
    """The schemas of custom resources, one for each version."""
    for definition in found:
        spec = definition["spec"]
        for version in spec["versions"]:
            name = f"{spec['group']}/{spec['names']['singular']}_{version['name']}"
            yield name, _strict(version["schema"]["openAPIV3Schema"])


def _strict(schema: Any) -> Any:
    """The schema, without fields that it does not name, as an API server refuses them."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if strict.get("x-kubernetes-int-or-string"):
        strict["type"] = ["integer", "string"]
    if isinstance(strict.get("properties"), dict) and strict.get("type") == "object":
        open_ended = strict.get("x-kubernetes-preserve-unknown-fields", False)
        strict.setdefault("additionalProperties", open_ended)
    return strict
