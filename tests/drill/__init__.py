"""Do the alerts wake the right people? Weeks of simulated traffic against the real rule files.

``make drill`` writes ``docs/evidence/alerts-run.md``; ``alert-drill.md`` beside it says what it is.
Turns come from the traffic generator through the real engine (``library``), are placed in time with
incidents between them (``world``, ``plan``), summed into windows as a worker would
export them (``sums``), back-filled into a real Prometheus, and judged by its own evaluation of
``deploy/prometheus`` (``evaluation``); ``score`` compares that with what went wrong, and ``report``
writes the page.
"""
