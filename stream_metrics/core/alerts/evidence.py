"""The recording rules that gather evidence, minute by minute, that a figure has shifted.

``tests/drill/evidence.py`` has the formulas, and a second implementation in numpy. Evidence is in
units of the threshold, and the rule of ``CUSUM`` reads its own last value. The group is evaluated
once a minute; its rules do not depend on their order, which may only delay evidence by two minutes.

- One rule records numerator, denominator and traffic of a figure together, so that nothing reads a
  numerator of one minute with a denominator of another.
- What a counter gained is a plain difference, because ``increase`` extrapolates. A minute in which
  a process restarted does not count: the growth of one counter may hide the reset of another.
- Ranges end half a minute off the minute, so that they hold the same samples in every version.
- A minute in which more was withdrawn than arrived only lowers evidence. Evidence is at most twice
  the threshold, and grows old without traffic and while labels are missing.
- Agents of a pool share an index or a model. What a minute adds is added up over them too, so
  that a fault of what they share is seen sooner than in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stream_metrics.core.alerts.arrivals import OF_LOOPS
from stream_metrics.core.alerts.figures import FIGURES, LOW, MOST, STRADDLED, Figure, Normal
from stream_metrics.core.alerts.promql import Promql, Value
from stream_metrics.core.alerts.recording import Record
from stream_metrics.core.alerts.thresholds import JUDGED_OF_USUAL
from stream_metrics.core.alerts.windows import LABELLED, NAMED, indented

NET: Final = "agent:streammetrics_arrivals:net_1m"
_SUM: Final = "agent:streammetrics_arrivals:sum_1d"
RESIDUAL: Final = "agent:streammetrics_arrivals:residual_3m"
RATIO: Final = "agent:streammetrics_usual:ratio"
_VARIANCE: Final = "agent:streammetrics_usual:variance"
WEIGHT: Final = "agent:streammetrics_evidence:weight"
_STEP: Final = "agent:streammetrics_evidence:step"
CUSUM: Final = "agent:streammetrics_evidence:cusum"
_POOLED_STEP: Final = "pool:streammetrics_evidence:step"
POOLED: Final = "pool:streammetrics_evidence:cusum"
LEVEL: Final = "agent:streammetrics_evidence:level"
NOW: Final = "agent:streammetrics_arrivals:ratio"

SMALL: Final = "small"
LARGE: Final = "large"
SHIFTS: Final = (SMALL, LARGE)
LEAST_ACTIVE: Final = 30  # minutes with traffic in the usual day; without them nothing is judged
IDLE_LOSES: Final = 0.01  # of the evidence, in a minute without traffic or labels
_DAY: Final = "[86370s] offset 1h"  # 1,440 minutes
# One pool for each agent, also while workers that start disagree with those that end.
_POOLS: Final = (
    "max without (instance, pod) (\n"
    "    topk without (instance, pod, agent_pool) (1, streammetrics_agent_pool)\n  )"
)
_RESTARTED: Final = "process_start_time_seconds != process_start_time_seconds offset 1m"


def evidence_records(thresholds: Mapping[str, float]) -> Iterator[Record]:
    """The rules; ``thresholds`` are in nats, by figure."""
    for figure in FIGURES:
        above, below = _net(figure.above), _net(figure.below)
        if figure.above in OF_LOOPS and figure.below not in OF_LOOPS:
            # State may have only the denominator, until a build: those minutes tell no ratio.
            below = f"({indented(below)}\n)\nand ({indented(above)}\n)"
        yield Record(
            NET,
            _parts(numerator=above, denominator=below, active=f"({below}) > bool 0"),
            {"figure": figure.name},
        )
    yield Record(_SUM, f"sum_over_time({NET}{_DAY})")
    for figure in FIGURES:
        yield Record(RATIO, _ratio(figure), {"figure": figure.name})
    yield Record(RESIDUAL, _residual())
    for figure in FIGURES:
        if figure.model is not None:
            yield Record(_VARIANCE, _variance(figure, figure.model), {"figure": figure.name})
    for figure in FIGURES:
        for name, shift in zip(SHIFTS, figure.shifts, strict=True):
            usual, variance = (_of(series, figure=figure.name) for series in (RATIO, _VARIANCE))
            above, below = figure.weights(shift, Promql(usual), Promql(variance))
            threshold = thresholds[figure.name]
            yield Record(
                WEIGHT,
                _parts(numerator=_text(above / threshold), denominator=_text(below / threshold)),
                {"figure": figure.name, "shift": name},
            )
    yield Record(_STEP, _step())
    every = _of(NET, part="denominator")
    judged = f"(\n{indented(f'{every} unless ({_unlabelled()})')}\n  or 0 * {every}\n)"
    yield Record(CUSUM, _cusum(CUSUM, _STEP, judged))
    pooled = f"sum without (agent) (\n  {_in_pools(_fresh(_STEP), 'figure, shift')}\n)"
    traffic = _in_pools(judged, "figure, part")
    yield Record(_POOLED_STEP, pooled)
    yield Record(POOLED, _cusum(POOLED, _POOLED_STEP, f"sum without (agent) ({traffic})"))
    yield Record(LEVEL, _level())
    yield Record(NOW, "\nor ".join(map(_ratio_of, LATELY)))


LATELY: Final = (10, 30)  # minutes; the longer one where the shorter one had no traffic


def _cusum(name: str, step: str, traffic: str) -> str:
    """The cumulative sum of ``step``, which reads its own last value under ``name``.

    In a minute without ``traffic`` that can be judged, it loses a little.
    """
    idle = f"1 - {IDLE_LOSES:g} * ({traffic} <= bool 0)"
    return (
        f"clamp(\n  (last_over_time({name}[1h] offset 30s) >= 0 or 0 * {step})\n"
        f"    * ignoring (shift, part) group_left () ({idle})\n"
        f"  + {indented(_limited(step)).strip()},\n  0, 2\n)"
    )


def _limited(step: str) -> str:
    """What this minute adds, within the limit of those figures that have one."""
    names = "|".join(figure.name for figure in FIGURES if figure.limited)
    limited, others = (_fresh(f'{step}{{figure{which}"{names}"}}') for which in ("=~", "!~"))
    return f"(\n  clamp({limited}, -{MOST:g}, {MOST:g})\n  or {others}\n)"


def _in_pools(series: str, labels: str) -> str:
    """A series once for each pool of its agent; ``labels`` are those that are not the agent's."""
    return f"{series}\n  * ignoring ({labels}, agent_pool) group_left (agent_pool) {_POOLS}"


