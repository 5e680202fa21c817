"""``stream-metrics rules``: writes the alert rules for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stream_metrics.cli.common import UsageError, stderr_console
from stream_metrics.core.alerts.alert import LOCAL, Links
from stream_metrics.core.alerts.files import prometheus_rule, rule_files
from stream_metrics.live.links import check_template


def rules(
    out: Annotated[Path, typer.Option("--out", help="The directory for the files.")] = Path(
        "rules"
    ),
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="Write a PrometheusRule for the Prometheus Operator instead of rule files.",
        ),
    ] = False,
    dashboard_url: Annotated[
        str | None,
        typer.Option(
            help="Template for links to dashboards, with {board}. "
            "Default: Grafana on this machine.",
            show_default=False,
        ),
    ] = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            help="Template for links to runbooks, with {alert}. Default: paths in the repository.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the alert rules for Prometheus."""
    links = Links(
        dashboard=_checked("--dashboard-url", dashboard_url, "board", LOCAL.dashboard),
        runbook=_checked("--runbook-url", runbook_url, "alert", LOCAL.runbook),
    )
    files = {"prometheusrule.yaml": prometheus_rule(links)} if operator else rule_files(links)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the rules cannot be written to {out}: {error.strerror}") from error
    stderr_console().print(f"{out}: {', '.join(files)}", highlight=False)


def _checked(option: str, template: str | None, name: str, default: str) -> str:
    try:
        return default if template is None else check_template(template, name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
