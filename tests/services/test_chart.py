"""The Helm chart, rendered by helm and compared with what it has to agree with.

The claims about single templates are in the chart's own tests, which run here as well.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from benchmarks.sizing import Load, plan
from deploy.helm import CHART
from deploy.helm.check import VALUES, Chart, Refused, conform, restricted
from deploy.helm.schema import SCHEMA
from deploy.local.charts import KUBERNETES, documents
from stream_metrics.cli import app
from stream_metrics.cli.settings import Settings
from stream_metrics.core.alerts.alert import Links
from stream_metrics.core.alerts.files import prometheus_rule
from stream_metrics.live.auth import PROBE_PATHS
from tests.services import image

pytestmark = [pytest.mark.service, pytest.mark.long]

COMPOSE: Final = image.REPOSITORY / "docker-compose.yml"
GUIDE: Final = image.REPOSITORY / "docs" / "guides" / "kubernetes.md"
DASHBOARDS: Final = image.REPOSITORY / "grafana" / "dashboards"
BYTES: Final = {"M": 1 << 20, "Mi": 1 << 20, "G": 1 << 30, "Gi": 1 << 30}
POD: Final = "release-0"
SECRET: Final = "a secret"
SECRETS: Final = {"users": {"prometheus": "scrypt$1$1$1$aa$aa"}}  # those that are no text

Document = dict[str, Any]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """A complete chart, with helm, helm-unittest, kubeconform and the schemas."""
    return Chart.written(tmp_path_factory.mktemp("chart"))


def read(chart: Chart, path: Path) -> Document:
    """A file with one YAML document."""
    (found,) = documents(chart.tools, path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def of_kind(found: list[Document], kind: str) -> list[Document]:
    """The objects of a kind."""
    return [document for document in found if document["kind"] == kind]


def worker_of(found: list[Document]) -> Document:
    """The container of the workers."""
    pods = [one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})]
    return next(
        container
        for pod in pods
        for container in pod["containers"]
        if container["name"] == "worker"
    )


def size(text: str) -> int:
    """An amount of memory in bytes; in Docker, M is a mebibyte."""
    found = re.fullmatch(r"(\d+)([MG]i?)", text)
    assert found is not None, text
    return int(found[1]) * BYTES[found[2]]


@pytest.fixture(scope="module")
def development(chart: Chart) -> list[Document]:
    """The chart with the values for development, and with the bridge."""
    values = ("--values", str(VALUES["development"]))
    return chart.rendered(*values, "--set", "bridge.enabled=true")


@pytest.fixture(scope="module")
def compose(chart: Chart) -> dict[str, Document]:
    """The services of docker-compose.yml, with the defaults of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text(encoding="utf-8"))
    (found,) = documents(chart.tools, text)
    services: dict[str, Document] = found["services"]
    return services


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_passes_a_strict_lint(chart: Chart, name: str) -> None:
    """``helm lint --strict`` has no complaint about the chart with these values."""
    chart.lint(VALUES[name])


def test_the_suites_of_the_chart_pass(chart: Chart) -> None:
    """helm-unittest runs 15 or more, and all of them pass."""
    assert chart.suites() >= 15


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_knows_every_field(chart: Chart, name: str, version: str) -> None:
    """The schemas of this Kubernetes, of KEDA and of the Prometheus Operator accept each object."""
    manifests = chart.render("--values", str(VALUES[name]))

    assert conform(chart.tools, manifests, version) == len(documents(chart.tools, manifests))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("development", "podManagementPolicy:", "podManagmentPolicy:"),
        ("development", "readOnlyRootFilesystem:", "readonlyRootFilesystem:"),
        ("development", "backoffLimit: 4", "backoffLimit: four"),
        ("production", "podMetricsEndpoints:", "endpoints:"),
        ("production", "keep_firing_for:", "keepFiringFor:"),
        ("everything", "relabelings:", "relabelling:"),
        ("keda", "minReplicaCount:", "minReplicas:"),
        ("keda", "containerName:", "container:"),
        ("keda", "kind: ScaledObject", "kind: ScaledWorker"),
    ],
)
def test_a_field_that_does_not_exist_is_noticed(
    chart: Chart, name: str, right: str, wrong: str
) -> None:
    """The schemas that the chart is compared with are strict, also those of custom resources."""
    manifests = chart.render("--values", str(VALUES[name]))
    assert right in manifests

    with pytest.raises(Refused):
        conform(chart.tools, manifests.replace(right, wrong), KUBERNETES[-1])


@pytest.mark.parametrize("name", VALUES)
def test_pods_fulfil_the_restricted_standard(chart: Chart, name: str) -> None:
    """Kubernetes' own library of the Pod Security Standards refuses no pod."""
    restricted(chart.tools, chart.rendered("--values", str(VALUES[name])))