def _level() -> str:
    """The evidence about an agent: its own, or that of one of its pools if that is more."""
    members = _in_pools(f"0 * {CUSUM}", "figure, shift")
    return (
        f"max without (agent_pool) (\n  {CUSUM}\n  or {indented(members).strip()}\n"
        f"  + ignoring (agent) group_left () {POOLED}\n)"
    )


def _ratio_of(minutes: int) -> str:
    above, below = (_over(minutes, _of(NET, part=part)) for part in ("numerator", "denominator"))
    return f"{above}\n  / ignoring (part) ({below} > 0)"


def shifted(figure: str, shift: str | None = None) -> str:
    """The condition that a figure has shifted, by the size of ``shift`` or by any.

    Its value is the ratio of what has arrived in the last ten minutes, or in the last half hour if
    those had no traffic. Without traffic in half an hour, it does not hold.
    """
    size = {} if shift is None else {"shift": shift}
    return (
        f"max without (figure) (\n  {_of(NOW, figure=figure)}\n"
        f"  and ignoring (shift) {_of(LEVEL, figure=figure, **size)} >= 1\n)"
    )


def _net(count: str) -> str:
    """What arrived less what was withdrawn in the last minute."""
    arrived, withdrawn = (_gained(f"streammetrics_{way}_{count}_total") for way in WAYS)
    return f"{arrived}\n- {withdrawn}"


