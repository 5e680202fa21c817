"""Gives the chart to a real API server: ``python -m deploy.helm.server``, ``make chart-server``.

The first run builds the server. Every object that the chart renders, with each file of values, is
created in a dry run with strict validation, in a namespace that enforces the restricted Pod
Security Standard. Then helm installs the chart, upgrades it and removes it, as the guide says.
Nothing runs: there is no cluster behind the server.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.helm.check import VALUES, Chart, Refused
from deploy.local.apiserver import ApiServer, Document, Etcd, build_apiserver
from deploy.local.charts import definitions
from deploy.local.install import GO, Missing, program

NAMESPACE: Final = "metrics"
PRIORITY: Final = "high"  # the values with every option name it
# Where objects of a kind are, in the API.
PLACES: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Job": ("apis/batch/v1", "jobs"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Pod": ("api/v1", "pods"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": ("apis/monitoring.coreos.com/v1", "podmonitors"),
    "PrometheusRule": ("apis/monitoring.coreos.com/v1", "prometheusrules"),
    "ScaledObject": ("apis/keda.sh/v1alpha1", "scaledobjects"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "ServiceMonitor": ("apis/monitoring.coreos.com/v1", "servicemonitors"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "TriggerAuthentication": ("apis/keda.sh/v1alpha1", "triggerauthentications"),
}
TRIAL, FINAL, SCALED = (
    ["--values", str(VALUES[name])] for name in ("development", "production", "keda")
)
BUILD: Final = ["--set", "build.enabled=true"]
# What the guide does with a release: a command of helm, and what follows the release and the chart.
STEPS: Final[tuple[tuple[str, list[str]], ...]] = (
    ("install", TRIAL),
    ("upgrade", [*TRIAL, "--set", "image.tag=next"]),
    ("upgrade", FINAL),
    ("upgrade", [*FINAL, *BUILD]),
    ("upgrade", [*FINAL, *BUILD, "--set", "worker.replicas=4"]),
    ("rollback", ["1"]),
    ("upgrade", SCALED),
    ("uninstall", []),
)
ATTEMPTS: Final = 100
PAUSE_SECONDS: Final = 0.1


async def try_objects(server: ApiServer, chart: Chart) -> None:
    """Create every object in a dry run; raises ``Refused`` for an error or a warning."""
    for definition in definitions(chart.tools):
        await _create(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    standard = {"pod-security.kubernetes.io/enforce": "restricted"}
    standard["pod-security.kubernetes.io/warn"] = "restricted"
    namespace = {"metadata": {"name": NAMESPACE, "labels": standard}}
    await _create(server, "/api/v1/namespaces", namespace)
    priority = {"metadata": {"name": PRIORITY}, "value": 1}
    await _create(server, "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    for name, values in VALUES.items():
        found = chart.rendered("--namespace", NAMESPACE, "--values", str(values))
        for one in found:
            group, plural = PLACES[one["kind"]]
            place = f"/{group}/namespaces/{NAMESPACE}/{plural}"
            await _create(server, place, one, dryRun="All", fieldValidation="Strict")
        print(f"accepted  {len(found)} objects of {name}")


async def _create(server: ApiServer, place: str, body: Document, **query: str) -> None:
    """Create an object, of a kind that may be served a little later; raises ``Refused``."""
    said = (404, "", list[str]())
    for _ in range(ATTEMPTS):
        said = await server.request("POST", place, body, **query)
        if said[0] != 404:
            break
        await asyncio.sleep(PAUSE_SECONDS)
    status, answer, warnings = said
    if status != 201 or warnings:
        name = body["metadata"]["name"]
        raise Refused(f"{place}/{name}: {status} {answer[:2000]} {warnings}")


def try_steps(server: ApiServer, chart: Chart) -> None:
    """Install, upgrade, roll back and remove a release; raises ``Refused``.

    Hooks are left out, because no Job would end.
    """
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    for verb, arguments in STEPS:
        given = [str(chart.folder)] if verb in ("install", "upgrade") else []
        command = [str(chart.tools / "helm"), verb, "stream-metrics", *given, *arguments]
        command += ["--namespace", NAMESPACE, "--no-hooks"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"helm {verb} {' '.join(arguments)}: {done.stderr}")
        print(f"done      helm {verb} {' '.join(Path(word).name for word in arguments)}".rstrip())


async def run() -> None:
    """Start the server, and try everything."""
    programs = build_apiserver(program(GO))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chart = Chart.written(folder)
        etcd = Etcd(folder, programs)
        server = ApiServer(folder, programs, etcd)
        async with etcd, server:
            await try_objects(server, chart)
            await asyncio.to_thread(try_steps, server, chart)


def main() -> int:
    """The exit code: 1 if anything was refused."""
    try:
        asyncio.run(run())
    except (Missing, Refused, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
