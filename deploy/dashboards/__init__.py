"""Generates the Grafana dashboards from the metric families that the worker exports.

``python -m deploy.dashboards`` writes ``grafana/dashboards``; a test compares what is committed.
``promql`` builds queries and checks names and labels of families, ``panels`` renders Grafana's
JSON, ``boards`` declares the dashboards. The thresholds of panels are those of
``stream_metrics.core.alerts.thresholds``.
"""
