"""The content of dashboards for a live system.

``system`` is that system: a worker with the traffic of the last hour behind it, live traffic of the
generator coming in, and a Prometheus that scrapes it. ``panels`` asks each panel's queries there.
``python -m tests.shown`` writes what came back to ``docs/evidence/panels.md``.
"""
