"""The alert drill: weeks of simulated traffic, in which the rules of the alerts are judged.

``make drill`` writes ``docs/evidence/alerts-run.md``, which ``alert-drill.md`` explains. Turns come
from the traffic generator through the real engine (``library``) and are placed in time with
incidents (``world``, ``plan``). What arrives in each minute of the log (``minutes``) and what a
worker exports as window sums (``sums``) makes a ``simulation``, which is ``kept``.

Alerts about evidence go by what the worker's own code tells (``told``, ``judge``); ``evidence`` and
``gather`` are the reference in numpy. Other alerts are evaluated by a real Prometheus over back-
filled samples (``evaluation``). ``window_rules`` are the former alerts. ``score`` compares alerts
with incidents, ``curves`` try many thresholds, ``added`` says what the rules about loops add,
``goals`` and ``report`` write the page, ``pictures`` draws it. ``calibrate`` measures how often
evidence reaches a threshold by chance, and ``budget`` divides the alarms of an agent among its
figures.
"""
