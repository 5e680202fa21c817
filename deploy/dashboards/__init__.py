"""The Grafana dashboards, made from the families that the worker exports.

``python -m deploy.dashboards`` writes ``grafana/dashboards``; a test compares the committed copies.
``promql`` writes queries and knows every family and its labels, ``panels`` makes Grafana's JSON,
``boards`` says what is on which dashboard. Lines on panels are at
``stream_metrics.adapters.page.thresholds``.
"""
