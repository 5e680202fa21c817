"""Do the alerts wake the right people? Weeks of simulated traffic against the real rule files.

``make drill`` writes the table of ``docs/alerts.md``. Turns come from the traffic generator through
the real engine (``library``), are placed in time with incidents between them (``world``), summed
into windows as a worker would export them (``sums``), back-filled into a real Prometheus, and
judged by its own evaluation of ``deploy/prometheus`` (``evaluation``); ``score`` compares that with
what went wrong.
"""
