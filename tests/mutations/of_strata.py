"""Broken builds that assign figures to the wrong strata, or summarize strata wrongly."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

ESTIMATES: Final = "stream_metrics/lab/evaluation/estimates.py"
REGISTRY: Final = "stream_metrics/core/metrics/registry.py"
REPORT: Final = "stream_metrics/lab/replay/report.py"
SEVERAL: Final = "stream_metrics/lab/statistics/strata_and_corrections.py"
RETRIEVAL: Final = "stream_metrics/lab/evaluation/retrieval.py"

TEST: Final = (
    "tests/property/test_strata.py::test_figures_by_stratum_equal_the_plain_implementation"
)

STRATA: Final = (
    Mutation(
        "searches are resampled",
        "a stratum's interval treats the searches of a conversation as independent",
        (
            Edit(
                ESTIMATES,
                "_Of.units(self._unit[chosen])\n",
                "_Of.units(np.arange(len(chosen)))\n",
            ),
        ),
        TEST,
        "/ci_",
    ),
    Mutation(
        "rows are resampled",
        "the interval of rows treats the turns of a conversation as independent",
        (
            Edit(
                REPORT,
                "            figures[name] = Units.of_columns(unit, values)\n",
                "            figures[name] = Units.of_columns(np.arange(len(values)), values)\n",
            ),
        ),
        TEST,
        "/ci_",
    ),
    Mutation(
        "gate accuracy without correct searches",
        "the interval of gate accuracy is that of gate efficiency",
        (
            Edit(
                REGISTRY,
                'quotient=(("correct_skip", "correct_search"), _DECIDED)',
                'quotient=(("correct_skip",), _DECIDED)',
            ),
        ),
        TEST,
        "/micro/gate_accuracy",
    ),
    Mutation(
        "variance of a sample of strata",
        "the variance across strata divides by n - 1 instead of n",
        (
            Edit(
                SEVERAL,
                "for figure in known) / len(known))\n",
                "for figure in known) / max(1, len(known) - 1))\n",
            ),
        ),
        TEST,
        "cross_stratum_variance",
    ),
    Mutation(
        "larger strata count more",
        "the average over strata is weighted by their rows",
        (
            Edit(
                ESTIMATES,
                '                "stratum_average": spread.average,\n',
                '                "stratum_average": self._units(\n'
                "                    columns[metric], np.sort(np.concatenate([*chosen.values()]))\n"
                "                ).figure,\n",
            ),
        ),
        TEST,
        "stratum_average",
    ),
    Mutation(
        "the dimension of the turn before",
        "a turn gets the dimensions that were recorded of the turn before it",
        (
            Edit(
                RETRIEVAL,
                "            found.setdefault((place.unit, turn), place.dimensions)\n",
                "            found.setdefault((place.unit, turn + 1), place.dimensions)\n",
            ),
        ),
        TEST,
        "strata/",
    ),
    Mutation(
        "one route per turn",
        "a row counts under its first route instead of all its routes",
        (
            Edit(
                REPORT,
                "    return routes_together(row.routing.routes)\n",
                "    return min(row.routing.routes, default=None)\n",
            ),
        ),
        TEST,
        "strata/route",
    ),
    Mutation(
        "rows of no stratum",
        "a row without the dimension counts in the first stratum",
        (
            Edit(
                REPORT,
                "            chosen = places == place\n",
                "            chosen = np.maximum(places, 0) == place\n",
            ),
        ),
        TEST,
        "/conversations",
    ),
)