WAYS: Final = ("arrived", "withdrawn")


def _gained(counter: str) -> str:
    """What a counter gained; 0, and not a jump, where a point is missing or it was reset."""
    now = f"{counter}{{{NAMED}}}"
    return (
        f"sum without (instance, pod) (\n  ({now} - {now} offset 1m) >= 0\n"
        f"    unless ignoring (agent, release) ({_RESTARTED})\n  or 0 * {now}\n)"
    )


def _ratio(figure: Figure) -> str:
    above, below, active = (
        _of(_SUM, figure=figure.name, part=part) for part in ("numerator", "denominator", "active")
    )
    return (
        f"clamp({above} / ignoring (part) ({below} > 0), {LOW:g}, {figure.high:g})\n"
        f"and ignoring (part) {active} >= {LEAST_ACTIVE}"
    )


def _residual() -> str:
    """What the numerator has more than is usual, over some minutes."""
    above, below = (_over(STRADDLED, _of(NET, part=part)) for part in ("numerator", "denominator"))
    return f"{above}\n- ignoring (part) ({RATIO} * ignoring (part) {below})"


def _over(minutes: int, series: str) -> str:
    """The sum over the minutes before this one."""
    return f"sum_over_time({series}[{minutes}m] offset 30s)"


def _variance(figure: Figure, model: Normal) -> str:
    """The variance for each unit of the denominator, and at least the floor.

    There is none before it has been measured for half an hour: it may be far above the floor.
    """
    count = f"avg_over_time({_of(NET, figure=figure.name, part='denominator')}{_DAY}) > 0"
    floor = Promql(_text(model.floor(Promql(_of(RATIO, figure=figure.name))))).text
    residuals = f"{_of(RESIDUAL, figure=figure.name)}{_DAY}"
    return (
        f"(\n  stdvar_over_time({residuals})\n    / ignoring (part) ({STRADDLED} * ({count}))\n"
        f"  >= ({floor})\n  or ({floor})\n)\n"
        f"and count_over_time({residuals}) >= {LEAST_ACTIVE}"
    )


def _step() -> str:
    """What this minute adds.

    It may only lower evidence if more was withdrawn than arrived, or if labels are missing.
    """
    found = _added()
    return (
        f"(\n  {indented(found).strip()}\n"
        f"  and ignoring (shift, part) {_of(NET, part='denominator')} >= 0\n"
        f"  unless ignoring (shift, part) ({_unlabelled()})\n)\n"
        f"or clamp_max({indented(found)}, 0)"
    )


def _unlabelled() -> str:
    """The denominators of figures and agents whose labels are missing.

    The iterations that are settled then are those that need no label, which are not like the
    others.
    """
    labelled = "|".join(figure.name for figure in FIGURES if figure.labelled)
    came = LABELLED.value("1h") > JUDGED_OF_USUAL * LABELLED.usual("1h")
    return (
        f'{NET}{{figure=~"{labelled}", part="denominator"}} '
        f"unless ignoring (figure, part) ({came.text})"
    )


def _added() -> str:
    """What was gained in this minute, times its weights."""
    return f"sum without (part) (\n  {_fresh(NET)}\n  * ignoring (shift) group_right () {WEIGHT}\n)"


def _fresh(series: str) -> str:
    """The value of this minute, and not an older one, which would be added twice.

    A restart of Prometheus leaves series without the mark that ends them.
    """
    return f"({series} and timestamp({series}) > time() - 90)"


def _of(series: str, **labels: str) -> str:
    chosen = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{series}{{{chosen}}}"


def _parts(**expressions: str) -> str:
    """Expressions as one series each, with the label ``part``."""
    return "\nor ".join(
        f'label_replace({indented(text)},\n  "part", "{part}", "", ""\n)'
        for part, text in expressions.items()
    )


def _text(value: Value) -> str:
    return value.text if isinstance(value, Promql) else f"{value:.12g}"
