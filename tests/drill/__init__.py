"""The alert drill: weeks of simulated traffic, in which the rules of the alerts are judged.

``make drill`` writes ``docs/evidence/alerts-run.md``, which ``alert-drill.md`` explains. Turns come
from the traffic generator through the real engine (``library``) and are placed in time with
incidents (``world``, ``plan``). What a worker counts by arrival (``minutes``) and exports as window
sums (``sums``) makes a ``simulation``, which is ``kept``.

Evidence is gathered in numpy (``evidence``, ``gather``, ``judge``), and ``verify`` holds it equal
to what Prometheus' rules gather. Other alerts are evaluated by a real Prometheus over back-filled
samples (``evaluation``). ``window_rules`` are the former alerts. ``score`` compares alerts with
incidents, ``curves`` try many thresholds, ``added`` says what the rules about loops add, ``goals``
and ``report`` write the page, ``pictures`` draws it. ``calibrate`` measures how often evidence
reaches a threshold by chance, and ``budget`` divides the alarms of an agent among its figures.
"""