@pytest.mark.parametrize(
    ("option", "detail"),
    [
        ("podSecurityContext.runAsNonRoot=false", "runAsNonRoot"),
        ("podSecurityContext.seccompProfile=null", "seccompProfile"),
        ("securityContext.capabilities=null", "unrestricted capabilities"),
        ("securityContext.allowPrivilegeEscalation=true", "allowPrivilegeEscalation"),
    ],
)
def test_a_pod_with_more_rights_is_noticed(chart: Chart, option: str, detail: str) -> None:
    """The library refuses what the standard does."""
    values = ("--values", str(VALUES["development"]), "--set", option)

    with pytest.raises(Refused, match=detail):
        restricted(chart.tools, chart.rendered(*values))


def test_every_option_is_rendered(chart: Chart) -> None:
    """Each option of the schema is set in a file of values that the tests render."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))["properties"]
    options = {
        f"{name}.{inner}" if inner else name
        for name, about in schema.items()
        for inner in about.get("properties", [""])
    }
    given = {
        f"{name}.{inner}" if inner else name
        for path in VALUES.values()
        for name, value in read(chart, path).items()
        for inner in ("", *(value if isinstance(value, dict) else ()))
    }

    assert options - given == {"global"}


def settings_of(chart: Chart, values: Document) -> Document:
    """The settings of workers that a file of values stands for, by table, with the chart's
    defaults; secrets and files of judges are for judges alone."""
    found: dict[str, Any] = read(chart, CHART / "values.yaml")["settings"]
    for table, given in values["settings"].items():
        found[table] = {**found.get(table, {}), **given} if isinstance(given, dict) else given
    of_judges = {"judge"}
    for table in values.get("secrets", {}).keys() - of_judges:
        given = values["secrets"][table]
        secrets = {name: SECRETS.get(name, SECRET) for name in given}
        found[table] = {**found.get(table, {}), **secrets}
    for table in values.get("files", {}).keys() - of_judges:
        given = values["files"][table]
        paths = {name: f"/etc/stream-metrics/{table}/{name}" for name in given}
        found[table] = {**found.get(table, {}), **paths}
    if values.get("worker", {}).get("staticMembership", True):
        own = {"group_instance_id": POD}
        found["kafka"] = {"session_timeout_ms": 45_000, **found["kafka"], **own}
    return found


def environment_of(container: Document) -> dict[str, str]:
    """The variables of a container as Kubernetes would set them, those of settings only."""
    found = {}
    for variable in container["env"]:
        name, source = variable["name"], variable.get("valueFrom", {})
        secret = SECRETS.get(name.rpartition("__")[2].lower(), SECRET)
        text = secret if isinstance(secret, str) else json.dumps(secret)
        referred = text if "secretKeyRef" in source else POD
        found[name] = variable.get("value", referred).replace("$$(", "$(")
    return {name: text for name, text in found.items() if name.startswith("STREAM_METRICS_")}


@pytest.mark.parametrize("name", VALUES)
def test_the_program_reads_the_settings_of_the_values(
    chart: Chart, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What a worker reads from its environment is what stands in the values."""
    for other in [key for key in os.environ if key.startswith("STREAM_METRICS_")]:
        monkeypatch.delenv(other)
    expected = Settings(**settings_of(chart, read(chart, VALUES[name])))

    worker = worker_of(chart.rendered("--values", str(VALUES[name])))
    for variable, text in environment_of(worker).items():
        monkeypatch.setenv(variable, text)

    assert Settings() == expected


def test_compose_and_chart_have_the_same_settings(
    development: list[Document], compose: dict[str, Document]
) -> None:
    """Each setting that docker-compose.yml gives its workers has that value in the chart, too."""
    own = {"STREAM_METRICS_KAFKA__GROUP_INSTANCE_ID", "STREAM_METRICS_STATE__DIGEST_KEY"}
    there = compose["worker-1"]["environment"]
    here = {v["name"]: v["value"] for v in worker_of(development)["env"] if "value" in v}

    assert len(there.keys() - own) >= 5
    for name in there.keys() - own:
        assert _plain(here[name]) == _plain(there[name]), name


