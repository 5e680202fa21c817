"""The alert drill: weeks of simulated traffic, judged by the real rule files.

``make drill`` writes ``docs/evidence/alerts-run.md``, which ``alert-drill.md`` explains. Turns come
from the traffic generator through the real engine (``library``), are placed in time with incidents
(``world``, ``plan``), are summed into windows as a worker exports them (``sums``), and are
backfilled into a real Prometheus, which evaluates ``deploy/prometheus`` (``evaluation``).
``score`` compares the alerts with the incidents, and ``report`` writes the page.
"""