def _plain(value: Any) -> Any:
    """A value of the environment, as the program understands it."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


@pytest.mark.parametrize(("service", "container"), [("worker-1", "worker"), ("bridge", "bridge")])
def test_compose_and_chart_limit_a_process_alike(
    development: list[Document], compose: dict[str, Document], service: str, container: str
) -> None:
    """Both have the same command, port, memory, rights, and time to stop."""
    there = compose[service]
    pods = [one["spec"]["template"]["spec"] for one in development if one["kind"] != "Job"
            and "template" in one.get("spec", {})]  # fmt: skip
    (pod,) = [pod for pod in pods if pod["containers"][0]["name"] == container]
    here = pod["containers"][0]

    assert here["args"] == there["command"]
    assert str(here["ports"][0]["containerPort"]) == there["ports"][0].rpartition(":")[2]
    memory = size(there["deploy"]["resources"]["limits"]["memory"])
    assert size(here["resources"]["limits"]["memory"]) == memory
    assert here["securityContext"]["readOnlyRootFilesystem"] is there["read_only"]
    assert here["securityContext"]["capabilities"]["drop"] == there["cap_drop"]
    assert "no-new-privileges:true" in there["security_opt"]
    assert here["securityContext"]["allowPrivilegeEscalation"] is False
    assert f"{pod['terminationGracePeriodSeconds']}s" == there["stop_grace_period"]
    assert [m["mountPath"] for m in here["volumeMounts"]] == there["tmpfs"]


def test_compose_and_chart_create_the_same_topics(
    development: list[Document], compose: dict[str, Document]
) -> None:
    """What the chart adds to the command of docker-compose.yml are the defaults."""
    (job,) = of_kind(development, "Job")
    here = job["spec"]["template"]["spec"]["containers"][0]["args"]
    days = ("--keep-days", "7", "--keep-traces-days", "1")

    assert sorted(here) == sorted([*compose["topics"]["command"], *days])


def test_commands_of_the_chart_exist(chart: Chart) -> None:
    """Each is a command of stream-metrics with existing options."""
    found = chart.rendered("--values", str(VALUES["everything"]))
    specs = [one["spec"].get("template", one)["spec"] for one in found if "spec" in one
             and ("template" in one["spec"] or one["kind"] == "Pod")]  # fmt: skip
    commands = {tuple(spec["containers"][0]["args"]) for spec in specs}

    services = {"worker", "bridge", "judge"}
    assert {command[0] for command in commands} == services | {"topics", "build", "check"}
    for command in commands:
        words = [word for word in command if not word.startswith("-") and word.isalpha()]
        outcome = CliRunner().invoke(app, [*words, "--help"])
        assert outcome.exit_code == 0, outcome.output
        assert all(word in outcome.output for word in command if word.startswith("--"))


def test_the_chart_agrees_with_the_image(development: list[Document]) -> None:
    """Pods have the image's user, listen where it does, and are probed where it answers."""
    container = worker_of(development)
    (pods,) = of_kind(development, "StatefulSet")
    rights = pods["spec"]["template"]["spec"]["securityContext"]
    values = {v["name"]: v.get("value") for v in container["env"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]

    assert f"{rights['runAsUser']}:{rights['runAsGroup']}" == image.last("USER")
    assert "command" not in container, "the image's ENTRYPOINT runs"
    listening = {key: value for key, value in image.variables().items() if "WEB__" in key}
    assert listening.items() <= values.items()
    assert {probe["path"] for probe in probes} == PROBE_PATHS


def test_workers_have_the_memory_of_the_sizing_guide(development: list[Document]) -> None:
    """The limit is enough for a worker whose cache is full, and is reserved."""
    resources = worker_of(development)["resources"]
    needed = plan(Load(events_per_second=1_000)).worker_gib * (1 << 30)

    assert needed <= size(resources["limits"]["memory"]) <= 2 * needed
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_the_rules_are_those_of_the_command(chart: Chart) -> None:
    """They equal what `stream-metrics rules --operator` writes with the same links."""
    values = read(chart, VALUES["production"])["prometheusRule"]
    (rule,) = of_kind(chart.rendered("--values", str(VALUES["production"])), "PrometheusRule")
    links = Links(dashboard=values["dashboardUrl"], runbook=values["runbookUrl"])
    (written,) = documents(chart.tools, prometheus_rule(links))
    here, there = (
        sorted(one["spec"]["groups"], key=lambda group: str(group["name"]))
        for one in (rule, written)
    )

    assert here == there


@pytest.mark.parametrize("part", ["prometheusRule", "dashboards"])
def test_a_copy_without_rules_and_dashboards_is_refused_where_they_are_wanted(
    chart: Chart, part: str
) -> None:
    """The folder in the repository is such a copy; the message says how one gets a complete one."""
    values = ("--values", str(VALUES["development"]))
    sources = Chart(CHART, chart.tools)

    assert sources.rendered(*values)
    with pytest.raises(Refused, match=r"make chart.* out/chart/stream-metrics"):
        sources.render(*values, "--set", f"{part}.enabled=true")


def test_the_dashboards_are_those_of_grafana(chart: Chart) -> None:
    """Each is in a ConfigMap, byte for byte."""
    found = of_kind(chart.rendered("--values", str(VALUES["production"])), "ConfigMap")
    texts = {name: text for one in found for name, text in one["data"].items()}

    assert texts == {
        f"stream-metrics-{path.name}": path.read_text(encoding="utf-8")
        for path in DASHBOARDS.glob("*.json")
    }


def test_the_values_in_the_guide_are_accepted(chart: Chart, tmp_path: Path) -> None:
    """helm renders the chart with each example of the guide, and Kubernetes knows the result."""
    examples = re.findall(r"^```yaml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) >= 6

    for number, text in enumerate(examples):
        values = tmp_path / f"{number}.yaml"
        values.write_text(text, encoding="utf-8")
        base = () if "bootstrap_servers" in text else ("--values", str(VALUES["development"]))
        conform(chart.tools, chart.render(*base, "--values", str(values)), KUBERNETES[-1])
